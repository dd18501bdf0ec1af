//! Tables to JSON.

use mlua::{Table, Value};

use super::{Config, InvalidNumbers, MOST_LEVELS};
use crate::library::Buffer;
use crate::library::number::format_general;
use crate::raw::native::{Args, Throw, to_integer, type_name};
use crate::run::Run;

pub fn encode(args: &Args, config: Config, run: &Run) -> Result<Vec<u8>, Throw> {
    let [value] = args.values() else {
        return Err(args.wrong(1, "expected 1 argument"));
    };
    let mut encoder = Encoder {
        out: Buffer::new(run),
        config,
    };
    encoder.value(value, 0)?;
    Ok(encoder.out.bytes)
}

struct Encoder<'a> {
    out: Buffer<'a>,
    config: Config,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: i32) -> Result<(), Throw> {
        self.out.check()?;
        match value {
            Value::String(string) => self.string(&string.as_bytes()),
            Value::Integer(int) => self.number(value, *int as f64)?,
            Value::Number(double) => self.number(value, *double)?,
            Value::Boolean(true) => self.push(b"true"),
            Value::Boolean(false) => self.push(b"false"),
            Value::Nil => self.push(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.push(b"null"),
            Value::Table(table) => self.table(table, depth + 1)?,
            other => return Err(refused(other, "type not supported")),
        }
        Ok(())
    }

    fn push(&mut self, text: &[u8]) {
        self.out.bytes.extend_from_slice(text);
    }

    fn string(&mut self, text: &[u8]) {
        self.push(b"\"");
        for &byte in text {
            match byte {
                b'"' => self.push(b"\\\""),
                b'\\' => self.push(b"\\\\"),
                b'/' => self.push(b"\\/"),
                0x08 => self.push(b"\\b"),
                b'\t' => self.push(b"\\t"),
                b'\n' => self.push(b"\\n"),
                0x0c => self.push(b"\\f"),
                b'\r' => self.push(b"\\r"),
                0..0x20 | 0x7f => self.push(format!("\\u{byte:04x}").as_bytes()),
                byte => self.out.bytes.push(byte),
            }
        }
        self.push(b"\"");
    }

    fn number(&mut self, value: &Value, double: f64) -> Result<(), Throw> {
        if !double.is_finite() {
            match self.config.encode_invalid {
                InvalidNumbers::Refuse => return Err(refused(value, "must not be NaN or Inf")),
                InvalidNumbers::Null => {
                    self.push(b"null");
                    return Ok(());
                }
                InvalidNumbers::Write if double.is_nan() => {
                    self.push(b"nan");
                    return Ok(());
                }
                InvalidNumbers::Write => {}
            }
        }
        format_general(double, self.config.precision as usize, &mut self.out.bytes);
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: i32) -> Result<(), Throw> {
        if depth > self.config.encode_max_depth.min(MOST_LEVELS) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Throw::message(text));
        }
        match self.array_length(table)? {
            Some(length) if length > 0 => self.array(table, length, depth),
            _ => self.object(table, depth),
        }
    }

    /// The greatest key, if all keys are numbers from 1 on and not too many are missing between them.
    fn array_length(&self, table: &Table) -> Result<Option<i32>, Throw> {
        let mut most = 0i32;
        let mut items = 0i32;
        for pair in table.pairs::<Value, Value>() {
            let key = match pair?.0 {
                Value::Integer(key) if key >= 1 => key as f64,
                Value::Number(key) if key >= 1.0 && key.floor() == key => key,
                _ => return Ok(None),
            };
            if key > f64::from(most) {
                // An int in C, which becomes the least one where the key does not fit.
                most = i32::try_from(to_integer(key)).unwrap_or(i32::MIN);
            }
            items = items.wrapping_add(1);
        }
        let Config {
            sparse_convert,
            sparse_ratio,
            sparse_safe,
            ..
        } = self.config;
        let sparse =
            sparse_ratio > 0 && most > items.wrapping_mul(sparse_ratio) && most > sparse_safe;
        if !sparse {
            return Ok(Some(most));
        }
        if sparse_convert {
            return Ok(None);
        }
        Err(Throw::message(
            "Cannot serialise table: excessively sparse array",
        ))
    }

    fn array(&mut self, table: &Table, length: i32, depth: i32) -> Result<(), Throw> {
        self.push(b"[");
        for place in 1..=length {
            if place > 1 {
                self.push(b",");
            }
            self.value(&table.raw_get(place)?, depth)?;
        }
        self.push(b"]");
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i32) -> Result<(), Throw> {
        self.push(b"{");
        for (place, pair) in table.pairs::<Value, Value>().enumerate() {
            let (key, value) = pair?;
            if place > 0 {
                self.push(b",");
            }
            match &key {
                Value::String(name) => self.string(&name.as_bytes()),
                Value::Integer(int) => self.key_number(&key, *int as f64)?,
                Value::Number(double) => self.key_number(&key, *double)?,
                other => return Err(refused(other, "table key must be a number or string")),
            }
            self.push(b":");
            self.value(&value, depth)?;
        }
        self.push(b"}");
        Ok(())
    }

    fn key_number(&mut self, key: &Value, double: f64) -> Result<(), Throw> {
        self.push(b"\"");
        self.number(key, double)?;
        self.push(b"\"");
        Ok(())
    }
}

fn refused(value: &Value, reason: &str) -> Throw {
    Throw::message(format!("Cannot serialise {}: {reason}", type_name(value)))
}
