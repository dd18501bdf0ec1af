//! Values of Lua and replies of Redis, each as the other.

use cairn_resp::{Value as Reply, number};
use mlua::{Lua, Table, Value};

use crate::raw::native::to_integer;
use crate::run::Run;

/// How deep a reply may nest. Redis goes on to about eight thousand, where its Lua stack ends; ours is
/// read and freed recursively.
const MOST_LEVELS: usize = 1000;
/// After so many elements the host is asked whether to go on: a table that holds itself twice has no end.
const ELEMENTS_BETWEEN_CHECKS: usize = 10_000;
/// What an element weighs besides its bytes.
const ELEMENT_BYTES: usize = size_of::<Reply>();

/// What redis.call returns for `reply`.
pub fn to_lua(lua: &Lua, run: &Run, reply: Reply) -> mlua::Result<Value> {
    if run.protocol() == 2 {
        resp2_to_lua(lua, reply)
    } else {
        resp3_to_lua(lua, reply)
    }
}

fn resp2_to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    match reply {
        Reply::Null | Reply::NullArray => Ok(Value::Boolean(false)),
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            array(lua, flat.collect(), resp2_to_lua)
        }
        Reply::Set(items) => array(lua, items, resp2_to_lua),
        Reply::Double(double) => {
            let mut text = Vec::new();
            number::format_double(double, &mut text);
            string(lua, &text)
        }
        Reply::Bool(is) => Ok(Value::Integer(is.into())),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => string(lua, &text),
        other => in_both(lua, other, resp2_to_lua),
    }
}

fn resp3_to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    match reply {
        Reply::Null | Reply::NullArray => Ok(Value::Nil),
        Reply::Map(pairs) => {
            let map = lua.create_table()?;
            for (key, value) in pairs {
                // Lua has no place for what is filed under nil.
                let key = resp3_to_lua(lua, key)?;
                if !key.is_nil() {
                    map.raw_set(key, resp3_to_lua(lua, value)?)?;
                }
            }
            field(lua, "map", map)
        }
        Reply::Set(items) => {
            let set = lua.create_table()?;
            for item in items {
                let item = resp3_to_lua(lua, item)?;
                if !item.is_nil() {
                    set.raw_set(item, true)?;
                }
            }
            field(lua, "set", set)
        }
        Reply::Double(double) => field(lua, "double", double),
        Reply::Bool(is) => Ok(Value::Boolean(is)),
        Reply::BigNumber(digits) => field(lua, "big_number", lua.create_string(digits)?),
        Reply::Verbatim { format, text } => {
            let verbatim = lua.create_table()?;
            verbatim.raw_set("string", lua.create_string(text)?)?;
            verbatim.raw_set("format", lua.create_string(format)?)?;
            field(lua, "verbatim_string", verbatim)
        }
        other => in_both(lua, other, resp3_to_lua),
    }
}

/// What looks the same in both protocols.
fn in_both(
    lua: &Lua,
    reply: Reply,
    element: fn(&Lua, Reply) -> mlua::Result<Value>,
) -> mlua::Result<Value> {
    match reply {
        Reply::Int(int) => Ok(Value::Integer(int)),
        Reply::Bulk(bytes) => string(lua, &bytes),
        Reply::Simple(text) => field(lua, "ok", lua.create_string(text)?),
        Reply::Error(text) => {
            let error = error_reply(lua, &text)?;
            error.raw_set("ignore_error_stats_update", true)?;
            Ok(Value::Table(error))
        }
        Reply::Array(items) | Reply::Push(items) => array(lua, items, element),
        Reply::Attributed { value, .. } => element(lua, *value),
        // The rest differs, and was dealt with.
        _ => Ok(Value::Nil),
    }
}

fn array(
    lua: &Lua,
    items: Vec<Reply>,
    element: fn(&Lua, Reply) -> mlua::Result<Value>,
) -> mlua::Result<Value> {
    // Where there are holes, what `#` says depends on how a table grew: it grows as in Redis then.
    let holes = items.iter().any(|item| matches!(item, Reply::Null));
    let room = if holes { 0 } else { items.len() };
    let table = lua.create_table_with_capacity(room, 0)?;
    for (place, item) in items.into_iter().enumerate() {
        table.raw_set(place + 1, element(lua, item)?)?;
    }
    Ok(Value::Table(table))
}

fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    lua.create_string(bytes).map(Value::String)
}

fn field(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// The table that stands for an error. Of `text`, a code is what comes before the first blank; without one
/// it is `ERR`.
pub fn error_reply(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let text = c_string(text);
    let (code, message) = match text.iter().position(|&byte| byte == b' ') {
        Some(blank) => (&text[..blank], &text[blank + 1..]),
        None => (&b"ERR"[..], text),
    };
    coded_error(lua, code, message)
}

/// The table that stands for an error of the script interface itself.
pub fn own_error(lua: &Lua, message: &str) -> mlua::Result<Table> {
    coded_error(lua, b"ERR", message.as_bytes())
}

fn coded_error(lua: &Lua, code: &[u8], message: &[u8]) -> mlua::Result<Table> {
    let error = lua.create_table()?;
    let text = [code, b" ", without_line_ends(message)].concat();
    error.raw_set("err", lua.create_string(text)?)?;
    Ok(error)
}

/// Up to the first NUL: so far Redis reads what it passes on as a C string.
pub fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn without_line_ends(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_end(byte));
    let end = text.iter().rposition(|byte| !is_end(byte));
    match (start, end) {
        (Some(start), Some(end)) => &text[start..=end],
        _ => b"",
    }
}

/// What may stand in one line of a reply: line ends become blanks.
pub fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter()
        .map(|&byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        })
        .collect()
}

/// The text of an error reply.
pub fn error_line(text: &[u8]) -> Reply {
    let text = c_string(text);
    let end = text
        .iter()
        .rposition(|byte| !matches!(byte, b'\r' | b'\n'))
        .map_or(0, |last| last + 1);
    Reply::Error(one_line(&text[..end]))
}

/// Why a value could not become a reply.
pub enum Unanswerable {
    /// The run was stopped on the way.
    Stopped(Vec<u8>),
    TooLarge,
    Failed(mlua::Error),
}

impl From<mlua::Error> for Unanswerable {
    fn from(error: mlua::Error) -> Unanswerable {
        Unanswerable::Failed(error)
    }
}

/// The reply for what a script returned.
pub fn to_reply(run: &Run, value: Value) -> Result<Reply, Unanswerable> {
    let mut answer = Answer {
        run,
        elements: 0,
        bytes: 0,
    };
    answer.value(value, 0)
}

struct Answer<'a> {
    run: &'a Run,
    elements: usize,
    bytes: usize,
}

impl Answer<'_> {
    fn value(&mut self, value: Value, level: usize) -> Result<Reply, Unanswerable> {
        self.count(ELEMENT_BYTES)?;
        if level > MOST_LEVELS {
            return Ok(Reply::Error(b"ERR reached lua stack limit".to_vec()));
        }
        match value {
            Value::String(string) => {
                self.count(string.as_bytes().len())?;
                Ok(Reply::Bulk(string.as_bytes().to_vec()))
            }
            Value::Integer(int) => Ok(Reply::Int(int)),
            Value::Number(double) => Ok(Reply::Int(to_integer(double))),
            Value::Boolean(is) if self.run.protocol() == 3 => Ok(Reply::Bool(is)),
            Value::Boolean(true) => Ok(Reply::Int(1)),
            Value::Table(table) => self.table(&table, level),
            _ => Ok(Reply::Null),
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Unanswerable> {
        self.elements += 1;
        self.bytes += bytes;
        if self.bytes > self.run.most_bytes {
            return Err(Unanswerable::TooLarge);
        }
        if self.elements.is_multiple_of(ELEMENTS_BETWEEN_CHECKS)
            && let Some(reason) = self.run.stop()
        {
            return Err(Unanswerable::Stopped(reason.to_vec()));
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<Reply, Unanswerable> {
        if let Value::String(text) = table.raw_get("err")? {
            return Ok(error_line(&text.as_bytes()));
        }
        if let Value::String(text) = table.raw_get("ok")? {
            return Ok(Reply::Simple(one_line(c_string(&text.as_bytes()))));
        }
        match table.raw_get("double")? {
            Value::Integer(int) => return Ok(Reply::Double(int as f64)),
            Value::Number(double) => return Ok(Reply::Double(double)),
            _ => {}
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            return Ok(Reply::BigNumber(one_line(&digits.as_bytes())));
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let Value::String(format) = verbatim.raw_get("format")?
            && let Value::String(text) = verbatim.raw_get("string")?
        {
            return Ok(Reply::Verbatim {
                format: three_bytes(&format.as_bytes()),
                text: text.as_bytes().to_vec(),
            });
        }
        if let Value::Table(map) = table.raw_get("map")? {
            let mut pairs = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                pairs.push((self.value(key, level + 1)?, self.value(value, level + 1)?));
            }
            return Ok(Reply::Map(pairs));
        }
        if let Value::Table(set) = table.raw_get("set")? {
            let mut items = Vec::new();
            for pair in set.pairs::<Value, Value>() {
                items.push(self.value(pair?.0, level + 1)?);
            }
            return Ok(Reply::Set(items));
        }
        let mut items = Vec::new();
        loop {
            match table.raw_get(items.len() + 1)? {
                Value::Nil => return Ok(Reply::Array(items)),
                item => items.push(self.value(item, level + 1)?),
            }
        }
    }
}

/// A verbatim string names its format by three bytes, blanks where there are fewer.
fn three_bytes(format: &[u8]) -> [u8; 3] {
    let format = one_line(c_string(format));
    std::array::from_fn(|place| format.get(place).copied().unwrap_or(b' '))
}
