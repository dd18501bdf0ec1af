//! When fields of a hash expire.
//!
//! A field's own row says nothing about that, so that fields that never expire cost nothing. One that does has two
//! more rows, in `zset_score`, where a hash has no scores; and the hash has one in `expiry`:
//!
//! ```text
//!   zset_score   prefix | version | ff × 7 fe | field               →  expire_ms u64      (by name)
//!   zset_score   prefix | version | ff × 7 fd | expire_ms u64 | field  →  (empty)         (by time)
//!   expiry       keyspace_id u64 | first_ms u64 | prefix | version u64  →  (empty)
//! ```
//!
//! The metadata of a hash that has such fields says so by a flag, and by [`FieldTimes`]. Nothing expires before its
//! `first_ms`: whoever asks earlier need not look at these rows. What `expiry` holds is the same number for the
//! expirer, which then finds what is due in the rows by time.
//!
//! `first_ms` is a floor as well. The expirer deletes the rows of fields that were due, and raises it above their
//! times; what these two kinds of rows say of earlier times is dead, and dropped by compactions. A time that is set
//! later lies above: it is in the future, and they are in the past. Where nothing expires any more, all of them are
//! dead.

use crate::DecodeError;
use crate::reader::Reader;

/// What the metadata of a hash says about its fields that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldTimes {
    /// How many there are, those included that are due and not deleted yet.
    pub count: u64,
    /// None of them expires before this.
    pub first_ms: u64,
    /// And none after this.
    pub last_ms: u64,
}

impl FieldTimes {
    pub(crate) const LEN: usize = 24;

    /// Of one field.
    pub fn of(at_ms: u64) -> FieldTimes {
        FieldTimes {
            count: 1,
            first_ms: at_ms,
            last_ms: at_ms,
        }
    }

    /// With one more.
    pub fn with(self, at_ms: u64) -> FieldTimes {
        FieldTimes {
            count: self.count + 1,
            first_ms: self.first_ms.min(at_ms),
            last_ms: self.last_ms.max(at_ms),
        }
    }

    /// With so many less; none if these were all.
    pub fn without(self, fewer: u64) -> Option<FieldTimes> {
        let count = self.count.saturating_sub(fewer);
        (count > 0).then_some(FieldTimes { count, ..self })
    }

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.count.to_be_bytes());
        out[8..16].copy_from_slice(&self.first_ms.to_be_bytes());
        out[16..].copy_from_slice(&self.last_ms.to_be_bytes());
        out
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<FieldTimes, DecodeError> {
        Ok(FieldTimes {
            count: reader.u64("expiring fields")?,
            first_ms: reader.u64("first_ms")?,
            last_ms: reader.u64("last_ms")?,
        })
    }
}

pub fn encode(expire_ms: u64) -> [u8; 8] {
    expire_ms.to_be_bytes()
}

pub fn decode(value: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new("field expiry", value);
    let expire_ms = reader.u64("expire_ms")?;
    reader.finish()?;
    Ok(expire_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        assert_bytes(&encode(0x0190_0000_0000), "0000019000000000");
        assert_eq!(decode(&encode(7)), Ok(7));
        let times = FieldTimes {
            count: 2,
            first_ms: 0x0190_0000_0000,
            last_ms: 0x0190_0000_0001,
        };
        assert_bytes(
            &times.encode(),
            "0000000000000002 0000019000000000 0000019000000001",
        );
        assert!(decode(&[0; 7]).is_err());
        assert!(decode(&[0; 9]).is_err());
    }

    #[test]
    fn times_cover_all_that_was_added() {
        let times = FieldTimes::of(20).with(10).with(30);
        assert_eq!((times.count, times.first_ms, times.last_ms), (3, 10, 30));
        assert_eq!(times.without(3), None);
        let fewer = FieldTimes { count: 1, ..times };
        assert_eq!(times.without(2), Some(fewer));
    }
}
