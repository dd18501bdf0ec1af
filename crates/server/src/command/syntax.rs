//! What follows a command's name, as its declaration writes it and COMMAND DOCS spells it out.
//!
//! ```text
//!   name, name:s    a string          TOKEN/name     the same behind a word: COUNT/count:i
//!   key, name:k     a key             TOKEN!         the word alone
//!   name:i          an integer        TOKEN/name!    the word alone, by another name
//!   name:d          a double          name(a|b)      one of several
//!   name:p          a pattern         name{a b}      several together
//!   name:u          a time            a? a+          may be left out, may come again
//!                                     a++            may come again, each time behind its word
//! ```
//!
//! A key belongs to the next of the key specifications; `name:k2` and `name:p2` to this one.

use cairn_resp::Reply;

/// A syntax that is being read.
struct Reader<'s> {
    rest: &'s str,
    keys: usize,
    /// The last of the command's key specifications.
    last_spec: usize,
}

/// The arguments as COMMAND DOCS lists them; none if the declaration cannot be read.
pub fn arguments(syntax: &'static str, key_specs: usize) -> Option<Vec<Reply>> {
    let mut reader = Reader {
        rest: syntax,
        keys: 0,
        last_spec: key_specs.saturating_sub(1),
    };
    let arguments = reader.list(' ')?;
    reader.rest.is_empty().then_some(arguments)
}

impl<'s> Reader<'s> {
    fn list(&mut self, separator: char) -> Option<Vec<Reply>> {
        let mut items = Vec::new();
        if self.rest.is_empty() {
            return Some(items);
        }
        loop {
            items.push(self.item()?);
            match self.rest.strip_prefix(separator) {
                Some(rest) => self.rest = rest,
                None => return Some(items),
            }
        }
    }

    fn takes(&mut self, sign: char) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn item(&mut self) -> Option<Reply> {
        let end = self.rest.find(|sign: char| " |(){}!?+".contains(sign));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let is_word = |text: &str| {
            let is_part = |byte: u8| byte.is_ascii_uppercase() || b"=~*$2".contains(&byte);
            text.bytes().all(is_part)
        };
        // Names may have a slash or a colon in them.
        let (token, word) = match word.split_once('/') {
            Some((token, name)) if is_word(token) => (Some(token), name),
            _ => (None, word),
        };
        let (word, own_spec) = match word.as_bytes() {
            [.., b':', b'k' | b'p', digit @ b'0'..=b'9'] => {
                (&word[..word.len() - 1], Some(usize::from(digit - b'0')))
            }
            _ => (word, None),
        };
        let (mut name, mut kind) = match word.rsplit_once(':') {
            Some((name, "k")) => (name, "key"),
            Some((name, "i")) => (name, "integer"),
            Some((name, "d")) => (name, "double"),
            Some((name, "p")) => (name, "pattern"),
            Some((name, "s")) => (name, "string"),
            Some((name, "u")) => (name, "unix-time"),
            _ if word == "key" => (word, "key"),
            _ => (word, "string"),
        };
        if name.is_empty() {
            return None;
        }
        let mut token = token.map(str::to_owned);
        let lower_case = name.to_ascii_lowercase();
        let mut parts = None;
        if self.takes('!') {
            kind = "pure-token";
            if token.is_none() {
                token = Some(name.to_owned());
                name = &lower_case;
            }
        } else if self.takes('(') {
            kind = "oneof";
            parts = Some(self.list('|')?);
            self.takes(')').then_some(())?;
        } else if self.takes('{') {
            kind = "block";
            parts = Some(self.list(' ')?);
            self.takes('}').then_some(())?;
        }
        let mut fields: Vec<(Reply, Reply)> = vec![
            ("name".into(), Reply::bulk(name)),
            ("type".into(), kind.into()),
        ];
        if kind == "key" || own_spec.is_some() {
            let next = self.keys.min(self.last_spec);
            self.keys += usize::from(own_spec.is_none());
            let spec = own_spec.unwrap_or(next);
            fields.push(("key_spec_index".into(), spec.into()));
        }
        if let Some(token) = token {
            fields.push(("token".into(), Reply::bulk(token)));
        }
        let signs = [
            (self.takes('?'), "optional"),
            (self.takes('+'), "multiple"),
            (self.takes('+'), "multiple_token"),
        ];
        let flags: Vec<Reply> = signs
            .into_iter()
            .filter_map(|(is_set, flag)| is_set.then_some(Reply::Simple(flag)))
            .collect();
        if !flags.is_empty() {
            fields.push(("flags".into(), Reply::Set(flags)));
        }
        if let Some(parts) = parts {
            fields.push(("arguments".into(), Reply::Array(parts)));
        }
        Some(Reply::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use cairn_resp::Protocol;

    use super::*;
    use crate::command::all;

    #[test]
    fn every_declaration_can_be_read() {
        for command in all() {
            for command in std::iter::once(command).chain(command.subcommands) {
                let arguments = arguments(command.syntax, command.keys.0.len());
                assert!(arguments.is_some(), "{}: {}", command.name, command.syntax);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_not_read() {
        for syntax in [
            "a  b", " a", "a ", "a(b", "a(b|)", "a{b c)", "a)", "!", "TOKEN/",
        ] {
            assert!(arguments(syntax, 1).is_none(), "{syntax}");
        }
    }

    #[test]
    fn a_syntax_is_spelled_out() {
        let spelled = |syntax| {
            let reply = Reply::Array(arguments(syntax, 1).unwrap());
            let bytes = reply.to_bytes(Protocol::Resp2).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let is_text = |line: &&str| !line.starts_with(['*', '$']);
            text.lines().filter(is_text).collect::<Vec<_>>().join(" ")
        };
        let check = |syntax, expected: &str| assert_eq!(spelled(syntax), expected, "{syntax}");
        check("", "");
        check("key", "name key type key key_spec_index :0");
        check("to:k", "name to type key key_spec_index :0");
        check("key:s", "name key type string");
        check(
            "by:p1 to:k2",
            "name by type pattern key_spec_index :1 name to type key key_spec_index :2",
        );
        check("ip:port+", "name ip:port type string flags +multiple");
        check(
            "COUNT/count:i?",
            "name count type integer token COUNT flags +optional",
        );
        check("CH/change!", "name change type pure-token token CH");
        check(
            "where(LEFT!|at{x:d y})?",
            "name where type oneof flags +optional arguments \
             name left type pure-token token LEFT \
             name at type block arguments name x type double name y type string",
        );
    }
}
