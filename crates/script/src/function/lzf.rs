//! LZF, in which Redis keeps strings of some length.

/// Decompresses into exactly `len` bytes; nothing if the input says otherwise.
///
/// ```text
/// 000LLLLL                     L + 1 bytes follow as they are
/// LLLooooo oooooooo            L + 2 bytes from o + 1 back; L of 1 to 6
/// 111ooooo LLLLLLLL oooooooo   L + 9 bytes
/// ```
pub fn decompress(mut input: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
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

#[cfg(test)]
mod tests {
    use super::*;

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
