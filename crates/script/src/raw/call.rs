//! Calling into a script, and getting out of it again.

use std::ffi::{c_int, c_void};

use mlua::ffi::{self, lua_Debug, lua_State};
use mlua::{Function, IntoLuaMulti, Lua, Value};

use crate::run::Run;

/// What scripts may take of the C stack by callbacks in callbacks. Threads have 2 MB as a rule, and commands
/// need some of it.
const C_STACK: usize = 256 * 1024;

/// How many instructions Lua executes between two questions whether it should go on. As Redis has it: half
/// a millisecond or so.
const INSTRUCTIONS: c_int = 100_000;

/// Its address is the key of the [`Run`] in the registry.
static RUN: u8 = 0;

fn run_key() -> *mut c_void {
    std::ptr::from_ref(&RUN).cast_mut().cast()
}

/// Tells the hook of this state whom to ask.
///
/// # Safety
/// `run` must live as long as the state may run anything.
pub unsafe fn set_run(lua: &Lua, run: &Run) -> mlua::Result<()> {
    let run = std::ptr::from_ref(run).cast_mut().cast::<c_void>();
    // SAFETY: pushes a key and a value and takes both off again. Nothing in the closure owns memory.
    unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_pushlightuserdata(state, run_key());
            ffi::lua_pushlightuserdata(state, run);
            ffi::lua_rawset(state, ffi::LUA_REGISTRYINDEX);
        })
    }
}

/// The run of this state.
///
/// # Safety
/// There must be room for one value on the stack.
pub unsafe fn run_of<'a>(state: *mut lua_State) -> Option<&'a Run> {
    // SAFETY: under the key is what `set_run` put there, which lives as it promises.
    unsafe {
        ffi::lua_pushlightuserdata(state, run_key());
        ffi::lua_rawget(state, ffi::LUA_REGISTRYINDEX);
        let run = ffi::lua_touserdata(state, -1).cast::<Run>();
        ffi::lua_pop(state, 1);
        run.as_ref()
    }
}

/// Whether the run of this state was told to stop.
///
/// # Safety
/// There must be room for one value on the stack.
pub unsafe fn is_stopped(state: *mut lua_State) -> bool {
    // SAFETY: as promised by the caller.
    unsafe { run_of(state).is_some_and(Run::is_stopped) }
}

/// Throws if scripts have taken all that they may of the C stack. Lua ends at two hundred nested calls,
/// however large each is.
///
/// # Safety
/// There must be room for two values on the stack, and nothing in the frames up to Lua may wait to be
/// dropped.
pub unsafe fn bound_c_stack(state: *mut lua_State) {
    // SAFETY: as promised by the caller.
    unsafe {
        let begun = run_of(state).map_or(0, |run| run.stack.get());
        if begun.saturating_sub(stack_place()) > C_STACK {
            ffi::luaL_error(state, c"C stack overflow".as_ptr());
        }
    }
}

/// About where the C stack stands now.
#[inline(never)]
fn stack_place() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// What became of a call.
pub enum Called {
    Returned(Value),
    /// What the error handler made of the error; or the error itself if it could not be handled.
    Failed(Value),
}

/// Calls `f` with `args`, errors handled by `handler` where they happen, and the hook on.
pub fn protected(
    lua: &Lua,
    run: &Run,
    f: &Function,
    args: impl IntoLuaMulti,
    handler: &Function,
) -> mlua::Result<Called> {
    let mut all = args.into_lua_multi(lua)?;
    all.push_front(Value::Function(f.clone()));
    all.push_front(Value::Function(handler.clone()));
    let mut status = ffi::LUA_OK;
    run.stack.set(stack_place());
    // SAFETY: on the stack are the handler, the function and its arguments, as `lua_pcall` wants them; it
    // leaves one value, which is the result of the closure once the handler is taken away. Nothing in the
    // closure owns memory.
    let value = unsafe {
        lua.exec_raw::<Value>(all, |state| {
            run.state.set(state);
            ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, INSTRUCTIONS);
            let given = ffi::lua_gettop(state) - 2;
            status = ffi::lua_pcall(state, given, 1, 1);
            ffi::lua_sethook(state, None, 0, 0);
            ffi::lua_remove(state, 1);
        })
    }?;
    Ok(match status {
        ffi::LUA_OK => Called::Returned(value),
        _ => Called::Failed(value),
    })
}

/// Asks whether the script may go on, and throws if not. From then on it is called at every line, so that a
/// script which catches the error gets no further. Coroutines inherit it from whoever makes them.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: called by Lua with a valid state. `stop` has returned before Lua may jump, and what it gives is
    // a plain reference to memory of the `Run`, which keeps it until the next run begins. The state that the
    // run began in is valid while it runs, and that is now; a hook may be set from anywhere.
    unsafe {
        if ffi::lua_checkstack(state, 4) == 0 {
            return;
        }
        let Some(run) = run_of(state) else {
            return;
        };
        let (mask, count) = match run.stop() {
            Some(reason) => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_pushlstring(state, reason.as_ptr().cast(), reason.len());
                ffi::lua_setfield(state, -2, c"err".as_ptr());
                (ffi::LUA_MASKLINE, 0)
            }
            None => (ffi::LUA_MASKCOUNT, INSTRUCTIONS),
        };
        if ffi::lua_gethookmask(state) != mask {
            ffi::lua_sethook(state, Some(hook), mask, count);
        }
        if mask == ffi::LUA_MASKLINE {
            ffi::lua_sethook(run.state.get(), Some(hook), mask, count);
            ffi::lua_error(state);
        }
    }
}
