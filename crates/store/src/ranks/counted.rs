//! A collection whose elements are counted, or could be.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_encoding::count;
use cairn_encoding::metadata::CollectionKind;
use cairn_encoding::row::RowBytes;
use cairn_engine::{Direction, EngineError, Family, Rows};
use fastrand::Rng;
use rustc_hash::FxHashSet;

use super::directory::Directory;
use super::{Counted, Ranking};
use crate::collection::Collection;
use crate::error::Result;
use crate::txn::{ReadTxn, WriteTxn};

/// The most that are picked by their ranks: their places stand in memory.
const MOST_PICKED: u64 = 65_536;

/// Elements in the order in which they are counted.
pub(super) struct Order {
    pub(super) family: Family,
    pub(super) lower: RowBytes,
    pub(super) upper: RowBytes,
}

impl Collection {
    pub(super) fn order(&self) -> Order {
        let (lower, upper) = self.range();
        match self.kind() {
            CollectionKind::Hash | CollectionKind::Set => Order {
                family: Family::Data,
                lower,
                upper,
            },
            CollectionKind::ZSet => Order {
                family: Family::ZsetScore,
                lower,
                // Behind all scores.
                upper: self.key().count(self.version(), b""),
            },
        }
    }

    /// Every element in the order in which they are counted: of a sorted set, by score.
    pub fn ordered_rows(&self, txn: &ReadTxn, direction: Direction) -> Result<Rows> {
        let Order {
            family,
            lower,
            upper,
        } = self.order();
        self.rows_within(txn, family, &lower, &upper, direction)
    }

    /// The rows between two places of the order, each of which is what follows the version; or its end.
    fn rows_between(
        &self,
        txn: &ReadTxn,
        from: &[u8],
        to: Option<&[u8]>,
        direction: Direction,
    ) -> Result<Rows> {
        let Order { family, upper, .. } = self.order();
        let lower = self.row_key(from);
        let upper = to.map_or(upper, |to| self.row_key(to));
        self.rows_within(txn, family, &lower, &upper, direction)
    }

    /// An element has been added; of a sorted set, `element` is its score and its member.
    #[inline]
    pub(crate) fn count_in(&self, txn: &mut WriteTxn, element: &[u8]) -> Result<()> {
        match self.may_be_counted(txn) {
            true => self.change_count(txn, element, 1),
            false => Ok(()),
        }
    }

    /// An element has been removed.
    #[inline]
    pub(crate) fn count_out(&self, txn: &mut WriteTxn, element: &[u8]) -> Result<()> {
        match self.may_be_counted(txn) {
            true => self.change_count(txn, element, -1),
            false => Ok(()),
        }
    }

    #[inline]
    fn may_be_counted(&self, txn: &WriteTxn) -> bool {
        self.is_counted() || txn.store().ranks().is_building()
    }

    fn change_count(&self, txn: &mut WriteTxn, element: &[u8], by: i64) -> Result<()> {
        let Some(ranking) = self.ranking_to_change(txn, element)? else {
            return Ok(());
        };
        let mut directory = ranking.directory.write();
        let spot = directory.find(element);
        let count = directory.change(spot, by)?;
        if self.is_counted()
            && let Some(block) = directory.block(spot)
        {
            let mut room = [0; 8];
            let first = block.first_in(&mut room);
            let row_key = self.key().count(self.version(), first);
            txn.put(Family::ZsetScore, &row_key, count::encode(count));
            self.report(txn, &ranking, count, by);
        }
        drop(directory);
        txn.keep_counted(Counted { ranking, spot, by });
        Ok(())
    }

    /// None if this element is not counted, or not yet.
    fn ranking_to_change(&self, txn: &ReadTxn, element: &[u8]) -> Result<Option<Arc<Ranking>>> {
        if self.is_counted() {
            return self.ranking(txn).map(Some);
        }
        let building = txn.store().ranks().building.lock();
        let reached = building
            .as_ref()
            .filter(|building| building.has_reached(self, element));
        Ok(reached.map(|building| building.ranking().clone()))
    }

    /// Has the background look at a block that has become too large, or so small that it may be merged.
    fn report(&self, txn: &ReadTxn, ranking: &Ranking, count: u64, by: i64) {
        let ranks = txn.store().ranks();
        let target = ranks.options.target(self.len());
        let is_odd = match by > 0 {
            true => count > 2 * target,
            false => count == target / 4 || count == 0,
        };
        if is_odd && !ranking.is_reported.load(Ordering::Relaxed) {
            let is_noted = ranks.request(&ranking.key);
            ranking.is_reported.store(is_noted, Ordering::Relaxed);
        }
    }

    /// What the count rows say, as this transaction sees them.
    pub(super) fn ranking(&self, txn: &ReadTxn) -> Result<Arc<Ranking>> {
        let ranks = txn.store().ranks();
        if let Some(known) = ranks.find(self.key(), self.version()) {
            return Ok(known);
        }
        let lower = self.key().count(self.version(), b"");
        let (_, upper) = self.range();
        let mut rows = txn.rows(Family::ZsetScore, &lower, &upper, Direction::Forward)?;
        let mut directory = Directory::default();
        while let Some((row_key, value)) = rows.next()? {
            txn.step()?;
            directory.push(&row_key[lower.len()..], count::decode(value)?);
        }
        if directory.is_empty() {
            return Err(EngineError::Corrupt("the counts of a key are missing".into()).into());
        }
        let ranking = Ranking::new(self.key().metadata(), self.version(), directory);
        ranks.keep(&ranking, || txn.may_keep());
        Ok(ranking)
    }

    /// The same for who asks for ranks. None if there are no counts; if there should be, they are asked for.
    fn ranking_to_ask(&self, txn: &ReadTxn) -> Result<Option<Arc<Ranking>>> {
        let ranks = txn.store().ranks();
        // Where another node leads, it keeps them.
        if !ranks.options.is_enabled || !txn.region().is_led() {
            return Ok(None);
        }
        if self.is_counted() {
            return self.ranking(txn).map(Some);
        }
        if self.len() >= ranks.options.least {
            ranks.request(self.key().metadata());
        }
        Ok(None)
    }

    /// Whether ranks are to be had without a long walk. If they should be, they are asked for.
    pub(crate) fn has_ranks(&self, txn: &ReadTxn) -> Result<bool> {
        Ok(self.ranking_to_ask(txn)?.is_some())
    }

    /// How many elements lie in `[from, to)` of the order, where none is its beginning and its end; None if they
    /// are not counted.
    pub(crate) fn count_between(
        &self,
        txn: &ReadTxn,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Option<u64>> {
        let Some(ranking) = self.ranking_to_ask(txn)? else {
            return Ok(None);
        };
        if let (Some(from), Some(to)) = (from, to) {
            let directory = ranking.directory.read();
            let is_same_block = directory.find(from) == directory.find(to);
            drop(directory);
            if is_same_block {
                let mut rows = self.rows_between(txn, from, Some(to), Direction::Forward)?;
                return skip(txn, &mut rows, u64::MAX).map(Some);
            }
        }
        let before = from.map_or(Ok(0), |from| self.rank(txn, &ranking, from))?;
        let up_to = to.map_or(Ok(self.len()), |to| self.rank(txn, &ranking, to))?;
        Ok(Some(up_to.saturating_sub(before)))
    }

    /// How many elements lie before a place of the order; None if they are not counted.
    pub(crate) fn count_before(&self, txn: &ReadTxn, place: &[u8]) -> Result<Option<u64>> {
        match self.ranking_to_ask(txn)? {
            Some(ranking) => self.rank(txn, &ranking, place).map(Some),
            None => Ok(None),
        }
    }

    fn rank(&self, txn: &ReadTxn, ranking: &Ranking, place: &[u8]) -> Result<u64> {
        let directory = ranking.directory.read();
        let spot = directory.find(place);
        let before = directory.before(spot);
        let first = directory.block(spot).map(|block| block.first().to_vec());
        drop(directory);
        let first = first.unwrap_or_default();
        let mut rows = self.rows_between(txn, &first, Some(place), Direction::Forward)?;
        Ok(before + skip(txn, &mut rows, u64::MAX)?)
    }

    /// The row of the element that stands at `rank`.
    pub(crate) fn nth(&self, txn: &ReadTxn, rank: u64) -> Result<Option<Vec<u8>>> {
        if rank >= self.len() {
            return Ok(None);
        }
        let (mut rows, before) = self.walk_to(txn, rank)?;
        skip(txn, &mut rows, before)?;
        Ok(rows.next()?.map(|(key, _)| key.to_vec()))
    }

    /// A short walk that comes to the element of a rank, and how many come before it on the way.
    fn walk_to(&self, txn: &ReadTxn, rank: u64) -> Result<(Rows, u64)> {
        let nearer = |rank: u64, size: u64| match size.saturating_sub(rank + 1) {
            from_end if from_end < rank => (Direction::Backward, from_end),
            _ => (Direction::Forward, rank),
        };
        let (direction, before) = nearer(rank, self.len());
        if before > txn.store().ranks().options.near()
            && let Some(ranking) = self.ranking_to_ask(txn)?
        {
            let directory = ranking.directory.read();
            if let Some((spot, offset)) = directory.at_rank(rank)
                && let Some(block) = directory.block(spot)
            {
                let (direction, before) = nearer(offset, block.count);
                let end = directory.end_of(spot);
                let rows = self.rows_between(txn, block.first(), end, direction)?;
                return Ok((rows, before));
            }
        }
        Ok((self.ordered_rows(txn, direction)?, before))
    }

    /// The row of any element, each with the same chance.
    pub fn any(&self, txn: &ReadTxn) -> Result<Option<Vec<u8>>> {
        match self.len() {
            0 => Ok(None),
            _ if self.may_hide(txn) => self.any_live(txn),
            size => self.nth(txn, fastrand::u64(..size)),
        }
    }

    /// Elements at random: `wanted` of them, different ones in their order, or any each time. None where a walk
    /// over all of them finds them sooner.
    pub fn jumps(&self, txn: &ReadTxn, wanted: u64, may_repeat: bool) -> Result<Option<Jumps>> {
        let block = txn.store().ranks().options.block;
        if wanted == 0 || wanted > MOST_PICKED || self.len() / wanted < 2 * block {
            return Ok(None);
        }
        let Some(ranking) = self.ranking_to_ask(txn)? else {
            return Ok(None);
        };
        if self.may_hide(txn) {
            return self.live_jumps(txn, wanted, may_repeat);
        }
        let ranks = match may_repeat {
            true => (0..wanted).map(|_| fastrand::u64(..self.len())).collect(),
            false => different(&mut Rng::new(), wanted, self.len()),
        };
        let directory = ranking.directory.read();
        let mut places = Vec::with_capacity(ranks.len());
        for rank in ranks {
            txn.step()?;
            if let Some((spot, offset)) = directory.at_rank(rank)
                && let Some(block) = directory.block(spot)
            {
                places.push((self.row_key(block.first()).to_vec(), offset));
            }
        }
        Ok(Some(Jumps {
            rows: self.ordered_rows(txn, Direction::Forward)?,
            places: places.into_iter(),
        }))
    }
}

impl Collection {
    /// The same where some are due: they are looked up at once.
    fn live_jumps(&self, txn: &ReadTxn, wanted: u64, may_repeat: bool) -> Result<Option<Jumps>> {
        let Some(drawn) = self.draw_live(txn, wanted, may_repeat)? else {
            return Ok(None);
        };
        let places: Vec<_> = drawn.into_iter().map(|row_key| (row_key, 0)).collect();
        Ok(Some(Jumps {
            rows: self.ordered_rows(txn, Direction::Forward)?,
            places: places.into_iter(),
        }))
    }
}

/// Elements at known places, as they were when this was made: it needs neither the transaction nor its latches.
pub struct Jumps {
    rows: Rows,
    /// The row to begin at, and how many to pass over.
    places: std::vec::IntoIter<(Vec<u8>, u64)>,
}

impl Jumps {
    /// How many are left.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next one, as key and value.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let Some((from, before)) = self.places.next() else {
            return Ok(None);
        };
        self.rows.seek(&from);
        for _ in 0..before {
            self.rows.next()?;
        }
        match self.rows.next()? {
            Some(row) => Ok(Some(row)),
            None => Err(EngineError::Corrupt("an element is missing".into()).into()),
        }
    }
}

/// So many different numbers below `size`, in order: every set of them is as likely as any other.
pub(super) fn different(random: &mut Rng, wanted: u64, size: u64) -> Vec<u64> {
    let mut chosen = FxHashSet::default();
    for last in size - wanted..size {
        let drawn = random.u64(..=last);
        if !chosen.insert(drawn) {
            chosen.insert(last);
        }
    }
    let mut chosen: Vec<u64> = chosen.into_iter().collect();
    chosen.sort_unstable();
    chosen
}

/// Passes over at most `count` rows; how many there were.
pub(crate) fn skip(txn: &ReadTxn, rows: &mut Rows, count: u64) -> Result<u64> {
    let mut passed = 0;
    while passed < count && rows.next()?.is_some() {
        txn.step()?;
        passed += 1;
    }
    Ok(passed)
}
