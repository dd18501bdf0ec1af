//! Rust functions as scripts see them.
//!
//! mlua raises errors as userdata of its own. Scripts expect strings and tables, and messages that name
//! the line that called: `user_script:3: bad argument #1 to 'encode' (...)`. So a Rust function here
//! returns what it throws, and a C function around it does the throwing: to Lua, that one was called.

use std::ffi::{c_char, c_int, c_void};

use mlua::ffi::{self, lua_State};
use mlua::{Function, IntoLua, LightUserData, Lua, LuaString, MultiValue, Value};

/// What a function throws.
pub enum Throw {
    /// A value, as it is.
    Raise(Value),
    /// A message, behind the place that called.
    Message(Vec<u8>),
    /// What is wrong with an argument, counted from 1.
    Argument(usize, Vec<u8>),
    /// Lua itself failed, as a rule for want of memory.
    Failed(mlua::Error),
}

impl Throw {
    pub fn message(text: impl Into<Vec<u8>>) -> Throw {
        Throw::Message(text.into())
    }
}

impl From<mlua::Error> for Throw {
    fn from(error: mlua::Error) -> Throw {
        Throw::Failed(error)
    }
}

/// The first result of a Rust function that throws is the address of one of these.
static MESSAGE: u8 = 0;
static ARGUMENT: u8 = 1;
static RAISE: u8 = 2;

fn mark(kind: &'static u8) -> Value {
    Value::LightUserData(LightUserData(address(kind)))
}

fn address(kind: &'static u8) -> *mut c_void {
    std::ptr::from_ref(kind).cast_mut().cast()
}

/// Makes `f` a function for scripts.
pub fn function<F>(lua: &Lua, f: F) -> mlua::Result<Function>
where
    F: Fn(&Lua, &Args) -> Result<MultiValue, Throw> + 'static,
{
    let inner = lua.create_function(move |lua, values: MultiValue| {
        let args = Args {
            lua: lua.clone(),
            values: values.into_iter().collect(),
        };
        let thrown = match f(lua, &args) {
            Ok(results) => return Ok(results),
            Err(thrown) => thrown,
        };
        let (kind, number, value) = match thrown {
            Throw::Raise(value) => (&RAISE, 0, value),
            Throw::Message(text) => (&MESSAGE, 0, bytes(lua, text)?),
            Throw::Argument(number, text) => (&ARGUMENT, number, bytes(lua, text)?),
            Throw::Failed(mlua::Error::MemoryError(_)) => {
                (&RAISE, 0, bytes(lua, "not enough memory")?)
            }
            Throw::Failed(error) => (&MESSAGE, 0, bytes(lua, error.to_string())?),
        };
        [mark(kind), value, number.into_lua(lua)?]
            .into_iter()
            .map(Ok)
            .collect()
    })?;
    // SAFETY: `inner` is on the stack as the one argument, and becomes the upvalue that `throwing` takes
    // it for. Nothing in the closure owns memory.
    unsafe {
        lua.exec_raw(inner, |state| {
            ffi::lua_pushcclosure(state, throwing, 1);
        })
    }
}

fn bytes(lua: &Lua, text: impl AsRef<[u8]>) -> mlua::Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// Calls its upvalue, and throws what that says.
unsafe extern "C-unwind" fn throwing(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua with a valid state, its arguments on the stack and room for twenty more; the
    // upvalue is a function (see `function`). Only plain values live in this frame, so Lua may jump out
    // of any call. Of what a mark is followed by, `function` makes sure: a value, which is a string for
    // the two kinds that read it, and a number.
    unsafe {
        let given = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, given, ffi::LUA_MULTRET);
        let results = ffi::lua_gettop(state);
        if results != 3 || ffi::lua_type(state, 1) != ffi::LUA_TLIGHTUSERDATA {
            return results;
        }
        let kind = ffi::lua_touserdata(state, 1);
        if kind == address(&ARGUMENT) {
            let number = ffi::lua_tonumber(state, 3) as c_int;
            return ffi::luaL_argerror(state, number, text(state, 2));
        }
        if kind == address(&MESSAGE) {
            ffi::luaL_where(state, 1);
            ffi::lua_pushvalue(state, 2);
            ffi::lua_concat(state, 2);
            ffi::lua_error(state);
        }
        if kind == address(&RAISE) {
            ffi::lua_settop(state, 2);
            ffi::lua_error(state);
        }
        results
    }
}

/// The string at `index`, which ends with a NUL as all of Lua's do.
///
/// # Safety
/// There must be a string at `index`.
unsafe fn text(state: *mut lua_State, index: c_int) -> *const c_char {
    // SAFETY: as the caller says; a string is not converted, so this cannot fail.
    unsafe { ffi::lua_tolstring(state, index, std::ptr::null_mut()) }
}

/// The arguments of a call, counted from 1, read as C functions of Lua 5.1 read theirs.
pub struct Args {
    lua: Lua,
    values: Vec<Value>,
}

impl Args {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// With a nil behind the last.
    pub fn followed_by_nil(&self) -> Args {
        Args {
            lua: self.lua.clone(),
            values: [&self.values[..], &[Value::Nil]].concat(),
        }
    }

    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Nil where there is none.
    pub fn get(&self, number: usize) -> Value {
        self.values.get(number - 1).cloned().unwrap_or(Value::Nil)
    }

    pub fn string(&self, number: usize) -> Result<LuaString, Throw> {
        match self.get(number) {
            Value::String(string) => Ok(string),
            value @ (Value::Integer(_) | Value::Number(_)) => self
                .lua
                .coerce_string(value)?
                .ok_or_else(|| self.mistyped(number, "string")),
            _ => Err(self.mistyped(number, "string")),
        }
    }

    pub fn number(&self, number: usize) -> Result<f64, Throw> {
        self.number_if_any(number)
            .ok_or_else(|| self.mistyped(number, "number"))
    }

    /// A number, or a string that spells one.
    pub fn number_if_any(&self, number: usize) -> Option<f64> {
        match self.get(number) {
            Value::Integer(integer) => Some(integer as f64),
            Value::Number(double) => Some(double),
            string @ Value::String(_) => self.lua.coerce_number(string).ok().flatten(),
            _ => None,
        }
    }

    pub fn integer(&self, number: usize) -> Result<i64, Throw> {
        self.number(number).map(to_integer)
    }

    pub fn integer_or(&self, number: usize, default: i64) -> Result<i64, Throw> {
        match self.get(number) {
            Value::Nil => Ok(default),
            _ => self.integer(number),
        }
    }

    pub fn wrong(&self, number: usize, what: impl Into<Vec<u8>>) -> Throw {
        Throw::Argument(number, what.into())
    }

    pub fn mistyped(&self, number: usize, expected: &str) -> Throw {
        let found = match self.values.get(number - 1) {
            Some(value) => type_name(value),
            None => "no value",
        };
        self.wrong(number, format!("{expected} expected, got {found}"))
    }
}

/// As Lua 5.1 names the type: to scripts there is one kind of number, and of userdata.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// A C cast of a double to a 64-bit integer, as the processor does it: what does not fit becomes the
/// least integer.
pub fn to_integer(double: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&double) {
        double as i64
    } else {
        i64::MIN
    }
}

/// One result.
pub fn one(value: impl IntoLua, lua: &Lua) -> Result<MultiValue, Throw> {
    Ok([value.into_lua(lua)?].into_iter().collect())
}

pub fn none() -> Result<MultiValue, Throw> {
    Ok(MultiValue::new())
}
