//! Where candidates come from.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cairn_encoding::metadata::expire_of;
use cairn_encoding::row::{self, RowKey};
use cairn_engine::{Direction, Family, Rows};

use super::cut::Cut;
use super::pool::{Candidate, Pool};
use super::{Among, First, Policy};
use crate::error::Result;
use crate::expirer::DueRow;
use crate::key::Key;
use crate::store::Store;

/// How many rows the hand takes at once, and how many places in memory are looked at beside.
const WINDOW: usize = 64;
const PLACES: usize = 128;
/// How many rows of keys that are gone, or that others lead, the hand passes at once.
const MOST_PASSED: usize = 1024;
/// If so many were found in memory, the hand leaves those to chance that lie there.
const ENOUGH_IN_MEMORY: usize = 8;
/// How many candidates are refused in a row before it is looked elsewhere.
const MOST_REFUSED: usize = 64;
/// How often both are asked, if they find nothing.
const TRIES: usize = 4;

/// A key that was met.
struct Met {
    key: Key,
    /// Zero: never.
    expire_ms: u64,
}

impl Met {
    /// By its metadata row, if it is one that the policy allows to go.
    fn of_metadata(row: &[u8], value: &[u8], among: Among) -> Option<Met> {
        let expire_ms = expire_of(value).ok()?;
        let (index, name) = RowKey::decode_metadata(row).ok()?.index_and_key();
        let may_go = among == Among::All || expire_ms != 0;
        may_go.then(|| Met {
            key: Key::new(index, name),
            expire_ms,
        })
    }

    /// By the row that says when it expires; none if it is about fields of a hash.
    fn of_expiry(row: &[u8]) -> Option<Met> {
        let due = DueRow::decode(row).filter(|due| due.version.is_none())?;
        Some(Met {
            key: due.key,
            expire_ms: due.at_ms,
        })
    }

    fn of(family: Family, row: &[u8], value: &[u8]) -> Option<Met> {
        match family {
            Family::Expiry => Met::of_expiry(row),
            _ => Met::of_metadata(row, value, Among::All),
        }
    }
}

/// The keys that this node may delete.
struct Led(Vec<(Range<u16>, Vec<u64>)>);

impl Led {
    fn of(store: &Store) -> Led {
        let regions = store.regions();
        let led = regions.led();
        Led(led
            .map(|region| (region.slots(), region.databases().all()))
            .collect())
    }

    fn has(&self, met: &Met) -> bool {
        let row = met.key.metadata();
        let (Some(slot), Some(index)) = (row::slot_of(row), row::index_of(row)) else {
            return false;
        };
        let mut regions = self.0.iter();
        regions.any(|(slots, indexes)| slots.contains(&slot) && indexes.contains(&index))
    }
}

/// The rows that tell which keys there are.
fn family_of(among: Among) -> Family {
    match among {
        Among::All => Family::Metadata,
        Among::Volatile => Family::Expiry,
    }
}

/// What was found, and where the search goes on.
pub(super) struct Search {
    pub(super) policy: Policy,
    pool: Pool,
    /// Keys that were met and not judged yet.
    met: VecDeque<Met>,
    /// The row that the hand has come to.
    hand: Vec<u8>,
    /// The last generation that was drained when the hand began with what expires next.
    drained: Option<u32>,
}

impl Search {
    pub(super) fn new(policy: Policy) -> Search {
        Search {
            policy,
            pool: Pool::default(),
            met: VecDeque::new(),
            hand: Vec::new(),
            drained: None,
        }
    }

    /// Has the best of those that are found deleted, as many as are wanted.
    pub(super) fn fill(&mut self, cut: &mut Cut<'_>) -> Result<()> {
        let mut refused = 0;
        while cut.wants_more()
            && refused < MOST_REFUSED
            && let Some(candidate) = self.next(cut.store, cut.demand.samples)?
        {
            match cut.add(&candidate)? {
                true => refused = 0,
                false => refused += 1,
            }
        }
        Ok(())
    }

    /// Meets the next of all keys that there are, some of them; false if there are no more.
    pub(super) fn meet_all(&mut self, store: &Store, passage: &mut Passage) -> Result<bool> {
        let led = Led::of(store);
        let before = self.met.len();
        while self.met.len() < before + WINDOW
            && let Some(met) = passage.next()?
        {
            if led.has(&met) {
                self.met.push_back(met);
            }
        }
        Ok(self.met.len() > before)
    }

    /// The best of those that were looked at, so many of them just now.
    fn next(&mut self, store: &Store, samples: usize) -> Result<Option<Candidate>> {
        let (mut looked_at, mut tries) = (0, 0);
        while looked_at < samples {
            let Some(met) = self.met.pop_front() else {
                tries += 1;
                if tries > TRIES {
                    break;
                }
                self.meet_some(store)?;
                continue;
            };
            if let Some(score) = score(store, &met, self.policy.first) {
                looked_at += 1;
                let key = met.key;
                self.pool.add(Candidate { key, score });
            }
        }
        Ok(self.pool.take_best())
    }

    fn meet_some(&mut self, store: &Store) -> Result<()> {
        let among = self.policy.among;
        let in_memory = store.engine().sample_in_memory(PLACES);
        let led = Led::of(store);
        let in_memory = in_memory.iter();
        let met = in_memory.filter_map(|(row, value)| Met::of_metadata(row, value, among));
        self.met.extend(met.filter(|met| led.has(met)));
        // What was written long ago is stored, and in memory too if it is used. If the hand took it as well, it would be met more
        // often than what has just come, and go for want of others.
        let is_known = self.met.len() >= ENOUGH_IN_MEMORY && self.policy.first != First::Soonest;
        self.move_hand(store, &led, is_known)?;
        // The few that are looked at together shall be of both.
        fastrand::shuffle(self.met.make_contiguous());
        Ok(())
    }

    /// Takes the next rows that are stored, or only those that are not in memory.
    fn move_hand(&mut self, store: &Store, led: &Led, stored_only: bool) -> Result<()> {
        let (engine, family) = (store.engine(), family_of(self.policy.among));
        let drained = engine.last_drained();
        // What expires next is at the front, and what was deleted there is gone with the next drain.
        if self.policy.first == First::Soonest && self.drained != Some(drained) {
            self.hand.clear();
            self.drained = Some(drained);
        }
        let mut rows = engine.stored_rows(family, &self.hand, &[]);
        let (mut taken, mut passed) = (0, 0);
        while taken < WINDOW && passed < MOST_PASSED {
            let Some((row, value)) = rows.next()? else {
                self.hand.clear();
                return Ok(());
            };
            self.hand.clear();
            self.hand.extend_from_slice(row);
            self.hand.push(0);
            // What was deleted lately RocksDB still has.
            let is_there = |met: &Met| match engine.is_in_memory(met.key.metadata()) {
                Some(is_there) => is_there && !stored_only,
                None => true,
            };
            let met = Met::of(family, row, value).filter(|met| led.has(met) && is_there(met));
            match met {
                Some(met) => {
                    self.met.push_back(met);
                    taken += 1;
                }
                None => passed += 1,
            }
        }
        Ok(())
    }
}

/// The higher, the sooner it goes; none if it is known to be gone.
fn score(store: &Store, met: &Met, first: First) -> Option<u64> {
    let by_use = score_of(store, &met.key, first)?;
    Some(match first {
        First::Soonest => u64::MAX - met.expire_ms,
        First::Any => fastrand::u64(..),
        First::LeastRecentlyUsed | First::LeastFrequentlyUsed => by_use,
    })
}

/// The same, as far as it depends on how the key is used: as high as can be where it does not.
pub(super) fn score_of(store: &Store, key: &Key, first: First) -> Option<u64> {
    let access = store.engine().access(key.metadata())?;
    Some(match first {
        First::LeastRecentlyUsed => access.idle_seconds(),
        First::LeastFrequentlyUsed => u64::from(u8::MAX - access.frequency()),
        First::Soonest | First::Any => u64::MAX,
    })
}

/// A walk over all keys that may go, what is young included: for when nothing else finds one.
pub(super) struct Passage {
    family: Family,
    walks: Vec<Rows>,
}

impl Passage {
    pub(super) fn of(store: &Arc<Store>, among: Among) -> Passage {
        let (engine, family) = (store.engine(), family_of(among));
        let walk = |(lower, upper): (Vec<u8>, Vec<u8>)| {
            engine.rows(None, family, &lower, &upper, Direction::Forward)
        };
        let walks = match among {
            Among::All => {
                let regions = store.regions();
                let databases = regions.led().flat_map(|region| {
                    let indexes = region.databases().all().into_iter();
                    indexes.map(|index| region.bounds(index))
                });
                databases.map(walk).collect()
            }
            Among::Volatile => {
                let mut lower = Vec::new();
                row::expiry_prefix(&mut lower, 0);
                vec![walk((lower, Vec::new()))]
            }
        };
        Passage { family, walks }
    }

    fn next(&mut self) -> Result<Option<Met>> {
        while let Some(walk) = self.walks.last_mut() {
            match walk.next()? {
                Some((row, value)) => {
                    if let Some(met) = Met::of(self.family, row, value) {
                        return Ok(Some(met));
                    }
                }
                None => drop(self.walks.pop()),
            }
        }
        Ok(None)
    }
}
