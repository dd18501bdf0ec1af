//! The keys that go at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_engine::EngineError;

use super::pool::Candidate;
use super::search::score_of;
use super::{Among, Demand};
use crate::commit::Begun;
use crate::effects::{Effect, EventClass};
use crate::error::Result;
use crate::expirer::tell_outdated;
use crate::key::Key;
use crate::latch::{Held, Mode, Request};
use crate::region::{Region, Regions};
use crate::store::Store;
use crate::txn::{Found, Patience, Shape, WriteTxn};

/// A collection with more elements may be worth as much as all that is wanted: it is looked how much it was before more go.
const LARGE: u64 = 64;

pub(super) struct Cut<'s> {
    pub(super) store: &'s Arc<Store>,
    pub(super) demand: &'s Demand,
    regions: Arc<Regions>,
    parts: Vec<Part>,
    keys: usize,
    bytes: u64,
    is_enough: bool,
}

/// Those of one region, which are committed together.
struct Part {
    region: Arc<Region>,
    txn: WriteTxn,
    held: Held,
    keys: u64,
}

impl<'s> Cut<'s> {
    pub(super) fn new(store: &'s Arc<Store>, demand: &'s Demand) -> Cut<'s> {
        Cut {
            store,
            demand,
            regions: store.regions(),
            parts: Vec::new(),
            keys: 0,
            bytes: 0,
            is_enough: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    pub(super) fn wants_more(&self) -> bool {
        let is_enough = self.is_enough || self.bytes >= self.demand.bytes;
        self.keys < self.demand.keys && !is_enough
    }

    /// Deletes a key, if it is still there and may go; false if not.
    pub(super) fn add(&mut self, candidate: &Candidate) -> Result<bool> {
        let Candidate { key, score } = candidate;
        let policy = self.demand.policy;
        // It may have been used since, or deleted.
        if score_of(self.store, key, policy.first).is_none_or(|now| now < *score) {
            return Ok(false);
        }
        let Some(part) = self.part_of(key) else {
            return Ok(false);
        };
        let mut request = Request::default();
        request.add(key.name(), Mode::Exclusive);
        let is_there = part.txn.database_of(key).is_some();
        if !is_there || !part.held.try_extend(&request) {
            return Ok(false);
        }
        let found = part.txn.find_even_expired(key)?;
        let may_go = |found: &Found<'_>| policy.among == Among::All || found.expire_ms != 0;
        let found = found.filter(may_go);
        let Some((stamp, bytes)) = found.map(|found| (found.stamp(), bytes_of(key, &found))) else {
            return Ok(false);
        };
        part.txn.remove(key, &stamp);
        tell(&mut part.txn, key);
        part.keys += 1;
        self.keys += 1;
        self.bytes += bytes.unwrap_or(0);
        self.is_enough |= bytes.is_none();
        Ok(true)
    }

    fn part_of(&mut self, key: &Key) -> Option<&mut Part> {
        let region = self.regions.of_key(key).filter(|region| region.is_led())?;
        let known = |part: &Part| Arc::ptr_eq(&part.region, region);
        let at = self.parts.iter().position(known).unwrap_or_else(|| {
            let (store, region) = (self.store.clone(), region.clone());
            self.parts.push(Part {
                region: region.clone(),
                held: store.latches().none(),
                txn: WriteTxn::new(store, region, Patience::Background),
                keys: 0,
            });
            self.parts.len() - 1
        });
        self.parts.get_mut(at)
    }

    /// Commits the parts together, and lets go of their latches; tells how many keys are gone. What belongs to a region
    /// that is not led any more is for whoever leads it.
    pub(super) fn commit(self) -> Result<usize> {
        let store = self.store;
        let begin = |mut part: Part| (store.begin_commit(&mut part.txn), part);
        let begun: Vec<_> = self.parts.into_iter().map(begin).collect();
        let mut gone = 0;
        let mut failed = Ok(());
        for (begun, part) in begun {
            let result = match begun {
                Begun::Done(result) => result,
                Begun::Pending(commit) => commit.wait(store),
            };
            match result {
                Ok(()) => gone += part.keys,
                Err(EngineError::NotLeading | EngineError::Outdated | EngineError::InDoubt) => {}
                Err(error) => failed = Err(error),
            }
        }
        store
            .evictor()
            .evicted_keys
            .fetch_add(gone, Ordering::Relaxed);
        failed?;
        Ok(gone as usize)
    }
}

/// About how much a key takes; none if that takes a closer look, and may be much.
fn bytes_of(key: &Key, found: &Found<'_>) -> Option<u64> {
    let own = key.metadata().len() as u64;
    match found.shape {
        Shape::Inline { .. } => Some(own + found.inline().len() as u64),
        Shape::Chunked { length, .. } => Some(own + length),
        Shape::Collection { size, .. } | Shape::List { size, .. } | Shape::Stream { size, .. } => {
            (size <= LARGE).then(|| size * own)
        }
    }
}

/// Has those told whom it concerns that a key was evicted.
fn tell(txn: &mut WriteTxn, key: &Key) {
    let listeners = txn.store().listeners();
    let (are_told, depend) = (
        listeners.hear(EventClass::Evicted),
        listeners.depend() || listeners.are_followed(),
    );
    if are_told {
        txn.notify_of(EventClass::Evicted, "evicted", key);
    }
    tell_outdated(txn, key);
    if depend && let Some(database) = txn.database_of(key) {
        let key = key.name().into();
        txn.add_effect(Effect::Evicted { database, key });
    }
}
