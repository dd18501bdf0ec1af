//! Tables that scripts may read and not change.
//!
//! Redis patches its Lua: a table has a flag, and whoever writes to a flagged one gets an error. Ours is
//! not patched, so scripts get the *face* of such a table: an empty one whose metatable sends reads to
//! the table behind and refuses writes. What ignores metatables, `rawset`, `next` and their kin, is
//! guarded: a C function that looks at its arguments before it goes on into the function of Lua. To scripts
//! a face is then the table itself. Tables behind faces hold no other tables than faces, and are never
//! handed out.
//!
//! The same way of guarding keeps three hostile kinds of arguments from Lua: bytecode, which it does not
//! verify; patterns that would recurse as deep as they are long; and switching the collector off.

use std::ffi::{CStr, c_int, c_void};

use super::call::{bound_c_stack, is_stopped};
use mlua::ffi::{self, lua_CFunction, lua_State};
use mlua::{Function, LightUserData, Lua, Table, Value};

/// Its address is the key, in a face's metatable, of the table behind. Scripts have no such value.
static BEHIND: u8 = 0;
/// The key of what `getmetatable` shows.
static SHOWN: u8 = 1;

const READ_ONLY: &CStr = c"Attempt to modify a readonly table";

fn key(which: &'static u8) -> Value {
    Value::LightUserData(LightUserData(address(which)))
}

fn address(which: &'static u8) -> *mut c_void {
    std::ptr::from_ref(which).cast_mut().cast()
}

/// The face of `table`. `shown` is what scripts see as its metatable.
pub fn face(lua: &Lua, table: &Table, shown: Option<Table>) -> mlua::Result<Table> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", table)?;
    // SAFETY: `refuse_assignment` is a C function as Lua wants it.
    metatable.raw_set("__newindex", unsafe {
        lua.create_c_function(refuse_assignment)
    }?)?;
    metatable.raw_set(key(&BEHIND), table)?;
    metatable.raw_set(key(&SHOWN), shown)?;
    let face = lua.create_table()?;
    face.set_metatable(Some(metatable))?;
    Ok(face)
}

/// Sends reads through a face to another table from now on.
pub fn redirect(face: &Table, table: &Table) -> mlua::Result<()> {
    if let Some(metatable) = face.metatable() {
        metatable.raw_set("__index", table)?;
        metatable.raw_set(key(&BEHIND), table)?;
    }
    Ok(())
}

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
    ("", "collectgarbage", keeps_collecting),
    ("string", "find", bounds_pattern_of_find),
    ("string", "match", bounds_pattern),
    ("string", "gmatch", bounds_pattern),
    ("string", "gfind", bounds_pattern),
    ("string", "gsub", bounds_pattern_of_gsub),
    ("coroutine", "resume", bounds_c_stack),
    ("coroutine", "wrap", wraps),
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
unsafe fn go_on(state: *mut lua_State) -> c_int {
    // SAFETY: those functions take no upvalues of their own, so that they run in this closure's frame as
    // in their own; errors then name this call.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(guarded) => guarded(state),
            None => 0,
        }
    }
}

/// If the first argument is a face, pushes what its metatable has under `which`, and says so.
///
/// # Safety
/// There must be room for three values on the stack.
unsafe fn push_of_face(state: *mut lua_State, which: &'static u8) -> bool {
    // SAFETY: the calls keep to the stack's contract: what is pushed is popped again, or left where the
    // caller expects it.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE || ffi::lua_getmetatable(state, 1) == 0 {
            return false;
        }
        ffi::lua_pushlightuserdata(state, address(&BEHIND));
        let is_face = ffi::lua_rawget(state, -2) != ffi::LUA_TNIL;
        ffi::lua_pop(state, 1);
        if is_face {
            ffi::lua_pushlightuserdata(state, address(which));
            ffi::lua_rawget(state, -2);
            ffi::lua_remove(state, -2);
        } else {
            ffi::lua_pop(state, 1);
        }
        is_face
    }
}

/// Throws without a place: so do C functions in Redis' Lua when they meet a read-only table.
///
/// # Safety
/// Nothing in the frames up to Lua may wait to be dropped.
unsafe fn throw(state: *mut lua_State, message: &'static CStr) -> ! {
    // SAFETY: a literal is pushed and thrown; the rest is the caller's promise.
    unsafe {
        ffi::lua_pushstring(state, message.as_ptr());
        ffi::lua_error(state)
    }
}

// Of all functions below: Lua calls them with a valid state, their arguments on the stack and room for
// twenty values more, and they hold nothing but plain values.

unsafe extern "C-unwind" fn refuse_assignment(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe { ffi::luaL_error(state, READ_ONLY.as_ptr()) }
}

unsafe extern "C-unwind" fn refuses_faces(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        if push_of_face(state, &BEHIND) {
            throw(state, READ_ONLY);
        }
        go_on(state)
    }
}

unsafe extern "C-unwind" fn looks_behind(state: *mut lua_State) -> c_int {
    // SAFETY: see above. These three hand out the elements of a table and never the table.
    unsafe {
        if push_of_face(state, &BEHIND) {
            ffi::lua_replace(state, 1);
        }
        go_on(state)
    }
}

unsafe extern "C-unwind" fn shows_metatable(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        if push_of_face(state, &SHOWN) {
            return 1;
        }
        go_on(state)
    }
}

/// Lua's own would call its `next`, and not the guarded one, which is the upvalue here.
unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

/// Behind a blank, bytecode is no bytecode any more but bad text: as in Redis, where Lua reads no other.
unsafe extern "C-unwind" fn loads_text(state: *mut lua_State) -> c_int {
    // SAFETY: see above. A string has a first byte, if only the NUL behind its end.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING
            && *ffi::lua_tolstring(state, 1, std::ptr::null_mut()).cast::<u8>()
                == ffi::LUA_SIGNATURE[0]
        {
            if ffi::lua_isnoneornil(state, 2) != 0 {
                ffi::lua_settop(state, 1);
                ffi::lua_pushvalue(state, 1);
            }
            ffi::lua_pushstring(state, c" ".as_ptr());
            ffi::lua_pushvalue(state, 1);
            ffi::lua_concat(state, 2);
            ffi::lua_replace(state, 1);
        }
        go_on(state)
    }
}

unsafe extern "C-unwind" fn loads_pieces(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        ffi::lua_settop(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, 2, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

/// The next script would find the collector as this one left it, so these options do nothing; they answer
/// as if they had, in a state that nobody touched.
const IGNORED: [(&CStr, f64); 4] = [
    (c"stop", 0.0),
    (c"restart", 0.0),
    (c"setpause", 200.0),
    (c"setstepmul", 200.0),
];

unsafe extern "C-unwind" fn keeps_collecting(state: *mut lua_State) -> c_int {
    // SAFETY: see above. A string of Lua's ends with a NUL.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING {
            let option = CStr::from_ptr(ffi::lua_tolstring(state, 1, std::ptr::null_mut()));
            for (ignored, answer) in IGNORED {
                if option == ignored {
                    ffi::lua_pushnumber(state, answer);
                    return 1;
                }
            }
        }
        go_on(state)
    }
}

/// How many parts of a pattern may recurse; 200 in later versions of Lua.
const RECURSIVE_PARTS: usize = 1000;

unsafe extern "C-unwind" fn bounds_pattern(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        bound_pattern(state);
        go_on(state)
    }
}

/// It calls back, with a large buffer on the C stack.
unsafe extern "C-unwind" fn bounds_pattern_of_gsub(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        bound_c_stack(state);
        bound_pattern(state);
        go_on(state)
    }
}

unsafe extern "C-unwind" fn bounds_c_stack(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        bound_c_stack(state);
        go_on(state)
    }
}

/// What Lua's `wrap` returns has the coroutine as its upvalue. The function that scripts get has the same, and
/// behind it Lua's: so that may run in its place, once the stack is looked at.
unsafe extern "C-unwind" fn wraps(state: *mut lua_State) -> c_int {
    // SAFETY: see above. Lua's function leaves its result on top.
    unsafe {
        go_on(state);
        ffi::lua_getupvalue(state, -1, 1);
        ffi::lua_insert(state, -2);
        ffi::lua_pushcclosure(state, resumes, 2);
        1
    }
}

unsafe extern "C-unwind" fn resumes(state: *mut lua_State) -> c_int {
    // SAFETY: see above, and for the upvalues `wraps`.
    unsafe {
        bound_c_stack(state);
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(2)) {
            Some(resume) => resume(state),
            None => 0,
        }
    }
}

unsafe extern "C-unwind" fn bounds_pattern_of_find(state: *mut lua_State) -> c_int {
    // SAFETY: see above. A plain text, which the fourth argument asks for, may be any.
    unsafe {
        if ffi::lua_toboolean(state, 4) == 0 {
            bound_pattern(state);
        }
        go_on(state)
    }
}

/// Lua 5.1 recurses for each part of a pattern that may match in several ways, and for each capture,
/// without a bound.
///
/// # Safety
/// Nothing in the frames up to Lua may wait to be dropped.
unsafe fn bound_pattern(state: *mut lua_State) {
    // SAFETY: the slice is that of a string that stays on the stack, and is gone before Lua may jump.
    unsafe {
        if ffi::lua_type(state, 2) != ffi::LUA_TSTRING {
            return;
        }
        let mut len = 0;
        let start = ffi::lua_tolstring(state, 2, &mut len);
        let recursive = std::slice::from_raw_parts(start.cast::<u8>(), len)
            .iter()
            .filter(|byte| matches!(byte, b'*' | b'+' | b'-' | b'?' | b'('))
            .count();
        if recursive > RECURSIVE_PARTS {
            ffi::luaL_error(state, c"pattern too complex".as_ptr());
        }
    }
}

/// Lua's `xpcall`, but the handler is not called for a script that has to stop: Lua would call it without
/// hooks, so that it could go on forever.
unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: see above. The handler is put under the function that is called.
    unsafe {
        bound_c_stack(state);
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
unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: see above. After a failed call there is one value, the error, on the stack.
    unsafe {
        bound_c_stack(state);
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
