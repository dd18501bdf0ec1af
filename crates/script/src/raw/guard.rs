//! Functions of Lua that must not see all arguments.
//!
//! A guard is a C function that looks at the arguments, changes or refuses them, and goes on into the function
//! of Lua, which takes the guard's frame for its own.

use std::ffi::c_int;

use mlua::ffi::{self, lua_CFunction, lua_State};
use mlua::{Function, Lua, Table};

use super::catch::{pcall, xpcall};
use super::face::{looks_behind, pairs, refuses_faces, shows_metatable};
use super::hostile::{
    bounds_pattern, bounds_pattern_of_find, bounds_pattern_of_gsub, bounds_range, keeps_collecting,
    loads_pieces, loads_text,
};

/// Which functions of Lua are guarded, and how. The library `""` is the base library.
const GUARDS: &[(&str, &str, lua_CFunction)] = &[
    ("", "rawset", refuses_faces),
    ("", "setmetatable", refuses_faces),
    ("table", "insert", refuses_faces),
    ("", "next", looks_behind),
    ("", "rawget", looks_behind),
    ("table", "foreach", looks_behind),
    ("", "getmetatable", shows_metatable),
    ("", "loadstring", loads_text),
    ("", "unpack", bounds_range),
    ("", "collectgarbage", keeps_collecting),
    ("string", "find", bounds_pattern_of_find),
    ("string", "match", bounds_pattern),
    ("string", "gmatch", bounds_pattern),
    ("string", "gfind", bounds_pattern),
    ("string", "gsub", bounds_pattern_of_gsub),
];

/// Puts guards before the functions that need them, and Redis' `pcall` in the place of Lua's.
pub fn install(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    for &(library, name, guard) in GUARDS {
        let table = match library {
            "" => globals.clone(),
            library => globals.raw_get(library)?,
        };
        let guarded: Function = table.raw_get(name)?;
        table.raw_set(name, with_upvalue(lua, guard, guarded)?)?;
    }
    let next: Function = globals.raw_get("next")?;
    globals.raw_set("pairs", with_upvalue(lua, pairs, next)?)?;
    // SAFETY: `pcall` is a C function as Lua wants it.
    globals.raw_set("pcall", unsafe { lua.create_c_function(pcall) }?)?;
    // SAFETY: and so is `xpcall`.
    globals.raw_set("xpcall", unsafe { lua.create_c_function(xpcall) }?)
}

/// Lua's `load`, of which `from_pieces` does the work once the arguments are looked at.
pub fn load(lua: &Lua, from_pieces: Function) -> mlua::Result<Function> {
    with_upvalue(lua, loads_pieces, from_pieces)
}

fn with_upvalue(lua: &Lua, f: lua_CFunction, upvalue: Function) -> mlua::Result<Function> {
    // SAFETY: `upvalue` is on the stack as the one argument. Nothing in the closure owns memory.
    unsafe {
        lua.exec_raw(upvalue, |state| {
            ffi::lua_pushcclosure(state, f, 1);
        })
    }
}

/// Goes on into the function of Lua that is guarded, with the arguments as they are on the stack now.
///
/// # Safety
/// Must be called from a closure made by `install`, whose upvalue is a C function.
pub unsafe fn go_on(state: *mut lua_State) -> c_int {
    // SAFETY: those functions take no upvalues of their own, so that they run in this closure's frame as
    // in their own; errors then name this call.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(guarded) => guarded(state),
            None => 0,
        }
    }
}
