//! Changes of rows that are not in their place: in records of the journal, in batches that a cluster replicates, and in
//! snapshots of its regions.
//!
//! ```text
//!   change   family u8 | key_len u32 | value_len u32 | key | value
//!
//!   batch    1 | version u64 | timestamp_ms u64 | change*
//!   piece    1 | change*
//! ```
//!
//! A `value_len` of `u32::MAX` deletes the row. `version` and `timestamp_ms` are the [`Maxima`] of whoever evaluated the
//! batch. The pieces of a snapshot hold the region's rows of the `meta` family first, its descriptor before all, and then the
//! other families one after the other, each in the order of its keys.
//!
//! The byte in front is the kind, which another layout would change: nodes of different age talk to each other.

use crate::DecodeError;
use crate::reader::Reader;
use crate::system::Maxima;

const DELETED: u32 = u32::MAX;
const BATCH: u8 = 1;
const PIECE: u8 = 1;
/// What a change takes beside its key and value.
const HEAD: usize = 9;

/// A row and what becomes of it: family, key, and value unless it is deleted.
pub type Change<'a> = (u8, &'a [u8], Option<&'a [u8]>);

/// How many bytes [`append`] appends.
pub fn size(key: &[u8], value: Option<&[u8]>) -> usize {
    HEAD + key.len() + value.map_or(0, <[u8]>::len)
}

/// # Panics
///
/// If a key or value is 4 GB long; the protocol ends at 512 MB.
pub fn append(out: &mut Vec<u8>, family: u8, key: &[u8], value: Option<&[u8]>) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("rows are far below 4 GB");
    out.reserve(size(key, value));
    out.push(family);
    out.extend_from_slice(&length(key).to_be_bytes());
    out.extend_from_slice(&value.map_or(DELETED, length).to_be_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

/// All changes in `bytes`; nothing comes after an error.
pub fn read<'a>(
    layout: &'static str,
    bytes: &'a [u8],
) -> impl Iterator<Item = Result<Change<'a>, DecodeError>> {
    let mut reader = Some(Reader::new(layout, bytes));
    std::iter::from_fn(move || {
        let rest = reader.as_mut().filter(|rest| !rest.peek().is_empty())?;
        let change = read_one(rest);
        if change.is_err() {
            reader = None;
        }
        Some(change)
    })
}

fn read_one<'a>(reader: &mut Reader<'a>) -> Result<Change<'a>, DecodeError> {
    let family = reader.u8("family")?;
    let key_len = reader.u32("key_len")?;
    let value_len = reader.u32("value_len")?;
    let key = reader.bytes("key", key_len as usize)?;
    let value = match value_len {
        DELETED => None,
        length => Some(reader.bytes("value", length as usize)?),
    };
    Ok((family, key, value))
}

/// Begins a batch, to which changes are appended.
pub fn begin_batch(out: &mut Vec<u8>, maxima: Maxima) {
    out.push(BATCH);
    out.extend_from_slice(&maxima.encode());
}

/// The maxima of a batch, and its changes.
pub fn read_batch(
    bytes: &[u8],
) -> Result<
    (
        Maxima,
        impl Iterator<Item = Result<Change<'_>, DecodeError>>,
    ),
    DecodeError,
> {
    const LAYOUT: &str = "batch";
    let mut reader = Reader::new(LAYOUT, bytes);
    expect_kind(&mut reader, BATCH)?;
    let maxima = Maxima {
        version: reader.u64("version")?,
        timestamp_ms: reader.u64("timestamp_ms")?,
    };
    Ok((maxima, read(LAYOUT, reader.rest())))
}

/// Begins a piece of a snapshot, to which rows are appended.
pub fn begin_piece(out: &mut Vec<u8>) {
    out.push(PIECE);
}

pub fn read_piece(
    bytes: &[u8],
) -> Result<impl Iterator<Item = Result<Change<'_>, DecodeError>>, DecodeError> {
    const LAYOUT: &str = "piece of a snapshot";
    let mut reader = Reader::new(LAYOUT, bytes);
    expect_kind(&mut reader, PIECE)?;
    Ok(read(LAYOUT, reader.rest()))
}

fn expect_kind(reader: &mut Reader<'_>, expected: u8) -> Result<(), DecodeError> {
    let kind = reader.u8("kind")?;
    let layout = reader.layout();
    match kind == expected {
        true => Ok(()),
        false => Err(DecodeError::UnknownKind { layout, kind }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::golden::assert_bytes;
    use proptest::prelude::*;

    const MAXIMA: Maxima = Maxima {
        version: 0x0102,
        timestamp_ms: 0x0304,
    };

    #[test]
    fn golden_bytes() {
        let mut batch = Vec::new();
        begin_batch(&mut batch, MAXIMA);
        append(&mut batch, 0, b"k", Some(b"v1"));
        append(&mut batch, 3, b"gone", None);
        let changes = "00 00000001 00000002 6b 7631 03 00000004 ffffffff 676f6e65";
        let maxima = "0000000000000102 0000000000000304";
        assert_bytes(&batch, &format!("01 {maxima} {changes}"));
        let mut piece = Vec::new();
        begin_piece(&mut piece);
        piece.extend_from_slice(&batch[17..]);
        assert_bytes(&piece, &format!("01 {changes}"));
        assert_eq!(
            size(b"k", Some(b"v1")) + size(b"gone", None),
            piece.len() - 1
        );
    }

    #[test]
    fn another_kind_is_an_error() {
        let report = |error: DecodeError| error.to_string();
        assert_eq!(
            read_batch(&[9; 17]).map(|_| ()).map_err(report),
            Err("batch: unknown kind 9".to_string())
        );
        assert!(read_batch(&[]).is_err());
        assert!(read_batch(&[BATCH; 16]).is_err());
        assert!(read_piece(&[9]).is_err());
        assert!(read_piece(&[]).is_err());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            changes in prop::collection::vec(any::<(u8, Vec<u8>, Option<Vec<u8>>)>(), 0..5),
        ) {
            let mut batch = Vec::new();
            begin_batch(&mut batch, MAXIMA);
            for (family, key, value) in &changes {
                append(&mut batch, *family, key, value.as_deref());
            }
            let (maxima, read) = read_batch(&batch).unwrap();
            prop_assert_eq!(maxima, MAXIMA);
            let read: Vec<_> = read.map(|change| {
                let (family, key, value) = change.unwrap();
                (family, key.to_vec(), value.map(<[u8]>::to_vec))
            }).collect();
            prop_assert_eq!(read, changes);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in any::<Vec<u8>>()) {
            if let Ok((_, changes)) = read_batch(&bytes) {
                prop_assert!(changes.count() <= bytes.len());
            }
            if let Ok(changes) = read_piece(&bytes) {
                prop_assert!(changes.count() <= bytes.len());
            }
        }
    }
}
