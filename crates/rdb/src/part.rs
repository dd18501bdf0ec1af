//! The parts of a value, in the order in which [`Dump`](crate::Dump) and the module `file` say. All of them are appended.

use crate::stream;
use crate::{Facts, Id, Read, string};

pub fn count(count: u64, out: &mut Vec<u8>) {
    string::append_length(count, out);
}

/// An element, a member, a field, the value of a field.
pub fn text(text: &[u8], out: &mut Vec<u8>) {
    string::append(text, out);
}

pub fn score(score: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&score.to_le_bytes());
}

/// When a field expires, zero for never, in a hash where none does before `first_ms`.
pub fn field_time(first_ms: u64, at_ms: u64, out: &mut Vec<u8>) {
    count(
        match at_ms {
            0 => 0,
            at_ms => at_ms.saturating_sub(first_ms) + 1,
        },
        out,
    );
}

/// What is known of a stream, behind its entries. A count of groups follows, and the groups.
pub fn facts(facts: &Facts, out: &mut Vec<u8>) {
    stream::append_facts(facts, out);
}

/// A count of what is pending follows, a [`delivery`] for each, and a count of consumers.
pub fn group(name: &[u8], last: Id, read: Read, out: &mut Vec<u8>) {
    stream::append_group(name, last, read, out);
}

pub fn delivery(id: Id, delivered_ms: u64, deliveries: u64, out: &mut Vec<u8>) {
    stream::append_id(id, out);
    stream::append_time(delivered_ms, out);
    count(deliveries, out);
}

/// A count of what is pending follows, and an [`owned`] for each.
pub fn consumer(name: &[u8], seen_ms: u64, out: &mut Vec<u8>) {
    text(name, out);
    stream::append_time(seen_ms, out);
}

pub fn owned(id: Id, out: &mut Vec<u8>) {
    stream::append_id(id, out);
}
