//! Requests from bytes, as they arrive.
//!
//! A connection reads into a buffer and calls [`Parser::parse`] with what it has. The parser walks
//! one request and remembers where it stopped, so that nothing is looked at twice however finely the
//! network cuts it: an argument of 512 MB in pieces of 16 KB costs linear time. It copies nothing
//! (see [`Args`]), and what a client merely announces (`*1000000`, `$536870912`) costs no memory: that
//! is spent as arguments arrive, in proportion to them.
//!
//! A request is in one of these stages, and `at` is where in the buffer its stage began:
//!
//! ```text
//! Idle ─┬─ not '*' ─→ Inline ──────────────────────────→ complete
//!       └─ '*' ─────→ Count ─→ Header ─→ Payload ─┬────→ complete
//!                                ↑─── more bulks ─┘
//! ```
//!
//! Redis is followed in what it accepts, down to where it is lenient: a count ends at `\r`, and the
//! byte after that is skipped unseen, as are the two bytes behind a payload. A zero byte hides the
//! rest of its line (Redis searches with `strchr`), so such a line never ends and runs into its limit.

use crate::args::Args;
use crate::error::ProtocolError;
use crate::inline;
use crate::number::parse_i64;

/// What follows a count's digits and a payload, unseen.
const LINE_END: usize = 2;

/// A count of one digit, as nearly all are, with its star and its line end.
const SHORT_COUNT: usize = 4;

/// Before AUTH a client has no reason to send more than this, and may be anyone.
const UNAUTHENTICATED_MULTIBULK: usize = 10;
const UNAUTHENTICATED_BULK_LEN: usize = 16 * 1024;

/// How large a request may be; the defaults are Redis' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest argument: `proto-max-bulk-len`.
    pub max_bulk_len: usize,
    /// The longest line, be it an inline request or the digits of a count.
    pub max_inline: usize,
    /// The most arguments in a request.
    pub max_multibulk: usize,
    /// Whether the client has said who it is, if it must.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_bulk_len: 512 * 1024 * 1024,
            max_inline: 64 * 1024,
            max_multibulk: i32::MAX as usize,
            authenticated: true,
        }
    }
}

impl Limits {
    /// The stricter limits for a client that has yet to authenticate.
    pub fn unauthenticated(self) -> Limits {
        Limits {
            authenticated: false,
            ..self
        }
    }
}

/// What [`Parser::parse`] made of the bytes so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The request fills the first `consumed` bytes of the buffer.
    Complete { consumed: usize },
    /// Fewer than `need` more bytes will not change the outcome. Only a claim of the client's: to
    /// reserve that much memory at once is to trust it.
    Incomplete { need: usize },
}

/// The state of the one request under way.
#[derive(Debug, Default)]
pub struct Parser {
    stage: Stage,
    at: usize,
    /// How much of the line at `at` is known not to hold its end.
    scanned: usize,
    /// Bulks yet to come, the one under way included.
    pending: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Inline,
    Count,
    Header,
    Payload {
        len: usize,
    },
}

impl Parser {
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Parses the request that starts at the first byte of `buf`.
    ///
    /// After `Incomplete`, call again with the same `args` and the same bytes and more behind them (the
    /// buffer may have moved). After `Complete`, `args` holds the request until the next call; go on
    /// with what follows the consumed bytes. An error stands: calling again repeats it.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Args,
    ) -> Result<Parsed, ProtocolError> {
        if let Stage::Idle = self.stage {
            args.clear();
            match buf.first() {
                None => return Ok(Parsed::Incomplete { need: 1 }),
                Some(b'*') => self.stage = Stage::Count,
                Some(_) => self.stage = Stage::Inline,
            }
        }
        if let Stage::Inline = self.stage {
            return self.inline(buf, limits, args);
        }
        if let Stage::Count = self.stage
            && !self.multibulk_count(buf, limits)?
        {
            return Ok(Parsed::Incomplete { need: 1 });
        }
        self.bulks(buf, limits, args)
    }

    fn inline(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Args,
    ) -> Result<Parsed, ProtocolError> {
        let too_big = ProtocolError::TooBigInline;
        let Some(newline) = self.find_line_end(b'\n', buf, limits, too_big)? else {
            return Ok(Parsed::Incomplete { need: 1 });
        };
        let line = &buf[..newline];
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), args)?;
        Ok(self.complete(newline + 1))
    }

    /// Reads `*<count>`; false if its line has yet to end.
    #[inline]
    fn multibulk_count(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        if let [b'*', digit @ b'1'..=b'9', b'\r', _, ..] = *buf
            && limits.max_inline >= SHORT_COUNT
            && usize::from(digit - b'0') <= limits.max_multibulk
        {
            self.pending = usize::from(digit - b'0');
            self.enter(Stage::Header, SHORT_COUNT);
            return Ok(true);
        }
        self.long_multibulk_count(buf, limits)
    }

    /// The same for any number.
    fn long_multibulk_count(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let invalid = ProtocolError::InvalidMultibulkLength;
        let too_big = ProtocolError::TooBigMultibulkCount;
        let Some(line) = self.count_line(buf, limits, too_big)? else {
            return Ok(false);
        };
        let count = parse_i64(&line[1..]).ok_or(invalid)?;
        // A negative count is a request of nothing, like zero.
        let bulks = usize::try_from(count.max(0)).map_err(|_| invalid)?;
        if bulks > limits.max_multibulk {
            return Err(invalid);
        }
        if bulks > UNAUTHENTICATED_MULTIBULK && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.pending = bulks;
        self.enter(Stage::Header, self.at + line.len() + LINE_END);
        Ok(true)
    }

    fn bulks(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Args,
    ) -> Result<Parsed, ProtocolError> {
        while self.pending > 0 {
            let len = match self.stage {
                Stage::Payload { len } => len,
                _ => match self.bulk_header(buf, limits)? {
                    Some(len) => len,
                    None => return Ok(Parsed::Incomplete { need: 1 }),
                },
            };
            let wanted = len.saturating_add(LINE_END);
            let here = buf.len() - self.at;
            if here < wanted {
                let need = wanted - here;
                return Ok(Parsed::Incomplete { need });
            }
            args.push_range(self.at, self.at + len);
            self.pending -= 1;
            self.enter(Stage::Header, self.at + wanted);
        }
        Ok(self.complete(self.at))
    }

    /// Reads `$<length>`; none if its line has yet to end.
    #[inline]
    fn bulk_header(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if let Some((len, header)) = short_header(&buf[self.at..])
            && len <= limits.max_bulk_len
            && header <= limits.max_inline
        {
            self.enter(Stage::Payload { len }, self.at + header);
            return Ok(Some(len));
        }
        let invalid = ProtocolError::InvalidBulkLength;
        let too_big = ProtocolError::TooBigBulkCount;
        let Some(line) = self.count_line(buf, limits, too_big)? else {
            return Ok(None);
        };
        let digits = match line {
            [b'$', digits @ ..] => digits,
            [got, ..] => return Err(ProtocolError::ExpectedDollar(*got)),
            [] => return Err(ProtocolError::ExpectedDollar(b'\r')),
        };
        let len = parse_i64(digits).ok_or(invalid)?;
        let len = usize::try_from(len).map_err(|_| invalid)?;
        if len > limits.max_bulk_len {
            return Err(invalid);
        }
        if len > UNAUTHENTICATED_BULK_LEN && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.enter(Stage::Payload { len }, self.at + line.len() + LINE_END);
        Ok(Some(len))
    }

    /// The line at `at` up to its `\r`, once the byte after that is there too.
    fn count_line<'b>(
        &mut self,
        buf: &'b [u8],
        limits: &Limits,
        too_big: ProtocolError,
    ) -> Result<Option<&'b [u8]>, ProtocolError> {
        match self.find_line_end(b'\r', buf, limits, too_big)? {
            Some(end) if end + 1 < buf.len() => Ok(Some(&buf[self.at..end])),
            _ => Ok(None),
        }
    }

    /// Where the line at `at` ends; none if it has yet to.
    fn find_line_end(
        &mut self,
        end: u8,
        buf: &[u8],
        limits: &Limits,
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let line = &buf[self.at..];
        // The rule may not depend on how much happens to have arrived beyond the limit.
        let within = line.len().min(limits.max_inline.saturating_add(1));
        let fresh = &line[self.scanned.min(within)..within];
        match find_either(end, 0, fresh) {
            Some(i) if fresh[i] == end => Ok(Some(self.at + self.scanned + i)),
            _ if line.len() > limits.max_inline => Err(too_big),
            hidden => {
                // Up to the zero byte and not beyond it: the next call stops there again at once.
                self.scanned += hidden.unwrap_or(fresh.len());
                Ok(None)
            }
        }
    }

    #[inline]
    fn enter(&mut self, stage: Stage, at: usize) {
        self.stage = stage;
        self.at = at;
        self.scanned = 0;
    }

    fn complete(&mut self, consumed: usize) -> Parsed {
        self.enter(Stage::Idle, 0);
        Parsed::Complete { consumed }
    }
}

/// `memchr2`, except that a hit in the first bytes is found without its start-up cost: nearly every
/// line is the few digits of a count.
fn find_either(a: u8, b: u8, haystack: &[u8]) -> Option<usize> {
    let (near, far) = haystack.split_at(haystack.len().min(8));
    match near.iter().position(|byte| *byte == a || *byte == b) {
        None => memchr::memchr2(a, b, far).map(|i| near.len() + i),
        found => found,
    }
}

/// The length in a header of one or two digits, as nearly all are, and the header's own.
fn short_header(buf: &[u8]) -> Option<(usize, usize)> {
    match *buf {
        [b'$', digit @ b'0'..=b'9', b'\r', _, ..] => Some((usize::from(digit - b'0'), 4)),
        [b'$', tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', _, ..] => {
            let len = usize::from(tens - b'0') * 10 + usize::from(ones - b'0');
            Some((len, 5))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What comes first, what comes then, and what is to be made of both.
    type InTwoPieces<Outcome> = (&'static [u8], &'static [u8], Outcome);

    fn parse(parser: &mut Parser, buf: &[u8], args: &mut Args) -> Parsed {
        parser.parse(buf, &Limits::default(), args).unwrap()
    }

    #[test]
    fn it_says_what_it_needs() {
        let cases: &[(&[u8], usize)] = &[
            (b"", 1),
            (b"PING", 1),
            (b"*3\r", 1),
            // The next byte may already be the one that is wrong, however many are to come.
            (b"*3\r\n", 1),
            (b"*3\r\n$100", 1),
            (b"*3\r\n$100\r\n", 102),
            (b"*3\r\n$4\r\nPI", 4),
            (b"*3\r\n$4\r\nPING\r", 1),
            (b"*1\r\n$536870912\r\n", 536_870_914),
        ];
        for (buf, need) in cases {
            let parsed = parse(&mut Parser::new(), buf, &mut Args::new());
            let expected = Parsed::Incomplete { need: *need };
            assert_eq!(parsed, expected, "{}", buf.escape_ascii());
        }
    }

    /// What has been looked at is replaced by what would end the line or break the framing: a search
    /// that began anew would notice.
    #[test]
    fn it_never_searches_twice() {
        let cases: &[InTwoPieces<&[&[u8]]>] = &[
            (b"aaaaaaaaaaaa", b"a b\n", &[b"a", b"b"]),
            (b"*2\r\n$1\r\nx\r\n", b"$1\r\ny\r\n", &[b"\n", b"y"]),
            (b"*1\r\n$9\r\nabcde", b"fghi\r\n", &[b"\n\n\n\n\nfghi"]),
        ];
        for (seen, rest, expected) in cases {
            let (mut parser, mut args) = (Parser::new(), Args::new());
            let parsed = parse(&mut parser, seen, &mut args);
            assert!(matches!(parsed, Parsed::Incomplete { .. }));
            let buf = [&vec![b'\n'; seen.len()], *rest].concat();
            let consumed = buf.len();
            let parsed = parse(&mut parser, &buf, &mut args);
            assert_eq!(parsed, Parsed::Complete { consumed });
            assert_eq!(args.iter(&buf).collect::<Vec<_>>(), *expected);
        }
    }

    #[test]
    fn a_request_follows_the_one_before() {
        let buf = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING 'a b'\r\n*0\r\n";
        let (mut parser, mut args) = (Parser::new(), Args::new());
        let mut rest = &buf[..];
        for expected in [&[&b"GET"[..], b"k"][..], &[b"PING", b"a b"], &[]] {
            let Parsed::Complete { consumed } = parse(&mut parser, rest, &mut args) else {
                panic!("the request is all there");
            };
            assert!(args.iter(rest).eq(expected.iter().copied()));
            assert_eq!(args.len(), expected.len());
            for (i, arg) in expected.iter().enumerate() {
                assert_eq!(args.get(rest, i), *arg);
            }
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty() && args.is_empty());
    }

    #[test]
    fn limits_may_tighten_while_a_request_arrives() {
        let tight = Limits {
            max_bulk_len: 1,
            max_inline: 1,
            max_multibulk: 1,
            authenticated: false,
        };
        let cases: &[InTwoPieces<Result<Parsed, ProtocolError>>] = &[
            (b"aaaaaaaa", b"a\r\n", Err(ProtocolError::TooBigInline)),
            (b"*222", b"2\r\n", Err(ProtocolError::TooBigMultibulkCount)),
            (b"*2\r\n$222", b"\r\n", Err(ProtocolError::TooBigBulkCount)),
            // What was accepted stays accepted.
            (
                b"*1\r\n$4\r\nPI",
                b"NG\r\n",
                Ok(Parsed::Complete { consumed: 14 }),
            ),
        ];
        for (first, rest, expected) in cases {
            let (mut parser, mut args) = (Parser::new(), Args::new());
            parse(&mut parser, first, &mut args);
            let buf = [*first, *rest].concat();
            assert_eq!(parser.parse(&buf, &tight, &mut args), *expected);
        }
    }

    #[test]
    fn limits_without_bound_do_not_overflow() {
        let limits = Limits {
            max_bulk_len: usize::MAX,
            max_inline: usize::MAX,
            max_multibulk: usize::MAX,
            authenticated: true,
        };
        let buf = b"*9223372036854775807\r\n$9223372036854775807\r\n";
        let parsed = Parser::new().parse(buf, &limits, &mut Args::new());
        let need = i64::MAX as usize + LINE_END;
        assert_eq!(parsed, Ok(Parsed::Incomplete { need }));
    }
}
