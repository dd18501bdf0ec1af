//! Committing a transaction, and what follows from that.

use std::sync::Arc;
use std::time::Duration;

use cairn_engine::{Commit, EngineError};

use crate::effects::Effect;
use crate::error::Result;
use crate::fresh::StagingRow;
use crate::region::{Lead, Region};
use crate::remains::Remains;
use crate::store::Store;
use crate::txn::WriteTxn;

impl Store {
    /// Starts to commit what the transaction has collected; the transaction is empty afterwards. The
    /// caller keeps its latches until the commit is done.
    pub fn begin_commit(&self, txn: &mut WriteTxn) -> Begun {
        let after = AfterCommit::of(txn);
        self.counts()
            .note_changes(txn.region(), txn.pending().len());
        match txn.propose() {
            Commit::Done(result) => Begun::Done(self.finish_commit(result, after)),
            commit => Begun::Pending(Committing { commit, after }),
        }
    }

    /// The same, to the end, on a thread that may block.
    pub fn commit_blocking(&self, txn: &mut WriteTxn) -> Result<()> {
        let after = AfterCommit::of(txn);
        self.counts()
            .note_changes(txn.region(), txn.pending().len());
        let result = txn.propose().wait();
        Ok(self.finish_commit(result, after)?)
    }

    /// To be called before the latches are let go.
    fn finish_commit(
        &self,
        result: Result<(), EngineError>,
        after: AfterCommit,
    ) -> Result<(), EngineError> {
        if let Some(moved) = after.moved {
            moved.settle(&result);
        }
        if result.is_err() {
            self.forget_derived();
        }
        result?;
        after.staged.into_iter().for_each(StagingRow::release);
        self.reclaimer().ledger().note(after.remains, self.engine());
        if !after.effects.is_empty() {
            self.note_accesses(&after.effects);
            self.listeners().show(after.effects);
        }
        Ok(())
    }

    fn note_accesses(&self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Accessed {
                metadata_key,
                access,
            } = effect
            {
                self.engine().set_access(metadata_key, *access);
            }
        }
    }

    /// What was derived from rows may not be true any more.
    pub(crate) fn forget_derived(&self) {
        self.queues().clear();
        self.excerpts().clear();
        self.ranks().clear();
    }
}

/// A commit that was started.
pub enum Begun {
    Done(Result<(), EngineError>),
    /// Waiting for the disk.
    Pending(Committing),
}

pub struct Committing {
    commit: Commit,
    after: AfterCommit,
}

/// What follows from a commit that has succeeded.
#[derive(Default)]
struct AfterCommit {
    moved: Option<MovedDatabases>,
    staged: Vec<StagingRow>,
    remains: Remains,
    effects: Vec<Effect>,
}

/// The databases of a region, where a commit moves them to.
struct MovedDatabases {
    region: Arc<Region>,
    lead: Option<Arc<Lead>>,
    indexes: Vec<u64>,
}

impl MovedDatabases {
    fn begin(txn: &WriteTxn, indexes: Vec<u64>) -> MovedDatabases {
        txn.region().databases().note_move();
        MovedDatabases {
            region: txn.region().clone(),
            lead: txn.lead().cloned(),
            indexes,
        }
    }

    /// If others have led the region meanwhile, they may have moved them on; who leads it next reads where they are.
    fn settle(self, result: &Result<(), EngineError>) {
        let databases = self.region.databases();
        let is_last = self.lead.is_some_and(|lead| !lead.is_over());
        if result.is_ok() && is_last {
            databases.set(&self.indexes);
        }
        databases.note_move();
    }
}

impl AfterCommit {
    fn of(txn: &mut WriteTxn) -> AfterCommit {
        let moved = txn.take_moved();
        AfterCommit {
            moved: moved.map(|indexes| MovedDatabases::begin(txn, indexes)),
            staged: txn.take_staged(),
            remains: txn.take_remains(),
            effects: txn.take_effects(),
        }
    }
}

impl Committing {
    pub async fn finish(self, store: &Store) -> Result<(), EngineError> {
        let result = self.commit.await;
        store.finish_commit(result, self.after)
    }

    /// The same on a thread that may block.
    pub fn wait(self, store: &Store) -> Result<(), EngineError> {
        let result = self.commit.wait();
        store.finish_commit(result, self.after)
    }

    /// The same, for so long at most; none if it takes longer. With a result it is over.
    pub fn wait_within(
        &mut self,
        store: &Store,
        limit: Duration,
    ) -> Option<Result<(), EngineError>> {
        let result = self.commit.wait_within(limit)?;
        Some(store.finish_commit(result, std::mem::take(&mut self.after)))
    }
}
