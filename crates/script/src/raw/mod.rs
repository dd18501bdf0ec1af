//! What mlua's safe interface cannot say: nearly all unsafe code of this crate. (The
//! rest, in `run`, lends the host to a script.)
//!
//! Lua reports errors by `longjmp`. It may pass over Rust frames only if nothing in them waits to be
//! dropped, so every `extern "C-unwind"` function here keeps to plain values: whatever owns memory lives
//! inside a call that has returned before Lua can jump.
//!
//! - [`native`]: Rust functions that throw as C functions do, with the place of their caller.
//! - [`face`]: tables that scripts may read and not change.
//! - [`guard`]: the functions of Lua that must know about those, or about [`hostile`] arguments.
//! - [`catch`]: `pcall` and `xpcall`, Redis' way.
//! - [`command`]: redis.call and redis.pcall; [`push`]: replies as Lua's values.
//! - [`arguments`]: KEYS and ARGV.
//! - [`call`]: a protected call with Redis' error handler, and the hook that interrupts it.

use mlua::state::{GcIncParams, GcMode};
use mlua::{Lua, LuaOptions, StdLib};

pub mod arguments;
pub mod call;
mod catch;
pub mod command;
pub mod face;
pub mod guard;
mod hostile;
pub mod native;
mod push;

/// A state with Lua's own libraries, as far as scripts or we ourselves need them.
pub fn new_state() -> Lua {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::DEBUG;
    // Which means that mlua leaves `pcall` and `xpcall` as they are; `Run` deals with panics.
    let options = LuaOptions::new().catch_rust_panics(true);
    // SAFETY: what makes this unsafe is the debug library, which can break any invariant. Only our own error
    // handler gets hold of it, and of one function of it, which tells and does not change.
    let lua = unsafe { Lua::unsafe_new_with(libraries, options) };
    // There is one for each thread, and most of what is in it stays: so a round of collecting begins when it has
    // grown by a fifth, and not when there is twice as much.
    lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(120)));
    lua
}
