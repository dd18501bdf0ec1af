//! The libraries that Redis gives to scripts beside Lua's own.

pub mod bit;
pub mod cjson;
pub mod cmsgpack;
mod number;
pub mod r#struct;

use std::rc::Rc;

use mlua::{Lua, Table};

use crate::raw::native::Throw;
use crate::run::Run;

pub fn all(lua: &Lua, run: &Rc<Run>) -> mlua::Result<[(&'static str, Table); 4]> {
    Ok([
        ("cjson", cjson::library(lua, run)?),
        ("cmsgpack", cmsgpack::library(lua, run)?),
        ("struct", r#struct::library(lua, run)?),
        ("bit", bit::library(lua)?),
    ])
}

/// Values that one call may return: Lua's stack has room for eight thousand.
const MOST_RESULTS: usize = 7900;

/// Bytes on their way into Lua, which counts them only when they arrive: a table that holds itself has an
/// encoding without end.
struct Buffer<'a> {
    bytes: Vec<u8>,
    run: &'a Run,
    checks: usize,
}

/// After so many values the host is asked whether to go on: no hook does it meanwhile.
const VALUES_BETWEEN_QUESTIONS: usize = 10_000;

impl Buffer<'_> {
    fn new(run: &Run) -> Buffer<'_> {
        Buffer {
            bytes: Vec::new(),
            run,
            checks: 0,
        }
    }

    /// To be called for each value that is written.
    fn check(&mut self) -> Result<(), Throw> {
        self.checks += 1;
        if self.checks.is_multiple_of(VALUES_BETWEEN_QUESTIONS)
            && let Some(reason) = self.run.stop()
        {
            return Err(Throw::message(reason));
        }
        if self.bytes.len() > self.run.most_bytes {
            return Err(Throw::Failed(mlua::Error::MemoryError(String::new())));
        }
        Ok(())
    }
}
