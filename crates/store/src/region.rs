//! A region: a range of slots that is committed as one, and led by one node at a time.
//!
//! A single machine has one region of all slots, and leads it for good. In a cluster a node has replicas of some regions.
//! Each region has databases, an expiry watermark, and maxima of versions and time of its own; their rows are named by
//! its number. Whatever is kept in memory by key (latches, queues, directories, hot rows) is one for all
//! regions, since no key is in two of them.
//!
//! A transaction belongs to one region. To be committed it also needs a *lead*, the right to commit in one term, which it
//! takes before it latches anything. So what was evaluated in a term that has ended is refused, even if this node leads
//! again by then. Who leads is decided elsewhere, and told (see `leadership`).
//!
//! What another node leads can be read here too (`replica`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use cairn_encoding::{SLOTS, row};
use cairn_engine::{Batch, Commit, Committer, EngineError, Readers};

use crate::databases::Databases;
use crate::key::Key;

/// The right to commit to a region in one term.
pub struct Lead {
    term: u64,
    /// Tells it from others, of the same term too.
    number: u64,
    committer: Box<dyn Committer>,
    is_over: AtomicBool,
}

impl Lead {
    /// The committer refuses what it can no longer commit in this term.
    pub(crate) fn new(term: u64, committer: Box<dyn Committer>) -> Arc<Lead> {
        static LEADS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Lead {
            term,
            number: LEADS.fetch_add(1, Ordering::Relaxed),
            committer,
            is_over: AtomicBool::new(false),
        })
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    /// Another has taken its place, or none.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether what is applied may be read now: nobody else can have been chosen to lead. Otherwise others are to be asked
    /// first.
    #[inline]
    pub fn may_read(&self) -> bool {
        self.committer.may_read()
    }

    /// Commits a batch that was evaluated under this lead. Most go through a transaction. What is left in it afterwards is of no
    /// use, but for its memory.
    pub fn commit(&self, batch: &mut Batch) -> Commit {
        if self.is_over() {
            return Commit::Done(Err(EngineError::Outdated));
        }
        self.committer.commit(batch)
    }
}

/// The time in which one node has led a region without a break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reign {
    region: u64,
    lead: u64,
}

impl Reign {
    pub(crate) fn of(region: &Region, lead: &Lead) -> Reign {
        Reign {
            region: region.id,
            lead: lead.number,
        }
    }
}

pub struct Region {
    id: u64,
    slots: Range<u16>,
    epoch: u64,
    databases: Databases,
    readers: Readers,
    lead: ArcSwapOption<Lead>,
    /// The watermark that was raised last by this node.
    raised_ms: AtomicU64,
    /// Rows that this node has changed.
    changes: AtomicU64,
}

impl Region {
    pub(crate) fn new(
        id: u64,
        slots: Range<u16>,
        epoch: u64,
        databases: Databases,
        readers: Readers,
    ) -> Arc<Region> {
        Arc::new(Region {
            id,
            slots,
            epoch,
            databases,
            readers,
            lead: ArcSwapOption::empty(),
            raised_ms: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn slots(&self) -> Range<u16> {
        self.slots.clone()
    }

    /// Rises when the slots change. Then there is another value for the region.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// None if another node leads it, or nobody.
    pub fn lead(&self) -> Option<Arc<Lead>> {
        self.lead.load_full()
    }

    pub fn is_led(&self) -> bool {
        self.lead.load().is_some()
    }

    /// Held while a replica is read that another node leads: see `Store::read_replica`.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Whether it is led here, and if so, whether it may be read at once: see [`Lead::may_read`].
    #[inline]
    pub fn may_read(&self) -> Option<bool> {
        self.lead.load().as_ref().map(|lead| lead.may_read())
    }

    /// Transactions of an earlier lead are refused from here on; true if there was one.
    pub(crate) fn set_lead(&self, lead: Option<Arc<Lead>>) -> bool {
        let before = self.lead.swap(lead);
        if let Some(before) = &before {
            before.is_over.store(true, Ordering::Release);
        }
        before.is_some()
    }

    /// What stays the same for as long as no other node can have led it; none while this one does not.
    pub fn reign(&self) -> Option<Reign> {
        let lead = self.lead.load();
        lead.as_ref().map(|lead| Reign::of(self, lead))
    }

    pub(crate) fn raised_ms(&self) -> u64 {
        self.raised_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn note_raised(&self, watermark_ms: u64) {
        self.raised_ms.store(watermark_ms, Ordering::Relaxed);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_changes(&self, rows: u64) {
        self.changes.fetch_add(rows, Ordering::Relaxed);
    }

    /// Where its rows of a database begin and end, in every family whose rows begin with index and slot.
    pub(crate) fn bounds(&self, index: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        row::slot_prefix(&mut lower, index, self.slots.start);
        row::slot_prefix(&mut upper, index, self.slots.end);
        (lower, upper)
    }
}

/// The regions of a node, in the order of their slots.
#[derive(Default)]
pub struct Regions(Vec<Arc<Region>>);

impl Regions {
    pub(crate) fn of(regions: impl IntoIterator<Item = Arc<Region>>) -> Regions {
        let mut regions: Vec<_> = regions.into_iter().collect();
        regions.sort_by_key(|region| region.slots.start);
        Regions(regions)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.0.iter()
    }

    /// Those that this node leads.
    pub fn led(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.all().filter(|region| region.is_led())
    }

    pub fn with_slot(&self, slot: u16) -> Option<&Arc<Region>> {
        let next = self.0.partition_point(|region| region.slots.end <= slot);
        let region = self.0.get(next)?;
        region.slots.contains(&slot).then_some(region)
    }

    pub fn with_id(&self, id: u64) -> Option<&Arc<Region>> {
        self.all().find(|region| region.id == id)
    }

    pub(crate) fn of_key(&self, key: &Key) -> Option<&Arc<Region>> {
        self.of_row(key.metadata())
    }

    /// The region of a row that begins with index and slot.
    pub(crate) fn of_row(&self, row: &[u8]) -> Option<&Arc<Region>> {
        self.with_slot(row::slot_of(row)?)
    }

    /// The first two that share a slot.
    pub(crate) fn overlap(&self) -> Option<(u64, u64)> {
        let mut pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs
            .find(|(one, next)| one.slots.end > next.slots.start)
            .map(|(one, next)| (one.id, next.id))
    }
}

/// All there are.
pub(crate) const ALL_SLOTS: Range<u16> = 0..SLOTS;
