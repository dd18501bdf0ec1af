//! The words of a user's rules as text, which the configuration file is made of. A word that is none stands in double
//! quotes, byte by byte where it has to be, as redis-cli would print it.

/// Makes text of words with blanks between them.
pub fn to_text(line: &[u8]) -> String {
    let words = line.split(|byte| *byte == b' ').map(word_to_text);
    words.collect::<Vec<_>>().join(" ")
}

fn word_to_text(word: &[u8]) -> String {
    match str::from_utf8(word) {
        Ok(word) if !word.starts_with('"') => word.into(),
        _ => format!("\"{}\"", word.escape_ascii()),
    }
}

/// The words that text was made of.
pub fn of_text(text: &str) -> Vec<Vec<u8>> {
    text.split_ascii_whitespace()
        .map(|word| unquoted(word).unwrap_or_else(|| word.into()))
        .collect()
}

/// What stands in the quotes; none if there are none, or it makes no sense.
fn unquoted(word: &str) -> Option<Vec<u8>> {
    let mut rest = word.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let mut bytes = Vec::new();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (escaped, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escaped {
            b'x' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?
            }
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            other => *other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_words_come_back() {
        for line in [
            &b"ada on ~* +@all"[..],
            b"\xff on ~\xff\x00* &\xc3\x28 (~b\xfe +get)",
            b"\"quoted\" ~a\"b\\ \"\xff\"\\",
            "zo\u{eb} on".as_bytes(),
        ] {
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            assert_eq!(of_text(&to_text(line)), words);
        }
        assert_eq!(to_text("zo\u{eb} ~*".as_bytes()), "zo\u{eb} ~*");
        assert_eq!(to_text(b"ada ~\xff"), "ada \"~\\xff\"");
    }
}
