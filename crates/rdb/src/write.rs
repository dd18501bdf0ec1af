//! Writing a payload in the form in which Redis 7.0 would, or 7.4 if it has to be.

use crate::kind::Form;
use crate::listpack::Listpack;
use crate::quicklist::Quicklist;
use crate::stream::{Facts, Id, Nodes, Read};
use crate::{footer, intset, part, string};

/// A payload under construction.
pub struct Dump(Vec<u8>);

impl Dump {
    fn new(form: Form) -> Dump {
        Dump(vec![form as u8])
    }

    /// Of so many elements, which follow.
    fn counted(form: Form, size: u64) -> Dump {
        let mut dump = Dump::new(form);
        string::append_length(size, &mut dump.0);
        dump
    }

    /// In one piece.
    fn whole(form: Form, bytes: &[u8]) -> Dump {
        let mut dump = Dump::new(form);
        string::append(bytes, &mut dump.0);
        dump
    }

    pub fn string(value: &[u8]) -> Dump {
        Dump::whole(Form::String, value)
    }

    /// Of fields and values in turn.
    pub fn small_hash(fields: Listpack) -> Dump {
        Dump::whole(Form::HashListpack, &fields.finish())
    }

    /// Of members and scores in turn, in the order of the scores.
    pub fn small_zset(members: Listpack) -> Dump {
        Dump::whole(Form::ZsetListpack, &members.finish())
    }

    /// Of numbers that rise.
    pub fn small_set(numbers: &[i64]) -> Dump {
        Dump::whole(Form::SetIntset, &intset::of(numbers))
    }

    /// A set of so many members, to be followed by a [`Dump::part`] for each.
    pub fn set(size: u64) -> Dump {
        Dump::counted(Form::Set, size)
    }

    /// A hash of so many fields, to be followed by two parts for each.
    pub fn hash(size: u64) -> Dump {
        Dump::counted(Form::Hash, size)
    }

    /// The same with fields some of which expire, none before `first_ms`: to be followed by a [`Dump::time`] and two
    /// parts for each.
    pub fn expiring_hash(size: u64, first_ms: u64) -> Dump {
        let mut dump = Dump::new(Form::HashExpiring);
        dump.0.extend_from_slice(&first_ms.to_le_bytes());
        dump.count(size);
        dump
    }

    /// When the next field expires, zero for never.
    pub fn time(&mut self, first_ms: u64, at_ms: u64) {
        part::field_time(first_ms, at_ms, &mut self.0);
    }

    /// A sorted set of so many members, to be followed by a part and a [`Dump::score`] for each.
    pub fn zset(size: u64) -> Dump {
        Dump::counted(Form::Zset, size)
    }

    pub fn list() -> Quicklist {
        Quicklist::new(Dump::new(Form::ListOfListpacks).0)
    }

    pub fn of_list(list: Quicklist) -> Dump {
        Dump(list.finish())
    }

    pub fn stream() -> Nodes {
        Nodes::new(Dump::new(Form::Stream).0)
    }

    /// To be followed by a [`Dump::count`] of groups, and the groups.
    pub fn of_stream(nodes: Nodes, facts: &Facts) -> Dump {
        let mut out = nodes.finish();
        part::facts(facts, &mut out);
        Dump(out)
    }

    /// To be followed by a count of what is pending, a [`Dump::delivery`] for each, and a count of consumers.
    pub fn group(&mut self, name: &[u8], last: Id, read: Read) {
        part::group(name, last, read, &mut self.0);
    }

    pub fn delivery(&mut self, id: Id, delivered_ms: u64, deliveries: u64) {
        part::delivery(id, delivered_ms, deliveries, &mut self.0);
    }

    /// To be followed by a count of what is pending, and a [`Dump::owned`] for each.
    pub fn consumer(&mut self, name: &[u8], seen_ms: u64) {
        part::consumer(name, seen_ms, &mut self.0);
    }

    pub fn owned(&mut self, id: Id) {
        part::owned(id, &mut self.0);
    }

    pub fn count(&mut self, count: u64) {
        part::count(count, &mut self.0);
    }

    pub fn part(&mut self, part: &[u8]) {
        part::text(part, &mut self.0);
    }

    pub fn score(&mut self, score: f64) {
        part::score(score, &mut self.0);
    }

    /// How many bytes there are so far.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// The whole payload.
    pub fn seal(mut self) -> Vec<u8> {
        let is_later = self.0.first().and_then(|form| Form::of(*form));
        match is_later.is_some_and(Form::is_later) {
            true => footer::seal_later(&mut self.0),
            false => footer::seal(&mut self.0),
        }
        self.0
    }
}
