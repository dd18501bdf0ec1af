//! A walk over the rows of one family that holds its present row in hand.
//!
//! The families are walked side by side. All their rows begin with the key's metadata key, and no
//! metadata key is the beginning of another, so each family gives its keys in the same order.

use cairn_encoding::row::{self, RowKey};
use cairn_engine::{Engine, Family, Rows};

use super::fault::Fault;
use super::log::Log;
use crate::error::Result;

pub struct Cursor {
    family: Family,
    rows: Rows,
    row: Vec<u8>,
    value: Vec<u8>,
    /// How much of the row is the metadata key; zero at the end of the walk.
    prefix: usize,
}

impl Cursor {
    /// Stands on the first row.
    pub fn open(engine: &Engine, family: Family, log: &mut Log<'_>) -> Result<Cursor> {
        let mut cursor = Cursor {
            family,
            rows: engine.background_rows(family, &[], &[]),
            row: Vec::new(),
            value: Vec::new(),
            prefix: 0,
        };
        cursor.advance(log)?;
        Ok(cursor)
    }

    /// Moves to the next row that is one; what is none is reported and passed over.
    pub fn advance(&mut self, log: &mut Log<'_>) -> Result<()> {
        self.prefix = 0;
        while let Some((row, value)) = self.rows.next()? {
            log.summary.count_row(self.family);
            match decode(self.family, row).and_then(|_| row::metadata_key_of(row)) {
                Ok(metadata_key) => {
                    self.prefix = metadata_key.len();
                    self.row.clear();
                    self.row.extend_from_slice(row);
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    break;
                }
                Err(error) => {
                    let row = row.to_vec();
                    log.fault_in(self.family, Fault::Row { row, error });
                }
            }
        }
        Ok(())
    }

    /// The metadata key of the present row; none at the end.
    pub fn metadata_key(&self) -> Option<&[u8]> {
        (self.prefix > 0).then(|| &self.row[..self.prefix])
    }

    pub fn is_at(&self, metadata_key: &[u8]) -> bool {
        self.metadata_key() == Some(metadata_key)
    }

    pub fn row(&self) -> Result<RowKey<'_>> {
        Ok(decode(self.family, &self.row)?)
    }

    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The value, for who needs it longer than the row.
    pub fn take_value(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.value)
    }
}

fn decode(family: Family, row: &[u8]) -> Result<RowKey<'_>, cairn_encoding::DecodeError> {
    match family {
        Family::Metadata => RowKey::decode_metadata(row),
        Family::ZsetScore => RowKey::decode_score(row),
        _ => RowKey::decode_data(row),
    }
}
