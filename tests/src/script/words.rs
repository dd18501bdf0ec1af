//! Splits a line into words as redis-cli does: quotes in both kinds, escapes in the double ones.

/// The words of `line`, or what is wrong with its quoting.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut cursor = Cursor {
        rest: line.as_bytes(),
    };
    let mut words = Vec::new();
    while cursor.skip_spaces() {
        words.push(cursor.word()?);
    }
    Ok(words)
}

/// The bytes of a raw line: quoted strings, each repeated by the `*count` that may follow it.
pub fn concatenate(line: &str) -> Result<Vec<u8>, String> {
    let mut cursor = Cursor {
        rest: line.as_bytes(),
    };
    let mut bytes = Vec::new();
    while cursor.skip_spaces() {
        cursor.expect(b'"')?;
        let string = cursor.double_quoted()?;
        bytes.extend(string.repeat(cursor.repetitions()?));
    }
    Ok(bytes)
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// Whether anything but spaces is left.
    fn skip_spaces(&mut self) -> bool {
        self.rest = self.rest.trim_ascii_start();
        !self.rest.is_empty()
    }

    fn next(&mut self) -> Result<u8, String> {
        let (&byte, rest) = self.rest.split_first().ok_or("unbalanced quotes")?;
        self.rest = rest;
        Ok(byte)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        match self.next()? {
            byte if byte == wanted => Ok(()),
            byte => Err(format!(
                "'{}' where '{}' belongs",
                char::from(byte),
                char::from(wanted)
            )),
        }
    }

    fn word(&mut self) -> Result<Vec<u8>, String> {
        let mut word = Vec::new();
        while let Some(&byte) = self.rest.first() {
            self.rest = &self.rest[1..];
            match byte {
                b'"' => {
                    word.extend(self.double_quoted()?);
                    return self.end_of_quoted(word);
                }
                b'\'' => {
                    word.extend(self.single_quoted()?);
                    return self.end_of_quoted(word);
                }
                byte if byte.is_ascii_whitespace() => break,
                byte => word.push(byte),
            }
        }
        Ok(word)
    }

    fn end_of_quoted(&self, word: Vec<u8>) -> Result<Vec<u8>, String> {
        match self.rest.first() {
            Some(byte) if !byte.is_ascii_whitespace() => Err("text after a closing quote".into()),
            _ => Ok(word),
        }
    }

    /// What stands before the closing quote; the opening one has been taken.
    fn double_quoted(&mut self) -> Result<Vec<u8>, String> {
        let mut string = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Ok(string),
                b'\\' => string.push(self.escaped()?),
                byte => string.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Result<u8, String> {
        Ok(match self.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 0x07,
            b'b' => 0x08,
            b'x' => {
                let digits = [self.next()?, self.next()?].map(char::from);
                let digits = String::from_iter(digits);
                u8::from_str_radix(&digits, 16).map_err(|_| format!("\\x{digits} is no byte"))?
            }
            other => other,
        })
    }

    fn single_quoted(&mut self) -> Result<Vec<u8>, String> {
        let mut string = Vec::new();
        loop {
            match self.next()? {
                b'\'' => return Ok(string),
                b'\\' if self.rest.starts_with(b"'") => string.push(self.next()?),
                byte => string.push(byte),
            }
        }
    }

    fn repetitions(&mut self) -> Result<usize, String> {
        let Some(rest) = self.rest.strip_prefix(b"*") else {
            return Ok(1);
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = &rest[digits..];
        let count = String::from_utf8_lossy(&rest[..digits]);
        count.parse().map_err(|_| "no number after '*'".into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn words_are_those_of_redis_cli() {
        let cases: [(&str, &[&[u8]]); 6] = [
            ("GET  key ", &[b"GET", b"key"]),
            (r#"SET "a b" """#, &[b"SET", b"a b", b""]),
            (r#""\x00\xfF\n\"\\\q""#, &[b"\x00\xff\n\"\\q"]),
            (r#"'it\'s' '\n'"#, &[b"it's", br"\n"]),
            (r#"pre"fix ed""#, &[b"prefix ed"]),
            ("", &[]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for line in [r#"""a"#, r#"SET "a"#, "'a", r#""\xzz""#] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn raw_strings_repeat() {
        assert_eq!(
            concatenate(r#""ab"*3 "\r\n" "c"*0"#).unwrap(),
            b"ababab\r\n"
        );
        assert!(concatenate("PING").is_err());
        assert!(concatenate(r#""a"*x"#).is_err());
    }
}
