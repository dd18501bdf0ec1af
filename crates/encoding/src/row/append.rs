//! Stored keys from a metadata key that is at hand already.
//!
//! A command works on one key's rows and has hashed and encoded that key once. The public functions finish
//! a row from there. What follows the metadata key is written by the `*_tail` functions, through which
//! [`RowKey`](super::RowKey) encodes too.

use super::{Append, LEGACY_STRING, expiry_prefix};
use crate::score;

/// Length of a version in a row's key.
pub const VERSION_LEN: usize = 8;
/// Length of a score in a row's key.
pub const SCORE_LEN: usize = 8;
/// Stands where others have a score, above all of them.
pub(super) const COUNT_MARK: [u8; SCORE_LEN] = [u8::MAX; SCORE_LEN];
/// The same for the rows that say when fields expire, by name and by time.
pub(super) const FIELD_MARK: [u8; SCORE_LEN] = marked(0xfe);
pub(super) const FIELD_TIME_MARK: [u8; SCORE_LEN] = marked(0xfd);

const fn marked(last: u8) -> [u8; SCORE_LEN] {
    let mut mark = COUNT_MARK;
    mark[SCORE_LEN - 1] = last;
    mark
}

/// A row of `data`; with an empty `sub`, the bounds of the version.
pub fn append_data(out: &mut impl Append, metadata_key: &[u8], version: u64, sub: &[u8]) {
    out.append(metadata_key);
    data_tail(out, version, sub);
}

/// A row of `zset_score`.
pub fn append_score(
    out: &mut impl Append,
    metadata_key: &[u8],
    version: u64,
    score: f64,
    member: &[u8],
) {
    out.append(metadata_key);
    score_tail(out, version, score, member);
}

/// A count row, in `zset_score`; with an empty `first`, it is the least of its version.
pub fn append_count(out: &mut impl Append, metadata_key: &[u8], version: u64, first: &[u8]) {
    out.append(metadata_key);
    count_tail(out, version, first);
}

/// The row that says when a field expires, in `zset_score`.
pub fn append_field(out: &mut impl Append, metadata_key: &[u8], version: u64, field: &[u8]) {
    out.append(metadata_key);
    field_tail(out, version, field);
}

/// The same in the order of time.
pub fn append_field_time(
    out: &mut impl Append,
    metadata_key: &[u8],
    version: u64,
    at_ms: u64,
    field: &[u8],
) {
    out.append(metadata_key);
    field_time_tail(out, version, at_ms, field);
}

/// A row of `expiry`, for the fields of a hash.
pub fn append_fields_expiry(out: &mut impl Append, metadata_key: &[u8], at_ms: u64, version: u64) {
    append_expiry(out, metadata_key, at_ms);
    out.append(&version.to_be_bytes());
}

/// A row of `expiry`.
pub fn append_expiry(out: &mut impl Append, metadata_key: &[u8], at_ms: u64) {
    expiry_prefix(out, at_ms);
    out.append(metadata_key);
}

/// A string of the old format, in `data`.
pub fn append_legacy(out: &mut impl Append, metadata_key: &[u8]) {
    out.append(metadata_key);
    legacy_tail(out);
}

pub(super) fn data_tail(out: &mut impl Append, version: u64, sub: &[u8]) {
    out.append(&version.to_be_bytes());
    out.append(sub);
}

pub(super) fn score_tail(out: &mut impl Append, version: u64, score: f64, member: &[u8]) {
    out.append(&version.to_be_bytes());
    out.append(&score::encode(score));
    out.append(member);
}

pub(super) fn count_tail(out: &mut impl Append, version: u64, first: &[u8]) {
    out.append(&version.to_be_bytes());
    out.append(&COUNT_MARK);
    out.append(first);
}

pub(super) fn field_tail(out: &mut impl Append, version: u64, field: &[u8]) {
    out.append(&version.to_be_bytes());
    out.append(&FIELD_MARK);
    out.append(field);
}

pub(super) fn field_time_tail(out: &mut impl Append, version: u64, at_ms: u64, field: &[u8]) {
    out.append(&version.to_be_bytes());
    out.append(&FIELD_TIME_MARK);
    out.append(&at_ms.to_be_bytes());
    out.append(field);
}

pub(super) fn legacy_tail(out: &mut impl Append) {
    out.append(&[LEGACY_STRING]);
}
