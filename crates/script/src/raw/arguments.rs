//! KEYS and ARGV, which every call makes anew: in one protected call, where mlua would take several for each.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};
use mlua::{Lua, Table};

/// Sets KEYS and ARGV in the globals of scripts.
pub fn set(lua: &Lua, globals: &Table, keys: &[&[u8]], args: &[&[u8]]) -> mlua::Result<()> {
    // SAFETY: the globals are on the stack as the one argument, and nothing else is when the closure ends. Nothing
    // in it owns memory.
    unsafe {
        lua.exec_raw(globals, |state| {
            ffi::lua_pushstring(state, c"KEYS".as_ptr());
            push(state, keys);
            ffi::lua_rawset(state, 1);
            ffi::lua_pushstring(state, c"ARGV".as_ptr());
            push(state, args);
            ffi::lua_rawset(state, 1);
            ffi::lua_settop(state, 0);
        })
    }
}

/// Takes them away again: they may be large.
pub fn clear(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    // SAFETY: as in `set`.
    unsafe {
        lua.exec_raw(globals, |state| {
            ffi::lua_pushstring(state, c"KEYS".as_ptr());
            ffi::lua_pushnil(state);
            ffi::lua_rawset(state, 1);
            ffi::lua_pushstring(state, c"ARGV".as_ptr());
            ffi::lua_pushnil(state);
            ffi::lua_rawset(state, 1);
            ffi::lua_settop(state, 0);
        })
    }
}

/// An array of strings, for a function.
pub fn array(lua: &Lua, items: &[&[u8]]) -> mlua::Result<Table> {
    // SAFETY: the closure leaves the one value that is its result. Nothing in it owns memory.
    unsafe { lua.exec_raw((), |state| push(state, items)) }
}

/// # Safety
/// Nothing in the frames up to Lua may wait to be dropped. That holds here: iterators over slices do not.
unsafe fn push(state: *mut lua_State, items: &[&[u8]]) {
    // SAFETY: there is room for two values more, as in any function that Lua calls.
    unsafe {
        ffi::lua_createtable(state, c_int::try_from(items.len()).unwrap_or(0), 0);
        for (place, item) in items.iter().enumerate() {
            ffi::lua_pushlstring(state, item.as_ptr().cast(), item.len());
            ffi::lua_rawseti(state, -2, place as i64 + 1);
        }
    }
}
