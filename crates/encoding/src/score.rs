//! Doubles as eight bytes that sort as the doubles do.
//!
//! ```text
//!   IEEE-754   sign 1 | exponent 11 | fraction 52
//!
//!   stored     sign 0: the sign bit flipped      3ff0000000000000  →  bff0000000000000    (1.0)
//!              sign 1: every bit inverted        bff0000000000000  →  400fffffffffffff   (-1.0)
//! ```
//!
//! Exponent above fraction makes positive doubles sort by their bits already. Flipping the sign bit puts
//! them above the negative ones, and inverting those turns larger magnitude into smaller bytes.
//!
//! -0 equals +0 as a score, so it is stored as +0: otherwise members with equal scores would not sort by
//! member. NaN has no place in an order and commands refuse it. The bytes it would take, below those of
//! -inf and above those of +inf, are therefore never a score, and other rows of a sorted set may use them.

use crate::DecodeError;
use crate::reader::Reader;

const SIGN: u64 = 1 << 63;

/// The score must not be NaN: that is refused where the client's number is parsed or computed.
pub fn encode(score: f64) -> [u8; 8] {
    debug_assert!(!score.is_nan(), "NaN is no score");
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    let sortable = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    sortable.to_be_bytes()
}

/// The inverse of [`encode`], for bytes known to be a score.
pub fn decode(bytes: [u8; 8]) -> f64 {
    let sortable = u64::from_be_bytes(bytes);
    let bits = if sortable & SIGN == 0 {
        !sortable
    } else {
        sortable ^ SIGN
    };
    f64::from_bits(bits)
}

/// The value of a sorted set's member row: its score, and nothing else.
pub fn decode_value(value: &[u8]) -> Result<f64, DecodeError> {
    let mut reader = Reader::new("score value", value);
    let score = read(&mut reader)?;
    reader.finish()?;
    Ok(score)
}

pub(crate) fn read(reader: &mut Reader<'_>) -> Result<f64, DecodeError> {
    let bytes = reader.array("score")?;
    let score = decode(bytes);
    if score.is_nan() || is_negative_zero(score) {
        return Err(DecodeError::NotAScore {
            layout: reader.layout(),
            bytes,
        });
    }
    Ok(score)
}

fn is_negative_zero(score: f64) -> bool {
    score.to_bits() == SIGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        assert_bytes(&encode(f64::NEG_INFINITY), "000fffffffffffff");
        assert_bytes(&encode(f64::MIN), "0010000000000000");
        assert_bytes(&encode(-1.0), "400fffffffffffff");
        assert_bytes(&encode(-5e-324), "7ffffffffffffffe");
        assert_bytes(&encode(0.0), "8000000000000000");
        assert_bytes(&encode(5e-324), "8000000000000001");
        assert_bytes(&encode(1.0), "bff0000000000000");
        assert_bytes(&encode(3.25), "c00a000000000000");
        assert_bytes(&encode(f64::MAX), "ffefffffffffffff");
        assert_bytes(&encode(f64::INFINITY), "fff0000000000000");
    }

    #[test]
    fn negative_zero_is_stored_as_zero() {
        assert_eq!(encode(-0.0), encode(0.0));
        assert_eq!(decode(encode(-0.0)).to_bits(), 0);
    }

    #[test]
    fn a_value_is_one_score_exactly() {
        assert_eq!(decode_value(&encode(3.25)), Ok(3.25));
        assert!(matches!(
            decode_value(&[0x80; 7]),
            Err(DecodeError::Truncated { .. })
        ));
        assert!(matches!(
            decode_value(&[0x80; 9]),
            Err(DecodeError::Trailing { .. })
        ));
    }

    #[test]
    fn the_bytes_of_nan_and_negative_zero_are_no_value() {
        for bits in [
            0x7ff8_0000_0000_0000_u64 ^ SIGN,
            0xfff0_0000_0000_0001,
            !0xfff8_0000_0000_0000,
            !SIGN,
        ] {
            let decoded = decode_value(&bits.to_be_bytes());
            assert!(
                matches!(decoded, Err(DecodeError::NotAScore { .. })),
                "{bits:016x}: {decoded:?}"
            );
        }
    }
}
