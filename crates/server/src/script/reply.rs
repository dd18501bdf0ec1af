//! Replies of commands as scripts get them, and what scripts answer as clients get it.

use cairn_resp::{Progress, Protocol, Reply, Value, Writer, decode};
use cairn_store::{Error, Result};

/// How much of a reply may be written on a connection's thread.
const SHORT: usize = 256 * 1024;

/// A reply as the protocol spells it. One that is long needs patience.
pub fn to_value(reply: Reply, protocol: Protocol, is_patient: bool) -> Result<Value> {
    Ok(match reply {
        Reply::Ok => Value::Simple(b"OK".to_vec()),
        Reply::Simple(text) => Value::Simple(text.as_bytes().to_vec()),
        Reply::Status(text) => Value::Simple(text),
        Reply::Error(text) => Value::Error(text),
        Reply::Int(int) => Value::Int(int),
        Reply::Bulk(bytes) => Value::Bulk(bytes),
        Reply::Shared(bytes, start) => Value::Bulk(bytes[start..].to_vec()),
        Reply::Bulks(bulks) => {
            let values = bulks.iter().map(|bulk| Value::Bulk(bulk.to_vec()));
            Value::Array(values.collect())
        }
        Reply::Static(text) => Value::Bulk(text.as_bytes().to_vec()),
        Reply::Null => Value::Null,
        // Whatever is made of parts says itself how each protocol spells it.
        other => {
            let mut bytes = Vec::new();
            write_reply(other, &mut Writer::new(&mut bytes, protocol), is_patient)?;
            match decode(&bytes) {
                Ok(Some((value, _))) => value,
                Ok(None) => return Err(Error::fixed("ERR a reply was not complete")),
                Err(error) => return Err(Error::reply(format!("ERR {error}"))),
            }
        }
    })
}

/// Writes a reply to its end. One that is long needs patience.
pub fn write_reply(reply: Reply, out: &mut Writer<'_>, is_patient: bool) -> Result<()> {
    let broke = |error| Error::reply(format!("ERR {error}"));
    match reply {
        Reply::Stream(mut stream) if !is_patient => {
            let limit = out.len() + SHORT;
            match stream.write(out, limit).map_err(broke)? {
                Progress::Done => Ok(()),
                Progress::More => Err(Error::TooLong),
            }
        }
        reply => reply.write(out).map_err(broke),
    }
}

/// Writes what a script answers.
pub fn write(value: Value, out: &mut Writer<'_>) {
    match value {
        Value::Simple(text) => out.simple(text),
        Value::Error(text) => out.error(text),
        Value::Int(int) => out.int(int),
        Value::Bulk(bytes) => out.bulk(bytes),
        Value::Null => out.null(),
        Value::NullArray => out.null_array(),
        Value::Double(double) => out.double(double),
        Value::Bool(is) => out.bool(is),
        Value::BigNumber(digits) => out.big_number(&digits),
        Value::Verbatim { format, text } => {
            out.verbatim(&String::from_utf8_lossy(&format), &text);
        }
        Value::Array(items) => {
            out.array(items.len());
            items.into_iter().for_each(|item| write(item, out));
        }
        Value::Set(items) => {
            out.set(items.len());
            items.into_iter().for_each(|item| write(item, out));
        }
        Value::Push(items) => {
            out.push(items.len());
            items.into_iter().for_each(|item| write(item, out));
        }
        Value::Map(pairs) => {
            out.map(pairs.len());
            write_pairs(pairs, out);
        }
        Value::Attributed { attributes, value } => {
            if out.attributes(attributes.len()) {
                write_pairs(attributes, out);
            }
            write(*value, out);
        }
    }
}

fn write_pairs(pairs: Vec<(Value, Value)>, out: &mut Writer<'_>) {
    for (key, value) in pairs {
        write(key, out);
        write(value, out);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reply_is_the_same_value_by_either_way() {
        let replies = || {
            [
                Reply::Ok,
                Reply::Simple("PONG"),
                Reply::Status(b"text".to_vec()),
                Reply::error("ERR no"),
                Reply::Int(-7),
                Reply::bulk("bytes"),
                Reply::Shared(b"shared".as_slice().into(), 2),
                Reply::Bulks(["", "in", "one", "piece"].into_iter().collect()),
                Reply::Static("static"),
                Reply::Null,
                Reply::NullArray,
                Reply::Double(1.5),
                Reply::Map(vec![(Reply::Int(1), Reply::Bool(true))]),
                Reply::Array(vec![Reply::Null, Reply::Set(vec![Reply::Int(1)])]),
            ]
        };
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for (reply, same) in replies().into_iter().zip(replies()) {
                let bytes = same.to_bytes(protocol).unwrap();
                let (expected, _) = decode(&bytes).unwrap().unwrap();
                let value = to_value(reply, protocol, false).unwrap();
                assert_eq!(value, expected);
                let mut written = Vec::new();
                write(value, &mut Writer::new(&mut written, protocol));
                assert_eq!(written, bytes);
            }
        }
    }
}
