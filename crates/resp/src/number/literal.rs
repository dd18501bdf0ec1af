//! The grammar of C's `strtod`, and of nothing else: what a text says before any rounding.
//!
//! ```text
//! literal  = sign? ("inf" | "infinity" | decimal | "0x" hex)        in either case
//! decimal  = digits ("e" sign? digits)?
//! hex      = hex digits ("p" sign? digits)?
//! digits   = one digit or more, with a point before, inside or after them, or none
//! ```
//!
//! C also knows `nan`. Redis refuses it wherever it reads a float, and so does this grammar.

/// Larger than any text is long, so no digits can bring a clamped exponent back into range, and small
/// enough that sums of it and lengths stay far from overflowing.
const EXPONENT_LIMIT: i64 = 1 << 40;

pub(super) struct Literal<'a> {
    pub negative: bool,
    pub magnitude: Magnitude<'a>,
}

pub(super) enum Magnitude<'a> {
    Infinity,
    Decimal(Digits<'a>),
    Hex(Digits<'a>),
}

/// `whole.fraction`, times ten (or two, if hexadecimal) to the power of `exponent`.
pub(super) struct Digits<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Literal<'a> {
    /// Reads the whole of `text` as one literal.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (negative, unsigned) = split_sign(text);
        Some(Self {
            negative,
            magnitude: Magnitude::parse(unsigned)?,
        })
    }
}

impl<'a> Magnitude<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinity);
        }
        match text {
            [b'0', b'x' | b'X', hex @ ..] => {
                Digits::parse(hex, u8::is_ascii_hexdigit, b'p').map(Self::Hex)
            }
            decimal => Digits::parse(decimal, u8::is_ascii_digit, b'e').map(Self::Decimal),
        }
    }

    pub fn is_zero(&self) -> bool {
        match self {
            Self::Infinity => false,
            Self::Decimal(digits) | Self::Hex(digits) => digits.significant().next().is_none(),
        }
    }
}

impl<'a> Digits<'a> {
    fn parse(text: &'a [u8], is_digit: fn(&u8) -> bool, exponent_mark: u8) -> Option<Self> {
        let (whole, rest) = split_digits(text, is_digit);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits(rest, is_digit),
            _ => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [mark, exponent @ ..] if mark.eq_ignore_ascii_case(&exponent_mark) => {
                parse_exponent(exponent)?
            }
            _ => return None,
        };
        Some(Self {
            whole,
            fraction,
            exponent,
        })
    }

    /// The values of the digits, from the first that is not zero.
    pub fn significant(&self) -> impl Iterator<Item = u8> {
        let all = self.whole.iter().chain(self.fraction);
        all.map(|&digit| digit_value(digit))
            .skip_while(|&value| value == 0)
    }

    pub fn exponent(&self) -> i64 {
        self.exponent
    }

    pub fn fraction_len(&self) -> usize {
        self.fraction.len()
    }
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    }
}

fn split_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|byte| !is_digit(byte))
        .unwrap_or(text.len());
    text.split_at(end)
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0, |value, &digit| {
        (value * 10 + i64::from(digit_value(digit))).min(EXPONENT_LIMIT)
    });
    Some(if negative { -size } else { size })
}

fn digit_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        letter => letter.to_ascii_lowercase() - b'a' + 10,
    }
}
