//! `pcall` and `xpcall`.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::call::is_stopped;

// Of all functions below: Lua calls them with a valid state, their arguments on the stack and room for
// twenty values more, and they hold nothing but plain values.

/// Lua's `xpcall`, but the handler is not called for a script that has to stop: Lua would call it without
/// hooks, so that it could go on forever.
pub unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: see above. The handler is put under the function that is called.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_pushcclosure(state, handles, 1);
        ffi::lua_insert(state, 1);
        let failed = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        ffi::lua_pushboolean(state, c_int::from(failed == ffi::LUA_OK));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

unsafe extern "C-unwind" fn handles(state: *mut lua_State) -> c_int {
    // SAFETY: see above. The error is the one argument, and the script's handler the upvalue.
    unsafe {
        if is_stopped(state) {
            return 1;
        }
        if ffi::lua_type(state, ffi::lua_upvalueindex(1)) != ffi::LUA_TFUNCTION {
            ffi::lua_pushstring(state, c"error in error handling".as_ptr());
            return 1;
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, 1, 1);
        1
    }
}

/// Lua's `pcall`, but of an error table it returns the message, if that is a string: scripts written for
/// Redis before version 7 expect one.
pub unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: see above. After a failed call there is one value, the error, on the stack.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let failed = ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0);
        if failed != ffi::LUA_OK && ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            ffi::lua_getfield(state, -1, c"err".as_ptr());
            if ffi::lua_isstring(state, -1) != 0 {
                ffi::lua_replace(state, -2);
            }
        }
        ffi::luaL_checkstack(state, 1, std::ptr::null());
        ffi::lua_pushboolean(state, c_int::from(failed == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}
