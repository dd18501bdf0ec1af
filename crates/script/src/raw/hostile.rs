//! Arguments that Lua does not expect of anyone: bytecode, which it does not verify; ranges of more elements than it
//! can count; patterns that recurse as deep as they are long; replacements that replace, and so on; and whatever would change the state for the
//! next script.

use std::ffi::{CStr, c_int};

use mlua::ffi::{self, lua_State};

use super::call::bound_c_stack;
use super::guard::go_on;

// Of all functions below: Lua calls them with a valid state, their arguments on the stack and room for
// twenty values more, and they hold nothing but plain values.

/// Behind a blank, bytecode is no bytecode any more but bad text: as in Redis, where Lua reads no other.
pub unsafe extern "C-unwind" fn loads_text(state: *mut lua_State) -> c_int {
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

pub unsafe extern "C-unwind" fn loads_pieces(state: *mut lua_State) -> c_int {
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

pub unsafe extern "C-unwind" fn keeps_collecting(state: *mut lua_State) -> c_int {
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

/// Lua counts the elements of a range in a C int, and does not notice when there are more.
pub unsafe extern "C-unwind" fn bounds_range(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TTABLE && ffi::lua_isnoneornil(state, 3) == 0 {
            // As Lua converts them: what does not fit is cut off.
            let first = ffi::luaL_optinteger(state, 2, 1) as c_int;
            let last = ffi::luaL_checkinteger(state, 3) as c_int;
            if i64::from(last) - i64::from(first) >= i64::from(c_int::MAX) {
                ffi::luaL_error(state, c"too many results to unpack".as_ptr());
            }
        }
        go_on(state)
    }
}

/// How many parts of a pattern may recurse; 200 in later versions of Lua.
const RECURSIVE_PARTS: usize = 1000;

pub unsafe extern "C-unwind" fn bounds_pattern(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        bound_pattern(state);
        go_on(state)
    }
}

/// It calls back, with a large buffer on the C stack.
pub unsafe extern "C-unwind" fn bounds_pattern_of_gsub(state: *mut lua_State) -> c_int {
    // SAFETY: see above.
    unsafe {
        bound_c_stack(state);
        bound_pattern(state);
        go_on(state)
    }
}

pub unsafe extern "C-unwind" fn bounds_pattern_of_find(state: *mut lua_State) -> c_int {
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
