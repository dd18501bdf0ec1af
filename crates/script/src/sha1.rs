//! SHA-1 (FIPS 180-4): the name of a script.

/// The digest of `text`, as forty hexadecimal digits.
pub fn sha1_hex(text: &[u8]) -> String {
    digest(text)
        .iter()
        .map(|word| format!("{word:08x}"))
        .collect()
}

fn digest(text: &[u8]) -> [u32; 5] {
    let mut state = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let (blocks, rest) = text.as_chunks::<64>();
    for block in blocks {
        absorb(&mut state, block);
    }
    for block in padded(rest, text.len()).as_chunks::<64>().0 {
        absorb(&mut state, block);
    }
    state
}

/// The last bytes, a one bit, zeros, and the length in bits, up to whole blocks.
fn padded(rest: &[u8], length: usize) -> Vec<u8> {
    let mut tail = rest.to_vec();
    tail.push(0x80);
    let blocks = (tail.len() + 8).div_ceil(64);
    tail.resize(blocks * 64 - 8, 0);
    tail.extend_from_slice(&(length as u64 * 8).to_be_bytes());
    tail
}

fn absorb(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for i in 16..80 {
        words[i] = (words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (i, word) in words.iter().enumerate() {
        let (mixed, constant) = match i / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(mixed)
            .wrapping_add(e)
            .wrapping_add(constant)
            .wrapping_add(*word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_standard() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(sha1_hex(text), *expected);
        }
        assert_eq!(
            sha1_hex(&vec![b'a'; 1_000_000]),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f"
        );
    }
}
