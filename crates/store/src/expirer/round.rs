//! Where the expirer has got to: one walk over what was due at a moment, for all regions that the node led then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use cairn_encoding::row;
use cairn_engine::Rows;

use super::DueRow;
use super::fields::Begun;
use crate::error::Result;
use crate::region::{Lead, Region, Regions};

/// How many rows of other nodes' regions are passed over in one batch.
const MOST_PASSED: usize = 1024;

/// How far the watermark of a region in which nothing is due falls behind in a cluster. Filters of all its replicas go by
/// it.
const IDLE_MS: u64 = 60_000;

/// Walking from the beginning each time would mean to step over the remains of everything that was deleted before.
#[derive(Default)]
pub(super) struct Place {
    /// Everything due lies behind this row, or nearly so.
    pub(super) after: Vec<u8>,
    pub(super) since: Option<Instant>,
    /// Goes on while there is more of what was due when it began.
    pub(super) round: Option<Round>,
    /// The first that could not be dealt with since.
    pub(super) skipped: Option<Vec<u8>>,
    /// The hashes of which only a part of what is due has been dealt with.
    pub(super) begun: Vec<Begun>,
}

impl Place {
    pub(super) fn beginning() -> Place {
        let mut after = Vec::new();
        row::expiry_prefix(&mut after, 0);
        Place {
            after,
            since: Some(Instant::now()),
            ..Place::default()
        }
    }

    /// Everything due lies behind this row, or nearly so: what came late is found by the next look back.
    pub(super) fn reached(&self) -> &Vec<u8> {
        let returned = self.round.as_ref().and_then(|round| round.returned.first());
        let left_behind = returned.into_iter().chain(&self.skipped);
        left_behind.fold(&self.after, |first, row| first.min(row))
    }

    /// A row has to be left for the next round, which begins there at the latest.
    pub(super) fn skip(&mut self, due: &Due) {
        let is_first = |first: &[u8]| due.row.as_slice() < first;
        if self.skipped.as_deref().is_none_or(is_first) {
            self.skipped = Some(due.row.clone());
        }
        self.fall_behind(due.led);
    }

    /// Something that is due in this region is not dealt with in this round.
    pub(super) fn fall_behind(&mut self, led: usize) {
        if let Some(led) = self.round.as_mut().and_then(|round| round.led.get_mut(led)) {
            led.is_behind = true;
        }
    }

    /// What was to be done in this region has not come to its end.
    pub(super) fn hold_up(&mut self, led: usize) {
        self.fall_behind(led);
        if let Some(led) = self.round.as_mut().and_then(|round| round.led.get_mut(led)) {
            led.is_held_up = true;
        }
    }

    /// Has a row dealt with again in this round; one that is due later is found by a later one.
    pub(super) fn put_back(&mut self, row: Vec<u8>) {
        if let Some(round) = &mut self.round {
            let mut due = Vec::new();
            row::expiry_prefix(&mut due, round.until_ms);
            if row < due {
                round.returned.insert(row);
            }
        }
    }
}

/// What was due at one moment, and has not been dealt with. One walk serves many batches: to open one means to carry
/// along the young rows of all that was just deleted, or to wait until they are drained.
pub(super) struct Round {
    pub(super) until_ms: u64,
    pub(super) walk: Rows,
    pub(super) since: Instant,
    regions: Arc<Regions>,
    /// Those that the node led when the round began.
    led: Vec<Led>,
    /// The walk has come to its end.
    is_walked: bool,
    /// How far it has come.
    pub(super) last_walked: Option<Vec<u8>>,
    /// Rows that have to be dealt with again: they are about hashes of which more is due.
    returned: BTreeSet<Vec<u8>>,
}

impl Round {
    pub(super) fn begin(
        regions: Arc<Regions>,
        held_up: &BTreeSet<u64>,
        walk: Rows,
        until_ms: u64,
    ) -> Round {
        let is_free = |region: &&Arc<Region>| !held_up.contains(&region.id());
        Round {
            until_ms,
            walk,
            since: Instant::now(),
            led: regions.all().filter(is_free).filter_map(Led::of).collect(),
            regions,
            is_walked: false,
            last_walked: None,
            returned: BTreeSet::new(),
        }
    }

    /// The next rows that are for this node to deal with.
    pub(super) fn take(&mut self, limit: usize) -> Result<Vec<Due>> {
        let mut due = Vec::with_capacity(limit);
        while due.len() < limit
            && let Some(row) = self.returned.pop_first()
        {
            due.extend(self.look_at(row));
        }
        let mut passed = 0;
        while due.len() < limit && passed < MOST_PASSED && !self.is_walked {
            let Some((row, _)) = self.walk.next()? else {
                self.is_walked = true;
                break;
            };
            let row = row.to_vec();
            self.last_walked = Some(row.clone());
            match self.look_at(row) {
                Some(found) => due.push(found),
                None => passed += 1,
            }
        }
        Ok(due)
    }

    /// What a row is about, if that is in a region that the node leads.
    fn look_at(&mut self, row: Vec<u8>) -> Option<Due> {
        let Some(about) = DueRow::decode(&row) else {
            tracing::error!("an expiry row cannot be read, and is left alone: {row:?}");
            return None;
        };
        let id = self.regions.of_key(&about.key)?.id();
        let mut all = self.led.iter_mut().enumerate();
        let (number, led) = all.find(|(_, led)| led.region.id() == id && !led.is_held_up)?;
        led.is_touched = true;
        Some(Due {
            row,
            about,
            region: led.region.clone(),
            led: number,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_walked && self.returned.is_empty()
    }

    /// The regions whose watermark is to be raised when the round is over.
    pub(super) fn rising(&self, is_replicated: bool) -> impl Iterator<Item = (usize, &Led)> {
        let all = self.led.iter().enumerate();
        all.filter(move |(_, led)| led.rises(self.until_ms, is_replicated))
    }
}

/// A row that is due.
pub(super) struct Due {
    pub(super) row: Vec<u8>,
    pub(super) about: DueRow,
    pub(super) region: Arc<Region>,
    /// Which of the regions of the round that is.
    pub(super) led: usize,
}

/// A region in a round.
pub(super) struct Led {
    pub(super) region: Arc<Region>,
    lead: Arc<Lead>,
    /// Something was due.
    is_touched: bool,
    /// Not all of it has been dealt with.
    is_behind: bool,
    /// It is not known yet what became of the last batch. The rest is for a later round.
    is_held_up: bool,
}

impl Led {
    pub(super) fn of(region: &Arc<Region>) -> Option<Led> {
        Some(Led {
            region: region.clone(),
            lead: region.lead()?,
            is_touched: false,
            is_behind: false,
            is_held_up: false,
        })
    }

    /// Whether the watermark may be raised at the end of the round, and is worth it.
    fn rises(&self, until_ms: u64, is_replicated: bool) -> bool {
        let is_worth_it = self.is_touched || is_replicated && self.is_idle(until_ms);
        is_worth_it && !self.is_behind && !self.lead.is_over()
    }

    /// Nothing has been due for long.
    fn is_idle(&self, until_ms: u64) -> bool {
        until_ms.saturating_sub(self.region.raised_ms()) >= IDLE_MS
    }
}
