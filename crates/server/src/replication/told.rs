//! What a commit tells followers, in groups that they are to do at once or not at all.

use crate::propagation::{decimal, request};

/// Commands of which each is about a database.
#[derive(Default)]
pub struct Told {
    groups: Vec<Vec<Call>>,
    /// Those that belong to no group as yet.
    open: Vec<Call>,
}

struct Call {
    database: u32,
    request: Vec<u8>,
}

impl Told {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.open.is_empty()
    }

    pub fn add(&mut self, database: u32, request: Vec<u8>) {
        if !request.is_empty() {
            self.open.push(Call { database, request });
        }
    }

    /// What was added since the last time belongs together.
    pub fn close_group(&mut self) {
        if !self.open.is_empty() {
            self.groups.push(std::mem::take(&mut self.open));
        }
    }

    /// What was added last depends on nothing else.
    pub fn finish(&mut self) {
        let alone = std::mem::take(&mut self.open).into_iter();
        self.groups.extend(alone.map(|call| vec![call]));
    }

    /// As it goes over the wire to those who have selected a database, if any.
    pub fn write(&self, selected: &mut Option<u32>) -> Vec<u8> {
        let mut out = Vec::new();
        for group in &self.groups {
            let Some(first) = group.first() else { continue };
            let is_several = group.len() > 1;
            select(first.database, selected, &mut out);
            if is_several {
                out.extend_from_slice(&request(&[b"MULTI"]));
            }
            for call in group {
                select(call.database, selected, &mut out);
                out.extend_from_slice(&call.request);
            }
            if is_several {
                out.extend_from_slice(&request(&[b"EXEC"]));
            }
        }
        out
    }
}

fn select(database: u32, selected: &mut Option<u32>, out: &mut Vec<u8>) {
    if *selected != Some(database) {
        *selected = Some(database);
        out.extend_from_slice(&request(&[b"SELECT", &decimal(database.into())]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of all requests, for people.
    fn shown(bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let words = text.split("\r\n").filter(|line| !line.is_empty());
        let words = words.filter(|line| !line.starts_with('$'));
        let words = words.map(|line| line.strip_prefix('*').map_or(line, |_| "|"));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn groups_are_framed_and_databases_selected_as_redis_does() {
        let mut told = Told::default();
        assert!(told.is_empty());
        told.add(0, request(&[b"SET", b"a", b"1"]));
        told.close_group();
        told.add(0, Vec::new());
        told.close_group();
        told.add(3, request(&[b"DEL", b"b"]));
        told.add(4, request(&[b"INCR", b"b"]));
        told.close_group();
        told.add(4, request(&[b"DEL", b"x"]));
        told.add(4, request(&[b"DEL", b"y"]));
        told.finish();
        let mut selected = None;
        let bytes = told.write(&mut selected);
        assert_eq!(
            shown(&bytes),
            "| SELECT 0 | SET a 1 | SELECT 3 | MULTI | DEL b | SELECT 4 | INCR b | EXEC | DEL x | DEL y"
        );
        assert_eq!(selected, Some(4));
        assert!(!shown(&told.write(&mut Some(0))).starts_with("| SELECT"));
    }
}
