//! The blocks of one collection, in memory.
//!
//! Blocks stand on shelves of some dozens, and a shelf knows what its blocks count together. So to find the
//! block of an element is two binary searches, and to add up what lies before it passes over one number per
//! shelf, and one per block of a single shelf.
//!
//! Whoever adds an element anywhere in a large collection finds all this far from the processor, and waits for memory
//! rather than for anything else. So the first search passes over numbers that lie close together, and a shelf is
//! fetched as a whole before it is searched.

use std::cmp::Ordering;

use cairn_engine::{EngineError, prefetch};

use crate::error::Result;

/// How many blocks stand on a shelf; up to twice as many before it is split.
const SHELF: usize = 32;
/// How many bytes the processor fetches at once.
const LINE: usize = 64;
/// What a block takes beside its bytes.
const OVERHEAD: usize = size_of::<Block>() + 16;

/// Elements that follow each other, from `first` up to where the next block begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// How `first` begins: nearly always that is enough to compare, and it need not be fetched.
    head: u64,
    pub(super) count: u64,
    first: Box<[u8]>,
}

impl Block {
    pub(super) fn new(first: &[u8], count: u64) -> Self {
        Block {
            head: head_of(first),
            count,
            first: first.into(),
        }
    }

    fn memory(&self) -> usize {
        OVERHEAD + self.first.len()
    }

    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// The same to be read where the block was just found: unless it is long, it need not be fetched.
    pub(super) fn first_in<'b>(&'b self, room: &'b mut [u8; 8]) -> &'b [u8] {
        match room.get(..self.first.len()) {
            Some(_) => {
                *room = self.head.to_be_bytes();
                &room[..self.first.len()]
            }
            None => &self.first,
        }
    }

    #[inline]
    fn begins_at_or_before(&self, (head, element): (u64, &[u8])) -> bool {
        match self.head.cmp(&head) {
            Ordering::Less => true,
            Ordering::Equal => *self.first <= *element,
            Ordering::Greater => false,
        }
    }
}

/// The first bytes as a number that sorts as they do, if two of these differ.
fn head_of(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = bytes.len().min(head.len());
    head[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(head)
}

struct Shelf {
    total: u64,
    blocks: Vec<Block>,
}

impl Shelf {
    fn new(blocks: Vec<Block>) -> Self {
        Shelf {
            total: blocks.iter().map(|block| block.count).sum(),
            blocks,
        }
    }

    /// That of the first block.
    fn head(&self) -> u64 {
        self.blocks.first().map_or(0, |block| block.head)
    }

    fn begins_at_or_before(&self, place: (u64, &[u8])) -> bool {
        let first = self.blocks.first();
        first.is_some_and(|block| block.begins_at_or_before(place))
    }

    /// Has all blocks brought near, so that a search does not wait for one after the other.
    #[inline]
    fn expect(&self) {
        let start = self.blocks.as_ptr().cast::<u8>();
        for offset in (0..size_of_val(&*self.blocks)).step_by(LINE) {
            prefetch(start.wrapping_add(offset));
        }
    }
}

/// Where a block stands. It holds until blocks are cut or merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    shelf: u32,
    block: u32,
}

#[derive(Default)]
pub(super) struct Directory {
    /// None of them is empty, and the first block begins with nothing.
    shelves: Vec<Shelf>,
    /// The head of each.
    heads: Vec<u64>,
    bytes: usize,
}

impl Directory {
    pub(super) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes
    }

    pub(super) fn total(&self) -> u64 {
        self.shelves.iter().map(|shelf| shelf.total).sum()
    }

    /// Adds a block behind the last.
    pub(super) fn push(&mut self, first: &[u8], count: u64) {
        let block = Block::new(first, count);
        self.bytes += block.memory();
        match self.shelves.last_mut() {
            Some(shelf) if shelf.blocks.len() < SHELF => {
                shelf.blocks.push(block);
                shelf.total += count;
            }
            _ => self.add_shelf(vec![block]),
        }
    }

    fn add_shelf(&mut self, blocks: Vec<Block>) {
        let shelf = Shelf::new(blocks);
        self.heads.push(shelf.head());
        self.shelves.push(shelf);
    }

    /// The block of an element, which need not be there.
    pub(super) fn find(&self, element: &[u8]) -> Spot {
        let place = (head_of(element), element);
        let before = |found: usize| found.saturating_sub(1);
        let shelf = before(self.shelves_up_to(place));
        let blocks = match self.shelves.get(shelf) {
            Some(shelf) => {
                shelf.expect();
                &shelf.blocks[..]
            }
            None => &[],
        };
        let block = before(blocks.partition_point(|block| block.begins_at_or_before(place)));
        Spot {
            shelf: shelf as u32,
            block: block as u32,
        }
    }

    /// How many shelves begin at or before a place.
    fn shelves_up_to(&self, place: (u64, &[u8])) -> usize {
        let not_behind = self.heads.partition_point(|head| *head <= place.0);
        if not_behind == 0 || self.heads[not_behind - 1] < place.0 {
            return not_behind;
        }
        // Where the heads do not tell, the blocks do.
        let before = self.heads.partition_point(|head| *head < place.0);
        let equal = &self.shelves[before..not_behind];
        before + equal.partition_point(|shelf| shelf.begins_at_or_before(place))
    }

    pub(super) fn block(&self, spot: Spot) -> Option<&Block> {
        let shelf = self.shelves.get(spot.shelf as usize)?;
        shelf.blocks.get(spot.block as usize)
    }

    /// Where the block behind this one begins, if there is one.
    pub(super) fn end_of(&self, spot: Spot) -> Option<&[u8]> {
        let shelf = self.shelves.get(spot.shelf as usize)?;
        let next = shelf.blocks.get(spot.block as usize + 1).or_else(|| {
            let shelf = self.shelves.get(spot.shelf as usize + 1)?;
            shelf.blocks.first()
        });
        next.map(Block::first)
    }

    /// How many elements lie in the blocks before this one.
    pub(super) fn before(&self, spot: Spot) -> u64 {
        let (shelves, rest) = self.shelves.split_at(spot.shelf as usize);
        let blocks = rest.first().map_or(&[][..], |shelf| &shelf.blocks);
        let blocks = &blocks[..blocks.len().min(spot.block as usize)];
        shelves.iter().map(|shelf| shelf.total).sum::<u64>()
            + blocks.iter().map(|block| block.count).sum::<u64>()
    }

    /// The block that the element of a rank is in, and how many of the block's come before it.
    pub(super) fn at_rank(&self, mut rank: u64) -> Option<(Spot, u64)> {
        let mut shelves = self.shelves.iter().zip(0..);
        let (shelf, shelf_at) = shelves.find(|(shelf, _)| take_off(&mut rank, shelf.total))?;
        let mut blocks = shelf.blocks.iter().zip(0..);
        let (_, block_at) = blocks.find(|(block, _)| take_off(&mut rank, block.count))?;
        let spot = Spot {
            shelf: shelf_at,
            block: block_at,
        };
        Some((spot, rank))
    }

    /// Elements have come or gone; how many the block has now.
    pub(super) fn change(&mut self, spot: Spot, by: i64) -> Result<u64> {
        let shelf = self.shelves.get_mut(spot.shelf as usize);
        let changed = shelf.and_then(|shelf| {
            let block = shelf.blocks.get_mut(spot.block as usize)?;
            let count = block.count.checked_add_signed(by)?;
            shelf.total = shelf.total.checked_add_signed(by)?;
            block.count = count;
            Some(count)
        });
        changed.ok_or_else(|| EngineError::Corrupt("the counts of a key are wrong".into()).into())
    }

    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = (Spot, &Block)> {
        self.shelves.iter().enumerate().flat_map(|(at, shelf)| {
            let blocks = shelf.blocks.iter().enumerate();
            blocks.map(move |(block_at, block)| {
                let spot = Spot {
                    shelf: at as u32,
                    block: block_at as u32,
                };
                (spot, block)
            })
        })
    }

    /// Puts the pieces of a block in its place: they begin where it does, and have its elements. Spots before it
    /// hold on.
    pub(super) fn cut(&mut self, spot: Spot, pieces: Vec<Block>) {
        let at = spot.block as usize;
        if let Some(shelf) = self.shelves.get_mut(spot.shelf as usize) {
            self.bytes += pieces.iter().map(Block::memory).sum::<usize>();
            let whole = shelf.blocks.splice(at..=at, pieces);
            self.bytes -= whole.map(|block| block.memory()).sum::<usize>();
        }
    }

    /// Joins neighbours of one shelf that together have no more than so many, or one of which has none; calls `gone`
    /// with those whose elements now belong to the one before, and `grown` with that.
    pub(super) fn merge(
        &mut self,
        most: u64,
        mut gone: impl FnMut(&Block),
        mut grown: impl FnMut(&Block),
    ) {
        let belong_together =
            |one: &Block, next: &Block| next.count == 0 || one.count + next.count <= most;
        for shelf in &mut self.shelves {
            let mut pairs = shelf.blocks.windows(2);
            if !pairs.any(|pair| belong_together(&pair[0], &pair[1])) {
                continue;
            }
            let mut merged: Vec<Block> = Vec::with_capacity(shelf.blocks.len());
            let mut has_grown = false;
            for block in shelf.blocks.drain(..) {
                match merged.last_mut() {
                    Some(last) if belong_together(last, &block) => {
                        gone(&block);
                        self.bytes -= block.memory();
                        last.count += block.count;
                        has_grown |= block.count > 0;
                    }
                    _ => {
                        if has_grown && let Some(last) = merged.last() {
                            grown(last);
                        }
                        has_grown = false;
                        merged.push(block);
                    }
                }
            }
            if has_grown && let Some(last) = merged.last() {
                grown(last);
            }
            shelf.blocks = merged;
        }
    }

    /// To be called after the last cut or merge: fills shelves anew if some have too many blocks, or most too few.
    pub(super) fn settle(&mut self) {
        let are_full = self
            .shelves
            .iter()
            .any(|shelf| shelf.blocks.len() > 2 * SHELF);
        let blocks: usize = self.shelves.iter().map(|shelf| shelf.blocks.len()).sum();
        if are_full || blocks < self.shelves.len() * SHELF / 8 {
            let shelves = std::mem::take(&mut self.shelves).into_iter();
            self.heads.clear();
            let mut blocks = shelves.flat_map(|shelf| shelf.blocks).peekable();
            while blocks.peek().is_some() {
                self.add_shelf(blocks.by_ref().take(SHELF).collect());
            }
        }
    }
}

/// Whether a rank lies within the next `count`; else it is counted from behind them.
fn take_off(rank: &mut u64, count: u64) -> bool {
    match rank.checked_sub(count) {
        None => true,
        Some(rest) => {
            *rank = rest;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Blocks that begin with "", 0001, 0002, ... and have 1, 2, 3, ... elements.
    fn directory(blocks: u64) -> Directory {
        let mut directory = Directory::default();
        for number in 0..blocks {
            let first = match number {
                0 => String::new(),
                number => format!("{number:04}"),
            };
            directory.push(first.as_bytes(), number + 1);
        }
        directory
    }

    #[test]
    fn elements_are_found_in_the_block_that_begins_before_them() {
        let directory = directory(1000);
        for number in 0..1000_u64 {
            let element = format!("{number:04}");
            for element in [element.clone(), element + "x"] {
                let spot = directory.find(element.as_bytes());
                assert_eq!(directory.block(spot).unwrap().count, number + 1);
                assert_eq!(directory.before(spot), number * (number + 1) / 2);
            }
        }
        assert_eq!(directory.before(directory.find(b"")), 0);
    }

    #[test]
    fn heads_need_not_tell_blocks_apart() {
        let mut directory = Directory::default();
        let named = |number: u64| format!("the same head {number:04}");
        for number in 0..1000 {
            let first = match number {
                0 => String::new(),
                number => named(number),
            };
            directory.push(first.as_bytes(), number + 1);
        }
        for number in 0..1000 {
            let spot = directory.find(named(number).as_bytes());
            assert_eq!(directory.block(spot).unwrap().count, number + 1);
        }
        let count = |element: &[u8]| directory.block(directory.find(element)).unwrap().count;
        assert_eq!([count(b"a"), count(b"the same"), count(b"z")], [1, 1, 1000]);
    }

    #[test]
    fn where_a_block_begins_is_read_from_its_head_if_it_is_short() {
        for first in ["", "a", "12345678", "123456789", "\0", "ab\0\0"] {
            let block = Block::new(first.as_bytes(), 1);
            assert_eq!(block.first_in(&mut [0xff; 8]), first.as_bytes());
        }
    }

    #[test]
    fn a_rank_leads_to_its_block() {
        let directory = directory(600);
        let mut rank = 0;
        for number in 0..600 {
            for offset in 0..=number {
                let (spot, found) = directory.at_rank(rank).unwrap();
                assert_eq!(found, offset);
                assert_eq!(directory.block(spot).unwrap().count, number + 1);
                rank += 1;
            }
        }
        assert_eq!(rank, directory.total());
        assert_eq!(directory.at_rank(rank), None);
    }

    #[test]
    fn blocks_that_are_cut_and_merged_count_the_same() {
        let mut directory = directory(600);
        let total = directory.total();
        let spots: Vec<Spot> = directory.blocks().map(|(spot, _)| spot).collect();
        for spot in spots.into_iter().rev() {
            let Block { first, count, .. } = directory.block(spot).unwrap().clone();
            let half = Block::new(&[&first[..], b"x"].concat(), count / 2);
            let rest = Block::new(&first, count - count / 2);
            directory.cut(spot, vec![rest, half]);
        }
        directory.settle();
        assert_eq!(directory.total(), total);
        assert_eq!(directory.blocks().count(), 1200);
        assert!(
            directory
                .shelves
                .iter()
                .all(|shelf| shelf.blocks.len() <= 2 * SHELF)
        );
        let (mut gone, mut grown) = (0, 0);
        directory.merge(1000, |_| gone += 1, |_| grown += 1);
        directory.settle();
        assert_eq!(directory.total(), total);
        assert_eq!(directory.blocks().count(), 1200 - gone);
        assert!(grown > 0 && grown <= 1200 - gone);
        let memory = directory.blocks().map(|(_, block)| block.memory());
        assert_eq!(directory.memory(), memory.sum::<usize>());
    }

    #[test]
    fn a_count_does_not_fall_below_zero() {
        let mut directory = directory(2);
        let spot = directory.find(b"0001");
        assert_eq!(directory.change(spot, -2).unwrap(), 0);
        assert!(directory.change(spot, -1).is_err());
        assert_eq!(directory.total(), 1);
    }
}
