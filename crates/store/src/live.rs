//! Walks over collections that pass by the fields of a hash that are due.
//!
//! Where nothing can be due, and that is nearly always, these are the rows themselves. Else a second walk, over what
//! says when fields expire, goes along: both are in the order of the fields. A due row is shown as what it is, so that
//! whoever walks can tell how far it has come.

use cairn_encoding::field_expiry;
use cairn_encoding::metadata::has_expired;
use cairn_encoding::row::SCORE_LEN;
use cairn_engine::{Direction, Family, Rows};

use crate::collection::Collection;
use crate::error::Result;
use crate::txn::ReadTxn;

/// Rows of a collection, as they were when this was opened.
pub struct LiveRows {
    rows: Rows,
    times: Option<Times>,
}

/// One of them.
pub struct LiveRow<'r> {
    pub row_key: &'r [u8],
    pub value: &'r [u8],
    /// When the field expires, zero for never; also zero if that was not asked for.
    pub expire_ms: u64,
    /// It is a field that nobody is to see any more.
    pub is_due: bool,
}

/// A walk over the rows of a collection.
pub trait Walked: Send {
    fn next_row(&mut self) -> Result<Option<LiveRow<'_>>>;
}

impl Walked for LiveRows {
    #[inline]
    fn next_row(&mut self) -> Result<Option<LiveRow<'_>>> {
        self.next()
    }
}

/// None of which can be due.
impl Walked for Rows {
    #[inline]
    fn next_row(&mut self) -> Result<Option<LiveRow<'_>>> {
        Ok(self.next()?.map(|(row_key, value)| LiveRow {
            row_key,
            value,
            expire_ms: 0,
            is_due: false,
        }))
    }
}

impl From<Rows> for LiveRows {
    /// None of which can be due.
    fn from(rows: Rows) -> Self {
        LiveRows { rows, times: None }
    }
}

impl LiveRows {
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<LiveRow<'_>>> {
        let Some((row_key, value)) = self.rows.next()? else {
            return Ok(None);
        };
        let (expire_ms, is_due) = match &mut self.times {
            None => (0, false),
            Some(times) => times.find(row_key)?,
        };
        Ok(Some(LiveRow {
            row_key,
            value,
            expire_ms,
            is_due,
        }))
    }

    /// Moves so that `next` gives the first row at or after a sub-key.
    pub(crate) fn seek(&mut self, collection: &Collection, sub: &[u8]) {
        self.rows.seek(&collection.row_key(sub));
        if let Some(times) = &mut self.times {
            times.ahead = Ahead::Unknown;
            let (key, version) = (collection.key(), collection.version());
            times.rows.seek(&key.field(version, sub));
        }
    }

    /// Moves back to the first row.
    pub fn rewind(&mut self) {
        self.rows.rewind();
        if let Some(times) = &mut self.times {
            times.ahead = Ahead::Unknown;
            times.rows.rewind();
        }
    }
}

/// When fields expire, in the order of the fields.
struct Times {
    rows: Rows,
    /// What the keys of the rows begin with.
    prefix: Vec<u8>,
    /// Where the field begins in the key of its row.
    sub_at: usize,
    /// The field that comes next.
    ahead: Ahead,
    field: Vec<u8>,
    first_ms: u64,
    now_ms: u64,
}

#[derive(Clone, Copy)]
enum Ahead {
    Unknown,
    /// The one in `field`, which expires then.
    Field(u64),
    End,
}

/// What fields that are gone have left behind is passed by, up to so many; then it is quicker to search. However much
/// of it there is between two fields, a step from one to the next takes little time.
const MOST_PASSED: u32 = 8;

impl Times {
    /// When the field of a row expires, and whether that is past. Fields are asked for in their order.
    fn find(&mut self, row_key: &[u8]) -> Result<(u64, bool)> {
        let field = &row_key[self.sub_at..];
        let mut passed = 0;
        loop {
            match self.ahead {
                Ahead::End => return Ok((0, false)),
                Ahead::Field(at_ms) if self.field.as_slice() >= field => {
                    let is_same = self.field == field;
                    // What is said of a time before the first is not true any more.
                    let is_told = is_same && at_ms >= self.first_ms;
                    return Ok(match is_told {
                        true => (at_ms, has_expired(at_ms, self.now_ms)),
                        false => (0, false),
                    });
                }
                Ahead::Field(_) | Ahead::Unknown => {
                    passed += 1;
                    if passed == MOST_PASSED {
                        self.rows.seek(&[&self.prefix, field].concat());
                    }
                    self.advance()?;
                }
            }
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.ahead = match self.rows.next()? {
            None => Ahead::End,
            Some((row_key, value)) => {
                self.field.clear();
                self.field
                    .extend_from_slice(&row_key[self.sub_at + SCORE_LEN..]);
                Ahead::Field(field_expiry::decode(value)?)
            }
        };
        Ok(())
    }
}

impl Collection {
    /// Every element in the order of the sub-keys, with what is due marked.
    pub fn live_rows(&self, txn: &ReadTxn) -> Result<LiveRows> {
        let times = self.times_of_due(txn)?;
        let rows = self.rows(txn, Direction::Forward)?;
        Ok(LiveRows { rows, times })
    }

    /// The same in the order in which they are counted: of a sorted set, by score.
    pub fn live_ordered_rows(&self, txn: &ReadTxn) -> Result<LiveRows> {
        let times = self.times_of_due(txn)?;
        let rows = self.ordered_rows(txn, Direction::Forward)?;
        Ok(LiveRows { rows, times })
    }

    /// All fields of a hash, with the times at which they expire.
    pub(crate) fn rows_with_times(&self, txn: &ReadTxn) -> Result<LiveRows> {
        let times = self.times_by_name(txn)?;
        let rows = self.rows(txn, Direction::Forward)?;
        Ok(LiveRows { rows, times })
    }

    fn times_of_due(&self, txn: &ReadTxn) -> Result<Option<Times>> {
        match self.may_hide(txn) {
            true => self.times_by_name(txn),
            false => Ok(None),
        }
    }

    fn times_by_name(&self, txn: &ReadTxn) -> Result<Option<Times>> {
        let Some(fields) = self.fields() else {
            return Ok(None);
        };
        Ok(Some(Times {
            rows: self.rows_by_name(txn)?,
            prefix: self.key().field(self.version(), b"").to_vec(),
            sub_at: self.sub_offset(),
            ahead: Ahead::Unknown,
            field: Vec::new(),
            first_ms: fields.first_ms,
            now_ms: txn.now_ms(),
        }))
    }

    /// What says when fields expire, in the order of the fields.
    pub(crate) fn rows_by_name(&self, txn: &ReadTxn) -> Result<Rows> {
        let lower = self.key().field(self.version(), b"");
        let upper = self.key().count(self.version(), b"");
        self.times_within(txn, &lower, &upper)
    }

    /// Rows that say when fields expire.
    pub(crate) fn times_within(&self, txn: &ReadTxn, lower: &[u8], upper: &[u8]) -> Result<Rows> {
        self.rows_within(txn, Family::ZsetScore, lower, upper, Direction::Forward)
    }
}
