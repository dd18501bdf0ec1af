//! Writing a stream.

use super::node::Node;
use super::{Facts, Id, Read, UNKNOWN};
use crate::string;

/// Puts the entries of a stream into nodes, as Redis would.
#[derive(Default)]
pub struct Packing(Option<Node>);

impl Packing {
    /// The next entry: its fields and values, one after the other. Gives the node before it, if that takes no more.
    pub fn push(&mut self, id: Id, words: &[&[u8]]) -> Option<Node> {
        let is_full = self.0.as_ref().is_some_and(|node| !node.takes(words));
        let full = self.0.take_if(|_| is_full);
        let node = self.0.get_or_insert_with(|| Node::new(id, words));
        node.push(id, words);
        full
    }

    /// The last node.
    pub fn finish(&mut self) -> Option<Node> {
        self.0.take()
    }
}

impl Node {
    pub fn append(self, out: &mut Vec<u8>) {
        string::append(&self.first.encode(), out);
        string::append(&self.finish(), out);
    }
}

/// The entries of a stream under construction.
pub struct Nodes {
    out: Vec<u8>,
    nodes_at: usize,
    nodes: u64,
    packing: Packing,
}

impl Nodes {
    /// Goes on where the number of nodes belongs.
    pub fn new(out: Vec<u8>) -> Nodes {
        Nodes {
            nodes_at: out.len(),
            out,
            nodes: 0,
            packing: Packing::default(),
        }
    }

    /// The next entry: its fields and values, one after the other.
    pub fn push(&mut self, id: Id, words: &[&[u8]]) {
        let full = self.packing.push(id, words);
        self.add(full);
    }

    /// How many bytes there are of whole nodes.
    pub fn size(&self) -> usize {
        self.out.len()
    }

    fn add(&mut self, node: Option<Node>) {
        if let Some(node) = node {
            node.append(&mut self.out);
            self.nodes += 1;
        }
    }

    pub fn finish(mut self) -> Vec<u8> {
        let last = self.packing.finish();
        self.add(last);
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
