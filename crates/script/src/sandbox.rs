//! What a script finds: Redis' selection of Lua's libraries, its own, and nothing that it could change.
//!
//! One state serves scripts and functions, each with globals of its own: functions see no KEYS, and while
//! a library is loaded, nothing but a smaller `redis`.

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value};

use crate::raw::face::face;
use crate::raw::guard;
use crate::raw::native::{Args, Throw, function};
use crate::run::Run;
use crate::{api, function as functions, library, random, raw};

/// What is left of Lua's base library.
const BASE: [&str; 22] = [
    "xpcall",
    "tostring",
    "setmetatable",
    "next",
    "assert",
    "tonumber",
    "rawequal",
    "collectgarbage",
    "getmetatable",
    "rawset",
    "pcall",
    "type",
    "select",
    "unpack",
    "gcinfo",
    "pairs",
    "rawget",
    "loadstring",
    "ipairs",
    "_VERSION",
    "load",
    "error",
];

const LIBRARIES: [&str; 4] = ["coroutine", "string", "math", "table"];

/// Turns what was thrown into a table that says where. Level 2 is where it was thrown; if that is a function
/// written in C, who called it is of more use. The last level of all is our own call.
const ERROR_HANDLER: &str = r#"
    local getinfo, type, tostring = ...
    return function(thrown)
        local place = getinfo(2, 'Sl')
        if place and place.what == 'C' then
            place = getinfo(4, 'S') and getinfo(3, 'Sl')
        end
        if type(thrown) ~= 'table' then
            thrown = { err = 'ERR ' .. tostring(thrown) }
        end
        if place then
            thrown.source = place.source
            thrown.line = place.currentline
        end
        return thrown
    end
"#;

/// Lua's own would take bytecode from the function that it asks for pieces.
const LOAD: &str = r#"
    local loadstring, pcall, type, concat = ...
    return function(piece, name)
        local pieces = {}
        while true do
            local ok, text = pcall(piece)
            if not ok then
                return nil, text
            elseif text == nil or text == '' then
                return loadstring(concat(pieces), name or '=(load)')
            elseif type(text) ~= 'string' and type(text) ~= 'number' then
                return nil, 'reader function must return a string'
            end
            pieces[#pieces + 1] = text
        end
    end
"#;

/// A state with its environments.
pub struct Sandbox {
    pub lua: Lua,
    pub scripts: Environment,
    pub functions: Environment,
    /// The globals while a library is loaded.
    pub loading: Table,
    pub error_handler: Function,
    /// Where the globals are that the state has now.
    entered: Cell<*const c_void>,
}

/// Globals, and what scripts see of them.
pub struct Environment {
    pub behind: Table,
    pub face: Table,
}

impl Sandbox {
    pub fn new(run: &Rc<Run>) -> mlua::Result<Sandbox> {
        let lua = raw::new_state();
        let all = lua.globals();
        let error_handler = error_handler(&lua, &all)?;
        let pcall = all.raw_get("pcall")?;
        guard::install(&lua, &all)?;
        all.raw_set("load", load(&lua, &all, pcall)?)?;
        random::install(&lua, run, &all.raw_get("math")?)?;
        protect_strings(&lua, &all)?;

        let shared = shared_globals(&lua, run, &all)?;
        let scripts = environment(&lua, &shared)?;
        let redis = api::table(&lua, run)?;
        api::add_for_scripts(&lua, &redis)?;
        scripts.behind.raw_set("redis", face(&lua, &redis, None)?)?;
        scripts
            .behind
            .raw_set("__redis__err__handler", &error_handler)?;
        let functions = environment(&lua, &shared)?;
        let redis = api::table(&lua, run)?;
        functions
            .behind
            .raw_set("redis", face(&lua, &redis, None)?)?;
        let loading = functions::load::globals(&lua, run)?;
        Ok(Sandbox {
            lua,
            scripts,
            functions,
            loading,
            error_handler,
            entered: Cell::new(std::ptr::null()),
        })
    }
}

impl Sandbox {
    /// What `loadstring` compiles will have these globals.
    pub fn enter(&self, environment: &Environment) -> mlua::Result<()> {
        let place = environment.face.to_pointer();
        if self.entered.get() != place {
            self.lua.set_globals(environment.face.clone())?;
            self.entered.set(place);
        }
        Ok(())
    }
}

fn error_handler(lua: &Lua, all: &Table) -> mlua::Result<Function> {
    let debug: Table = all.raw_get("debug")?;
    lua.load(ERROR_HANDLER).set_name("@err_handler_def").call((
        debug.raw_get::<Function>("getinfo")?,
        all.raw_get::<Function>("type")?,
        all.raw_get::<Function>("tostring")?,
    ))
}

fn load(lua: &Lua, all: &Table, pcall: Function) -> mlua::Result<Function> {
    let table: Table = all.raw_get("table")?;
    let from_pieces = lua.load(LOAD).set_name("=[C]").call((
        all.raw_get::<Function>("loadstring")?,
        pcall,
        all.raw_get::<Function>("type")?,
        table.raw_get::<Function>("concat")?,
    ))?;
    guard::load(lua, from_pieces)
}

/// The metatable of strings leads scripts to the library behind its face; so it gets a face as well.
fn protect_strings(lua: &Lua, all: &Table) -> mlua::Result<()> {
    let string: Table = all.raw_get("string")?;
    let string_face = face(lua, &string, None)?;
    all.raw_set("string", &string_face)?;
    let Some(metatable) = lua.type_metatable::<mlua::LuaString>() else {
        return Ok(());
    };
    let shown = lua.create_table()?;
    shown.raw_set("__index", &string_face)?;
    metatable.raw_set("__index", &string)?;
    metatable.raw_set("__metatable", face(lua, &shown, None)?)
}

/// The globals that scripts and functions have in common.
fn shared_globals(lua: &Lua, run: &Rc<Run>, all: &Table) -> mlua::Result<Vec<(String, Value)>> {
    let mut shared = Vec::new();
    for name in BASE {
        shared.push((name.to_string(), all.raw_get(name)?));
    }
    for name in LIBRARIES {
        let library: Table = all.raw_get(name)?;
        let library = match name {
            "string" => library,
            _ => face(lua, &library, None)?,
        };
        shared.push((name.to_string(), Value::Table(library)));
    }
    for (name, library) in library::all(lua, run)? {
        let library = face(lua, &library, None)?;
        shared.push((name.to_string(), Value::Table(library)));
    }
    Ok(shared)
}

fn environment(lua: &Lua, globals: &[(String, Value)]) -> mlua::Result<Environment> {
    let behind = lua.create_table()?;
    for (name, value) in globals {
        behind.raw_set(name.as_str(), value)?;
    }
    let face = strict(lua, &behind)?;
    behind.raw_set("_G", &face)?;
    Ok(Environment { behind, face })
}

/// The face of a table that answers for what it does not have with an error.
pub fn strict(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", function(lua, nonexistent)?)?;
    table.set_metatable(Some(metatable.clone()))?;
    face(lua, table, Some(face(lua, &metatable, None)?))
}

fn nonexistent(_: &Lua, args: &Args) -> Result<mlua::MultiValue, Throw> {
    if args.len() != 2 {
        return Err(Throw::message(
            "Wrong number of arguments to luaProtectedTableError",
        ));
    }
    let Ok(name) = args.string(2) else {
        return Err(Throw::message(
            "Second argument to luaProtectedTableError must be a string or number",
        ));
    };
    let name = crate::convert::c_string(&name.as_bytes()).to_vec();
    Err(Throw::message(
        [
            b"Script attempted to access nonexistent global variable '",
            name.as_slice(),
            b"'",
        ]
        .concat(),
    ))
}
