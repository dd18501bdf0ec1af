//! Just enough JSON to write a status.

use std::fmt;

pub(crate) enum Json {
    Bool(bool),
    Number(u64),
    Text(String),
    Null,
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl From<Option<u64>> for Json {
    fn from(number: Option<u64>) -> Json {
        number.map_or(Json::Null, Json::Number)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => quoted(text, f),
            Json::Null => f.write_str("null"),
            Json::List(items) => {
                f.write_str("[")?;
                for (place, item) in items.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Json::Object(fields) => {
                f.write_str("{")?;
                for (place, (name, value)) in fields.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}\"{name}\":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            letter if letter.is_control() => write!(f, "\\u{:04x}", u32::from(letter))?,
            letter => write!(f, "{letter}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted() {
        let text = Json::Text("a\"b\\c\nd".to_string());
        assert_eq!(text.to_string(), r#""a\"b\\c\u000ad""#);
        let object = Json::Object(vec![
            ("a", Json::List(vec![Json::Number(1), Json::Null])),
            ("b", Json::Bool(true)),
        ]);
        assert_eq!(object.to_string(), r#"{"a":[1,null],"b":true}"#);
    }
}
