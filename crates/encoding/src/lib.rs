//! Every byte that Cairn persists, and nothing else: no I/O, no clock, no RocksDB.
//!
//! Follow `HSET user:7 name Ada` down. [`slot`](mod@slot) hashes `user:7` to one of 16384 slots. [`row`]
//! joins database, slot and key into the *prefix* under which everything about `user:7` sorts together.
//! The `metadata` family holds one row at that prefix, whose value ([`metadata`]) says: a hash, no
//! expiry, version 4711, one field. The `data` family holds the field, at prefix, version 4711, `name`.
//! Deleting the hash removes the metadata row alone: no live metadata names version 4711 any more, so its
//! fields are dead wherever they lie. That is why every collection row carries a version
//! ([`version`]), and why a version's rows must form one contiguous range ([`row::version_prefix`]).
//!
//! The remaining modules are the smaller layouts: [`score`] turns doubles into bytes that sort,
//! [`chunk`] does so for chunk numbers and list indexes, [`count`] says how many elements lie where, [`field_expiry`]
//! when fields of a hash expire, [`stream`] is a type with rows of several kinds, [`legacy`] reads strings of the format
//! before this one, and [`system`] is what the database knows about itself. [`journal`] alone is not about rows in
//! their place: it is what commits leave until their rows have got there. [`raft`] is the log of a cluster's node,
//! [`changes`] are the batches and snapshots in it, [`installation`] is a snapshot on its way to its place, and a
//! [`checksum`] is what its replicas compare.
//!
//! Three rules hold throughout:
//!
//! - Integers are big-endian, so that byte order, the only order RocksDB knows, is numeric order.
//! - What has a variable length is either last or preceded by its length. No byte is special: keys,
//!   fields and members may hold anything, and no two distinct rows share an encoding.
//! - Encoders append to the caller's buffer and decoders borrow from it. A decoder accepts exactly the
//!   bytes that an encoder writes: anything else is a [`DecodeError`], never a panic or a guess.

pub mod changes;
pub mod checksum;
pub mod chunk;
pub mod count;
mod error;
pub mod field_expiry;
pub mod installation;
pub mod journal;
pub mod legacy;
pub mod metadata;
pub mod raft;
pub mod reader;
pub mod row;
pub mod score;
pub mod slot;
pub mod stream;
pub mod system;
pub mod version;

#[cfg(test)]
mod golden;

pub use error::DecodeError;

/// Opens every row of a key. It never changes, so splitting a region or turning one machine into a
/// cluster rewrites no row.
pub const KEYSPACE_ID: u64 = 1;

/// The layouts of this crate, as a whole. Stored once per database; another number means another format.
pub const FORMAT_VERSION: u32 = 8;

/// Where a new list starts: as much room to push on the left as on the right.
pub const LIST_ORIGIN: u64 = u64::MAX / 2;

/// The bytes in a chunk of a large string, and the longest string kept inline in its metadata row.
pub const CHUNK_SIZE: usize = 16 * 1024;

/// The number of hash slots, as in Redis Cluster.
pub const SLOTS: u16 = 16384;
