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

/// The reply as a client gets it who knows this version of the protocol.
pub fn for_protocol(reply: Reply, version: u8) -> Reply {
    match version {
        2 => in_resp2(reply),
        _ => reply,
    }
}

fn in_resp2(reply: Reply) -> Reply {
    match reply {
        Reply::Array(items) | Reply::Set(items) => {
            Reply::Array(items.into_iter().map(in_resp2).collect())
        }
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::Array(flat.map(in_resp2).collect())
        }
        Reply::Double(double) => {
            let mut text = Vec::new();
            number::format_double(double, &mut text);
            Reply::Bulk(text)
        }
        Reply::Bool(is) => Reply::Int(is.into()),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => Reply::Bulk(text),
        Reply::Attributed { value, .. } => in_resp2(*value),
        other => other,
    }
}

/// The table that stands for an error.
pub fn error_reply(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let (code, message) = code_and_message(text);
    coded_error(lua, code, message)
}

/// The code of an error is what comes before the first blank; without one it is `ERR`.
pub fn code_and_message(text: &[u8]) -> (&[u8], &[u8]) {
    let text = c_string(text);
    match text.iter().position(|&byte| byte == b' ') {
        Some(blank) => (&text[..blank], without_line_ends(&text[blank + 1..])),
        None => (b"ERR", without_line_ends(text)),
    }
}

/// Whether an error is what a command has answered, and not one of the script's own. The field's name is
/// Redis', whose scripts may set it too.
pub fn is_a_commands(error: &Table) -> mlua::Result<bool> {
    let mark: Value = error.raw_get("ignore_error_stats_update")?;
    Ok(matches!(mark, Value::Boolean(true)))
}

/// The table that stands for an error of the script interface itself.
pub fn own_error(lua: &Lua, message: &str) -> mlua::Result<Table> {
    coded_error(lua, b"ERR", message.as_bytes())
}

fn coded_error(lua: &Lua, code: &[u8], message: &[u8]) -> mlua::Result<Table> {
    let error = lua.create_table()?;
    let text = [code, b" ", message].concat();
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
            if level == 0 {
                self.run.error_is_a_commands.set(is_a_commands(table)?);
            }
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
