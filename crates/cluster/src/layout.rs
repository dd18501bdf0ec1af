//! The bytes of changes, which stand in the log of region 0, of the whole map, which is its snapshot, and of what whoever
//! proposed a change is told.
//!
//! ```text
//!   change     version u16 | tag u8 | ...
//!     1 found           cluster u64 | settings | count u32 | (addresses | version u16 | incarnation u64)* | regions u16
//!     2 add node        addresses | version u16 | incarnation u64
//!     3 update node     node u64 | addresses | version u16
//!     4 drain node      node u64
//!     5 keep node       node u64
//!     6 remove node     node u64
//!     7 configure       settings
//!     8 add replica     region u64 | node u64 | option replica u64
//!     9 promote         region u64 | replica u64
//!    10 abandon         region u64 | replica u64
//!    11 remove replica  region u64 | replica u64
//!    12 drop            region u64 | replica u64
//!    13 prefer          region u64 | option replica u64
//!    14 begin split     region u64 | slot u16
//!    15 finish split    region u64 | epoch u64
//!    16 lose            region u64 | replica u64
//!
//!   map        version u16 | cluster u64 | epoch u64 | version of changes u16 | settings
//!              | next node u64 | next region u64 | next replica u64
//!              | count u32 | node* | count u32 | region*
//!   node       id u64 | addresses | state u8 | version u16 | incarnation u64    0 active, 1 draining, 2 removed
//!   region     id u64 | option slots | epoch u64 | count u32 | replica* | option replica u64 | option split
//!   replica    id u64 | node u64 | duty u8 | option replica u64     0 voter, 1 learner, 2 leaving
//!   split      at u16 | region u64 | count u32 | (old u64 | new u64)*
//!   slots      first u16 | last u16
//!   settings   replicas u8 | balance u8
//!   addresses  endpoint | option endpoint | host | port u16
//!   endpoint   host | port u16 | tls port u16
//!   host       length u16 | bytes
//!   option     0  |  1 | value
//!
//!   answer     0 | why it was refused  |  kind u8 | number u64      1 done, 2 node, 3 replica, 4 region
//! ```
//!
//! The version comes first, and says what a node must know to read the rest. One that does not know it must not guess,
//! nor pass the change over, since then its map would be another than everybody's: it stops, and says why. That this
//! does not happen while nodes are upgraded one by one is seen to by the map, which refuses changes that some node cannot
//! read ([`crate::Refusal::Version`]), and is itself written in the newest version of the changes that made it. A node that was
//! upgraded says so by a change of the first version; once all have, changes of the next are possible.

mod answer;
mod read;
mod write;

use cairn_encoding::DecodeError;
use cairn_encoding::reader::Reader;
use thiserror::Error;

use crate::change::Change;
use crate::map::ClusterMap;
use read::{read_change, read_node, read_region, read_settings};
use write::Writer;

/// The newest version that is read here. What is written has the lowest that it can be read by.
pub const NEWEST: u16 = 1;
/// That of a map that nothing has changed yet.
const FIRST: u16 = 1;

/// Why bytes cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LayoutError {
    #[error(
        "{what} was written in version {version} by a newer node, and {NEWEST} is the newest that is read here"
    )]
    Newer { what: &'static str, version: u16 },
    #[error("{0}")]
    Damaged(#[from] DecodeError),
    #[error("{what}: {field} cannot be {value}")]
    Value {
        what: &'static str,
        field: &'static str,
        value: String,
    },
}

type Read<T> = Result<T, LayoutError>;

impl Change {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.u16(self.version());
        out.change(self);
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Read<Change> {
        let mut reader = versioned("cluster change", bytes, NEWEST)?;
        let change = read_change(&mut reader)?;
        reader.finish()?;
        Ok(change)
    }
}

impl ClusterMap {
    /// In the version of its changes, which all nodes read.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.u16(self.version.max(FIRST));
        out.u64(self.cluster);
        out.u64(self.epoch);
        out.u16(self.version);
        out.settings(self.settings);
        out.u64(self.next_node);
        out.u64(self.next_region);
        out.u64(self.next_replica);
        out.all(self.nodes.values(), Writer::node);
        out.all(self.regions.values(), Writer::region);
        out.0
    }

    pub fn decode(bytes: &[u8]) -> Read<ClusterMap> {
        ClusterMap::decode_up_to(NEWEST, bytes)
    }

    pub(crate) fn decode_up_to(newest: u16, bytes: &[u8]) -> Read<ClusterMap> {
        let mut reader = versioned("cluster map", bytes, newest)?;
        let mut map = ClusterMap {
            cluster: reader.u64("cluster")?,
            epoch: reader.u64("epoch")?,
            version: reader.u16("version")?,
            settings: read_settings(&mut reader)?,
            next_node: reader.u64("next node")?,
            next_region: reader.u64("next region")?,
            next_replica: reader.u64("next replica")?,
            ..ClusterMap::default()
        };
        for _ in 0..reader.u32("nodes")? {
            let node = read_node(&mut reader)?;
            map.nodes.insert(node.id, node);
        }
        for _ in 0..reader.u32("regions")? {
            let region = read_region(&mut reader)?;
            map.regions.insert(region.id, region);
        }
        reader.finish()?;
        Ok(map)
    }
}

fn versioned<'a>(what: &'static str, bytes: &'a [u8], newest: u16) -> Read<Reader<'a>> {
    let mut reader = Reader::new(what, bytes);
    match reader.u16("version")? {
        0 => Err(value(&reader, "version", 0)),
        version if version > newest => Err(LayoutError::Newer { what, version }),
        _ => Ok(reader),
    }
}

fn value(reader: &Reader<'_>, field: &'static str, value: impl ToString) -> LayoutError {
    LayoutError::Value {
        what: reader.layout(),
        field,
        value: value.to_string(),
    }
}

#[cfg(test)]
mod tests;
