//! Whether the rows of a key are what its metadata says.
//!
//! Rows come one by one, in order, and leave behind a few numbers. The two orders of a sorted set meet
//! their members at different times, so each is added up: to its count, and to a sum of hashes that does
//! not depend on the order. Only if the sums differ are the rows looked at again, one by one.

use std::hash::Hasher;

use cairn_encoding::chunk::{decode_chunk_sub, decode_index_sub};
use cairn_encoding::metadata::{Body, CollectionKind, Metadata, Type};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::stream::Head;
use cairn_encoding::{CHUNK_SIZE, DecodeError, field_expiry, score};
use cairn_engine::{Engine, Family};
use rustc_hash::FxHasher;

use super::counts::Counts;
use super::fault::{Fault, Place};
use super::fields::{FieldRows, Of};
use super::log::Log;
use super::stream::StreamRows;
use crate::error::Result;

/// Members with their scores, regardless of order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, member: &[u8], score: f64) {
        let mut hasher = FxHasher::default();
        hasher.write(member);
        hasher.write_u64(score.to_bits());
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

pub struct Contents<'m> {
    metadata: Metadata<'m>,
    place: &'m Place,
    /// Rows that count towards the size.
    rows: u64,
    by_member: Sum,
    by_score: Sum,
    /// The list index that should come next.
    next_index: u64,
    counts: Counts,
    fields: FieldRows,
    stream: StreamRows,
}

impl<'m> Contents<'m> {
    pub fn new(metadata: Metadata<'m>, place: &'m Place) -> Self {
        let next_index = match metadata.body {
            Body::List { head, .. } => head,
            _ => 0,
        };
        Contents {
            metadata,
            place,
            rows: 0,
            by_member: Sum::default(),
            by_score: Sum::default(),
            next_index,
            counts: Counts::default(),
            fields: FieldRows::default(),
            stream: StreamRows::default(),
        }
    }

    /// The next row of the live version in `data`.
    pub fn data_row(&mut self, sub: &[u8], value: &[u8], log: &mut Log<'_>) {
        self.rows += 1;
        let seen = match self.metadata.body {
            Body::Chunked { length, .. } => self.chunk(sub, value, length, log),
            Body::List { head, tail, .. } => self.element(sub, head, tail, log),
            Body::Collection { kind, .. } => self.member(kind, sub, value, log),
            Body::Stream { .. } => self.stream_row(sub, value, log),
            // An inline string has no version, so no row is one of its live version.
            Body::Inline(_) => Ok(()),
        };
        if let Err(error) = seen {
            let sub = sub.to_vec();
            log.fault(self.place, Fault::Element { sub, error });
        }
    }

    /// The next row of the live version in `zset_score`.
    pub fn score_row(&mut self, score: f64, member: &[u8], value: &[u8], log: &mut Log<'_>) {
        self.by_score.add(member, score);
        self.expect_empty(member, value, log);
    }

    /// The next count row of the live version.
    pub fn count_row(&mut self, first: &[u8], value: &[u8], log: &mut Log<'_>) {
        self.counts.add(first, value, self.place, log);
    }

    /// The next row of the live version that says when a field expires.
    pub fn field_row(
        &mut self,
        engine: &Engine,
        metadata_key: &[u8],
        row: RowKey<'_>,
        value: &[u8],
        log: &mut Log<'_>,
    ) -> Result<()> {
        let Body::Collection {
            kind: CollectionKind::Hash,
            version,
            fields,
            ..
        } = self.metadata.body
        else {
            self.fields.add_stray();
            return Ok(());
        };
        let of = Of {
            engine,
            metadata_key,
            version,
            fields,
            place: self.place,
        };
        match row {
            RowKey::Field { field, .. } => match field_expiry::decode(value) {
                Ok(at_ms) => self.fields.add_by_name(&of, field, at_ms, log)?,
                Err(error) => {
                    let sub = field.to_vec();
                    log.fault(self.place, Fault::Element { sub, error });
                }
            },
            RowKey::FieldTime { at_ms, field, .. } => {
                self.fields.add_by_time(&of, field, at_ms, log);
                self.expect_empty(field, value, log);
            }
            _ => {}
        }
        Ok(())
    }

    fn member(
        &mut self,
        kind: CollectionKind,
        member: &[u8],
        value: &[u8],
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        match kind {
            CollectionKind::Hash => {}
            CollectionKind::Set => self.expect_empty(member, value, log),
            CollectionKind::ZSet => self.by_member.add(member, score::decode_value(value)?),
        }
        Ok(())
    }

    fn expect_empty(&self, sub: &[u8], value: &[u8], log: &mut Log<'_>) {
        if !value.is_empty() {
            let (sub, length) = (sub.to_vec(), value.len());
            log.fault(self.place, Fault::ValueNotEmpty { sub, length });
        }
    }

    fn chunk(
        &self,
        sub: &[u8],
        value: &[u8],
        length: u64,
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        let number = decode_chunk_sub(sub)?;
        let end = u64::from(number) * CHUNK_SIZE as u64 + value.len() as u64;
        if value.len() > CHUNK_SIZE {
            let length = value.len();
            log.fault(self.place, Fault::ChunkTooLong { number, length });
        } else if end > length {
            let fault = Fault::ChunkBeyondEnd {
                number,
                end,
                length,
            };
            log.fault(self.place, fault);
        }
        Ok(())
    }

    fn element(
        &mut self,
        sub: &[u8],
        head: u64,
        tail: u64,
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        let index = decode_index_sub(sub)?;
        if !(head..tail).contains(&index) {
            self.rows -= 1;
            log.summary.orphans.cut_off += 1;
            return Ok(());
        }
        self.expect_no_gap(index, log);
        self.next_index = index + 1;
        Ok(())
    }

    fn stream_row(
        &mut self,
        sub: &[u8],
        value: &[u8],
        log: &mut Log<'_>,
    ) -> Result<(), DecodeError> {
        let Some(head) = self.stream_head()? else {
            return Ok(());
        };
        self.stream.add(&head, sub, value, self.place, log)
    }

    fn stream_head(&self) -> Result<Option<Head>, DecodeError> {
        match self.metadata.body {
            Body::Stream {
                version,
                size,
                rest,
            } => Head::of(version, size, rest).map(Some),
            _ => Ok(None),
        }
    }

    fn expect_no_gap(&self, to: u64, log: &mut Log<'_>) {
        let from = self.next_index;
        if from < to {
            log.fault(self.place, Fault::ElementsMissing { from, to });
        }
    }

    /// After the last row.
    pub fn finish(mut self, engine: &Engine, metadata_key: &[u8], log: &mut Log<'_>) -> Result<()> {
        let kind = self.metadata.kind();
        match self.metadata.body {
            Body::Inline(_) | Body::Chunked { .. } => {}
            Body::List {
                size, head, tail, ..
            } => {
                if tail.checked_sub(head) != Some(size) {
                    log.fault(self.place, Fault::ListBounds { size, head, tail });
                }
                self.expect_no_gap(tail, log);
                self.expect_some(kind, size, log);
            }
            Body::Stream { .. } => match self.stream_head() {
                Ok(Some(head)) => std::mem::take(&mut self.stream).finish(&head, self.place, log),
                Ok(None) => {}
                Err(error) => log.fault(self.place, Fault::Metadata(error)),
            },
            Body::Collection { size, .. } => {
                let rows = self.rows;
                if rows != size {
                    log.fault(self.place, Fault::Size { kind, size, rows });
                }
                self.expect_some(kind, size, log);
            }
        }
        if kind == Type::ZSet {
            if self.by_member != self.by_score {
                self.explain_scores(engine, metadata_key, log)?;
            }
        } else if self.by_score.rows > 0 {
            let rows = self.by_score.rows;
            log.fault(self.place, Fault::StrayScoreRows { kind, rows });
        }
        let fields = match self.metadata.body {
            Body::Collection { fields, .. } => fields,
            _ => None,
        };
        self.fields.finish(kind, fields, self.place, log);
        match self.metadata.body {
            Body::Collection {
                kind,
                version,
                is_counted: true,
                ..
            } => {
                let counts = self.counts;
                counts.compare(engine, metadata_key, (kind, version), self.place, log)
            }
            _ => {
                self.counts.expect_none(self.place, log);
                Ok(())
            }
        }
    }

    fn expect_some(&self, kind: Type, size: u64, log: &mut Log<'_>) {
        if size == 0 {
            log.fault(self.place, Fault::Empty { kind });
        }
    }

    /// Finds which members the two orders of a sorted set disagree on.
    fn explain_scores(
        &self,
        engine: &Engine,
        metadata_key: &[u8],
        log: &mut Log<'_>,
    ) -> Result<()> {
        let version = self.metadata.version().unwrap_or(0);
        let (mut lower, mut upper, mut other) = (Vec::new(), Vec::new(), Vec::new());
        row::append_data(&mut lower, metadata_key, version, b"");
        row::append_data(&mut upper, metadata_key, version.saturating_add(1), b"");

        let mut members = engine.background_rows(Family::Data, &lower, &upper);
        while let Some((row_key, value)) = members.next()? {
            let Ok(score) = score::decode_value(value) else {
                continue;
            };
            let member = &row_key[lower.len()..];
            other.clear();
            row::append_score(&mut other, metadata_key, version, score, member);
            if engine.get(Family::ZsetScore, &other)?.is_none() {
                let member = member.to_vec();
                log.fault(self.place, Fault::ScoreRowMissing { member, score });
            }
        }

        let mut scores = engine.background_rows(Family::ZsetScore, &lower, &upper);
        while let Some((row_key, _)) = scores.next()? {
            let Ok(RowKey::Score { score, member, .. }) = RowKey::decode_score(row_key) else {
                continue;
            };
            other.clear();
            row::append_data(&mut other, metadata_key, version, member);
            let stored = engine.get(Family::Data, &other)?;
            let member = member.to_vec();
            match stored.map(|value| score::decode_value(&value)) {
                None => log.fault(self.place, Fault::MemberMissing { member, score }),
                Some(Ok(other)) if other != score => {
                    let fault = Fault::ScoresDiffer {
                        member,
                        score,
                        other,
                    };
                    log.fault(self.place, fault);
                }
                // Equal, or reported when the member's own row was met.
                Some(_) => {}
            }
        }
        Ok(())
    }
}
