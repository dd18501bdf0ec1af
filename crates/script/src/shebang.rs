//! The first line of scripts and libraries, `#!lua flags=... name=...`.

use cairn_resp::inline;

use crate::Flags;
use crate::function::load::is_name;

/// A first line, its words, and what follows, from the line feed on: so the lines keep their numbers.
struct Shebang<'a> {
    words: Option<Vec<Vec<u8>>>,
    code: &'a [u8],
}

/// Redis looks for the line's end in a C string: what comes after a NUL is not found.
fn split(text: &[u8]) -> Option<Shebang<'_>> {
    let end = text
        .iter()
        .position(|&byte| byte == b'\n' || byte == 0)
        .filter(|&end| text[end] == b'\n')?;
    let (line, code) = text.split_at(end);
    Some(Shebang {
        words: inline::words(line).ok().filter(|words| !words.is_empty()),
        code,
    })
}

/// The flags of a script for EVAL, none if it has no shebang, and its code.
pub fn of_script(text: &[u8]) -> Result<(Option<Flags>, &[u8]), Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Ok((None, text));
    }
    let shebang = split(text).ok_or("Invalid script shebang")?;
    let words = shebang.words.ok_or("Invalid engine in script shebang")?;
    if words[0] != b"#!lua" {
        return Err(with(b"Unexpected engine in script shebang: ", &words[0]));
    }
    let mut flags = Flags::default();
    for word in &words[1..] {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(with(b"Unknown lua shebang option: ", word));
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|&byte| byte == b',') {
            let flag = Flags::named(name)
                .ok_or_else(|| with(b"Unexpected flag in script shebang: ", name))?;
            flags.insert(flag);
        }
    }
    Ok((Some(flags), shebang.code))
}

/// What the first line of a library says, and its code.
pub struct Metadata<'a> {
    pub engine: Vec<u8>,
    pub name: Vec<u8>,
    pub code: &'a [u8],
}

/// For FUNCTION LOAD.
pub fn of_library(text: &[u8]) -> Result<Metadata<'_>, Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    let shebang = split(text).ok_or("Invalid library metadata")?;
    let words = shebang.words.ok_or("Invalid library metadata")?;
    let mut name = None;
    for word in &words[1..] {
        let given = match word.split_at_checked(5) {
            Some((key, given)) if key.eq_ignore_ascii_case(b"name=") => given,
            _ => return Err(with(b"Invalid metadata value given: ", word)),
        };
        if name.replace(given.to_vec()).is_some() {
            return Err("Invalid metadata value, name argument was given multiple times".into());
        }
    }
    let name = name.ok_or("Library name was not given")?;
    Ok(Metadata {
        engine: words[0][2..].to_vec(),
        name,
        code: shebang.code,
    })
}

/// The name that a library's first line gives it, if that line is all right.
pub fn library_name(code: &[u8]) -> Option<Vec<u8>> {
    let metadata = of_library(code).ok()?;
    let is_right = is_name(&metadata.name) && metadata.engine.eq_ignore_ascii_case(b"lua");
    is_right.then_some(metadata.name)
}

fn with(text: &[u8], word: &[u8]) -> Vec<u8> {
    [text, word].concat()
}
