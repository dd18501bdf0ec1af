//! The listpack of a node.
//!
//! ```text
//! entries | deleted | fields | field... | 0
//! flags | ms | seq |                       value...    | elements     an entry with the fields above
//! flags | ms | seq | fields | (field | value)...       | elements     with others
//! ```
//!
//! The numbers of an ID are relative to the first of the node. At the end of an entry stands how many elements it has,
//! for those who come from behind.

use super::Id;
use crate::Corrupt;
use crate::listpack::{Elements, Listpack, Value};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// What Redis puts into one node, unless it is told otherwise.
const NODE_BYTES: usize = 4096;
const NODE_ENTRIES: i64 = 100;

/// Shows the entries that are not deleted: their fields and values, one after the other.
pub(super) fn read<E: From<Corrupt>>(
    bytes: &[u8],
    first: Id,
    mut visit: impl FnMut(Id, &[Value<'_>]) -> Result<(), E>,
) -> Result<(), E> {
    let mut elements = Elements::open(bytes)?;
    let mut live = number(&mut elements)?;
    let mut deleted = number(&mut elements)?;
    let mut common = Vec::new();
    for _ in 0..count(&mut elements)? {
        common.push(elements.expect()?);
    }
    if number(&mut elements)? != 0 {
        return Err(Corrupt.into());
    }
    let mut words = Vec::new();
    while let Some(flags) = elements.next()? {
        let Value::Number(flags) = flags else {
            return Err(Corrupt.into());
        };
        let id = Id {
            ms: first.ms.wrapping_add(number(&mut elements)? as u64),
            seq: first.seq.wrapping_add(number(&mut elements)? as u64),
        };
        words.clear();
        let size = if flags & SAME_FIELDS != 0 {
            for field in &common {
                words.extend([*field, elements.expect()?]);
            }
            3 + common.len()
        } else {
            let fields = count(&mut elements)?;
            for _ in 0..fields.saturating_mul(2) {
                words.push(elements.expect()?);
            }
            4 + words.len()
        };
        if number(&mut elements)? != size as i64 {
            return Err(Corrupt.into());
        }
        if flags & DELETED != 0 {
            deleted -= 1;
        } else {
            live -= 1;
            visit(id, &words)?;
        }
    }
    match live == 0 && deleted == 0 {
        true => Ok(()),
        false => Err(Corrupt.into()),
    }
}

fn number(elements: &mut Elements<'_>) -> Result<i64, Corrupt> {
    match elements.expect()? {
        Value::Number(number) => Ok(number),
        Value::String(_) => Err(Corrupt),
    }
}

fn count(elements: &mut Elements<'_>) -> Result<u64, Corrupt> {
    u64::try_from(number(elements)?).map_err(|_| Corrupt)
}

/// A node under construction. How many entries it has is written last, in front of all else, so they stand apart.
pub struct Node {
    pub(super) first: Id,
    fields: Vec<Vec<u8>>,
    head: Listpack,
    entries: i64,
    rest: Listpack,
}

impl Node {
    /// Begins with the fields of its first entry, which is then to be pushed.
    pub(super) fn new(first: Id, words: &[&[u8]]) -> Node {
        let fields: Vec<Vec<u8>> = names(words).map(<[u8]>::to_vec).collect();
        let mut head = Listpack::default();
        head.push_number(0);
        head.push_number(fields.len() as i64);
        fields.iter().for_each(|field| head.push(field));
        head.push_number(0);
        Node {
            first,
            fields,
            head,
            entries: 0,
            rest: Listpack::default(),
        }
    }

    /// Whether another entry belongs here, as Redis sees it.
    pub(super) fn takes(&self, words: &[&[u8]]) -> bool {
        let entry: usize = words.iter().map(|word| word.len()).sum();
        self.size() + entry < NODE_BYTES && self.entries < NODE_ENTRIES
    }

    fn size(&self) -> usize {
        // The number of entries takes two bytes.
        self.head.joined_size(&self.rest) + 2
    }

    pub(super) fn push(&mut self, id: Id, words: &[&[u8]]) {
        let has_same_fields = names(words).eq(self.fields.iter().map(Vec::as_slice));
        self.rest
            .push_number(if has_same_fields { SAME_FIELDS } else { 0 });
        self.rest
            .push_number(id.ms.wrapping_sub(self.first.ms) as i64);
        self.rest
            .push_number(id.seq.wrapping_sub(self.first.seq) as i64);
        let size = if has_same_fields {
            words
                .iter()
                .skip(1)
                .step_by(2)
                .for_each(|value| self.rest.push(value));
            3 + words.len() / 2
        } else {
            self.rest.push_number((words.len() / 2) as i64);
            words.iter().for_each(|word| self.rest.push(word));
            4 + words.len()
        };
        self.rest.push_number(size as i64);
        self.entries += 1;
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let mut whole = Listpack::default();
        whole.push_number(self.entries);
        whole.append(self.head);
        whole.append(self.rest);
        whole.finish()
    }
}

fn names<'w>(words: &[&'w [u8]]) -> impl Iterator<Item = &'w [u8]> {
    words.iter().step_by(2).copied()
}
