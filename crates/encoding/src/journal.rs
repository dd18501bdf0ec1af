//! The journal: commits that may not have reached the row families yet, one record each, in order.
//!
//! ```text
//!   record   crc u32 | length u32 | index u64 | synced u64 | version u64 | timestamp_ms u64 | row*
//!   row      family u8 | key_len u32 | value_len u32 | key | value
//! ```
//!
//! `length` counts what follows it, and `crc` (CRC-32) covers what follows it. `index` rises by one from
//! record to record; `synced` is the last index that was known to be on the disk for good when the record
//! was written; `version` and `timestamp_ms` are the [`Maxima`] of the commit. A `value_len` of `u32::MAX`
//! deletes the row.
//!
//! A record that was cut short, or written in part, fails its checksum. That is how a journal ends after a
//! crash, unless a record behind it ([`find`]) says that it had been synced: then the file is damaged.

use crate::DecodeError;
use crate::reader::Reader;
use crate::system::Maxima;

/// Checksum and length.
const HEAD: usize = 8;
const DELETED: u32 = u32::MAX;

/// Writes one record.
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Encoder<'o> {
    /// Starts a record at the end of `out`.
    pub fn begin(out: &'o mut Vec<u8>, index: u64, synced: u64, maxima: Maxima) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        out.extend_from_slice(&index.to_be_bytes());
        out.extend_from_slice(&synced.to_be_bytes());
        out.extend_from_slice(&maxima.encode());
        Encoder { out, start }
    }

    /// # Panics
    ///
    /// If a key or value is 4 GB long; the protocol ends at 512 MB.
    pub fn row(&mut self, family: u8, key: &[u8], value: Option<&[u8]>) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("rows are far below 4 GB");
        self.out
            .reserve(9 + key.len() + value.map_or(0, <[u8]>::len));
        self.out.push(family);
        self.out.extend_from_slice(&length(key).to_be_bytes());
        self.out
            .extend_from_slice(&value.map_or(DELETED, length).to_be_bytes());
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(value.unwrap_or_default());
    }

    /// # Panics
    ///
    /// If the record is 4 GB long; batches are bounded far below.
    pub fn finish(self) {
        let record = &mut self.out[self.start..];
        let length = u32::try_from(record.len() - HEAD).expect("records are far below 4 GB");
        record[4..HEAD].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&crc.to_be_bytes());
    }
}

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub index: u64,
    pub synced: u64,
    pub maxima: Maxima,
    rows: &'a [u8],
}

/// A row of a record: family, key, and value unless it is deleted.
pub type Row<'a> = (u8, &'a [u8], Option<&'a [u8]>);

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, and what comes after it; none if there is no whole one.
    pub fn read(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let [c0, c1, c2, c3, l0, l1, l2, l3] = *head;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let (body, rest) = rest.split_at_checked(length)?;
        if crc32fast::hash(&bytes[4..HEAD + length]) != u32::from_be_bytes([c0, c1, c2, c3]) {
            return None;
        }
        let mut reader = Reader::new("journal record", body);
        let record = Record {
            index: reader.u64("index").ok()?,
            synced: reader.u64("synced").ok()?,
            maxima: Maxima {
                version: reader.u64("version").ok()?,
                timestamp_ms: reader.u64("timestamp_ms").ok()?,
            },
            rows: reader.rest(),
        };
        Some((record, rest))
    }

    /// What the commit changed.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'a>, DecodeError>> {
        let mut reader = Some(Reader::new("journal record", self.rows));
        std::iter::from_fn(move || {
            let rest = reader.as_mut().filter(|rest| !rest.peek().is_empty())?;
            let row = read_row(rest);
            if row.is_err() {
                reader = None;
            }
            Some(row)
        })
    }
}

/// The first whole record anywhere in `bytes`: what is left of a file behind a damaged place.
pub fn find(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    (0..bytes.len()).find_map(|at| Record::read(&bytes[at..]))
}

fn read_row<'a>(reader: &mut Reader<'a>) -> Result<Row<'a>, DecodeError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const MAXIMA: Maxima = Maxima {
        version: 0x0102,
        timestamp_ms: 0x0304,
    };

    type OwnedRow = (u8, Vec<u8>, Option<Vec<u8>>);

    fn encode(out: &mut Vec<u8>, index: u64, rows: &[OwnedRow]) {
        let mut record = Encoder::begin(out, index, index - 1, MAXIMA);
        for (family, key, value) in rows {
            record.row(*family, key, value.as_deref());
        }
        record.finish();
    }

    fn decode(record: &Record<'_>) -> Vec<OwnedRow> {
        let rows = record.rows().map(|row| {
            let (family, key, value) = row.unwrap();
            (family, key.to_vec(), value.map(<[u8]>::to_vec))
        });
        rows.collect()
    }

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        let rows = [
            (0, b"k".to_vec(), Some(b"v1".to_vec())),
            (3, b"gone".to_vec(), None),
        ];
        encode(&mut out, 7, &rows);
        let body = [
            [0, 0, 0, 0, 0, 0, 0, 7].as_slice(),
            &[0, 0, 0, 0, 0, 0, 0, 6],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 3, 4],
            &[0, 0, 0, 0, 1, 0, 0, 0, 2, b'k', b'v', b'1'],
            &[3, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff],
            b"gone",
        ]
        .concat();
        assert_eq!(out[HEAD..], body);
        assert_eq!(out[4..HEAD], (body.len() as u32).to_be_bytes());
        assert_eq!(out[..4], 0x12f6_f3dc_u32.to_be_bytes());
    }

    #[test]
    fn a_record_behind_a_damaged_one_is_found() {
        let mut out = Vec::new();
        encode(&mut out, 1, &[(0, b"k".to_vec(), None)]);
        encode(&mut out, 2, &[]);
        out[10] ^= 1;
        assert!(Record::read(&out).is_none());
        assert_eq!(find(&out).unwrap().0.index, 2);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            records in prop::collection::vec(
                prop::collection::vec(any::<(u8, Vec<u8>, Option<Vec<u8>>)>(), 0..5), 0..5),
        ) {
            let mut out = Vec::new();
            for (rows, index) in records.iter().zip(1..) {
                encode(&mut out, index, rows);
            }
            let mut rest = out.as_slice();
            for (rows, index) in records.iter().zip(1..) {
                let (record, after) = Record::read(rest).unwrap();
                prop_assert_eq!((record.index, record.synced), (index, index - 1));
                prop_assert_eq!(record.maxima, MAXIMA);
                prop_assert_eq!(&decode(&record), rows);
                rest = after;
            }
            prop_assert!(rest.is_empty());
            prop_assert!(Record::read(rest).is_none());
        }

        #[test]
        fn a_record_that_is_cut_short_or_damaged_is_none(
            rows in prop::collection::vec(any::<(u8, Vec<u8>, Option<Vec<u8>>)>(), 0..5),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let mut out = Vec::new();
            encode(&mut out, 1, &rows);
            let at = at.index(out.len());
            prop_assert!(Record::read(&out[..at]).is_none());
            out[at] ^= 1_u8 << bit;
            prop_assert!(Record::read(&out).is_none());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in any::<Vec<u8>>()) {
            let record = Record { index: 0, synced: 0, maxima: MAXIMA, rows: &bytes };
            prop_assert!(record.rows().take(1000).count() <= bytes.len());
            let _ = (Record::read(&bytes), find(&bytes));
        }
    }
}
