//! Lists as Redis 7.0 writes them: some number of listpacks, each of some kilobytes.
//!
//! ```text
//! nodes | node...
//! node      2 | a listpack, as a string        1 | one large element, as a string
//! ```

use crate::listpack::{self, Listpack};
use crate::read::Item;
use crate::{Corrupt, Input, string};

const PLAIN: u64 = 1;
const PACKED: u64 = 2;

/// How large a node becomes, unless Redis is told otherwise (`list-max-listpack-size` of -2).
const NODE_BYTES: usize = 8 * 1024;
/// What Redis takes an element to cost beside its bytes.
const ELEMENT_COST: usize = 8;

pub fn read_node<E: From<Corrupt>>(
    input: &mut Input<'_>,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let container = input.length()?;
    let node = input.string()?;
    match container {
        PLAIN if !node.is_empty() => visit(Item::Element(&node)),
        PACKED => {
            let mut elements = listpack::Elements::open(&node)?;
            while let Some(element) = elements.next()? {
                element.with(|element| visit(Item::Element(element)))?;
            }
            Ok(())
        }
        _ => Err(Corrupt.into()),
    }
}

/// The nodes of a list under construction.
pub struct Quicklist {
    out: Vec<u8>,
    nodes_at: usize,
    nodes: u64,
    node: Listpack,
}

impl Quicklist {
    /// Goes on where the number of nodes belongs.
    pub fn new(out: Vec<u8>) -> Self {
        Quicklist {
            nodes_at: out.len(),
            out,
            nodes: 0,
            node: Listpack::default(),
        }
    }

    pub fn push(&mut self, element: &[u8]) {
        let size = self.node.size() + element.len() + ELEMENT_COST;
        if size > NODE_BYTES && !self.node.is_empty() {
            self.end_node();
        }
        self.node.push(element);
    }

    /// How many bytes there are so far.
    pub fn size(&self) -> usize {
        self.out.len() + self.node.size()
    }

    fn end_node(&mut self) {
        let node = std::mem::take(&mut self.node).finish();
        string::append_length(PACKED, &mut self.out);
        string::append(&node, &mut self.out);
        self.nodes += 1;
    }

    pub fn finish(mut self) -> Vec<u8> {
        if !self.node.is_empty() {
            self.end_node();
        }
        let mut nodes = Vec::new();
        string::append_length(self.nodes, &mut nodes);
        self.out.splice(self.nodes_at..self.nodes_at, nodes);
        self.out
    }
}
