//! A checksum of rows that does not depend on their order: what replicas compare.
//!
//! Each row is hashed by itself, and the hashes are added up. Family and lengths go in first, so that no two rows look alike:
//!
//! ```text
//!   hash of   family u8 | key_len u64 | key | value
//! ```
//!
//! The hash is FNV-1a (64 bits), whose bits are mixed once more at the end because sums are taken. It finds accidents, and is
//! no defence against anybody.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The sum over some rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksum {
    pub rows: u64,
    pub sum: u64,
}

impl Checksum {
    pub fn add(&mut self, family: u8, key: &[u8], value: &[u8]) {
        let head = fnv(OFFSET, &[family]);
        let length = fnv(head, &(key.len() as u64).to_be_bytes());
        let hash = mix(fnv(fnv(length, key), value));
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}

fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The end of MurmurHash3.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(u8, &[u8], &[u8])]) -> Checksum {
        let mut checksum = Checksum::default();
        for (family, key, value) in rows {
            checksum.add(*family, key, value);
        }
        checksum
    }

    /// Nodes of different age compare them.
    #[test]
    fn golden_sums() {
        assert_eq!(fnv(OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
        let checksum = of(&[(0, b"key", b"value"), (1, b"", b"")]);
        assert_eq!(checksum.rows, 2);
        assert_eq!(checksum.sum, 0xbf9f_ccab_d6da_add7);
    }

    #[test]
    fn the_order_does_not_matter_and_everything_else_does() {
        let one: (u8, &[u8], &[u8]) = (0, b"key", b"value");
        let other: (u8, &[u8], &[u8]) = (1, b"key", b"value");
        assert_eq!(of(&[one, other]), of(&[other, one]));
        let all = [
            of(&[]),
            of(&[one]),
            of(&[other]),
            of(&[one, other]),
            of(&[one, one]),
            of(&[(0, b"keyv", b"alue")]),
            of(&[(0, b"key", b"valuf")]),
        ];
        for (at, checksum) in all.iter().enumerate() {
            assert!(!all[..at].contains(checksum));
        }
    }
}
