//! Values in the bytes of DUMP and RESTORE: those of Redis' snapshots, up to version 10 (Redis 7.0), and hashes with
//! fields that expire, which are of version 12 (Redis 7.4). And snapshots as a whole: [`file`].
//!
//! ```text
//! type u8 | value | version u16 | CRC-64 of all before u64     both little endian
//! ```
//!
//! Redis has written the same value in many forms over the years, and reads all of them. So does
//! [`Payload`], element by element. It takes nothing on trust: a payload comes from a client, and a checksum is no
//! proof of anything. Each length is compared with what is there before anything is allocated.
//! [`Payload::check`] goes through a payload as a whole first, so that whoever restores it knows that the rest will
//! succeed.
//!
//! What Redis 7.0 would write for a value is written by [`Dump`]: a small collection in one piece, a large one
//! element by element.
//!
//! What this crate does not know: the database.

mod crc64;
mod expiring;
pub mod file;
mod footer;
mod input;
mod intset;
mod kind;
mod listpack;
pub mod lzf;
pub mod part;
mod quicklist;
mod read;
mod stream;
pub mod string;
mod unique;
mod unit;
mod write;
mod ziplist;
mod zipmap;

pub use crc64::Sum;
pub use footer::{opened, seal, seal_later};
pub use input::Input;
pub use intset::of as intset;
pub use kind::{Form, Kind};
pub use listpack::{Listpack, Value};
pub use quicklist::Quicklist;
pub use read::{Item, Payload};
pub use stream::{Facts, Id, Node, Nodes, Packing, Read};
pub use write::Dump;

/// Why a payload is not restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was cut, changed, or written by a later Redis.
    Footer,
    /// It makes no sense.
    Corrupt,
}

impl Refused {
    /// What Redis tells the client.
    pub fn text(self) -> &'static str {
        match self {
            Refused::Footer => "ERR DUMP payload version or checksum are wrong",
            Refused::Corrupt => "ERR Bad data format",
        }
    }
}

/// Something in a payload makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl From<Corrupt> for Refused {
    fn from(Corrupt: Corrupt) -> Self {
        Refused::Corrupt
    }
}
