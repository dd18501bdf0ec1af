//! Whether the count rows of a collection count what is there.

use cairn_encoding::count;
use cairn_encoding::metadata::CollectionKind;
use cairn_encoding::row;
use cairn_engine::{Engine, Family};

use super::fault::{Fault, Place};
use super::log::Log;
use crate::error::Result;

/// The count rows of a live version: where each block begins, and how many elements it has.
#[derive(Default)]
pub struct Counts(Vec<(Vec<u8>, u64)>);

impl Counts {
    pub fn add(&mut self, first: &[u8], value: &[u8], place: &Place, log: &mut Log<'_>) {
        match count::decode(value) {
            Ok(count) => self.0.push((first.to_vec(), count)),
            Err(error) => {
                let sub = first.to_vec();
                log.fault(place, Fault::Element { sub, error });
            }
        }
    }

    /// For a collection that is not counted.
    pub fn expect_none(&self, place: &Place, log: &mut Log<'_>) {
        if !self.0.is_empty() {
            let rows = self.0.len() as u64;
            log.fault(place, Fault::StrayCounts { rows });
        }
    }

    /// For one that is: counts again, block by block.
    pub fn compare(
        self,
        engine: &Engine,
        metadata_key: &[u8],
        (kind, version): (CollectionKind, u64),
        place: &Place,
        log: &mut Log<'_>,
    ) -> Result<()> {
        if self.0.first().is_none_or(|(first, _)| !first.is_empty()) {
            log.fault(place, Fault::CountsMissing);
            return Ok(());
        }
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        row::append_data(&mut lower, metadata_key, version, b"");
        let family = match kind {
            CollectionKind::Hash | CollectionKind::Set => {
                row::append_data(&mut upper, metadata_key, version.saturating_add(1), b"");
                Family::Data
            }
            CollectionKind::ZSet => {
                row::append_count(&mut upper, metadata_key, version, b"");
                Family::ZsetScore
            }
        };
        let mut elements = engine.background_rows(family, &lower, &upper);
        let mut element = elements.next()?.map(|(row_key, _)| row_key.to_vec());
        let mut blocks = self.0.into_iter().peekable();
        while let Some((first, count)) = blocks.next() {
            let end = blocks.peek().map(|(next, _)| next.as_slice());
            let mut rows = 0;
            while let Some(row_key) = &element
                && end.is_none_or(|end| &row_key[lower.len()..] < end)
            {
                rows += 1;
                element = elements.next()?.map(|(row_key, _)| row_key.to_vec());
            }
            if rows != count {
                log.fault(place, Fault::Count { first, count, rows });
            }
        }
        Ok(())
    }
}
