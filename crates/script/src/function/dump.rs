//! The bytes of FUNCTION DUMP, which FUNCTION RESTORE reads, Redis' or ours.
//!
//! ```text
//! F5 | code   for each library    (F6 | name | engine | 0 or 1 description | code: before 7.0.0)
//! footer      as behind any payload
//! ```

use cairn_rdb::{Corrupt, Input, string};

use super::libraries::Libraries;

const LIBRARY: u8 = 0xf5;
const LIBRARY_BEFORE_7: u8 = 0xf6;

pub fn dump(libraries: &Libraries) -> Vec<u8> {
    let mut out = Vec::new();
    for library in libraries.iter() {
        out.push(LIBRARY);
        string::append_plain(&library.code, &mut out);
    }
    cairn_rdb::seal(&mut out);
    out
}

/// The codes of the libraries in a payload. Errors are the text after `ERR `.
pub fn codes(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let content = cairn_rdb::opened(payload);
    let mut input = Input(content.ok_or("DUMP payload version or checksum are wrong")?);
    let mut codes = Vec::new();
    while let Ok(kind) = input.byte() {
        codes.push(match kind {
            LIBRARY => text(&mut input).map_err(|_| "Failed loading library payload")?,
            LIBRARY_BEFORE_7 => old_library(&mut input)?,
            _ => return Err("given type is not a function"),
        });
    }
    Ok(codes)
}

fn text(input: &mut Input<'_>) -> Result<Vec<u8>, Corrupt> {
    input.string().map(|text| text.into_owned())
}

/// A library of a release candidate, which kept name and engine beside the code.
fn old_library(input: &mut Input<'_>) -> Result<Vec<u8>, &'static str> {
    let name = text(input).map_err(|_| "Failed loading library name")?;
    let engine = text(input).map_err(|_| "Failed loading engine name")?;
    let described = input
        .length()
        .map_err(|_| "Failed loading library description indicator")?;
    if described != 0 {
        text(input).map_err(|_| "Failed loading library description")?;
    }
    let code = text(input).map_err(|_| "Failed loading library blob")?;
    Ok([b"#!", &engine[..], b" name=", &name, b"\n", &code].concat())
}
