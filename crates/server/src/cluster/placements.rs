//! Which regions the store has, and when: those whose rows are whole in the engine.
//!
//! The engine's descriptors say what there is; the store follows. It does so before anybody can see what changed: a region is
//! taken away before a snapshot replaces it, and a region that is split is cut in the store before whoever proposed the split
//! learns that it was applied. So nobody reads slots under a region that has given them away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_cluster::ClusterMap;
use cairn_engine::{Descriptor, EngineError, Regions};
use cairn_store::{Placement, Store};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::known_map::KnownMap;
use super::machine::Attendant;

pub struct Placements {
    store: Arc<Store>,
    regions: Arc<Regions>,
    map: Arc<KnownMap>,
    /// Regions whose rows are being replaced. Held by whoever changes what is placed, so that one does at a time.
    away: Mutex<BTreeSet<u64>>,
    /// What the engine has, as it was last read: to read it may have much drained first.
    stored: Mutex<BTreeMap<u64, Descriptor>>,
    changed: watch::Sender<()>,
}

impl Placements {
    pub fn new(store: Arc<Store>, regions: Arc<Regions>, map: Arc<KnownMap>) -> Placements {
        Placements {
            store,
            regions,
            map,
            away: Mutex::default(),
            stored: Mutex::default(),
            changed: watch::Sender::default(),
        }
    }

    /// Told whenever a region was placed anew, or taken away.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What the engine has, whole or not.
    pub fn stored(&self) -> BTreeMap<u64, Descriptor> {
        self.stored.lock().clone()
    }

    /// Has the store have what the engine has.
    pub fn update(&self) -> cairn_store::Result<()> {
        let away = self.away.lock();
        self.place_all_but(&away)
    }

    /// Removes what there is of a region that has no replica here, on a thread that may wait.
    pub fn remove(&self, region: u64) -> Result<(), EngineError> {
        self.take_away(region);
        let removed = self.regions.remove(region);
        self.bring_back(region);
        removed
    }

    /// For the end: the store has nothing any more.
    pub fn clear(&self) {
        let _away = self.away.lock();
        let placed = self.store.regions();
        let all: Vec<u64> = placed.all().map(|region| region.id()).collect();
        self.place(&[], &all).ok();
        self.store.lost_leadership(self.store.home().id());
    }

    fn place_all_but(&self, away: &BTreeSet<u64>) -> cairn_store::Result<()> {
        let mut wanted = self.regions.list()?;
        self.stored.lock().clone_from(&wanted);
        wanted.retain(|region, descriptor| !descriptor.slots.is_empty() && !away.contains(region));
        let placed = self.store.regions();
        let gone = placed.all().map(|region| region.id());
        let gone: Vec<u64> = gone.filter(|id| !wanted.contains_key(id)).collect();
        let come = wanted.into_iter().map(|(id, descriptor)| Placement {
            id,
            slots: descriptor.slots.first()..descriptor.slots.end(),
            epoch: descriptor.epoch,
        });
        let is_new = |placement: &Placement| {
            let known = placed.with_id(placement.id);
            known.is_none_or(|known| {
                known.slots() != placement.slots || known.epoch() != placement.epoch
            })
        };
        let come: Vec<Placement> = come.filter(is_new).collect();
        match come.is_empty() && gone.is_empty() {
            true => Ok(()),
            false => self.place(&come, &gone),
        }
    }

    fn place(&self, come: &[Placement], gone: &[u64]) -> cairn_store::Result<()> {
        let placed = self.store.place_regions(come, gone);
        self.changed.send_replace(());
        placed
    }

    fn place_or_tell(&self, away: &BTreeSet<u64>) {
        if let Err(error) = self.place_all_but(away) {
            // What it was before is not what it is now: nobody may read any of it.
            tracing::error!("regions cannot be placed, and are not served: {error}");
            let placed = self.store.regions();
            let all: Vec<u64> = placed.all().map(|region| region.id()).collect();
            self.place(&[], &all).ok();
        }
    }
}

impl Attendant for Placements {
    fn note_term(&self, region: u64, term: u64) {
        self.store.note_term(region, term);
    }

    fn recut(&self) {
        self.place_or_tell(&self.away.lock());
    }

    fn take_away(&self, region: u64) {
        let mut away = self.away.lock();
        away.insert(region);
        self.place_or_tell(&away);
    }

    fn bring_back(&self, region: u64) {
        let mut away = self.away.lock();
        away.remove(&region);
        self.place_or_tell(&away);
    }

    fn learn(&self, map: ClusterMap) {
        self.map.learn(map);
    }
}
