//! Writing a stream.

use super::node::Node;
use super::{Facts, Id, Read, UNKNOWN};
use crate::string;

/// The entries of a stream under construction.
pub struct Nodes {
    out: Vec<u8>,
    nodes_at: usize,
    nodes: u64,
    node: Option<Node>,
}

impl Nodes {
    /// Goes on where the number of nodes belongs.
    pub(crate) fn new(out: Vec<u8>) -> Nodes {
        Nodes {
            nodes_at: out.len(),
            out,
            nodes: 0,
            node: None,
        }
    }

    /// The next entry: its fields and values, one after the other.
    pub fn push(&mut self, id: Id, words: &[&[u8]]) {
        if self.node.as_ref().is_some_and(|node| !node.takes(words)) {
            self.end_node();
        }
        let node = self.node.get_or_insert_with(|| Node::new(id, words));
        node.push(id, words);
    }

    /// How many bytes there are of whole nodes.
    pub fn size(&self) -> usize {
        self.out.len()
    }

    fn end_node(&mut self) {
        if let Some(node) = self.node.take() {
            string::append(&node.first.encode(), &mut self.out);
            string::append(&node.finish(), &mut self.out);
            self.nodes += 1;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_node();
        let mut nodes = Vec::new();
        string::append_length(self.nodes, &mut nodes);
        self.out.splice(self.nodes_at..self.nodes_at, nodes);
        self.out
    }
}

fn append_lengths(id: Id, out: &mut Vec<u8>) {
    string::append_length(id.ms, out);
    string::append_length(id.seq, out);
}

pub fn append_facts(facts: &Facts, out: &mut Vec<u8>) {
    string::append_length(facts.length, out);
    append_lengths(facts.last, out);
    append_lengths(facts.first, out);
    append_lengths(facts.deleted, out);
    string::append_length(facts.added, out);
}

pub fn append_group(name: &[u8], last: Id, read: Read, out: &mut Vec<u8>) {
    string::append(name, out);
    append_lengths(last, out);
    let read = match read {
        Read::Known(read) => read,
        Read::Unknown | Read::Untold => UNKNOWN,
    };
    string::append_length(read, out);
}

pub fn append_id(id: Id, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.encode());
}

pub fn append_time(ms: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&ms.to_le_bytes());
}
