//! Streams: entries by the dozen in listpacks, and after them what is known of the stream and of its groups.
//!
//! ```text
//! nodes | (first ID, as a string of 16 bytes | a listpack, as a string) ...
//! entries | last ID | first ID* | largest deleted ID* | entries ever added*
//! groups  | (name | last ID | entries read* | pending | consumers) ...
//!
//! pending    number | (ID of 16 bytes | delivered, ms u64 | deliveries) ...
//! consumers  number | (name | seen, ms u64 | active, ms u64** | number | ID of 16 bytes ...) ...
//! ```
//!
//! IDs are two lengths each, but for those of 16 bytes, which are big endian. Times are little endian. What has a star
//! came with Redis 7.0, and what has two with 7.2. Each pending entry is there twice: in the order of IDs, and with its consumer.

mod node;
mod read;
mod write;

pub use node::Node;
pub use read::{Reading, Writer};
pub use write::{Nodes, Packing, append_facts, append_group, append_id, append_time};

use crate::Corrupt;

/// The ID of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub ms: u64,
    pub seq: u64,
}

impl Id {
    fn decode(bytes: &[u8]) -> Result<Id, Corrupt> {
        let (ms, seq) = bytes.split_first_chunk().ok_or(Corrupt)?;
        let seq = seq.try_into().map_err(|_| Corrupt)?;
        Ok(Id {
            ms: u64::from_be_bytes(*ms),
            seq: u64::from_be_bytes(seq),
        })
    }

    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }
}

/// What is known of a stream as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub length: u64,
    pub last: Id,
    /// Zero if there is none.
    pub first: Id,
    /// Zero if none was deleted.
    pub deleted: Id,
    pub added: u64,
}

/// How many entries a group has read of those that were ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Known(u64),
    Unknown,
    /// Nobody knew of such numbers when this was written.
    Untold,
}

/// What stands for a number that is not known.
const UNKNOWN: u64 = u64::MAX;
