//! redis.call and redis.pcall: what scripts call all the time, and so without mlua in between.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cairn_resp::{Value as Reply, number};
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua};

use super::call::run_of;
use super::push::push;
use crate::convert::for_protocol;
use crate::run::{Phase, Run};

/// redis.call, which raises errors, or redis.pcall, which returns them.
pub fn function(lua: &Lua, raises: bool) -> mlua::Result<Function> {
    let f = if raises { call } else { pcall };
    // SAFETY: both are C functions as Lua wants them.
    unsafe { lua.create_c_function(f) }
}

unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua with a valid state and its arguments.
    unsafe { command(state, true) }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua with a valid state and its arguments.
    unsafe { command(state, false) }
}

/// What was left in the `Run` as the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Value,
    /// The command failed.
    Error,
    /// There was no command, but an error of ours.
    OwnError,
    /// An error that redis.pcall raises as well.
    Raised,
}

/// # Safety
/// To be called from a C function with its arguments on the stack.
unsafe fn command(state: *mut lua_State, raises: bool) -> c_int {
    // SAFETY: the reply lies in the `Run`, which outlives this call, and nobody changes it while it is pushed:
    // pushing runs no script. So this frame holds plain values only, and Lua may jump out of it.
    unsafe {
        let Some(run) = run_of(state) else {
            return 0;
        };
        let answer = answer(state, run);
        ffi::lua_settop(state, 0);
        push(state, &*run.reply.as_ptr(), run.protocol());
        run.forget_reply();
        if matches!(answer, Answer::OwnError | Answer::Raised) {
            ffi::lua_pushnil(state);
            ffi::lua_setfield(state, 1, c"ignore_error_stats_update".as_ptr());
        }
        if answer == Answer::Raised || (raises && answer != Answer::Value) {
            ffi::lua_error(state);
        }
        1
    }
}

/// Has the host run the command that is on the stack, and leaves its reply in the `Run`. Lua does not jump out
/// of this: strings are looked at, and nothing is made.
///
/// # Safety
/// To be called from a C function with its arguments on the stack.
unsafe fn answer(state: *mut lua_State, run: &Run) -> Answer {
    let own = |answer: Answer, text: &[u8]| {
        run.reply.replace(Reply::Error(text.to_vec()));
        answer
    };
    if run.phase() != Phase::Script {
        const OUTSIDE: &[u8] =
            b"ERR redis.call/pcall can only be called inside a script invocation";
        return own(Answer::Raised, OUTSIDE);
    }
    // SAFETY: as the caller promises.
    let words = match unsafe { words(state) } {
        Ok(words) => words,
        Err(text) => return own(Answer::OwnError, text.as_bytes()),
    };
    if let Some(reason) = run.stopped() {
        return own(Answer::Raised, &reason);
    }
    // A panic must not reach Lua, through whose frames it could not unwind.
    let asked = AssertUnwindSafe(|| run.host(|host| host.call(&words)));
    match catch_unwind(asked) {
        Ok(Some(Err(stop))) => {
            run.end(&stop);
            own(Answer::Raised, &stop.0)
        }
        Ok(Some(Ok(reply))) => {
            let failed = matches!(reply, Reply::Error(_));
            run.reply.replace(for_protocol(reply, run.protocol()));
            if failed { Answer::Error } else { Answer::Value }
        }
        Ok(None) => own(Answer::Raised, b"ERR a command called its own script"),
        Err(_) => own(Answer::Raised, b"ERR the host of a script panicked"),
    }
}

/// The words of a command: strings, and numbers spelled so that none of their digits is lost.
///
/// # Safety
/// To be called from a C function with its arguments on the stack.
unsafe fn words(state: *mut lua_State) -> Result<Vec<Vec<u8>>, &'static str> {
    // SAFETY: the indices are those of arguments. A string is not converted, so that Lua does not jump, and it
    // lies where it is while it is on the stack.
    unsafe {
        let count = ffi::lua_gettop(state);
        if count == 0 {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        let mut words = Vec::with_capacity(count as usize);
        for index in 1..=count {
            words.push(match ffi::lua_type(state, index) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let start = ffi::lua_tolstring(state, index, &mut len);
                    std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec()
                }
                ffi::LUA_TNUMBER => {
                    let mut word = Vec::new();
                    number::format_double(ffi::lua_tonumber(state, index), &mut word);
                    word
                }
                _ => {
                    return Err("ERR Lua redis lib command arguments must be strings or integers");
                }
            });
        }
        Ok(words)
    }
}
