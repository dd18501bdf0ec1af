//! A script for EVAL: its text, its name and what it says of itself.

use std::sync::Arc;

use crate::flags::Flags;
use crate::sha1::sha1_hex;
use crate::shebang;

/// Cheap to clone, and the same for all engines.
#[derive(Clone, Debug)]
pub struct Script {
    text: Arc<[u8]>,
    sha: Arc<str>,
    flags: Option<Flags>,
    /// Where the code begins: behind the shebang, if there is one.
    code: usize,
}

impl Script {
    /// An error is the text after `ERR `. It says nothing yet of the code, which only
    /// [`Engine::compile`](crate::Engine::compile) looks at.
    pub fn new(text: &[u8]) -> Result<Script, Vec<u8>> {
        let (flags, code) = shebang::of_script(text)?;
        Ok(Script {
            code: text.len() - code.len(),
            sha: sha1_hex(text).into(),
            text: text.into(),
            flags,
        })
    }

    /// What EVALSHA calls it by: forty hexadecimal digits in lower case.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// None without a shebang: such a script is judged by the commands that it calls.
    pub fn flags(&self) -> Option<Flags> {
        self.flags
    }

    pub(crate) fn code(&self) -> &[u8] {
        &self.text[self.code..]
    }
}
