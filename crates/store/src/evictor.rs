//! The evictor: deletes keys to make room, those first that a policy prefers.
//!
//! As in Redis, keys are not kept in the order of their last use: some are looked at, by chance, and the best of them
//! wait in a [pool](pool) for others that are better. Where they come from depends on where keys lie. Those that were
//! changed or read lately are in memory, and a few of them are taken from any place there. All that were drained are in
//! RocksDB, and a hand goes round over them, one database after the other: whatever the keys are called, each is met once in a
//! round. Where enough are found in memory, the hand passes over what lies there: each shall be met as often as others. Only if both
//! find nothing is it looked through all of them, what is young included.
//!
//! What is found may be outdated, so each victim is looked at again under its latch. It is deleted like any other key,
//! by a commit: whoever watches it, keeps a copy of it or follows is told. Keys whose latch is held are left alone, and
//! so are those of regions that another node leads.

mod cut;
mod pool;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::Result;
use crate::store::Store;
use cut::Cut;
use search::{Passage, Search};

/// Which keys may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Among {
    All,
    /// Those that expire.
    Volatile,
}

/// Which of them go first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    LeastRecentlyUsed,
    LeastFrequentlyUsed,
    /// Those that expire next.
    Soonest,
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub among: Among,
    pub first: First,
}

impl Policy {
    /// By Redis' name; none if nothing may go.
    pub fn named(name: &str) -> Option<Policy> {
        let (among, first) = name.split_once('-')?;
        Some(Policy {
            among: match among {
                "allkeys" => Among::All,
                "volatile" => Among::Volatile,
                _ => return None,
            },
            first: match first {
                "lru" => First::LeastRecentlyUsed,
                "lfu" => First::LeastFrequentlyUsed,
                "ttl" => First::Soonest,
                "random" => First::Any,
                _ => return None,
            },
        })
    }
}

/// What is wanted of the evictor at once.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    pub policy: Policy,
    /// How many keys are looked at for each that goes.
    pub samples: usize,
    /// How many go at most.
    pub keys: usize,
    /// It is enough when so many bytes are gone, nearly.
    pub bytes: u64,
}

#[derive(Default)]
pub struct Evictor {
    search: Mutex<Option<Search>>,
    evicted_keys: AtomicU64,
}

impl Evictor {
    /// Keys deleted to make room.
    pub fn evicted_keys(&self) -> u64 {
        self.evicted_keys.load(Ordering::Relaxed)
    }
}

impl Store {
    /// Deletes some keys; tells how many. Zero: there is nothing that may go, or others hold it.
    pub fn evict_some(self: &Arc<Self>, demand: &Demand) -> Result<usize> {
        let mut search = self.evictor().search.lock();
        let is_other = |search: &mut Search| search.policy != demand.policy;
        search.take_if(is_other);
        let search = search.get_or_insert_with(|| Search::new(demand.policy));
        let mut cut = Cut::new(self, demand);
        search.fill(&mut cut)?;
        if cut.is_empty() {
            // It is looked through all of them, before it is said that there are none.
            let mut passage = Passage::of(self, demand.policy.among);
            while cut.is_empty() && search.meet_all(self, &mut passage)? {
                search.fill(&mut cut)?;
            }
        }
        cut.commit()
    }
}
