//! Replies as Lua's values.

use std::ffi::CStr;

use cairn_resp::Value as Reply;
use mlua::ffi::{self, lua_State};

/// Pushes what redis.call returns for a reply, of which no part is a kind that the protocol does not have.
///
/// # Safety
/// Nothing in the frames up to Lua may wait to be dropped. That holds here: iterators over slices do not.
pub unsafe fn push(state: *mut lua_State, reply: &Reply, protocol: u8) {
    // SAFETY: room is made for all that one level pushes, and each arm leaves one value.
    unsafe {
        ffi::luaL_checkstack(state, 5, std::ptr::null());
        match reply {
            Reply::Int(int) => ffi::lua_pushnumber(state, *int as f64),
            Reply::Bulk(bytes) => push_bytes(state, bytes),
            Reply::Simple(text) => in_field(state, c"ok", || push_bytes(state, text)),
            Reply::Error(text) => {
                in_field(state, c"err", || push_error(state, text));
                ffi::lua_pushboolean(state, 1);
                ffi::lua_setfield(state, -2, c"ignore_error_stats_update".as_ptr());
            }
            Reply::Null | Reply::NullArray if protocol == 2 => ffi::lua_pushboolean(state, 0),
            Reply::Null | Reply::NullArray => ffi::lua_pushnil(state),
            Reply::Bool(is) => ffi::lua_pushboolean(state, (*is).into()),
            Reply::Array(items) | Reply::Push(items) => {
                // Where there are holes, what `#` says depends on how a table grew: as in Redis then.
                let holes = items.iter().any(|item| matches!(item, Reply::Null));
                let room = if holes { 0 } else { items.len() };
                ffi::lua_createtable(state, i32::try_from(room).unwrap_or(0), 0);
                for (place, item) in items.iter().enumerate() {
                    push(state, item, protocol);
                    ffi::lua_rawseti(state, -2, place as i64 + 1);
                }
            }
            Reply::Map(pairs) => in_field(state, c"map", || {
                ffi::lua_createtable(state, 0, 0);
                for (key, value) in pairs {
                    push(state, key, protocol);
                    push(state, value, protocol);
                    set_unless_nil(state);
                }
            }),
            Reply::Set(items) => in_field(state, c"set", || {
                ffi::lua_createtable(state, 0, 0);
                for item in items {
                    push(state, item, protocol);
                    ffi::lua_pushboolean(state, 1);
                    set_unless_nil(state);
                }
            }),
            Reply::Double(double) => {
                in_field(state, c"double", || ffi::lua_pushnumber(state, *double));
            }
            Reply::BigNumber(digits) => {
                in_field(state, c"big_number", || push_bytes(state, digits));
            }
            Reply::Verbatim { format, text } => in_field(state, c"verbatim_string", || {
                in_field(state, c"string", || push_bytes(state, text));
                push_bytes(state, format);
                ffi::lua_setfield(state, -2, c"format".as_ptr());
            }),
            Reply::Attributed { value, .. } => push(state, value, protocol),
        }
    }
}

/// Sets the two uppermost values, key and value, in the table below. Lua has no place for what is filed under
/// nil.
///
/// # Safety
/// There must be such a table.
unsafe fn set_unless_nil(state: *mut lua_State) {
    // SAFETY: as the caller promises.
    unsafe {
        if ffi::lua_type(state, -2) == ffi::LUA_TNIL {
            ffi::lua_pop(state, 2);
        } else {
            ffi::lua_rawset(state, -3);
        }
    }
}

/// # Safety
/// There must be room for a value.
unsafe fn push_bytes(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: as the caller promises; Lua copies the bytes.
    unsafe {
        ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len());
    }
}

/// Pushes a table whose one field is what `value` pushes.
///
/// # Safety
/// There must be room for two values.
unsafe fn in_field(state: *mut lua_State, name: &'static CStr, value: impl FnOnce()) {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        value();
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// Pushes the text of an error, its code first.
///
/// # Safety
/// There must be room for three values.
unsafe fn push_error(state: *mut lua_State, text: &[u8]) {
    let (code, message) = crate::convert::code_and_message(text);
    // SAFETY: as the caller promises.
    unsafe {
        push_bytes(state, code);
        push_bytes(state, b" ");
        push_bytes(state, message);
        ffi::lua_concat(state, 3);
    }
}
