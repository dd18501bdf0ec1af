//! The regions of a replicated store come and go, and with them the right to commit.
//!
//! Whoever runs the consensus tells the store. A region is placed when this node has a replica of it whose rows are
//! whole, and taken away before they are replaced or removed. A region that changes its slots is placed anew, with
//! another epoch, and led anew.
//!
//! What memory derives from rows holds only while this node is the one that changes them. So it is forgotten when
//! leadership comes, for others have changed rows without telling, and when it goes, for what was evaluated last may not
//! have been committed.

use std::ops::Range;
use std::sync::Arc;

use cairn_encoding::row;
use cairn_encoding::system::{Maxima, SystemKey, SystemKind};
use cairn_engine::{Committer, EngineError, Family};

use crate::databases::{self, Databases};
use crate::effects::Effect;
use crate::error::Result;
use crate::region::{Lead, Region, Regions};
use crate::store::Store;
use crate::txn::WriteTxn;

/// What is known of a region without its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub id: u64,
    pub slots: Range<u16>,
    pub epoch: u64,
}

impl Store {
    /// Takes regions in, each in the place of the one that had its number before, and takes others away, all at once.
    /// None is led from here on until [`Store::became_leader`] says so; those that are not named go on as they are.
    pub fn place_regions(&self, come: &[Placement], gone: &[u64]) -> Result<()> {
        let _alone = self.leadership().lock();
        let before = self.regions();
        let goes = |id: u64| gone.contains(&id) || come.iter().any(|placed| placed.id == id);
        let (go, stay): (Vec<_>, Vec<_>) =
            before.all().cloned().partition(|region| goes(region.id()));
        let mut regions = stay;
        for placed in come {
            let databases = Databases::new(self.database_count());
            databases.reload(self.engine(), placed.id)?;
            let slots = placed.slots.clone();
            let readers = self.engine().readers_of(placed.id);
            let region = Region::new(placed.id, slots, placed.epoch, databases, readers);
            regions.push(region);
        }
        let regions = Regions::of(regions);
        if let Some((one, other)) = regions.overlap() {
            let text = format!("the regions {one} and {other} share slots");
            return Err(EngineError::Corrupt(text).into());
        }
        self.set_regions(regions);
        for region in go {
            self.end_lead(&region);
        }
        Ok(())
    }

    /// This node leads the region in this term, and has applied everything that earlier leaders have committed. The
    /// committer is good for this term, and for the region's epoch. What an earlier leader left half done is
    /// ended first, by a commit, so the calling thread may have to wait. For one region this is not called while it is at
    /// work.
    pub fn became_leader(
        self: &Arc<Self>,
        id: u64,
        term: u64,
        committer: Box<dyn Committer>,
    ) -> Result<()> {
        let region = {
            let _alone = self.leadership().lock();
            let region = self.region_with_id(id);
            region.inspect(|region| self.end_lead(region))
        };
        let region = region.ok_or(EngineError::NotLeading)?;
        let maxima = self
            .engine()
            .get(Family::Meta, &SystemKey::Maxima { region: id }.encode())?;
        if let Some(value) = maxima {
            let maxima = Maxima::decode(&value)?;
            self.clock().advance_to(maxima.version, maxima.timestamp_ms);
        }
        let missing = region.databases().reload(self.engine(), id)?;
        let lead = Lead::new(term, committer);
        let mut txn = WriteTxn::led_by(self.clone(), region.clone(), lead.clone());
        for staged in self.staged_rows(id)? {
            txn.delete(Family::Meta, &staged);
        }
        // What holds no keys needs no databases.
        if !missing.is_empty() && !region.slots().is_empty() {
            databases::flush(&mut txn, missing);
        }
        // Nobody else is held up by this: others may have to place regions before it can be applied.
        self.commit_blocking(&mut txn)?;
        let _alone = self.leadership().lock();
        let placed = self.region_with_id(id);
        if !placed.is_some_and(|placed| Arc::ptr_eq(&placed, &region)) {
            return Err(EngineError::Outdated.into());
        }
        region.set_lead(Some(lead));
        self.expirer().look_back();
        Ok(())
    }

    /// What a later leader has committed is about to be applied. Whoever reads under the lead of an earlier term must be
    /// refused before that can be seen.
    pub fn note_term(&self, id: u64, term: u64) {
        let is_earlier = |region: &Arc<Region>| {
            let lead = region.lead();
            lead.is_some_and(|lead| lead.term() < term)
        };
        if self.region_with_id(id).as_ref().is_some_and(is_earlier) {
            self.lost_leadership(id);
        }
    }

    /// Another node leads the region, or nobody. Transactions that are under way are refused.
    pub fn lost_leadership(&self, id: u64) {
        let _alone = self.leadership().lock();
        if let Some(region) = self.region_with_id(id) {
            self.end_lead(&region);
        }
    }

    /// One that has been placed, or that of the cluster map, which always is.
    fn region_with_id(&self, id: u64) -> Option<Arc<Region>> {
        if id == self.home().id() {
            return Some(self.home().clone());
        }
        self.regions().with_id(id).cloned()
    }

    fn end_lead(&self, region: &Region) {
        let was_led = region.set_lead(None);
        self.forget_derived();
        self.counts().forget_region(region.id());
        if was_led {
            self.listeners().show(vec![Effect::LeadEnded]);
        }
    }

    /// The rows that announce versions of this region that are being written ahead.
    pub(crate) fn staged_rows(&self, region: u64) -> Result<Vec<Vec<u8>>> {
        let prefix = SystemKind::Staging.region_prefix(region);
        let upper = row::prefix_end(&prefix).unwrap_or_default();
        let mut rows = self.engine().background_rows(Family::Meta, &prefix, &upper);
        let mut staged = Vec::new();
        while let Some((key, _)) = rows.next()? {
            staged.push(key.to_vec());
        }
        Ok(staged)
    }
}
