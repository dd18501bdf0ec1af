//! Patterns, as KEYS, SCAN, PSUBSCRIBE, CONFIG GET and ACL rules match them.
//!
//! ```text
//! *       any bytes, none included
//! ?       any byte
//! [abc]   one of these; [^abc] none of them; [a-z] a range, in either order
//! \x      x itself, also inside brackets
//! ```
//!
//! A pattern is never wrong, only strange, and what the strange ones match is part of what clients may
//! rely on. So Redis' reading of them is kept to the letter, and the tests hold its answers:
//!
//! - Empty text matches the empty pattern only, not even `*`. (KEYS and SCAN never ask about `*`.)
//! - Brackets that are not closed end with the pattern: `[ab` is `[ab]`, and `[^` is any byte.
//! - `]` closes brackets even as the first byte in them: `[]` matches nothing and `[^]` anything. As the
//!   end of a range it does not: `[a-]` is a range and is not closed.
//! - A backslash at the very end stands for itself.
//! - Ranges compare bytes as C's signed chars, and are put in order before the case is folded. Escaped
//!   bytes in brackets are never folded.
//!
//! Each part of a pattern other than `*` takes exactly one byte, which makes matching cheap: when a part
//! fails, only the last `*` needs to take a byte more. For had an earlier one taken more, the last one
//! would only start later in the text, where it has been tried, or will be. That bounds the time by
//! the product of the lengths. Redis, as Debian ships it, recurses at each star, and gives up at a depth
//! of a thousand: so do we, although there is no depth here that could run out.

const MOST_STARS: usize = 1000;

/// Whether `pattern` matches the whole of `text`; `nocase` ignores the case of ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last star, and the text that it was last tried on.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let mut stars = 0;
    loop {
        if pattern.starts_with(b"*") {
            pattern = skip_stars(pattern);
            if pattern.is_empty() {
                return true;
            }
            stars += 1;
            if stars > MOST_STARS {
                return false;
            }
            retry = Some((pattern, text));
        }
        if let Some(rest) = match_byte(pattern, text[0], nocase) {
            (pattern, text) = (rest, &text[1..]);
            if text.is_empty() {
                return skip_stars(pattern).is_empty();
            }
        } else {
            match retry {
                Some((after_star, [_, shorter @ ..])) if !shorter.is_empty() => {
                    retry = Some((after_star, shorter));
                    (pattern, text) = (after_star, shorter);
                }
                _ => return false,
            }
        }
    }
}

fn skip_stars(pattern: &[u8]) -> &[u8] {
    let stars = pattern.iter().take_while(|&&byte| byte == b'*').count();
    &pattern[stars..]
}

/// Matches the first part of `pattern`, which is not a star, with one byte, and returns the other parts.
fn match_byte(pattern: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    let (matched, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', b'^', class @ ..] => {
            let (matched, rest) = match_class(class, byte, nocase);
            (!matched, rest)
        }
        [b'[', class @ ..] => match_class(class, byte, nocase),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (same(*literal, byte, nocase), rest),
    };
    matched.then_some(rest)
}

/// Whether `byte` is in the brackets whose inside `class` starts with, and the pattern behind them.
fn match_class(class: &[u8], byte: u8, nocase: bool) -> (bool, &[u8]) {
    let mut class = class;
    let mut matched = false;
    loop {
        class = match class {
            [] => return (matched, class),
            [b'\\', literal, rest @ ..] => {
                matched |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => return (matched, rest),
            [start, b'-', end, rest @ ..] => {
                matched |= in_range(*start, *end, byte, nocase);
                rest
            }
            [literal, rest @ ..] => {
                matched |= same(*literal, byte, nocase);
                rest
            }
        };
    }
}

fn in_range(start: u8, end: u8, byte: u8, nocase: bool) -> bool {
    let (start, end) = (start as i8, end as i8);
    let (low, high) = (start.min(end) as u8, start.max(end) as u8);
    let [low, high, byte] = [low, high, byte].map(|byte| fold(byte, nocase) as i8);
    (low..=high).contains(&byte)
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    fold(a, nocase) == fold(b, nocase)
}

fn fold(byte: u8, nocase: bool) -> u8 {
    if nocase {
        byte.to_ascii_lowercase()
    } else {
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thousand_stars_are_too_many() {
        let text = "a".repeat(2000);
        let with = |stars| "*?".repeat(stars);
        assert!(matches(with(1000).as_bytes(), text.as_bytes(), false));
        assert!(!matches(with(1001).as_bytes(), text.as_bytes(), false));
    }

    /// A pattern, what it matches, and what it does not: answers of a Redis 7.0.15.
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

    const CASES: &[Case] = &[
        ("", &[""], &["a"]),
        ("**", &["a", "ab"], &[""]),
        ("a*", &["a", "ab"], &["", "b"]),
        ("*a", &["a", "ba"], &["ab"]),
        ("a*b*c", &["abc", "axbxc"], &["acb", "ab"]),
        ("**a**", &["a", "bab"], &["b"]),
        ("?", &["a"], &["", "ab"]),
        ("?*", &["a", "ab"], &[]),
        ("*?", &["a", "ab"], &[]),
        ("[ab]", &["a", "b"], &["c", "ab"]),
        ("[^ab]", &["c", "^"], &["a", ""]),
        ("[a-c]", &["a", "b", "c"], &["d", "-"]),
        ("[c-a]", &["b"], &["d"]),
        ("[a-c-e]", &["b", "-", "e"], &["d"]),
        ("[-a]", &["-", "a"], &["b"]),
        ("[a-]", &["a", "]", "_"], &["-", "b"]),
        ("[]", &[], &["a", "]"]),
        ("[]a]", &[], &["a", "]", "]a]", "]a"]),
        ("[^]", &["a", "]"], &[]),
        ("[^]a", &["ba", "]a"], &["b"]),
        ("[", &[], &["a", "["]),
        ("[^", &["a", "^"], &[""]),
        ("[a", &["a"], &["b"]),
        ("[a-", &["a", "-"], &["b"]),
        ("[ab", &["b"], &["c", "ab"]),
        ("[^ab", &["c"], &["a"]),
        ("x[a*", &["xa", "x*"], &["xab"]),
        ("[\\]]", &["]"], &["\\"]),
        ("[\\", &["\\"], &["a"]),
        ("[\\a-c]", &["a", "-", "c"], &["b"]),
        ("[a-\\]", &["a", "\\", "]"], &["b"]),
        ("[*]", &["*"], &["a"]),
        ("[?]", &["?"], &["a"]),
        ("[[]", &["["], &["a"]),
        ("[!a]", &["!", "a"], &["b"]),
        ("[a^]", &["a", "^"], &[]),
        ("\\*", &["*"], &["a", "\\*"]),
        ("\\", &["\\"], &["a"]),
        ("a\\", &["a\\"], &["a"]),
        ("\\\\", &["\\"], &["\\\\"]),
        ("*\\", &["a\\", "\\"], &["a"]),
        ("\\a", &["a"], &["\\a"]),
        ("\\[a]", &["[a]"], &["a"]),
        ("\\?", &["?"], &["a"]),
        ("]", &["]"], &["a"]),
        ("a]", &["a]"], &[]),
        ("*[a]", &["ba"], &["b"]),
        ("*[", &[], &["a"]),
        ("*[^", &["a", "ab"], &[""]),
        ("a?b*", &["axb", "axbc"], &["ab"]),
        ("h[^e]llo", &["hallo"], &["hello"]),
        ("h[a-b]llo", &["hbllo"], &["hcllo"]),
        ("*ab", &["aab", "abab"], &["aba"]),
    ];

    /// The same in bytes, where ranges show that they compare signed chars.
    const BYTE_CASES: &[(&[u8], &[u8], bool)] = &[
        (b"[a-\xff]", b"a", true),
        (b"[a-\xff]", b"\xff", true),
        (b"[a-\xff]", b"A", true),
        (b"[a-\xff]", b"b", false),
        (b"[a-\xff]", b"\x80", false),
        (b"[\x80-\xff]", b"\x90", true),
        (b"[\x80-\xff]", b"a", false),
        (b"[\xff-\x01]", b"\0", true),
        (b"[\xff-\x01]", b"\xff", true),
        (b"[\xff-\x01]", b"\x02", false),
        (b"[\xff-\x01]", b"\xfe", false),
        (b"?", b"\xff", true),
        (b"\0*", b"\0a", true),
        (b"\0*", b"a", false),
    ];

    /// Patterns without regard to case, and whether they match `get`.
    const NOCASE_CASES: &[(&str, bool)] = &[
        ("GET", true),
        ("g?t", true),
        ("\\GET", true),
        ("[G]et", true),
        ("[^G]et", false),
        ("G[^e]T", false),
        ("[F-H]ET", true),
        ("[h-F]et", true),
        ("[A-z]et", true),
        ("[Z-a]et", false),
        ("[\\g]ET", true),
        ("[\\G]et", false),
        ("[\\G-Z]et", false),
    ];

    #[test]
    fn answers_as_redis_does() {
        for &(pattern, matching, others) in CASES {
            for text in matching {
                assert!(
                    matches(pattern.as_bytes(), text.as_bytes(), false),
                    "{pattern:?} {text:?}"
                );
            }
            for text in others {
                assert!(
                    !matches(pattern.as_bytes(), text.as_bytes(), false),
                    "{pattern:?} {text:?}"
                );
            }
        }
        for &(pattern, text, answer) in BYTE_CASES {
            assert_eq!(
                matches(pattern, text, false),
                answer,
                "{pattern:?} {text:?}"
            );
        }
        for &(pattern, answer) in NOCASE_CASES {
            assert_eq!(
                matches(pattern.as_bytes(), b"get", true),
                answer,
                "{pattern:?}"
            );
        }
    }

    // Trying every way to share the text among the stars would outlast the machine.
    #[test]
    fn many_stars_take_no_longer_than_few() {
        let text = vec![b'a'; 20_000];
        let matching = b"*a".repeat(1_000);
        assert!(matches(&matching, &text, false));
        let other = [&matching[..], b"b"].concat();
        assert!(!matches(&other, &text, false));
    }

    /// The definition: a star takes any number of bytes, so try them all.
    fn matches_by_definition(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => {
                (0..=text.len()).any(|taken| matches_by_definition(rest, &text[taken..], nocase))
            }
            (_, []) => false,
            (_, [byte, others @ ..]) => match_byte(pattern, *byte, nocase)
                .is_some_and(|rest| matches_by_definition(rest, others, nocase)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn agrees_with_the_definition(pattern in r"[abB*?\[\]^\\-]{0,10}", text in "[abB]{1,8}", nocase: bool) {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), nocase),
                matches_by_definition(pattern.as_bytes(), text.as_bytes(), nocase)
            );
        }

        #[test]
        fn an_escaped_text_matches_itself_only(text: Vec<u8>, other: Vec<u8>) {
            let escaped: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
            prop_assert!(matches(&escaped, &text, false));
            prop_assert_eq!(matches(&escaped, &other, false), text == other);
        }
    }
}
