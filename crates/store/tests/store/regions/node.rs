//! A node of a cluster without the cluster: a store whose regions are led, in terms, as a test says. What is proposed is
//! written by the engine's own committer, after a while, as if others had agreed to it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cairn_engine::{Batch, Commit, Committer, EngineError, LocalCommitter, ManualTime, SyncMode};
use cairn_store::{Patience, Placement, ReadTxn, Region, Result, Store, WriteTxn};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::support::{START, options};

/// What becomes of what is proposed to a region.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Fate {
    #[default]
    Applied,
    /// Nobody can say; in truth it is applied.
    AppliedInSecret,
    /// Nobody can say; in truth it is not.
    LostInSecret,
    /// The others are away: it is applied once they are not.
    Delayed,
}

/// The term in which each region is led, and how it goes there.
type Terms = Arc<Mutex<HashMap<u64, (u64, Fate)>>>;

struct InTerm {
    region: u64,
    term: u64,
    terms: Terms,
    log: Arc<LocalCommitter>,
}

impl Committer for InTerm {
    fn commit(&self, batch: &mut Batch) -> Commit {
        let (done, outcome) = oneshot::channel();
        let mut batch = batch.take();
        let (region, term) = (self.region, self.term);
        let (terms, log) = (self.terms.clone(), self.log.clone());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(200));
            let look = || terms.lock().get(&region).copied().unwrap_or_default();
            let mut now = look();
            while now == (term, Fate::Delayed) {
                std::thread::sleep(Duration::from_millis(5));
                now = look();
            }
            let result = match now {
                (led, _) if led != term => Err(EngineError::Outdated),
                (_, Fate::Applied | Fate::Delayed) => log.commit(&mut batch).wait(),
                (_, Fate::AppliedInSecret) => {
                    log.commit(&mut batch).wait().unwrap();
                    Err(EngineError::InDoubt)
                }
                (_, Fate::LostInSecret) => Err(EngineError::InDoubt),
            };
            // Whoever is told may start the node again at once.
            drop(log);
            let _ = done.send(result);
        });
        Commit::Pending(outcome)
    }
}

pub struct Node {
    store: Option<Arc<Store>>,
    log: Option<Arc<LocalCommitter>>,
    terms: Terms,
    last_term: u64,
    pub time: Arc<ManualTime>,
    directory: TempDir,
}

impl Node {
    /// With these regions, all of them led.
    pub fn new(regions: &[(u64, Range<u16>)]) -> Node {
        let mut node = Node {
            store: None,
            log: None,
            terms: Terms::default(),
            last_term: 0,
            time: Arc::new(ManualTime::at_millis(START)),
            directory: tempfile::tempdir().unwrap(),
        };
        node.start(regions);
        for (id, _) in regions {
            node.lead(*id).unwrap();
        }
        node
    }

    fn start(&mut self, regions: &[(u64, Range<u16>)]) {
        let options = options(self.time.clone(), 16);
        let store = Store::open_replicated(self.directory.path(), options).unwrap();
        let (engine, clock) = (store.engine().clone(), store.clock().clone());
        let log = LocalCommitter::new(engine, clock, SyncMode::No).unwrap();
        self.log = Some(Arc::new(log));
        self.store = Some(store);
        self.place(regions, 0);
    }

    pub fn place(&self, regions: &[(u64, Range<u16>)], epoch: u64) {
        let placed: Vec<_> = regions
            .iter()
            .map(|(id, slots)| Placement {
                id: *id,
                slots: slots.clone(),
                epoch,
            })
            .collect();
        self.store().place_regions(&placed, &[]).unwrap();
    }

    /// Stops the node, and starts it again; it leads nothing then.
    pub fn restart(&mut self, regions: &[(u64, Range<u16>)]) {
        self.terms.lock().clear();
        self.store = None;
        self.log = None;
        self.start(regions);
    }

    pub fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    /// Has the node lead a region, in a new term.
    pub fn lead(&mut self, id: u64) -> Result<()> {
        self.last_term += 1;
        let committer = InTerm {
            region: id,
            term: self.last_term,
            terms: self.terms.clone(),
            log: self.log.clone().unwrap(),
        };
        let led = (self.last_term, Fate::Applied);
        self.terms.lock().insert(id, led);
        self.store()
            .became_leader(id, self.last_term, Box::new(committer))
    }

    /// Another leads the region, and the store is told.
    pub fn lose(&self, id: u64) {
        self.forget(id);
        self.store().lost_leadership(id);
    }

    /// Another leads the region, and nobody has told the store.
    pub fn forget(&self, id: u64) {
        self.terms.lock().remove(&id);
    }

    pub fn decide(&self, id: u64, fate: Fate) {
        self.terms.lock().get_mut(&id).unwrap().1 = fate;
    }

    pub fn region(&self, id: u64) -> Arc<Region> {
        self.store().regions().with_id(id).unwrap().clone()
    }

    pub fn txn(&self, id: u64) -> WriteTxn {
        let mut txn = WriteTxn::new(self.store().clone(), self.region(id), Patience::Long);
        txn.begin(0);
        txn
    }

    pub fn commit(&self, mut txn: WriteTxn) -> Result<()> {
        self.store().commit_blocking(&mut txn)
    }

    pub fn try_write(&self, id: u64, command: impl FnOnce(&mut WriteTxn)) -> Result<()> {
        let mut txn = self.txn(id);
        command(&mut txn);
        self.commit(txn)
    }

    pub fn write(&self, id: u64, command: impl FnOnce(&mut WriteTxn)) {
        self.try_write(id, command).unwrap();
    }

    pub fn read<T>(&self, id: u64, command: impl FnOnce(&ReadTxn) -> T) -> T {
        command(&self.txn(id))
    }
}
