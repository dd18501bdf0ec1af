//! How much data there is, for those who limit it: see `cairn_engine::Measure`, which keeps the sum.
//!
//! The sum has to begin with something, and to be set right now and then. For that all rows that live are counted: a
//! little database at once, a large one in the background, in short turns. Until that has ended only what has come since
//! counts, so that nothing is evicted that need not be; who asks is told what RocksDB says about its files.

use cairn_encoding::metadata::expire_of;
use cairn_encoding::row;
use cairn_encoding::system;
use cairn_engine::{Bytes, Direction, EngineError, Extent, Family, Place, Rows};

use crate::databases::database_key;
use crate::error::Result;
use crate::region::Region;
use crate::store::Store;
use crate::turns::Turns;

/// How many rows are looked at, and how many young ones put in order for it, while somebody waits.
const LITTLE: u64 = 4096;

/// How much may be done.
enum Effort<'t> {
    /// So many rows, while somebody waits.
    Rows(u64),
    InTurns(&'t mut Turns),
}

impl Effort<'_> {
    /// One more row; false if it is too much.
    fn step(&mut self) -> bool {
        match self {
            Effort::Rows(0) => return false,
            Effort::Rows(left) => *left -= 1,
            Effort::InTurns(turns) => turns.go_on(),
        }
        true
    }
}

impl Store {
    /// Begins to measure what is committed, or ends that.
    pub fn measure_data(&self, is_measured: bool) {
        let measure = self.engine().measure();
        if measure.is_on() == is_measured {
            return;
        }
        measure.switch(is_measured);
        if is_measured {
            let before = measure.before_count();
            match self.count_little() {
                Some(counted) => measure.correct(&before, &counted),
                None => measure.doubt(),
            }
        }
    }

    /// About how many bytes the data takes.
    pub fn data_bytes(&self) -> u64 {
        let measure = self.engine().measure();
        let bytes = match measure.is_on() && measure.is_counted() {
            true => Some(measure.total()),
            false => self.count_little().map(|counted| counted.values().sum()),
        };
        match bytes {
            Some(bytes) => u64::try_from(bytes).unwrap_or(0),
            None => {
                let statistics = self.engine().statistics();
                statistics.live_data_bytes + statistics.young_bytes
            }
        }
    }

    /// Counts all that there is, if the sum that is kept needs it.
    pub(crate) fn count_doubtful_data(&self) -> Result<()> {
        let measure = self.engine().measure();
        if !measure.is_on() || !measure.is_doubtful() {
            return Ok(());
        }
        let before = measure.before_count();
        let counted = self.count_data(&mut Effort::InTurns(&mut Turns::begin()));
        match counted {
            Ok(Some(counted)) => measure.correct(&before, &counted),
            other => {
                measure.doubt();
                other?;
            }
        }
        Ok(())
    }

    /// None if there is more than can be counted while somebody waits.
    fn count_little(&self) -> Option<Bytes> {
        let engine = self.engine();
        let families = [Family::Metadata, Family::Data];
        let young = families.map(|family| engine.before_walk(family, &[], &[]) as u64);
        if young.iter().sum::<u64>() > LITTLE {
            return None;
        }
        self.count_data(&mut Effort::Rows(LITTLE)).ok().flatten()
    }

    /// All that lives, of all regions, those too that others lead. None if it is too much.
    fn count_data(&self, effort: &mut Effort<'_>) -> Result<Option<Bytes>> {
        let mut counted = Bytes::default();
        for region in self.regions().all() {
            for number in 0..self.database_count() {
                let Some(index) = self.stored_index(region, number)? else {
                    continue;
                };
                let Some(bytes) = self.count_database(region, index, effort)? else {
                    return Ok(None);
                };
                let region = region.id();
                counted.insert(Place { region, index }, bytes);
            }
        }
        Ok(Some(counted))
    }

    /// Where a database is. Those of regions that another node leads are not known otherwise.
    fn stored_index(&self, region: &Region, number: u32) -> Result<Option<u64>> {
        let row = database_key(region.id(), number);
        let row = self.engine().get_quietly(Family::Meta, &row)?;
        let index = row.map(|row| system::value::decode_database(&row));
        Ok(index.transpose()?)
    }

    fn count_database(
        &self,
        region: &Region,
        index: u64,
        effort: &mut Effort<'_>,
    ) -> Result<Option<i64>> {
        let bounds = region.bounds(index);
        let mut keys = self.rows_to_count(Family::Metadata, &bounds, effort);
        let mut data = self.rows_to_count(Family::Data, &bounds, effort);
        let mut bytes = 0;
        while let Some((key, value)) = keys.next()? {
            if !effort.step() {
                return Ok(None);
            }
            if self.is_stopping() {
                return Err(EngineError::Closing.into());
            }
            let extent = Extent::of(key, value)?;
            bytes += extent.own;
            if expire_of(value)? != 0 {
                let mut expiry = Vec::new();
                row::append_expiry(&mut expiry, key, 0);
                bytes += expiry.len() as u64;
            }
            let Some(elements) = extent.elements else {
                continue;
            };
            data.seek(&elements.lower);
            while let Some((key, value)) = data.next()? {
                if key >= elements.upper.as_slice() {
                    break;
                }
                if !effort.step() {
                    return Ok(None);
                }
                bytes += (key.len() + value.len()) as u64 * elements.rows_each;
            }
        }
        Ok(Some(i64::try_from(bytes).unwrap_or(i64::MAX)))
    }

    fn rows_to_count(
        &self,
        family: Family,
        (lower, upper): &(Vec<u8>, Vec<u8>),
        effort: &Effort<'_>,
    ) -> Rows {
        let engine = self.engine();
        match effort {
            Effort::Rows(_) => engine.rows(None, family, lower, upper, Direction::Forward),
            Effort::InTurns(_) => engine.background_rows(family, lower, upper),
        }
    }
}
