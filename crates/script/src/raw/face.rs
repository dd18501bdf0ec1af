//! Tables that scripts may read and not change.
//!
//! Redis patches its Lua: a table has a flag, and whoever writes to a flagged one gets an error. Ours is
//! not patched, so scripts get the *face* of such a table: an empty one whose metatable sends reads to
//! the table behind and refuses writes. What ignores metatables, `rawset`, `next` and their kin, is
//! guarded. To scripts a face is then the table itself. Tables behind faces hold no other tables than
//! faces, and are never handed out.

use std::ffi::{CStr, c_int, c_void};

use mlua::ffi::{self, lua_State};
use mlua::{LightUserData, Lua, Table, Value};

use super::guard::go_on;

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

pub unsafe extern "C-unwind" fn refuses_faces(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        if push_of_face(state, &BEHIND) {
            throw(state, READ_ONLY);
        }
        go_on(state)
    }
}

pub unsafe extern "C-unwind" fn looks_behind(state: *mut lua_State) -> c_int {
    // SAFETY: see above. These three hand out the elements of a table and never the table.
    unsafe {
        if push_of_face(state, &BEHIND) {
            ffi::lua_replace(state, 1);
        }
        go_on(state)
    }
}

pub unsafe extern "C-unwind" fn shows_metatable(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        if push_of_face(state, &SHOWN) {
            return 1;
        }
        go_on(state)
    }
}

/// Lua's own would call its `next`, and not the guarded one, which is the upvalue here.
pub unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}
