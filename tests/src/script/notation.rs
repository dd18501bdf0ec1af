//! How a reply is written down: as redis-cli shows it, made unambiguous.
//!
//! ```text
//! OK                     a simple string
//! (error) ERR …          an error
//! (integer) 1            an integer
//! "a\x00b"               a bulk string, quoted as for a command
//! (nil)                  null; (nil array) for the null array of RESP2
//! 1) "a"                 an array; (empty array) without elements
//! 1~ "a"                 a set (RESP3)
//! 1# "a" => "b"          a map (RESP3)
//! 1> "a"                 a push (RESP3)
//! (double) 1.5           a double (RESP3), its spelling kept
//! (true)  (false)        a boolean (RESP3)
//! (txt) "…"              a verbatim string (RESP3), with its format
//! (big number) 12        a big number (RESP3)
//! (closed)               no reply: the server has closed the connection
//! ```

use crate::value::Value;

pub const CLOSED: &str = "(closed)";

/// The lines of a reply.
pub fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Simple(text) => vec![printable(text)],
        Value::Error(text) => vec![format!("(error) {}", printable(text))],
        Value::Int(number) => vec![format!("(integer) {number}")],
        Value::Bulk(bytes) => vec![quoted(bytes)],
        Value::Null => vec!["(nil)".into()],
        Value::NullArray => vec!["(nil array)".into()],
        Value::Double(text) => vec![format!("(double) {}", printable(text))],
        Value::Bool(value) => vec![format!("({value})")],
        Value::BigNumber(digits) => vec![format!("(big number) {}", printable(digits))],
        Value::Verbatim { format, text } => {
            vec![format!("({}) {}", printable(format), quoted(text))]
        }
        Value::Array(items) => numbered(items, ')', "(empty array)"),
        Value::Set(items) => numbered(items, '~', "(empty set)"),
        Value::Push(items) => numbered(items, '>', "(empty push)"),
        Value::Map(pairs) => map(pairs),
    }
}

/// One quoted line for each line of `bytes`, line ends included.
pub fn raw_lines(bytes: &[u8]) -> Vec<String> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .map(quoted)
        .collect()
}

fn numbered(items: &[Value], mark: char, empty: &str) -> Vec<String> {
    if items.is_empty() {
        return vec![empty.into()];
    }
    let mut out = Vec::new();
    for (index, item) in items.iter().enumerate() {
        hang(&format!("{}{mark} ", index + 1), lines(item), &mut out);
    }
    out
}

fn map(pairs: &[(Value, Value)]) -> Vec<String> {
    if pairs.is_empty() {
        return vec!["(empty map)".into()];
    }
    let mut out = Vec::new();
    for (index, (key, value)) in pairs.iter().enumerate() {
        let key = lines(key).join(" ");
        let value = lines(value);
        let label = format!("{}# {key} =>", index + 1);
        match value.as_slice() {
            [single] => out.push(format!("{label} {single}")),
            several => {
                out.push(label);
                out.extend(several.iter().map(|line| format!("   {line}")));
            }
        }
    }
    out
}

/// Puts `label` before the first of the lines, and as much space before the others.
fn hang(label: &str, lines: Vec<String>, out: &mut Vec<String>) {
    for (index, line) in lines.into_iter().enumerate() {
        match index {
            0 => out.push(format!("{label}{line}")),
            _ => out.push(format!("{:1$}{line}", "", label.len())),
        }
    }
}

/// Text as it stands. A space at its end is spelled out, or the next editor would drop it.
fn printable(text: &[u8]) -> String {
    if let Some(text) = text.strip_suffix(b" ") {
        return printable(text) + "\\x20";
    }
    match std::str::from_utf8(text) {
        Ok(text) if !text.contains(char::is_control) => text.into(),
        _ => text.escape_ascii().to_string(),
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for &byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: Value, expected: &[&str]) {
        assert_eq!(lines(&value), expected);
    }

    #[test]
    fn kinds_that_look_alike_are_told_apart() {
        check(Value::Null, &["(nil)"]);
        check(Value::NullArray, &["(nil array)"]);
        check(Value::Array(vec![]), &["(empty array)"]);
        check(Value::bulk("OK"), &["\"OK\""]);
        check(Value::ok(), &["OK"]);
        check(Value::bulk("1\n\"\\\x07\x7f"), &[r#""1\n\"\\\a\x7f""#]);
        check(Value::error("ERR it's"), &["(error) ERR it's"]);
        check(Value::error("ERR 'a' "), &["(error) ERR 'a'\\x20"]);
    }

    #[test]
    fn nested_replies_hang_below_their_label() {
        let pair = Value::Array(vec![Value::bulk("a"), Value::Int(1)]);
        let list = Value::Array(vec![Value::bulk("0"), pair.clone()]);
        check(list, &["1) \"0\"", "2) 1) \"a\"", "   2) (integer) 1"]);
        let map = Value::Map(vec![
            (Value::bulk("k"), Value::Bool(true)),
            (Value::bulk("l"), pair),
        ]);
        check(
            map,
            &[
                "1# \"k\" => (true)",
                "2# \"l\" =>",
                "   1) \"a\"",
                "   2) (integer) 1",
            ],
        );
    }

    #[test]
    fn raw_replies_keep_their_line_ends() {
        assert_eq!(
            raw_lines(b"+OK\r\n$1\r\n"),
            ["\"+OK\\r\\n\"", "\"$1\\r\\n\""]
        );
        assert!(raw_lines(b"").is_empty());
    }
}
