//! Replies to bytes.
//!
//! A command says what kind of answer it gives; [`Writer`] knows how each kind is spelled in the
//! protocol the client speaks. RESP3 has a spelling of its own for every kind, RESP2 makes do:
//!
//! | kind | RESP3 | RESP2 |
//! |---|---|---|
//! | map | `%pairs` | `*` with keys and values in turn |
//! | set, push | `~` `>` | `*` |
//! | double, big number | `,` `(` | bulk with the same text |
//! | bool | `#t` `#f` | `:1` `:0` |
//! | null, null array | `_` for both | `$-1`, `*-1` |
//! | verbatim | `=` with the format in front | bulk |
//! | attributes | `\|` ahead of a value | not said at all |
//!
//! The aggregate methods write a header only; the caller then writes as many values as it announced.

use crate::number::{format_double, format_human_double};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// What a client speaks that never said HELLO.
    #[default]
    Resp2,
    Resp3,
}

/// Appends RESP to a byte buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Writer<'a> {
        Writer { out, protocol }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// How much the buffer holds, with what was in it before this writer.
    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    #[inline]
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// `text` starts with the error's code: `ERR`, `WRONGTYPE`...
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let end = text.iter().rposition(|byte| !is_line_break(*byte));
        self.line(b'-', &text[..end.map_or(0, |last| last + 1)]);
    }

    #[inline]
    pub fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Announces a bulk of `len` bytes, which the caller then appends to [`bytes`](Self::bytes), with the
    /// line break that ends it.
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        // Nearly all are as short as this.
        match len {
            0..10 => self
                .out
                .extend_from_slice(&[b'$', digit(len), b'\r', b'\n']),
            10..100 => {
                let (tens, ones) = (digit(len / 10), digit(len % 10));
                self.out
                    .extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
            }
            _ => self.header(b'$', len),
        }
    }

    /// The buffer itself, for what is encoded already.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        self.out
    }

    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// What stands for a missing array: a BLPOP that timed out, an EXEC that was aborted.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// To be followed by each pair's key and value: twice as many values as pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * pairs),
            Protocol::Resp3 => self.header(b'%', pairs),
        }
    }

    pub fn set(&mut self, len: usize) {
        self.aggregate(b'~', len);
    }

    /// A message that answers no request: pub/sub, invalidations.
    pub fn push(&mut self, len: usize) {
        self.aggregate(b'>', len);
    }

    pub fn double(&mut self, value: f64) {
        match self.protocol {
            Protocol::Resp2 => self.double_as_bulk(value),
            Protocol::Resp3 => {
                self.out.push(b',');
                format_double(value, self.out);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// The same in another notation, see [`format_human_double`].
    pub fn human_double(&mut self, value: f64) {
        let mut text = Vec::new();
        format_human_double(value, &mut text);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.line(b',', &text),
        }
    }

    pub fn bool(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.int(i64::from(value)),
            Protocol::Resp3 => {
                let spelled = if value { b"#t\r\n" } else { b"#f\r\n" };
                self.out.extend_from_slice(spelled);
            }
        }
    }

    /// Text that says what it is written in: `txt` or `mkd`. A format has three letters; others are cut
    /// or padded with blanks.
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                let mut tag = *b"   :";
                for (to, from) in tag[..3].iter_mut().zip(format.bytes()) {
                    *to = from;
                }
                self.header(b'=', tag.len() + text.len());
                self.out.extend_from_slice(&tag);
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// An integer of any size, as its decimal digits.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => self.line(b'(', digits),
        }
    }

    /// Announces attributes of the value that comes after them, and tells whether to write them: RESP2
    /// has none.
    #[must_use = "RESP2 has no attributes, and they must not be written then"]
    pub fn attributes(&mut self, pairs: usize) -> bool {
        let spoken = self.protocol == Protocol::Resp3;
        if spoken {
            self.header(b'|', pairs);
        }
        spoken
    }

    /// A request, as clients and replicas send it: an array of bulks in either protocol.
    pub fn request<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.array(args.len());
        for arg in args {
            self.bulk(arg);
        }
    }

    fn aggregate(&mut self, kind: u8, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.header(kind, len),
        }
    }

    /// The length comes first but is known last: it is written behind the text, and the two change
    /// places.
    fn double_as_bulk(&mut self, value: f64) {
        let start = self.out.len();
        format_double(value, self.out);
        let text_len = self.out.len() - start;
        self.header(b'$', text_len);
        self.out[start..].rotate_left(text_len);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A line break inside it would end the reply and let its tail pass for another: they become
    /// blanks, whoever supplied the text.
    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if is_line_break(*byte) {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn header(&mut self, kind: u8, number: impl itoa::Integer) {
        self.out.push(kind);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn digit(number: usize) -> u8 {
    b'0' + number as u8
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out, protocol));
        out.escape_ascii().to_string()
    }

    /// A kind and its spelling in RESP2 and in RESP3.
    type Case<'a> = (&'a dyn Fn(&mut Writer<'_>), &'a str, &'a str);

    #[test]
    fn every_kind_in_both_protocols() {
        let cases: &[Case<'_>] = &[
            (&|w| w.simple("OK"), "+OK", "+OK"),
            (&|w| w.error("ERR no"), "-ERR no", "-ERR no"),
            (&|w| w.int(12345), ":12345", ":12345"),
            (
                &|w| w.int(i64::MIN),
                ":-9223372036854775808",
                ":-9223372036854775808",
            ),
            (
                &|w| w.bulk("Hello World"),
                r"$11\r\nHello World",
                r"$11\r\nHello World",
            ),
            (&|w| w.bulk(""), r"$0\r\n", r"$0\r\n"),
            (
                &|w| {
                    w.bulk_header(3);
                    w.bytes().extend_from_slice(b"abc\r\n");
                },
                r"$3\r\nabc",
                r"$3\r\nabc",
            ),
            (&|w| w.null(), "$-1", "_"),
            (&|w| w.null_array(), "*-1", "_"),
            (&|w| w.array(3), "*3", "*3"),
            (&|w| w.set(3), "*3", "~3"),
            (&|w| w.map(3), "*6", "%3"),
            (&|w| w.push(2), "*2", ">2"),
            (&|w| w.bool(true), ":1", "#t"),
            (&|w| w.bool(false), ":0", "#f"),
            (&|w| w.double(3.25), r"$4\r\n3.25", ",3.25"),
            (&|w| w.double(3.0), r"$1\r\n3", ",3"),
            (
                &|w| w.double(0.1),
                r"$19\r\n0.10000000000000001",
                ",0.10000000000000001",
            ),
            (&|w| w.double(f64::INFINITY), r"$3\r\ninf", ",inf"),
            (&|w| w.double(f64::NEG_INFINITY), r"$4\r\n-inf", ",-inf"),
            (&|w| w.double(f64::NAN.copysign(1.0)), r"$3\r\nnan", ",nan"),
            (
                &|w| w.verbatim("txt", b"a\nb"),
                r"$3\r\na\nb",
                r"=7\r\ntxt:a\nb",
            ),
            (&|w| w.verbatim("mk", b"a"), r"$1\r\na", r"=5\r\nmk :a"),
            (&|w| w.verbatim("long", b"a"), r"$1\r\na", r"=5\r\nlon:a"),
            (
                &|w| w.big_number(b"1234567999999999999999"),
                r"$22\r\n1234567999999999999999",
                "(1234567999999999999999",
            ),
            (
                &|w| w.request(&["GET", "k"]),
                r"*2\r\n$3\r\nGET\r\n$1\r\nk",
                r"*2\r\n$3\r\nGET\r\n$1\r\nk",
            ),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Protocol::Resp2, write), format!(r"{resp2}\r\n"));
            assert_eq!(written(Protocol::Resp3, write), format!(r"{resp3}\r\n"));
        }
    }

    #[test]
    fn attributes_are_for_resp3_only() {
        let write = |w: &mut Writer<'_>| {
            if w.attributes(1) {
                w.bulk("popularity");
                w.int(90);
            }
            w.bulk("reply");
        };
        let resp3 = r"|1\r\n$10\r\npopularity\r\n:90\r\n$5\r\nreply\r\n";
        assert_eq!(written(Protocol::Resp2, write), r"$5\r\nreply\r\n");
        assert_eq!(written(Protocol::Resp3, write), resp3);
    }

    #[test]
    fn no_line_is_split() {
        let forged = "ERR '\r\n+OK\r\n'\n\r\n";
        let protocol = Protocol::Resp3;
        assert_eq!(
            written(protocol, |w| w.error(forged)),
            r"-ERR \'  +OK  \'\r\n"
        );
        assert_eq!(written(protocol, |w| w.error("\r\n")), r"-\r\n");
        assert_eq!(written(protocol, |w| w.simple("a\r\nb\n")), r"+a  b \r\n");
        assert_eq!(written(protocol, |w| w.big_number(b"1\r\n2")), r"(1  2\r\n");
    }

    #[test]
    fn it_appends_and_counts_what_was_there() {
        let mut out = b"before".to_vec();
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        assert!(!writer.is_empty());
        writer.double(1.5);
        assert_eq!(writer.len(), "before$3\r\n1.5\r\n".len());
        assert_eq!(out, b"before$3\r\n1.5\r\n");
    }
}
