//! Just enough JSON to read what a program tells about itself.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// `None` if it is none.
    pub fn parse(text: &str) -> Option<Json> {
        let mut reader = Reader(text.as_bytes());
        let value = reader.value()?;
        reader.space();
        reader.0.is_empty().then_some(value)
    }

    /// A field of an object. What is not there is null.
    pub fn get(&self, name: &str) -> &Json {
        match self {
            Json::Object(fields) => fields.get(name).unwrap_or(&Json::Null),
            _ => &Json::Null,
        }
    }

    pub fn items(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            _ => &[],
        }
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Json::Number(number) => Some(*number as u64),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    /// Whether this comes next; then it is passed.
    fn comes(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.0.strip_prefix(word.as_bytes());
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn value(&mut self) -> Option<Json> {
        if self.comes("null") {
            Some(Json::Null)
        } else if self.comes("true") {
            Some(Json::Bool(true))
        } else if self.comes("false") {
            Some(Json::Bool(false))
        } else if self.comes("[") {
            self.separated("]", Reader::value).map(Json::List)
        } else if self.comes("{") {
            let fields = self.separated("}", Reader::field)?;
            Some(Json::Object(fields.into_iter().collect()))
        } else if self.comes("\"") {
            self.text().map(Json::Text)
        } else {
            self.number()
        }
    }

    fn field(&mut self) -> Option<(String, Json)> {
        let name = self.comes("\"").then(|| self.text())??;
        self.comes(":").then(|| Some((name, self.value()?)))?
    }

    fn separated<T>(&mut self, end: &str, one: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.comes(end) {
            if !all.is_empty() && !self.comes(",") {
                return None;
            }
            all.push(one(self)?);
        }
        Some(all)
    }

    fn number(&mut self) -> Option<Json> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = self.0.iter().take_while(|byte| is_part(byte)).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Json::Number(number))
    }

    fn text(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            match first {
                b'"' => return String::from_utf8(bytes).ok(),
                b'\\' => bytes.extend_from_slice(self.escaped()?.to_string().as_bytes()),
                byte => bytes.push(*byte),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let (letter, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match letter {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'u' => {
                let (digits, rest) = self.0.split_at_checked(4)?;
                self.0 = rest;
                let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                char::from_u32(code)?
            }
            other => char::from(*other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = r#" {"id": 3, "slots":[0, 5461], "leader":null,"alive":true, "name":"a\"b\u000a", "none":[] } "#;
        let json = Json::parse(text).expect("it is well-formed");
        assert_eq!(json.get("id").number(), Some(3));
        assert_eq!(json.get("slots").items()[1], Json::Number(5461.0));
        assert_eq!(json.get("leader"), &Json::Null);
        assert_eq!(json.get("alive"), &Json::Bool(true));
        assert_eq!(json.get("name").text(), Some("a\"b\n"));
        assert_eq!(json.get("none").items(), []);
        for bad in ["", "{", "[1 2]", "{\"a\"}", "\"open", "1 2", "nul"] {
            assert_eq!(Json::parse(bad), None, "{bad}");
        }
    }
}
