//! The background of the ranks: counts collections that were asked for, and keeps blocks of a good size.
//!
//! Everything happens under the key's exclusive latch, a bounded number of rows at a time. A small collection is
//! counted at once. A large one is counted in steps, one collection at a time: what a step has passed over is
//! covered, and whoever adds or removes an element there changes the counts so far; what lies behind is for the
//! next step to find.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_encoding::count;
use cairn_encoding::row::RowKey;
use cairn_encoding::system::SystemKey;
use cairn_engine::Family;

use super::counted::Order;
use super::directory::{Block, Directory, Spot};
use super::{Ranking, Ranks};
use crate::collection::Collection;
use crate::error::Result;
use crate::key::Key;
use crate::latch::{Held, Mode, Request};
use crate::store::Store;
use crate::txn::{Patience, WriteTxn};

/// How many rows are passed over while a latch is held.
const STEP: u64 = 8192;

/// A collection while it is counted.
pub(super) struct Building {
    ranking: Arc<Ranking>,
    /// The last element that is covered; none before the first step.
    last: Option<Vec<u8>>,
}

impl Building {
    pub(super) fn ranking(&self) -> &Arc<Ranking> {
        &self.ranking
    }

    /// Whether an element of this collection lies in the part that is covered.
    pub(super) fn has_reached(&self, collection: &Collection, element: &[u8]) -> bool {
        self.ranking.version == collection.version()
            && *self.ranking.key == *collection.key().metadata()
            && self.last.as_deref().is_some_and(|last| element <= last)
    }
}

/// A collection with its latch.
struct Latched {
    _held: Held,
    collection: Collection,
    txn: WriteTxn,
}

impl Store {
    /// Does a little of what there is to do; true if there is more.
    pub fn keep_ranks(self: &Arc<Self>) -> Result<bool> {
        let ranks = self.ranks();
        let request = ranks.next_request();
        let is_idle = request.is_none();
        if let Some(key) = request {
            self.look_at(&key)?;
        }
        if ranks.is_building() {
            self.build_on()?;
        }
        Ok(!is_idle || ranks.is_building())
    }

    /// A collection and its exclusive latch, unless it is gone, or another node's by now.
    fn latch_collection(self: &Arc<Self>, metadata_key: &[u8]) -> Result<Option<Latched>> {
        let (index, name) = RowKey::decode_metadata(metadata_key)?.index_and_key();
        let regions = self.regions();
        let Some(region) = regions.of_row(metadata_key).filter(|of| of.is_led()) else {
            return Ok(None);
        };
        let mut request = Request::default();
        request.add(name, Mode::Exclusive);
        // The transaction comes first: it is of the term in which the latch was asked for.
        let mut txn = WriteTxn::new(self.clone(), region.clone(), Patience::Background);
        // If it has many young rows, a walk has them drained first. Nobody shall wait for that at the latch.
        txn.begin(0);
        if let Some(unlatched) = Collection::find(&txn, Key::new(index, name))? {
            let order = unlatched.order();
            let walk = self
                .engine()
                .background_rows(order.family, &order.lower, &order.upper);
            drop(walk);
        }
        let held = self.latches().acquire_blocking(request);
        txn.begin(0);
        // Asked first: a database that was flushed stays listed until its keys are gone.
        let region = region.id();
        let dead = SystemKey::DeadIndex { region, index };
        if txn.has_row(Family::Meta, &dead.encode())? {
            return Ok(None);
        }
        let collection = Collection::find(&txn, Key::new(index, name))?;
        Ok(collection.map(|collection| Latched {
            _held: held,
            collection,
            txn,
        }))
    }

    fn look_at(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        let Some(latched) = self.latch_collection(key)? else {
            return Ok(());
        };
        let ranks = self.ranks();
        let options = &ranks.options;
        let size = latched.collection.len();
        if latched.collection.is_counted() {
            return match size < options.least / 4 {
                true => self.uncount(latched),
                false => self.tidy(latched),
            };
        }
        let is_wanted = options.is_enabled && size >= options.least;
        if !is_wanted || ranks.is_being_built(&latched.collection) {
            return Ok(());
        }
        if size > STEP && ranks.is_building() {
            drop(latched);
            ranks.request(key);
            return Ok(());
        }
        let version = latched.collection.version();
        let mut building = Building {
            ranking: Ranking::new(key, version, Directory::default()),
            last: None,
        };
        if self.step(&latched, &mut building)? {
            return self.install(latched, &building.ranking);
        }
        ranks.go_on_building(building);
        Ok(())
    }

    /// The next step of the collection that is being counted.
    fn build_on(self: &Arc<Self>) -> Result<()> {
        let ranks = self.ranks();
        let Some((key, version)) = ranks.what_is_built() else {
            return Ok(());
        };
        let latched = self.latch_collection(&key)?;
        let is_same = |latched: &Latched| {
            let collection = &latched.collection;
            collection.version() == version && !collection.is_counted()
        };
        // Taken out under the latch: nobody changes it now.
        let building = ranks.building.lock().take();
        let (Some(latched), Some(mut building)) = (latched.filter(is_same), building) else {
            ranks.stop_building();
            return Ok(());
        };
        let step = self.step(&latched, &mut building);
        ranks.stop_building();
        match step? {
            true => self.install(latched, &building.ranking),
            false => {
                ranks.go_on_building(building);
                Ok(())
            }
        }
    }

    /// Covers the next elements; true if these were the last.
    fn step(&self, latched: &Latched, building: &mut Building) -> Result<bool> {
        let collection = &latched.collection;
        let Order {
            family,
            lower,
            upper,
        } = collection.order();
        let from = match &building.last {
            None => lower.to_vec(),
            Some(last) => [&collection.row_key(last)[..], &[0]].concat(),
        };
        let target = self.ranks().options.target(collection.len());
        let mut cut = Cut::new(target + target / 2, building.last.take());
        let mut rows = self.engine().background_rows(family, &from, &upper);
        let mut is_end = false;
        for _ in 0..STEP {
            let Some((row_key, _)) = rows.next()? else {
                is_end = true;
                break;
            };
            cut.add(collection.sub_of(row_key));
        }
        let mut directory = building.ranking.directory.write();
        for block in &cut.blocks {
            directory.push(block.first(), block.count);
        }
        building.last = cut.last;
        Ok(is_end)
    }

    /// Writes down what was counted.
    fn install(&self, latched: Latched, ranking: &Arc<Ranking>) -> Result<()> {
        let Latched {
            _held,
            collection,
            mut txn,
        } = latched;
        let directory = ranking.directory.read();
        if directory.total() != collection.len() {
            tracing::error!(
                "a key has {} elements and a size of {}: its ranks are not kept",
                directory.total(),
                collection.len()
            );
            return Ok(());
        }
        for (_, block) in directory.blocks() {
            put_block(&mut txn, &collection, block);
        }
        drop(directory);
        collection.save_counted(&mut txn, true);
        self.commit_blocking(&mut txn)?;
        self.ranks().keep(ranking, || txn.may_keep());
        Ok(())
    }

    /// Forgets the counts of a collection that has become small.
    fn uncount(&self, latched: Latched) -> Result<()> {
        let Latched {
            _held,
            collection,
            mut txn,
        } = latched;
        let ranking = collection.ranking(&txn)?;
        for (_, block) in ranking.directory.read().blocks() {
            delete_block(&mut txn, &collection, block);
        }
        collection.save_counted(&mut txn, false);
        self.commit_blocking(&mut txn)?;
        self.ranks().forget(&ranking.key);
        Ok(())
    }

    /// Cuts blocks that are too large, and merges small ones.
    fn tidy(&self, latched: Latched) -> Result<()> {
        let Latched {
            _held,
            collection,
            mut txn,
        } = latched;
        let ranks = self.ranks();
        let ranking = collection.ranking(&txn)?;
        ranking.is_reported.store(false, Ordering::Relaxed);
        let target = ranks.options.target(collection.len());
        let mut directory = ranking.directory.write();
        let is_large = |(spot, block): (Spot, &Block)| (block.count > 2 * target).then_some(spot);
        let large: Vec<Spot> = directory.blocks().filter_map(is_large).collect();
        let mut steps_left = STEP;
        let mut cuts = Vec::new();
        for spot in large {
            if steps_left == 0 {
                break;
            }
            let pieces = self.cut_block(&collection, &directory, spot, target, &mut steps_left)?;
            cuts.push((spot, pieces));
        }
        if steps_left == 0 {
            // What is left comes next.
            ranks.request(&ranking.key);
        }
        // From behind, so that the spots before stay where they are.
        for (spot, pieces) in cuts.into_iter().rev() {
            for piece in &pieces {
                put_block(&mut txn, &collection, piece);
            }
            directory.cut(spot, pieces);
        }
        let (mut gone, mut grown) = (Vec::new(), Vec::new());
        directory.merge(
            target / 2,
            |block| gone.push(block.clone()),
            |block| grown.push(block.clone()),
        );
        for block in &gone {
            delete_block(&mut txn, &collection, block);
        }
        for block in &grown {
            put_block(&mut txn, &collection, block);
        }
        directory.settle();
        drop(directory);
        if txn.is_clean() {
            return Ok(());
        }
        self.commit_blocking(&mut txn)?;
        ranks.keep(&ranking, || txn.may_keep());
        Ok(())
    }

    /// The pieces of a block. If there is no time for all of it, the last one is what is left.
    fn cut_block(
        &self,
        collection: &Collection,
        directory: &Directory,
        spot: Spot,
        target: u64,
        steps_left: &mut u64,
    ) -> Result<Vec<Block>> {
        let Some(block) = directory.block(spot) else {
            return Ok(Vec::new());
        };
        let Order { family, upper, .. } = collection.order();
        let from = collection.row_key(block.first());
        let to = directory.end_of(spot);
        let to = to.map_or(upper, |end| collection.row_key(end));
        let mut cut = Cut::new(target, None);
        let mut rows = self.engine().background_rows(family, &from, &to);
        while *steps_left > 0
            && let Some((row_key, _)) = rows.next()?
        {
            cut.add(collection.sub_of(row_key));
            *steps_left -= 1;
        }
        let counted: u64 = cut.blocks.iter().map(|piece| piece.count).sum();
        let mut pieces = cut.blocks;
        if let Some(first) = pieces.first_mut() {
            *first = Block::new(block.first(), first.count);
        }
        if let Some(last) = pieces.last_mut() {
            last.count += block.count.saturating_sub(counted);
        }
        Ok(pieces)
    }
}

impl Ranks {
    fn what_is_built(&self) -> Option<(Box<[u8]>, u64)> {
        let building = self.building.lock();
        let ranking = building.as_ref()?.ranking();
        Some((ranking.key.clone(), ranking.version))
    }

    fn is_being_built(&self, collection: &Collection) -> bool {
        self.what_is_built().is_some_and(|(key, version)| {
            *key == *collection.key().metadata() && version == collection.version()
        })
    }

    fn go_on_building(&self, building: Building) {
        *self.building.lock() = Some(building);
        self.is_building.store(true, Ordering::Relaxed);
    }
}

/// Elements in their order, cut into blocks.
struct Cut {
    blocks: Vec<Block>,
    most: u64,
    last: Option<Vec<u8>>,
}

impl Cut {
    /// Into blocks of so many. The first begins behind the element `last`; with nothing if there is none.
    fn new(most: u64, last: Option<Vec<u8>>) -> Self {
        Cut {
            blocks: Vec::new(),
            most,
            last,
        }
    }

    fn add(&mut self, element: &[u8]) {
        match self.blocks.last_mut() {
            Some(block) if block.count < self.most => block.count += 1,
            _ => {
                let last = self.last.as_deref();
                let first = last.map_or(&[][..], |last| between(last, element));
                self.blocks.push(Block::new(first, 1));
            }
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(element);
    }
}

/// The shortest beginning of `element` that is above `last`, which is below it.
fn between<'e>(last: &[u8], element: &'e [u8]) -> &'e [u8] {
    let pairs = last.iter().zip(element);
    let common = pairs.take_while(|(a, b)| a == b).count();
    &element[..element.len().min(common + 1)]
}

fn put_block(txn: &mut WriteTxn, collection: &Collection, block: &Block) {
    let row_key = collection.key().count(collection.version(), block.first());
    txn.put(Family::ZsetScore, &row_key, count::encode(block.count));
}

fn delete_block(txn: &mut WriteTxn, collection: &Collection, block: &Block) {
    let row_key = collection.key().count(collection.version(), block.first());
    txn.delete(Family::ZsetScore, &row_key);
}
