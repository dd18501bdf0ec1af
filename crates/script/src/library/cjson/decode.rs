//! JSON to tables.

use mlua::{Lua, Value};

use super::{Config, MOST_LEVELS};
use crate::library::number::parse_prefix;
use crate::raw::native::{Args, Throw};

pub fn decode(lua: &Lua, args: &Args, config: Config) -> Result<Value, Throw> {
    if args.len() != 1 {
        return Err(args.wrong(1, "expected 1 argument"));
    }
    let text = args.string(1)?;
    let text = text.as_bytes();
    if matches!(&text[..], [0, _, ..] | [_, 0, ..]) {
        return Err(Throw::message(
            "JSON parser does not support UTF-16 or UTF-32",
        ));
    }
    let mut decoder = Decoder {
        lua,
        text: &text,
        at: 0,
        config,
        depth: 0,
    };
    let token = decoder.token();
    let value = decoder.value(token)?;
    let token = decoder.token();
    match token.kind {
        Kind::End => Ok(value),
        _ => Err(token.unexpected("the end")),
    }
}

struct Token {
    kind: Kind,
    at: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn unexpected(&self, expected: &str) -> Throw {
        let found = match &self.kind {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::String(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Error(what) => what,
        };
        Throw::message(format!(
            "Expected {expected} but found {found} at character {}",
            self.at + 1
        ))
    }
}

struct Decoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    config: Config,
    depth: i32,
}

impl Decoder<'_> {
    /// The byte at an offset from here; NUL behind the end, which is how the text ends in C.
    fn peek(&self, offset: usize) -> u8 {
        self.text.get(self.at + offset).copied().unwrap_or(0)
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&mut self) -> Token {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let single = match self.peek(0) {
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ArrayBegin,
            b']' => Kind::ArrayEnd,
            b',' => Kind::Comma,
            b':' => Kind::Colon,
            0 => {
                return Token {
                    kind: Kind::End,
                    at,
                };
            }
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                let kind = if !self.config.decode_invalid && self.is_invalid_number() {
                    Kind::Error("invalid number")
                } else {
                    self.number()
                };
                return Token { kind, at };
            }
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => {
                let kind = self.word();
                return Token { kind, at };
            }
            _ => {
                let kind = Kind::Error("invalid token");
                return Token { kind, at };
            }
        };
        self.at += 1;
        Token { kind: single, at }
    }

    fn word(&mut self) -> Kind {
        let words = [
            ("true", Kind::Boolean(true)),
            ("false", Kind::Boolean(false)),
            ("null", Kind::Null),
        ];
        for (word, kind) in words {
            if self.rest().starts_with(word.as_bytes()) {
                self.at += word.len();
                return kind;
            }
        }
        if self.config.decode_invalid && self.is_invalid_number() {
            return self.number();
        }
        Kind::Error("invalid token")
    }

    /// Whether what begins here is a number to C, but not to JSON.
    fn is_invalid_number(&self) -> bool {
        let text = self.rest();
        if text.starts_with(b"+") {
            return true;
        }
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        match digits {
            [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
            [first, ..] if *first <= b'9' => false,
            [a, b, c, ..] => {
                let name = [a, b, c].map(u8::to_ascii_lowercase);
                name == *b"inf" || name == *b"nan"
            }
            _ => false,
        }
    }

    fn number(&mut self) -> Kind {
        match parse_prefix(self.rest()) {
            Some((value, len)) => {
                self.at += len;
                Kind::Number(value)
            }
            None => Kind::Error("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        let begin = self.at;
        let mut string = Vec::new();
        self.at += 1;
        let error = loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return Token {
                        kind: Kind::String(string),
                        at: begin,
                    };
                }
                0 => break "unexpected end of string",
                b'\\' => {
                    let byte = match self.peek(1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0c,
                        b'r' => b'\r',
                        b'u' => match self.unicode() {
                            Some((character, len)) => {
                                string.extend_from_slice(&character);
                                self.at += len;
                                continue;
                            }
                            None => break "invalid unicode escape code",
                        },
                        _ => break "invalid escape code",
                    };
                    string.push(byte);
                    self.at += 2;
                }
                byte => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        };
        Token {
            kind: Kind::Error(error),
            at: self.at,
        }
    }

    /// The UTF-8 of the escape that begins here, `\uXXXX` or a pair of surrogates, and its length.
    fn unicode(&self) -> Option<(Vec<u8>, usize)> {
        let first = self.hex(2)?;
        let (code, len) = match first {
            0xdc00..=0xdfff => return None,
            0xd800..=0xdbff => {
                if self.peek(6) != b'\\' || self.peek(7) != b'u' {
                    return None;
                }
                let second = self.hex(8).filter(|code| code & 0xfc00 == 0xdc00)?;
                (0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff), 12)
            }
            code => (code, 6),
        };
        let character = char::from_u32(code)?;
        Some((character.to_string().into_bytes(), len))
    }

    fn hex(&self, offset: usize) -> Option<u32> {
        (offset..offset + 4).try_fold(0, |code, offset| {
            let digit = char::from(self.peek(offset)).to_digit(16)?;
            Some(code << 4 | digit)
        })
    }

    fn value(&mut self, token: Token) -> Result<Value, Throw> {
        Ok(match token.kind {
            Kind::String(text) => Value::String(self.lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(is) => Value::Boolean(is),
            Kind::Null => Value::NULL,
            Kind::ObjectBegin => self.object()?,
            Kind::ArrayBegin => self.array()?,
            _ => return Err(token.unexpected("value")),
        })
    }

    fn descend(&mut self) -> Result<(), Throw> {
        self.depth += 1;
        if self.depth > self.config.decode_max_depth.min(MOST_LEVELS) {
            return Err(Throw::message(format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            )));
        }
        Ok(())
    }

    fn object(&mut self) -> Result<Value, Throw> {
        self.descend()?;
        let object = self.lua.create_table()?;
        let mut token = self.token();
        if !matches!(token.kind, Kind::ObjectEnd) {
            loop {
                let Kind::String(name) = token.kind else {
                    return Err(token.unexpected("object key string"));
                };
                let colon = self.token();
                if !matches!(colon.kind, Kind::Colon) {
                    return Err(colon.unexpected("colon"));
                }
                let value = self.token();
                let value = self.value(value)?;
                object.raw_set(self.lua.create_string(name)?, value)?;
                let after = self.token();
                match after.kind {
                    Kind::ObjectEnd => break,
                    Kind::Comma => token = self.token(),
                    _ => return Err(after.unexpected("comma or object end")),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(object))
    }

    fn array(&mut self) -> Result<Value, Throw> {
        self.descend()?;
        let array = self.lua.create_table()?;
        let mut token = self.token();
        if !matches!(token.kind, Kind::ArrayEnd) {
            for place in 1.. {
                array.raw_set(place, self.value(token)?)?;
                let after = self.token();
                match after.kind {
                    Kind::ArrayEnd => break,
                    Kind::Comma => token = self.token(),
                    _ => return Err(after.unexpected("comma or array end")),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(array))
    }
}
