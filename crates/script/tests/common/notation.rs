//! Replies in one line of text.

use cairn_script::Value;

pub fn notation(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Int(int) => int.to_string(),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Null => "null".to_string(),
        Value::NullArray => "null array".to_string(),
        Value::Array(items) => format!("[{}]", all(items)),
        Value::Set(items) => format!("set[{}]", all(items)),
        Value::Push(items) => format!("push[{}]", all(items)),
        Value::Map(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| format!("{}: {}", notation(key), notation(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Double(double) => format!("double {double}"),
        Value::Bool(is) => is.to_string(),
        Value::BigNumber(digits) => format!("big {}", digits.escape_ascii()),
        Value::Verbatim { format, text } => {
            format!("{} \"{}\"", format.escape_ascii(), text.escape_ascii())
        }
        Value::Attributed { value, .. } => notation(value),
    }
}

fn all(items: &[Value]) -> String {
    let items: Vec<_> = items.iter().map(notation).collect();
    items.join(", ")
}
