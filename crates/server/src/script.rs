//! Scripts and functions: EVAL, FCALL and what belongs to them.
//!
//! `crates/script` is Redis' Lua, which knows no database; here is the server that it asks. A script is a unit
//! ([`call`]): its commands run over one transaction, and nobody sees one without the others. [`host`] is what
//! it reaches: commands, and the guards before them.
//!
//! - It runs on the connection's thread at first, for some milliseconds. One that takes longer is undone, and
//!   begins again on a thread of its own, under the same latches: it holds up nobody who does not need them.
//! - Every thread that serves connections has a Lua of its own ([`engines`]), and so has all long work; all know the same scripts ([`cache`]) and functions
//!   ([`functions`]).
//! - Who runs for long is listed ([`running`]), so that others can be told that the server is busy, and SCRIPT KILL
//!   finds it.

mod cache;
pub mod call;
mod engines;
pub mod functions;
mod host;
pub mod reply;
pub mod running;

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_resp::Writer;
use cairn_script::{Flags, Limits, Script};
use cairn_store::{Error, Result};

use cache::Cache;
use engines::Memory;
use functions::Functions;
use running::AllRunning;

use crate::command::{Args, Command, Flag};

/// What scripts of all threads share.
pub struct Scripts {
    /// Tells servers in one process apart.
    id: u64,
    cache: Cache,
    pub functions: Functions,
    pub running: AllRunning,
    /// What one Lua may use.
    limits: Limits,
    memory: Memory,
}

impl Scripts {
    /// `memory` is what the server may use, if that was said.
    pub fn new(memory: Option<usize>) -> Scripts {
        let most = Limits::default().memory;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let share = memory.map_or(most, |memory| memory / 4);
        Scripts {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            cache: Cache::default(),
            functions: Functions::default(),
            running: AllRunning::default(),
            limits: Limits {
                memory: share.clamp(most / 8, most),
            },
            memory: Memory::default(),
        }
    }

    /// The script of this text, and whether it has been seen before.
    pub fn of_text(&self, text: &[u8]) -> Result<(Script, bool)> {
        match self.cache.of_text(text) {
            Some(script) => Ok((script, true)),
            None => {
                let script = Script::new(text).map_err(|text| refused(&text))?;
                Ok((script, false))
            }
        }
    }

    /// The script that was loaded by this name, in either case.
    pub fn named(&self, sha: &[u8]) -> Option<Script> {
        self.cache.named(sha)
    }

    /// Whether a call of a script or function may write, as far as can be told beforehand.
    pub fn may_write(&self, command: &Command, args: &Args<'_>) -> bool {
        if !command.has(Flag::Scripting) || !command.has(Flag::MayReplicate) {
            return false;
        }
        let flags = match command.name {
            "eval" => self
                .of_text(args[1])
                .ok()
                .and_then(|(script, _)| script.flags()),
            "evalsha" => self.named(args[1]).and_then(|script| script.flags()),
            _ => {
                let functions = self.functions.committed();
                let found = functions.function(args[1]);
                found.map(|(_, function)| function.flags)
            }
        };
        !flags.is_some_and(|flags| flags.contains(Flags::NO_WRITES))
    }

    /// Writes a call for another node. That may not know a script which this one does, and so is sent its text.
    pub fn write_call(&self, writer: &mut Writer<'_>, command: &Command, args: &Args<'_>) {
        let by_text: Option<&[u8]> = match command.name {
            "evalsha" => Some(b"EVAL"),
            "evalsha_ro" => Some(b"EVAL_RO"),
            _ => None,
        };
        let words: Vec<&[u8]> = args.iter().copied().collect();
        match by_text.zip(by_text.and_then(|_| self.named(args[1]))) {
            Some((name, script)) => {
                writer.request(&[&[name, script.text()], &words[2..]].concat());
            }
            None => writer.request(&words),
        }
    }

    /// Forgets all scripts: SCRIPT FLUSH.
    pub fn forget(&self) {
        self.cache.clear();
    }

    pub fn figures(&self) -> Figures {
        let libraries = self.functions.committed();
        let lua_bytes = self.memory.of_each();
        Figures {
            lua_bytes: lua_bytes.iter().sum(),
            largest_lua_bytes: lua_bytes.into_iter().max().unwrap_or(0),
            script_bytes: self.cache.bytes(),
            scripts: self.cache.len(),
            library_bytes: libraries.iter().map(|library| library.code.len()).sum(),
            libraries: libraries.iter().count(),
            functions: libraries
                .iter()
                .map(|library| library.functions.len())
                .sum(),
        }
    }
}

/// What INFO tells.
pub struct Figures {
    pub lua_bytes: usize,
    pub largest_lua_bytes: usize,
    pub script_bytes: usize,
    pub scripts: usize,
    pub library_bytes: usize,
    pub libraries: usize,
    pub functions: usize,
}

/// An error whose text comes without its code.
fn refused(text: &[u8]) -> Error {
    Error::reply([b"ERR ", text].concat())
}
