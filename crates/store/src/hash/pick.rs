//! Fields at random where some are due.
//!
//! Where elements are counted they are drawn by their ranks, which count what is due as well; one that is due is put back,
//! and another drawn. The expirer leaves little of that. Should most be due, or ranks not be known, one walk over all of
//! them finds it.

use rustc_hash::FxHashSet;

use crate::collection::Collection;
use crate::error::Result;
use crate::txn::ReadTxn;

/// How often one is drawn in vain, beside once for each that is wanted.
const IN_VAIN: u64 = 64;

impl Collection {
    /// The row of any field that is not due, each with the same chance.
    pub(crate) fn any_live(&self, txn: &ReadTxn) -> Result<Option<Vec<u8>>> {
        if self.has_ranks(txn)?
            && let Some(drawn) = self.draw_live(txn, 1, false)?
        {
            return Ok(drawn.into_iter().next());
        }
        let live = self.live_len(txn)?;
        if live == 0 {
            return Ok(None);
        }
        let mut before = fastrand::u64(..live);
        let mut rows = self.live_rows(txn)?;
        while let Some(row) = rows.next()? {
            txn.step()?;
            match (row.is_due, before) {
                (true, _) => {}
                (false, 0) => return Ok(Some(row.row_key.to_vec())),
                (false, _) => before -= 1,
            }
        }
        Ok(None)
    }

    /// The rows of so many fields, different ones in their order, or any each time; none if that takes too many draws.
    pub(crate) fn draw_live(
        &self,
        txn: &ReadTxn,
        wanted: u64,
        may_repeat: bool,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut drawn = Vec::new();
        let mut ranks = FxHashSet::default();
        for _ in 0..2 * wanted + IN_VAIN {
            txn.step()?;
            let rank = fastrand::u64(..self.len());
            if !may_repeat && !ranks.insert(rank) {
                continue;
            }
            let Some(row_key) = self.nth(txn, rank)? else {
                continue;
            };
            if self.is_due(txn, self.sub_of(&row_key))? {
                continue;
            }
            drawn.push(row_key);
            if drawn.len() as u64 == wanted {
                if !may_repeat {
                    drawn.sort_unstable();
                }
                return Ok(Some(drawn));
            }
        }
        Ok(None)
    }
}
