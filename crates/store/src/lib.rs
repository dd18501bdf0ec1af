//! The store: Redis' data types as rows, and the rules that make their changes atomic.
//!
//! A command's handler works on a transaction ([`ReadTxn`], [`WriteTxn`]) through one module per data
//! type, and leaves a batch of row changes. Around it stand the latches, which decide who may work on a
//! key; the databases, which make FLUSHALL a change of a few rows; and the background: the expirer and
//! the reclaimer.
//!
//! What this crate does not know: sockets, RESP, command names.

mod background;
mod build;
pub mod check;
mod collection;
mod commit;
mod count;
mod data_size;
pub mod databases;
mod effects;
mod error;
mod evictor;
mod excerpts;
mod expect;
mod expirer;
mod fresh;
pub mod functions;
mod garbage;
mod hash;
mod holdings;
pub mod image;
pub mod inspect;
mod key;
pub mod keys;
pub mod keyspace;
mod latch;
mod leadership;
pub mod legacy;
pub mod list;
mod live;
mod point;
mod queues;
pub mod random;
mod ranks;
mod reclaimer;
mod region;
mod remains;
mod replica;
pub mod set;
mod store;
pub mod stream;
pub mod string;
#[cfg(test)]
mod testing;
mod turns;
mod txn;
mod walks;
pub mod zset;

pub use background::{Background, Pace};
pub use build::Builder;
pub use cairn_encoding::SLOTS;
pub use cairn_encoding::metadata::{CollectionKind, Type};
pub use cairn_encoding::slot::slot;
pub use cairn_engine::{Access, Direction, Family, Reading, Rows, SyncMode};
pub use collection::Collection;
pub use commit::{Begun, Committing};
pub use count::{KeyCount, count_keys};
pub use effects::{Effect, EventClass, Listeners, Observer};
pub use error::{Error, Result};
pub use evictor::{Among, Demand, Evictor, First, Policy};
pub use expect::EXPECTED;
pub use expirer::{Expirer, Progress};
pub use fresh::Fresh;
pub use garbage::{Due, Garbage};
pub use hash::{Hash, Values};
pub use image::Image;
pub use key::Key;
pub use latch::{Held, Latches, Mode, Request};
pub use leadership::Placement;
pub use list::{End, List, Place};
pub use live::{LiveRow, LiveRows, Walked};
pub use point::Point;
pub use ranks::{Jumps, RankOptions};
pub use reclaimer::{Orphans, Reclaimer};
pub use region::{Lead, Region, Regions, Reign};
pub use replica::Still;
pub use set::Set;
pub use store::{Store, StoreOptions};
pub use stream::Stream;
pub use string::{Chunks, Expiry, Str};
pub use txn::{
    ChangedKey, Found, Lookups, Patience, ReadTxn, Row, Shape, Shared, Stamp, Time, WriteTxn,
};
pub use zset::Zset;
