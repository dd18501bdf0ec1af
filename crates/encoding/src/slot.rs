//! Which of the 16384 slots a key belongs to.
//!
//! Redis Cluster's rule, byte for byte, since clients compute it too: CRC16 of the key, modulo 16384. If
//! the key holds a *hash tag*, a non-empty part between the first `{` and the first `}` after it, only the
//! tag is hashed, so that `{user:7}.cart` and `{user:7}.orders` live together and one command may use both.
//!
//! The slot is part of every stored key on a single machine too: it keeps a region, which is a range of
//! slots, contiguous on disk.

use crate::SLOTS;

pub fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'{', key)?;
    let inside = &key[open + 1..];
    let close = inside.iter().position(|&byte| byte == b'}')?;
    // Only the first pair counts: `{}{tag}` has no tag, and is hashed whole.
    (close > 0).then(|| &inside[..close])
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected or inverted.
///
/// Byte by byte, each step waits for the table lookup of the one before. So eight bytes are taken at once:
/// a CRC is linear, and that of a block is the sum of what each of its bytes contributes from its place.
fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, tail) = bytes.as_chunks::<8>();
    let crc = blocks.iter().fold(0, |crc: u16, block| {
        let block = u64::from_le_bytes(*block) ^ u64::from(crc.swap_bytes());
        let byte = |at: usize| usize::from((block >> (8 * at)) as u8);
        (0..8).fold(0, |sum, at| sum ^ CRC_BY_PLACE[7 - at][byte(at)])
    });
    tail.iter().fold(crc, |crc, &byte| {
        (crc << 8) ^ CRC_BY_PLACE[0][usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// `CRC_BY_PLACE[n][byte]` is the CRC of `byte` followed by `n` zero bytes.
const CRC_BY_PLACE: [[u16; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        table[0][byte] = crc_of_byte(byte as u8);
        byte += 1;
    }
    let mut place = 1;
    while place < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = table[place - 1][byte];
            table[place][byte] = (crc << 8) ^ table[0][(crc >> 8) as usize];
            byte += 1;
        }
        place += 1;
    }
    table
};

const fn crc_of_byte(byte: u8) -> u16 {
    let mut crc = (byte as u16) << 8;
    let mut bit = 0;
    while bit < 8 {
        let carry = crc & 0x8000 != 0;
        crc <<= 1;
        if carry {
            crc ^= 0x1021;
        }
        bit += 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc_matches_the_check_value_of_the_xmodem_catalogue_entry() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    /// The expected slots are the answers of `CLUSTER KEYSLOT` of Redis 7.0.15.
    #[test]
    fn slots_are_those_of_redis() {
        let answers: [(&[u8], u16); 18] = [
            (b"", 0),
            (b"a", 15495),
            (b"foo", 12182),
            (b"bar", 5061),
            (b"hello", 866),
            (b"123456789", 12739),
            (b"{user1000}.following", 3443),
            (b"{user1000}.followers", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"{}", 15257),
            (b"{", 4092),
            (b"}{", 12793),
            (b"}x{y}", 12222),
            (b"a{b", 13340),
            (b"0123456789abcdef", 10405),
            (b"the quick brown fox jumps over the lazy dog", 12325),
        ];
        for (key, expected) in answers {
            assert_eq!(slot(key), expected, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn the_tag_is_the_first_non_empty_pair_of_braces() {
        assert_eq!(hash_tag(b"a{tag}b{other}"), Some(&b"tag"[..]));
        assert_eq!(hash_tag(b"a{{tag}b"), Some(&b"{tag"[..]));
        assert_eq!(hash_tag(b"}a{tag}"), Some(&b"tag"[..]));
        assert_eq!(hash_tag(b"a{}{tag}"), None);
        assert_eq!(hash_tag(b"a}tag{b"), None);
        assert_eq!(hash_tag(b"a{tag"), None);
    }

    /// The definition, a bit at a time.
    fn crc16_by_bits(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc: u16, &byte| {
            (0..8).rev().fold(crc, |crc, bit| {
                let incoming = u16::from(byte >> bit & 1);
                let shifted = crc << 1;
                if crc >> 15 == incoming {
                    shifted
                } else {
                    shifted ^ 0x1021
                }
            })
        })
    }

    proptest! {
        #[test]
        fn blocks_and_tail_give_the_crc_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            prop_assert_eq!(crc16(&bytes), crc16_by_bits(&bytes));
        }
    }
}
