//! The journal: commits that may not have reached the row families yet, one record each, in order.
//!
//! ```text
//!   segment  record* | what the file held before
//!   record   crc u32 | mark u64 | length u32 | index u64 | synced u64 | version u64 | timestamp_ms u64 | row*
//! ```
//!
//! `length` counts what follows it, and `crc` (CRC-32) covers what follows the `crc`. `index` rises by one
//! from record to record; `synced` is the last index that was known to be on the disk for good when the
//! record was written; `version` and `timestamp_ms` are the [`Maxima`] of the commit. The rows are as in [`changes`].
//!
//! The files of segments are used again, so anything may come behind the last record: also records of an
//! earlier use, and whatever clients have stored in those, which may look like a record as well. The
//! [`Mark`] tells them apart. It is chosen at random for each use of a file, is the file's name, and no client
//! ever learns it.
//!
//! A record that was cut short, or written in part, fails its checksum. That is how a journal ends after a
//! crash, unless a record behind it ([`find`]) says that it had been synced: then the file is damaged.
//!
//! Format 2 appended to each file once: its records have no mark, and the files have other names.

use std::fmt;

use memchr::memmem;

use crate::DecodeError;
use crate::changes::{self, Change};
use crate::reader::Reader;
use crate::system::Maxima;

const CRC: usize = 4;
const LENGTH: usize = 4;
/// What every record has between its length and its rows.
const FIXED: usize = 32;

/// Tells the records of a segment from whatever else is in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(Option<[u8; 8]>);

impl Mark {
    /// `random` must not be known to anybody who stores data.
    pub fn new(random: u64) -> Mark {
        Mark(Some(random.to_be_bytes()))
    }

    /// The mark of a segment by the name of its file, without the extension; none if it is no segment.
    pub fn of_name(name: &str) -> Option<Mark> {
        let digits = |radix| name.chars().all(|digit| digit.is_digit(radix));
        match name.len() {
            16 if digits(16) => u64::from_str_radix(name, 16).ok().map(Mark::new),
            // Format 2: the index of its first record.
            20 if digits(10) => Some(Mark(None)),
            _ => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], <[u8; 8]>::as_slice)
    }
}

/// The name of the segment's file, without the extension.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Writes one record.
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Where its length is.
    length: usize,
}

impl<'o> Encoder<'o> {
    /// Starts a record at the end of `out`.
    pub fn begin(
        out: &'o mut Vec<u8>,
        mark: Mark,
        index: u64,
        synced: u64,
        maxima: Maxima,
    ) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; CRC]);
        out.extend_from_slice(mark.bytes());
        let length = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        out.extend_from_slice(&index.to_be_bytes());
        out.extend_from_slice(&synced.to_be_bytes());
        out.extend_from_slice(&maxima.encode());
        Encoder { out, start, length }
    }

    /// # Panics
    ///
    /// If a key or value is 4 GB long; the protocol ends at 512 MB.
    pub fn row(&mut self, family: u8, key: &[u8], value: Option<&[u8]>) {
        changes::append(self.out, family, key, value);
    }

    /// # Panics
    ///
    /// If the record is 4 GB long; batches are bounded far below.
    pub fn finish(self) {
        let body = self.length + LENGTH;
        let length = u32::try_from(self.out.len() - body).expect("records are far below 4 GB");
        self.out[self.length..body].copy_from_slice(&length.to_be_bytes());
        let covered = self.start + CRC;
        let crc = crc32fast::hash(&self.out[covered..]);
        self.out[self.start..covered].copy_from_slice(&crc.to_be_bytes());
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

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, and what comes after it; none if there is no whole one.
    pub fn read(bytes: &'a [u8], mark: Mark) -> Option<(Record<'a>, &'a [u8])> {
        let (crc, covered) = bytes.split_first_chunk::<CRC>()?;
        let after_mark = covered.strip_prefix(mark.bytes())?;
        let (length, body) = after_mark.split_first_chunk::<LENGTH>()?;
        let length = u32::from_be_bytes(*length) as usize;
        // First, for it costs nothing: in what is no record, a length is as good as random.
        if length < FIXED {
            return None;
        }
        let (body, rest) = body.split_at_checked(length)?;
        let covered = &covered[..covered.len() - rest.len()];
        if crc32fast::hash(covered) != u32::from_be_bytes(*crc) {
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
    pub fn rows(&self) -> impl Iterator<Item = Result<Change<'a>, DecodeError>> {
        changes::read("journal record", self.rows)
    }
}

/// All whole records in `bytes`, wherever they begin: also those behind a damaged place.
pub fn find<'a>(bytes: &'a [u8], mark: Mark) -> impl Iterator<Item = Record<'a>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            if let Some((record, after)) = Record::read(rest, mark) {
                rest = after;
                return Some(record);
            }
            let next = next_mark(rest.get(1..)?, mark)?;
            rest = &rest[1 + next..];
        }
    })
}

/// Where the next record might begin: the place of its checksum, in front of a mark.
fn next_mark(bytes: &[u8], mark: Mark) -> Option<usize> {
    memmem::find(bytes.get(CRC..)?, mark.bytes())
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

    const MARK: Mark = Mark(Some(*b"\x01\x23\x45\x67\x89\xab\xcd\xef"));
    const HEAD: usize = CRC + 8 + LENGTH;

    type OwnedRow = (u8, Vec<u8>, Option<Vec<u8>>);

    fn encode(out: &mut Vec<u8>, index: u64, rows: &[OwnedRow]) {
        encode_marked(out, MARK, index, rows);
    }

    fn encode_marked(out: &mut Vec<u8>, mark: Mark, index: u64, rows: &[OwnedRow]) {
        let mut record = Encoder::begin(out, mark, index, index - 1, MAXIMA);
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

    fn golden_rows() -> (Vec<OwnedRow>, Vec<u8>) {
        let rows = vec![
            (0, b"k".to_vec(), Some(b"v1".to_vec())),
            (3, b"gone".to_vec(), None),
        ];
        let body = [
            [0, 0, 0, 0, 0, 0, 0, 7].as_slice(),
            &[0, 0, 0, 0, 0, 0, 0, 6],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 3, 4],
            &[0, 0, 0, 0, 1, 0, 0, 0, 2, b'k', b'v', b'1'],
            &[3, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff],
            b"gone",
        ];
        (rows, body.concat())
    }

    #[test]
    fn golden_bytes() {
        let (rows, body) = golden_rows();
        let mut out = Vec::new();
        encode(&mut out, 7, &rows);
        assert_eq!(out[HEAD..], body);
        assert_eq!(out[12..HEAD], (body.len() as u32).to_be_bytes());
        assert_eq!(out[4..12], 0x0123_4567_89ab_cdef_u64.to_be_bytes());
        assert_eq!(out[..4], 0x99dd_c337_u32.to_be_bytes());
    }

    #[test]
    fn golden_bytes_of_format_2() {
        let (rows, body) = golden_rows();
        let length = (body.len() as u32).to_be_bytes();
        let crc = 0x12f6_f3dc_u32.to_be_bytes();
        let bytes = [&crc, &length, body.as_slice()].concat();
        let mark = Mark::of_name("00000000000000000007").unwrap();
        let (record, rest) = Record::read(&bytes, mark).unwrap();
        assert_eq!((record.index, record.synced, rest.len()), (7, 6, 0));
        assert_eq!(decode(&record), rows);
        let behind_damage = [b"damage", bytes.as_slice()].concat();
        assert_eq!(find(&behind_damage, mark).count(), 1);
    }

    #[test]
    fn a_mark_is_the_name_of_its_segment() {
        assert_eq!(MARK.to_string(), "0123456789abcdef");
        assert_eq!(Mark::of_name("0123456789abcdef"), Some(MARK));
        for other in [
            "",
            "0123456789abcde",
            "0123456789abcdeg",
            "+123456789abcdef",
            "0000000000000000000a",
        ] {
            assert_eq!(Mark::of_name(other), None, "{other}");
        }
    }

    fn indexes(bytes: &[u8], mark: Mark) -> Vec<u64> {
        find(bytes, mark).map(|record| record.index).collect()
    }

    #[test]
    fn records_behind_a_damaged_one_are_found() {
        let mut out = Vec::new();
        encode(&mut out, 1, &[(0, b"k".to_vec(), None)]);
        encode(&mut out, 2, &[]);
        encode(&mut out, 3, &[]);
        out[20] ^= 1;
        assert!(Record::read(&out, MARK).is_none());
        assert_eq!(indexes(&out, MARK), [2, 3]);
    }

    /// What a client stores may be the bytes of a record, but not of this segment's.
    #[test]
    fn records_of_an_earlier_use_and_inside_of_values_are_not_found() {
        let earlier = Mark::new(1);
        let mut inner = Vec::new();
        encode_marked(&mut inner, earlier, 9, &[]);
        let mut out = Vec::new();
        encode_marked(&mut out, earlier, 1, &[(0, b"k".to_vec(), Some(inner))]);
        encode(&mut out, 5, &[]);
        encode_marked(&mut out, earlier, 2, &[]);
        assert_eq!(indexes(&out, MARK), [5]);
    }

    /// Neither a mark nor a checksum is enough, should a page of an earlier use come between the two.
    #[test]
    fn the_checksum_covers_the_mark() {
        let mut out = Vec::new();
        encode_marked(&mut out, Mark::new(1), 1, &[]);
        out[CRC..CRC + 8].copy_from_slice(MARK.bytes());
        assert!(Record::read(&out, MARK).is_none());
    }

    #[test]
    fn a_long_file_without_records_is_looked_through_at_once() {
        let started = std::time::Instant::now();
        for byte in [0, 1, 0xff] {
            assert_eq!(indexes(&vec![byte; 32 << 20], MARK), []);
        }
        let mut stale = Vec::new();
        while stale.len() < 32 << 20 {
            encode_marked(&mut stale, Mark::new(1), 1, &[(0, vec![0; 50], None)]);
        }
        assert_eq!(indexes(&stale[1..], MARK), []);
        assert!(started.elapsed().as_secs() < 5);
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
                let (record, after) = Record::read(rest, MARK).unwrap();
                prop_assert_eq!((record.index, record.synced), (index, index - 1));
                prop_assert_eq!(record.maxima, MAXIMA);
                prop_assert_eq!(&decode(&record), rows);
                rest = after;
            }
            prop_assert!(rest.is_empty());
            prop_assert!(Record::read(rest, MARK).is_none());
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
            prop_assert!(Record::read(&out[..at], MARK).is_none());
            out[at] ^= 1_u8 << bit;
            prop_assert!(Record::read(&out, MARK).is_none());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in any::<Vec<u8>>()) {
            let record = Record { index: 0, synced: 0, maxima: MAXIMA, rows: &bytes };
            prop_assert!(record.rows().take(1000).count() <= bytes.len());
            for mark in [MARK, Mark(None)] {
                let _ = (Record::read(&bytes, mark), find(&bytes, mark).count());
            }
        }
    }
}
