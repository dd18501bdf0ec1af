//! What must hold for any bytes a client may send, shared by the fuzz target, the replay of its corpus
//! and the property tests.
//!
//! The same stream is read three times: by a reference that starts over at every request and searches
//! in the simplest way there is, by the parser given everything at once, and by the parser given it in
//! pieces. All three must see the same requests, in the same places, and stop for the same reason.

use cairn_resp::{Args, Limits, Parsed, Parser, ProtocolError};

/// Limits small enough for a fuzzer to run into.
const TINY: Limits = Limits {
    max_bulk_len: 40,
    max_inline: 20,
    max_multibulk: 12,
    authenticated: true,
};

#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    /// Each request and where in the stream it ends.
    pub requests: Vec<(Vec<Vec<u8>>, usize)>,
    /// Why there is no further one; none if more bytes might bring it.
    pub error: Option<ProtocolError>,
}

/// The first byte chooses limits, the next three the sizes of the pieces in turn, the rest is what the
/// client sends.
pub fn check_fuzz_input(input: &[u8]) {
    let [choice, a, b, c, stream @ ..] = input else {
        return;
    };
    let limits = if choice & 1 == 0 {
        Limits::default()
    } else {
        TINY
    };
    let limits = if choice & 2 == 0 {
        limits
    } else {
        limits.unauthenticated()
    };
    let pieces = [a, b, c].map(|size| usize::from(*size) + 1);
    check(stream, &pieces, &limits);
}

/// Asserts that all three ways of reading `stream` agree; `pieces` are sizes, used in turn.
pub fn check(stream: &[u8], pieces: &[usize], limits: &Limits) {
    let expected = read_by_reference(stream, limits);
    assert_eq!(read_in_pieces(stream, &[stream.len()], limits), expected);
    assert_eq!(read_in_pieces(stream, pieces, limits), expected);
}

/// Reads as a connection does: the buffer begins at the request under way and grows piece by piece.
pub fn read_in_pieces(stream: &[u8], pieces: &[usize], limits: &Limits) -> Seen {
    let mut seen = Seen::default();
    let (mut parser, mut args) = (Parser::new(), Args::new());
    let (mut start, mut arrived) = (0, 0);
    let mut needed = 0;
    for piece in pieces.iter().cycle() {
        arrived = stream.len().min(arrived + piece.max(&1));
        loop {
            let buf = &stream[start..arrived];
            let outcome = parser.parse(buf, limits, &mut args);
            if !matches!(outcome, Ok(Parsed::Incomplete { .. })) {
                assert!(
                    arrived >= needed,
                    "an outcome before the bytes said to be needed"
                );
            }
            match outcome {
                Ok(Parsed::Complete { consumed }) => {
                    assert!(0 < consumed && consumed <= buf.len());
                    start += consumed;
                    seen.requests
                        .push((args.iter(buf).map(<[u8]>::to_vec).collect(), start));
                }
                Ok(Parsed::Incomplete { need }) => {
                    assert!(need > 0);
                    needed = arrived.saturating_add(need);
                    break;
                }
                Err(error) => {
                    assert_eq!(parser.parse(buf, limits, &mut args), Err(error));
                    seen.error = Some(error);
                    return seen;
                }
            }
        }
        if arrived == stream.len() {
            break;
        }
    }
    seen
}

fn read_by_reference(stream: &[u8], limits: &Limits) -> Seen {
    let mut seen = Seen::default();
    let mut start = 0;
    loop {
        match reference_request(&stream[start..], limits) {
            Ok(Some((args, consumed))) => {
                start += consumed;
                seen.requests.push((args, start));
            }
            Ok(None) => return seen,
            Err(error) => {
                seen.error = Some(error);
                return seen;
            }
        }
    }
}

type Request = (Vec<Vec<u8>>, usize);

fn reference_request(buf: &[u8], limits: &Limits) -> Result<Option<Request>, ProtocolError> {
    if buf.is_empty() {
        return Ok(None);
    }
    if buf[0] != b'*' {
        return reference_inline(buf, limits);
    }
    let Some(line) = reference_line(buf, b'\r', limits, ProtocolError::TooBigMultibulkCount)?
    else {
        return Ok(None);
    };
    let count = reference_number(&line[1..]).ok_or(ProtocolError::InvalidMultibulkLength)?;
    if count > limits.max_multibulk as i128 {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    if count > 10 && !limits.authenticated {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    let mut at = line.len() + 2;
    let mut args = Vec::new();
    for _ in 0..count {
        let too_big = ProtocolError::TooBigBulkCount;
        let Some(line) = reference_line(&buf[at..], b'\r', limits, too_big)? else {
            return Ok(None);
        };
        if buf[at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(buf[at]));
        }
        let len = reference_number(&line[1..]).ok_or(ProtocolError::InvalidBulkLength)?;
        if len < 0 || len > limits.max_bulk_len as i128 {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if len > 16384 && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        at += line.len() + 2;
        let len = len as usize;
        if buf.len() < at + len + 2 {
            return Ok(None);
        }
        args.push(buf[at..at + len].to_vec());
        at += len + 2;
    }
    Ok(Some((args, at)))
}

/// The line up to `end`, if it has ended; for a count, if one more byte is there as well.
fn reference_line<'a>(
    buf: &'a [u8],
    end: u8,
    limits: &Limits,
    too_big: ProtocolError,
) -> Result<Option<&'a [u8]>, ProtocolError> {
    let visible = buf.split(|byte| *byte == 0).next().unwrap_or(buf);
    match visible.iter().position(|byte| *byte == end) {
        Some(i) if i <= limits.max_inline => {
            let complete = end == b'\n' || i + 1 < buf.len();
            Ok(complete.then_some(&buf[..i]))
        }
        _ if buf.len() > limits.max_inline => Err(too_big),
        _ => Ok(None),
    }
}

fn reference_number(digits: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(digits).ok()?;
    let number: i64 = text.parse().ok()?;
    // Only the one way of writing a number counts: no plus sign, no leading zero.
    (number.to_string() == text).then_some(i128::from(number))
}

fn reference_inline(buf: &[u8], limits: &Limits) -> Result<Option<Request>, ProtocolError> {
    let Some(line) = reference_line(buf, b'\n', limits, ProtocolError::TooBigInline)? else {
        return Ok(None);
    };
    let words = reference_words(line.strip_suffix(b"\r").unwrap_or(line))?;
    Ok(Some((words, line.len() + 1)))
}

/// Words by a state machine over single bytes, where the parser matches slices.
fn reference_words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let blank = |i: usize| {
        line.get(i)
            .is_none_or(|byte| b" \t\r\n\x0b\x0c".contains(byte))
    };
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut i = 0;
    while i < line.len() {
        let byte = line[i];
        if quote == Some(byte) {
            if !blank(i + 1) {
                return Err(ProtocolError::UnbalancedQuotes);
            }
            quote = None;
            words.extend(word.take());
        } else if let Some(quote) = quote {
            let (meant, extra) = reference_escape(&line[i..], quote).unwrap_or((byte, 0));
            word.get_or_insert_default().push(meant);
            i += extra;
        } else if byte == b'"' || byte == b'\'' {
            quote = Some(byte);
            word.get_or_insert_default();
        } else if b" \t\r\n".contains(&byte) || (blank(i) && word.is_none()) {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(byte);
        }
        i += 1;
    }
    words.extend(word);
    match quote {
        Some(_) => Err(ProtocolError::UnbalancedQuotes),
        None => Ok(words),
    }
}

/// What an escape at the start of `text` stands for, and how many bytes it takes beyond its backslash.
fn reference_escape(text: &[u8], quote: u8) -> Option<(u8, usize)> {
    let hex = |i: usize| char::from(*text.get(i)?).to_digit(16);
    let escaped = *text.get(1)?;
    if text[0] != b'\\' || (quote == b'\'' && escaped != b'\'') {
        return None;
    }
    if let (b'x', Some(high), Some(low)) = (escaped, hex(2), hex(3)) {
        return Some(((high * 16 + low) as u8, 3));
    }
    let known = b"nrtba".iter().position(|known| *known == escaped);
    Some((known.map_or(escaped, |i| b"\n\r\t\x08\x07"[i]), 1))
}
