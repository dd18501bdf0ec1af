//! LZF, in which Redis keeps strings of some length.

/// A few bytes can stand for very many: longer strings than Redis has are not made of them.
const LONGEST: usize = 512 << 20;
/// What one byte of input can come to at most: three of them copy this many.
const MOST_PER_BYTE: usize = LONGEST_COPY / 3;

/// Decompresses into exactly `len` bytes; nothing if the input says otherwise.
///
/// ```text
/// 000LLLLL                     L + 1 bytes follow as they are
/// LLLooooo oooooooo            L + 2 bytes from o + 1 back; L of 1 to 6
/// 111ooooo LLLLLLLL oooooooo   L + 9 bytes
/// ```
pub fn decompress(mut input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > LONGEST.min(input.len().saturating_mul(MOST_PER_BYTE)) {
        return None;
    }
    // It does not come to more, unless it is refused: then by one copy.
    let mut out = Vec::with_capacity(len + LONGEST_COPY);
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        let control = usize::from(control);
        if control < 32 {
            let (plain, rest) = input.split_at_checked(control + 1)?;
            input = rest;
            out.extend_from_slice(plain);
        } else {
            let mut length = control >> 5;
            if length == 7 {
                length += usize::from(*input.split_off_first()?);
            }
            let low = usize::from(*input.split_off_first()?);
            let back = ((control & 31) << 8 | low) + 1;
            let start = out.len().checked_sub(back)?;
            for place in start..start + length + 2 {
                out.push(out[place]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// How many bits of a hash tell where three bytes were last seen, at most. For a short input fewer will do, and there
/// is less to be made ready.
const HASH_BITS: u32 = 14;
const FEWEST_BITS: u32 = 6;
const FARTHEST: usize = 1 << 13;
const LONGEST_COPY: usize = 264;
const LONGEST_PLAIN: usize = 32;
const NOWHERE: u32 = u32::MAX;

fn hash(bytes: [u8; 3], bits: u32) -> usize {
    let [a, b, c] = bytes.map(u32::from);
    let hash = (a << 16 | b << 8 | c).wrapping_mul(0x9e37_79b1);
    (hash >> (u32::BITS - bits)) as usize
}

/// Twice as many places as there are bytes.
fn bits_for(len: usize) -> u32 {
    let bits = usize::BITS - len.leading_zeros() + 1;
    bits.clamp(FEWEST_BITS, HASH_BITS)
}

/// Appends the input compressed; false, and something to be cut off again, if that takes more than `most` bytes.
pub fn compress(input: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
    let end = out.len() + most;
    // Where the three bytes of each hash were last seen; with more input than that, only its end counts.
    let bits = bits_for(input.len());
    let mut seen = vec![NOWHERE; 1 << bits];
    let (mut place, mut plain) = (0, 0);
    while let Some(three) = input[place..].first_chunk::<3>() {
        let before = std::mem::replace(&mut seen[hash(*three, bits)], place as u32);
        let back = (place as u32).wrapping_sub(before) as usize;
        let is_near = before != NOWHERE && (1..=FARTHEST.min(place)).contains(&back);
        if !is_near || input[place - back..].first_chunk::<3>() != Some(three) {
            place += 1;
            if place - plain == LONGEST_PLAIN {
                append_plain(&input[plain..place], out);
                plain = place;
                if out.len() > end {
                    return false;
                }
            }
            continue;
        }
        append_plain(&input[plain..place], out);
        let longest = LONGEST_COPY.min(input.len() - place);
        let same = (3..longest).take_while(|at| input[place + at] == input[place - back + at]);
        let length = 3 + same.count();
        append_copy(back, length, out);
        // The last places of what was copied are where the next copy is likely to come from.
        for known in (place + length).saturating_sub(2).max(place + 1)..place + length {
            if let Some(three) = input[known..].first_chunk::<3>() {
                seen[hash(*three, bits)] = known as u32;
            }
        }
        place += length;
        plain = place;
        if out.len() > end {
            return false;
        }
    }
    for rest in input[plain..].chunks(LONGEST_PLAIN) {
        append_plain(rest, out);
    }
    out.len() <= end
}

/// At most [`LONGEST_PLAIN`] bytes as they are.
fn append_plain(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.push(bytes.len() as u8 - 1);
        out.extend_from_slice(bytes);
    }
}

fn append_copy(back: usize, length: usize, out: &mut Vec<u8>) {
    let (back, length) = (back - 1, length - 2);
    let high = (back >> 8) as u8;
    if length < 7 {
        out.push((length as u8) << 5 | high);
    } else {
        out.extend_from_slice(&[7 << 5 | high, (length - 7) as u8]);
    }
    out.push(back as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back() {
        let mut noise = 1u32;
        let mut next = |below: u32| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 8) % below
        };
        for round in 0..300 {
            let letters = [1, 2, 4, 60, 255][round % 5];
            let len = next(40_000) as usize;
            let input: Vec<u8> = (0..len).map(|_| next(letters) as u8).collect();
            let mut out = Vec::new();
            assert!(compress(&input, 2 * len + 1, &mut out));
            assert_eq!(decompress(&out, len).unwrap(), input);
            let whole = out.len();
            out.clear();
            assert!(compress(&input, whole, &mut out));
            out.clear();
            assert!(whole == 0 || !compress(&input, whole - 1, &mut out));
        }
    }

    #[test]
    fn the_farthest_and_the_longest_copies() {
        for gap in [8188, 8189, 8190, 8191, 8192, 8193] {
            let mut input = b"xyz".to_vec();
            input.extend((0..gap).map(|n| (n % 7 + n / 7 % 11 * 16) as u8));
            input.extend_from_slice(b"xyz");
            input.extend([0; 1000]);
            let mut out = Vec::new();
            assert!(compress(&input, input.len() * 2, &mut out));
            assert_eq!(decompress(&out, input.len()).unwrap(), input);
        }
    }

    #[test]
    fn repeats_reach_into_themselves() {
        assert_eq!(
            decompress(b"\x00a\xe0\x01\x00", 11).unwrap(),
            b"aaaaaaaaaaa"
        );
        assert_eq!(decompress(b"\x02abc\x20\x02", 6).unwrap(), b"abcabc");
    }

    #[test]
    fn bad_input_is_refused() {
        for input in [
            &b"\x05ab"[..],
            b"\x20\x00",
            b"\x00a\x20",
            b"\x00a\xe0",
            b"\x01ab",
        ] {
            assert_eq!(decompress(input, 1), None);
        }
    }
}
