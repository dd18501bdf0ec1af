//! The beginnings of stored keys, which are at once the bounds of ranges.
//!
//! ```text
//!   keyspace_id u64 | index_id u64 | slot u16 | key_len u32 | key | version u64 | ...
//!   └────── index_prefix ────────┘          │                   │             │
//!   └─────────── slot_prefix ───────────────┘                   │             │
//!   └─────────── metadata_key ──────────────────────────────────┘             │
//!   └─────────── version_prefix ──────────────────────────────────────────────┘
//!
//!   keyspace_id u64 | expire_ms u64 | metadata key
//!   └─────── expiry_prefix ───────┘
//! ```
//!
//! The rows of a range are those from its prefix up to, and without, [`prefix_end`] of it. All of these
//! append to the caller's buffer, and [`RowKey`](super::RowKey) encodes through them.

use super::append::{VERSION_LEN, data_tail};
use super::{Append, read_key};
use crate::reader::Reader;
use crate::slot::slot;
use crate::{DecodeError, KEYSPACE_ID};

/// The prefix without the key.
pub const PREFIX_HEAD: usize = SLOT_END + 4;
const INDEX_END: usize = 8 + 8;
const SLOT_END: usize = INDEX_END + 2;
/// An expiry row without the metadata key.
pub(super) const EXPIRY_HEAD: usize = 8 + 8;

/// Everything before the key. There is no second place where these fields are written.
#[inline]
fn head(index: u64, slot: u16, key_len: u32) -> [u8; PREFIX_HEAD] {
    let mut head = [0; PREFIX_HEAD];
    head[..INDEX_END].copy_from_slice(&concat(KEYSPACE_ID, index));
    head[INDEX_END..SLOT_END].copy_from_slice(&slot.to_be_bytes());
    head[SLOT_END..].copy_from_slice(&key_len.to_be_bytes());
    head
}

#[inline]
fn concat(a: u64, b: u64) -> [u8; 16] {
    (u128::from(a) << 64 | u128::from(b)).to_be_bytes()
}

/// Bounds the rows of one database.
pub fn index_prefix(out: &mut impl Append, index: u64) {
    out.append(&head(index, 0, 0)[..INDEX_END]);
}

/// Bounds the rows of one slot in one database.
pub fn slot_prefix(out: &mut impl Append, index: u64, slot: u16) {
    out.append(&head(index, slot, 0)[..SLOT_END]);
}

/// The key's metadata row itself, and the bounds of everything stored about the key.
///
/// # Panics
///
/// If the key is longer than `u32::MAX` bytes.
#[inline]
pub fn metadata_key(out: &mut impl Append, index: u64, key: &[u8]) {
    let length = u32::try_from(key.len()).expect("a key has at most u32::MAX bytes");
    out.append(&head(index, slot(key), length));
    out.append(key);
}

/// Bounds the rows of one version of a key, in `data` as in `zset_score`.
///
/// # Panics
///
/// If the key is longer than `u32::MAX` bytes.
pub fn version_prefix(out: &mut impl Append, index: u64, key: &[u8], version: u64) {
    metadata_key(out, index, key);
    data_tail(out, version, b"");
}

/// Bounds the expiry rows of one millisecond, and from below those of all later ones.
pub fn expiry_prefix(out: &mut impl Append, at_ms: u64) {
    out.append(&concat(KEYSPACE_ID, at_ms));
}

/// The smallest byte string greater than every string that starts with `prefix`; None if there is none,
/// which is so for a prefix of 0xff bytes only.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The index of a row that begins with the prefix; None if it is too short for that. It checks nothing else.
#[inline]
pub fn index_of(row: &[u8]) -> Option<u64> {
    let index = row.get(8..INDEX_END)?;
    index.try_into().ok().map(u64::from_be_bytes)
}

/// The slot of a row that begins with the prefix; None if it is too short for that. It checks nothing else.
#[inline]
pub fn slot_of(row: &[u8]) -> Option<u16> {
    let slot = row.get(INDEX_END..SLOT_END)?;
    slot.try_into().ok().map(u16::from_be_bytes)
}

/// What tells a row of a user's key apart from the others: a number for all that is before the name but the slot,
/// which follows from the name, and everything from the name on.
#[inline]
pub fn essence(row: &[u8]) -> (u64, &[u8]) {
    let Some((head, rest)) = row.split_first_chunk::<PREFIX_HEAD>() else {
        return (0, row);
    };
    let [.., i0, i1, i2, i3, i4, i5, i6, i7, _, _, l0, l1, l2, l3] = *head;
    let index = u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
    (
        number_of_head(index, u32::from_be_bytes([l0, l1, l2, l3])),
        rest,
    )
}

/// The same of a metadata row that need not be written down for it.
#[inline]
pub fn essence_of_metadata(index: u64, name: &[u8]) -> (u64, &[u8]) {
    (number_of_head(index, name.len() as u32), name)
}

#[inline]
fn number_of_head(index: u64, key_len: u32) -> u64 {
    index.rotate_left(32) ^ u64::from(key_len)
}

/// The part of a `data` or `zset_score` row that is the key's metadata key.
///
/// For code that meets rows by the million and asks first whether the key is still the one it saw last.
/// So it finds the cut and checks nothing else; decoding the row does.
pub fn metadata_key_of(row: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new("row prefix", row);
    reader.bytes("keyspace_id, index_id and slot", SLOT_END)?;
    read_key(&mut reader)?;
    Ok(&row[..reader.offset()])
}

/// The part of a `data` or `zset_score` row that its version's rows have in common; None for a string of
/// the old format, which has none. It too finds the cut only.
pub fn version_prefix_of(row: &[u8]) -> Option<&[u8]> {
    let key = metadata_key_of(row).ok()?;
    row.get(..key.len() + VERSION_LEN)
}

/// The version that rows with such a prefix have.
pub fn version_in(prefix: &[u8]) -> Option<u64> {
    prefix
        .last_chunk()
        .map(|version| u64::from_be_bytes(*version))
}

/// The end of a version's rows, from their prefix: the next version's prefix.
pub fn version_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(version) = end.last_chunk_mut() {
        // Versions never reach u64::MAX.
        *version = u64::from_be_bytes(*version).wrapping_add(1).to_be_bytes();
    }
    end
}

/// Whether everything in `[prefix, to)` begins with `prefix`, which is that of a version.
pub fn ends_within_version(prefix: &[u8], to: &[u8]) -> bool {
    if to.starts_with(prefix) {
        return true;
    }
    let (Some((key, version)), Some((to_key, to_version))) =
        (prefix.split_last_chunk(), to.split_last_chunk())
    else {
        return false;
    };
    let next = u64::from_be_bytes(*version).checked_add(1);
    key == to_key && next == Some(u64::from_be_bytes(*to_version))
}

/// The part of an `expiry` row that is the key's metadata key. It too finds the cut only.
/// (What is about the fields of a hash has a version behind it.)
pub fn metadata_key_of_expiry(row: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new("expiry row", row);
    reader.bytes("keyspace_id and expire_ms", EXPIRY_HEAD)?;
    metadata_key_of(reader.rest())
}
