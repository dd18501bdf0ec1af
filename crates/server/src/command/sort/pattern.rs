//! Patterns that lead from an element to a value elsewhere: `weight_*`, `user_*->age`, `#`.

use cairn_store::{Hash, ReadTxn, Result, Str, Type};

use super::Budget;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern<'p> {
    /// The element itself.
    Element,
    /// Without a star there is nothing to look up.
    Constant,
    /// A key, and a field if it is a hash.
    Key {
        before: &'p [u8],
        after: &'p [u8],
        field: Option<&'p [u8]>,
    },
}

impl<'p> Pattern<'p> {
    /// Redis looks for signs up to a zero byte, as C does.
    pub fn parse(text: &'p [u8]) -> Pattern<'p> {
        let readable = up_to_zero(text);
        if readable == b"#" {
            return Pattern::Element;
        }
        let Some(star) = readable.iter().position(|byte| *byte == b'*') else {
            return Pattern::Constant;
        };
        let behind = &readable[star + 1..];
        let arrow = behind.windows(2).position(|signs| signs == b"->");
        let arrow = arrow.filter(|at| at + 2 < behind.len());
        let (before, behind) = (&text[..star], &text[star + 1..]);
        match arrow {
            Some(at) => Pattern::Key {
                before,
                after: &behind[..at],
                field: Some(&behind[at + 2..]),
            },
            None => Pattern::Key {
                before,
                after: behind,
                field: None,
            },
        }
    }

    pub fn is_constant(self) -> bool {
        matches!(self, Pattern::Constant | Pattern::Element)
    }

    /// The key that it leads to.
    pub fn key(self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Pattern::Key { before, after, .. } => Some([before, element, after].concat()),
            Pattern::Element | Pattern::Constant => None,
        }
    }

    /// The value that it leads to, if there is one of the right kind.
    pub fn value(
        self,
        txn: &ReadTxn,
        element: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<Vec<u8>>> {
        let (name, field) = match self {
            Pattern::Element => return Ok(Some(element.to_vec())),
            Pattern::Constant => return Ok(None),
            Pattern::Key {
                before,
                after,
                field,
            } => ([before, element, after].concat(), field),
        };
        txn.step()?;
        let Some(field) = field else {
            let Some(string) = Str::find_only(txn, &name)? else {
                return Ok(None);
            };
            budget.take(string.len())?;
            return string.to_vec(txn).map(Some);
        };
        let kind = txn.find(&txn.key(&name))?.map(|found| found.kind());
        if kind != Some(Type::Hash) {
            return Ok(None);
        }
        let value = Hash::open(txn, &name)?
            .get(txn, field)?
            .map(|row| row.to_vec());
        budget.take(value.as_ref().map_or(0, |value| value.len() as u64))?;
        Ok(value)
    }
}

/// A text as C sees it.
pub fn up_to_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'p>(before: &'p str, after: &'p str, field: Option<&'p str>) -> Pattern<'p> {
        Pattern::Key {
            before: before.as_bytes(),
            after: after.as_bytes(),
            field: field.map(str::as_bytes),
        }
    }

    #[test]
    fn patterns_are_read_as_redis_reads_them() {
        for (text, pattern) in [
            ("#", Pattern::Element),
            ("##", Pattern::Constant),
            ("nosort", Pattern::Constant),
            ("", Pattern::Constant),
            ("w_*", key("w_", "", None)),
            ("*", key("", "", None)),
            ("a*b*c", key("a", "b*c", None)),
            ("h_*->f", key("h_", "", Some("f"))),
            ("h_*_x->f->g", key("h_", "_x", Some("f->g"))),
            ("h_*->", key("h_", "->", None)),
            ("f->g*", key("f->g", "", None)),
            ("*->*", key("", "", Some("*"))),
            ("a\0*", Pattern::Constant),
            ("#\0*", Pattern::Element),
            ("a*\0->f", key("a", "\0->f", None)),
            ("a*->f\0g", key("a", "", Some("f\0g"))),
        ] {
            assert_eq!(Pattern::parse(text.as_bytes()), pattern, "{text:?}");
        }
        let pattern = key("u:", ":n", None);
        assert_eq!(pattern.key(b"7"), Some(b"u:7:n".to_vec()));
    }
}
