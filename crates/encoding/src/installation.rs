//! What lies beside the files of a snapshot that was received: with them it can be put in its place, and again after a
//! crash.
//!
//! ```text
//!   crc u32 | region u64 | applied_len u32 | applied | count u32 | file* | change*
//!
//!   file     family u8 | number u32 | bytes u64
//! ```
//!
//! `crc` (CRC-32) covers what follows it. `applied` is as in [`raft`](crate::raft). The files are tables of the other
//! families; the changes ([`changes`](crate::changes)) are the region's rows of the `meta` family.

use crate::DecodeError;
use crate::changes::{self, Change};
use crate::raft::Applied;
use crate::reader::Reader;

const LAYOUT: &str = "installation";
const CRC: usize = 4;

/// A file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    pub family: u8,
    pub number: u32,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub region: u64,
    pub applied: Applied,
    pub files: Vec<File>,
}

impl Installation {
    /// # Panics
    ///
    /// If there are 4 billion files.
    pub fn encode<'c>(&self, rows: impl Iterator<Item = Change<'c>>) -> Vec<u8> {
        let length = |length: usize| u32::try_from(length).expect("these are few");
        let mut out = vec![0; CRC];
        out.extend_from_slice(&self.region.to_be_bytes());
        let mut applied = Vec::new();
        self.applied.encode(&mut applied);
        out.extend_from_slice(&length(applied.len()).to_be_bytes());
        out.extend_from_slice(&applied);
        out.extend_from_slice(&length(self.files.len()).to_be_bytes());
        for file in &self.files {
            out.push(file.family);
            out.extend_from_slice(&file.number.to_be_bytes());
            out.extend_from_slice(&file.bytes.to_be_bytes());
        }
        for (family, key, value) in rows {
            changes::append(&mut out, family, key, value);
        }
        let crc = crc32fast::hash(&out[CRC..]);
        out[..CRC].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// With the rows.
    pub fn decode(bytes: &[u8]) -> Result<(Installation, Vec<Change<'_>>), DecodeError> {
        let mut reader = Reader::new(LAYOUT, bytes);
        let crc = reader.u32("crc")?;
        if crc32fast::hash(reader.peek()) != crc {
            return Err(DecodeError::WrongChecksum { layout: LAYOUT });
        }
        let region = reader.u64("region")?;
        let length = reader.u32("applied_len")?;
        let applied = Applied::decode(reader.bytes("applied", length as usize)?)?;
        let mut files = Vec::new();
        for _ in 0..reader.u32("count")? {
            files.push(File {
                family: reader.u8("family")?,
                number: reader.u32("number")?,
                bytes: reader.u64("bytes")?,
            });
        }
        let rows = changes::read(LAYOUT, reader.rest()).collect::<Result<_, _>>()?;
        let installation = Installation {
            region,
            applied,
            files,
        };
        Ok((installation, rows))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::golden::assert_bytes;
    use crate::raft::LogId;

    fn example() -> Installation {
        Installation {
            region: 7,
            applied: Applied {
                last: Some(LogId { term: 2, index: 3 }),
                timestamp_ms: 4,
                ..Applied::default()
            },
            files: vec![File {
                family: 1,
                number: 5,
                bytes: 6,
            }],
        }
    }

    #[test]
    fn golden_bytes() {
        let rows = [(4, &b"k"[..], Some(&b"v"[..]))];
        let bytes = example().encode(rows.into_iter());
        assert_bytes(
            &bytes[CRC..],
            "0000000000000007 0000001f \
             01 0000000000000002 0000000000000003 0000000000000004 00 00 00000000 \
             00000001 01 00000005 0000000000000006 \
             04 00000001 00000001 6b 76",
        );
        assert_eq!(Installation::decode(&bytes), Ok((example(), rows.to_vec())));
    }

    #[test]
    fn every_damage_is_an_error() {
        let bytes = example().encode([(4, &b"k"[..], None)].into_iter());
        for at in 0..bytes.len() {
            assert!(Installation::decode(&bytes[..at]).is_err());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Installation::decode(&damaged).is_err());
        }
    }
}
