//! What a node of a cluster remembers for Raft: the rows of its log database, and the bytes that stand in
//! them, between nodes, and in the state machine.
//!
//! ```text
//!   key     kind u8 | region u64 | index u64 (entries alone)
//!
//!   1 replica    → replica u64 | state u8           1 alive, 2 removed
//!   2 vote       → term u64 | candidate u64 | committed u8
//!   3 committed  → log id
//!   4 purged     → log id | bytes u64
//!   5 entry      → term u64 | bytes u64 | body
//!   6 starts     → count u64                        of no region: its number is 0
//!   7 peer       → starts u64 | run u64             of another node, whose number stands for the region's
//!
//!   log id       term u64 | index u64
//!   body         0 (blank)  |  1 | timestamp_ms u64 | epoch u64 | batch  |  2 | membership
//!   membership   count u8 | config* | count u32 | (replica u64 | node u64)*
//!   config       count u32 | replica u64*
//!   applied      option log id | timestamp_ms u64 | option log id | membership
//!   option       0  |  1 | value
//! ```
//!
//! A region is one Raft group, a replica one member of it. The number of a replica is never used again, also when
//! it comes back to the same node: what another replica of the region promised must not bind it.
//!
//! `bytes` counts all payloads of the region's log up to and including this entry, from wherever the count began.
//! So the size of any part of a log is the difference of two numbers, and what to purge is found without
//! reading what lies between.
//!
//! `applied` is what a state machine stores in the same write as the effects of an entry: where it is, and who
//! belonged to the region then.

use std::collections::{BTreeMap, BTreeSet};

use crate::DecodeError;
use crate::reader::Reader;

const REPLICA: u8 = 1;
const VOTE: u8 = 2;
const COMMITTED: u8 = 3;
const PURGED: u8 = 4;
const ENTRY: u8 = 5;
const STARTS: u8 = 6;
const PEER: u8 = 7;

const BLANK: u8 = 0;
const BATCH: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// A row of the log database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    Replica {
        region: u64,
    },
    Vote {
        region: u64,
    },
    Committed {
        region: u64,
    },
    Purged {
        region: u64,
    },
    Entry {
        region: u64,
        index: u64,
    },
    /// How often the directory was started.
    Starts,
    /// The last process that was met of another node.
    Peer {
        node: u64,
    },
}

impl Key {
    pub fn encode(self) -> Vec<u8> {
        let (kind, region, index) = match self {
            Key::Replica { region } => (REPLICA, region, None),
            Key::Vote { region } => (VOTE, region, None),
            Key::Committed { region } => (COMMITTED, region, None),
            Key::Purged { region } => (PURGED, region, None),
            Key::Entry { region, index } => (ENTRY, region, Some(index)),
            Key::Starts => (STARTS, 0, None),
            Key::Peer { node } => (PEER, node, None),
        };
        let mut key = Vec::with_capacity(17);
        key.push(kind);
        key.extend_from_slice(&region.to_be_bytes());
        key.extend(index.iter().flat_map(|index: &u64| index.to_be_bytes()));
        key
    }

    pub fn decode(bytes: &[u8]) -> Result<Key, DecodeError> {
        let mut reader = Reader::new("raft key", bytes);
        let kind = reader.u8("kind")?;
        let region = reader.u64("region")?;
        let key = match kind {
            REPLICA => Key::Replica { region },
            VOTE => Key::Vote { region },
            COMMITTED => Key::Committed { region },
            PURGED => Key::Purged { region },
            ENTRY => Key::Entry {
                region,
                index: reader.u64("index")?,
            },
            STARTS => Key::Starts,
            PEER => Key::Peer { node: region },
            tag => return Err(unknown("raft key", tag)),
        };
        reader.finish()?;
        Ok(key)
    }

    /// The first key that is no row about the replicas of this node.
    pub fn after_replicas() -> Vec<u8> {
        Key::Vote { region: 0 }.encode()
    }
}

/// The place of an entry in a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogId {
    pub term: u64,
    pub index: u64,
}

impl LogId {
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.index.to_be_bytes());
    }

    pub fn decode(bytes: &[u8]) -> Result<LogId, DecodeError> {
        let mut reader = Reader::new("raft log id", bytes);
        let id = LogId::read(&mut reader)?;
        reader.finish()?;
        Ok(id)
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<LogId, DecodeError> {
        Ok(LogId {
            term: reader.u64("term")?,
            index: reader.u64("index")?,
        })
    }

    pub fn encode_option(id: Option<LogId>, out: &mut Vec<u8>) {
        out.push(u8::from(id.is_some()));
        if let Some(id) = id {
            id.encode(out);
        }
    }

    pub fn read_option(reader: &mut Reader<'_>) -> Result<Option<LogId>, DecodeError> {
        match reader.u8("option")? {
            0 => Ok(None),
            1 => LogId::read(reader).map(Some),
            tag => Err(unknown("raft option", tag)),
        }
    }
}

/// Whom a replica has promised its vote, and whether a quorum did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    pub term: u64,
    pub candidate: u64,
    pub committed: bool,
}

impl Vote {
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.candidate.to_be_bytes());
        out.push(u8::from(self.committed));
    }

    pub fn decode(bytes: &[u8]) -> Result<Vote, DecodeError> {
        let mut reader = Reader::new("raft vote", bytes);
        let vote = Vote::read(&mut reader)?;
        reader.finish()?;
        Ok(vote)
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<Vote, DecodeError> {
        Ok(Vote {
            term: reader.u64("term")?,
            candidate: reader.u64("candidate")?,
            committed: match reader.u8("committed")? {
                0 => false,
                1 => true,
                tag => return Err(unknown("raft vote", tag)),
            },
        })
    }
}

/// Which replica of a region a node has, or had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    pub replica: u64,
    pub removed: bool,
}

impl Replica {
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.replica.to_be_bytes());
        out.push(1 + u8::from(self.removed));
    }

    pub fn decode(bytes: &[u8]) -> Result<Replica, DecodeError> {
        let mut reader = Reader::new("raft replica", bytes);
        let replica = Replica {
            replica: reader.u64("replica")?,
            removed: match reader.u8("state")? {
                1 => false,
                2 => true,
                tag => return Err(unknown("raft replica", tag)),
            },
        };
        reader.finish()?;
        Ok(replica)
    }
}

/// Up to where a log has been cut off, and how many bytes that were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Purged {
    pub id: LogId,
    pub bytes: u64,
}

impl Purged {
    pub fn encode(self, out: &mut Vec<u8>) {
        self.id.encode(out);
        out.extend_from_slice(&self.bytes.to_be_bytes());
    }

    pub fn decode(bytes: &[u8]) -> Result<Purged, DecodeError> {
        let mut reader = Reader::new("raft purged", bytes);
        let purged = Purged {
            id: LogId::read(&mut reader)?,
            bytes: reader.u64("bytes")?,
        };
        reader.finish()?;
        Ok(purged)
    }
}

/// Who belongs to a region: replicas, and the nodes on which they are. Those in none of the `configs` learn, and have
/// no vote. Two `configs` are a change under way: each has to agree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    pub configs: Vec<BTreeSet<u64>>,
    pub nodes: BTreeMap<u64, u64>,
}

impl Membership {
    /// # Panics
    ///
    /// If there are 256 configs, or 4 billion replicas; there are two at most, and a few.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = |count: usize| u32::try_from(count).expect("there are few replicas");
        out.push(u8::try_from(self.configs.len()).expect("there are two configs at most"));
        for config in &self.configs {
            out.extend_from_slice(&count(config.len()).to_be_bytes());
            for replica in config {
                out.extend_from_slice(&replica.to_be_bytes());
            }
        }
        out.extend_from_slice(&count(self.nodes.len()).to_be_bytes());
        for (replica, node) in &self.nodes {
            out.extend_from_slice(&replica.to_be_bytes());
            out.extend_from_slice(&node.to_be_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Membership, DecodeError> {
        let mut membership = Membership::default();
        for _ in 0..reader.u8("configs")? {
            let mut config = BTreeSet::new();
            for _ in 0..reader.u32("config")? {
                config.insert(reader.u64("voter")?);
            }
            membership.configs.push(config);
        }
        for _ in 0..reader.u32("nodes")? {
            let replica = reader.u64("replica")?;
            membership.nodes.insert(replica, reader.u64("node")?);
        }
        Ok(membership)
    }
}

/// What an entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// Nothing: a new leader's first entry.
    Blank,
    Batch {
        timestamp_ms: u64,
        epoch: u64,
        payload: &'a [u8],
    },
    Membership(Membership),
}

impl<'a> Body<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Body::Blank => out.push(BLANK),
            Body::Batch {
                timestamp_ms,
                epoch,
                payload,
            } => {
                out.reserve(17 + payload.len());
                out.push(BATCH);
                out.extend_from_slice(&timestamp_ms.to_be_bytes());
                out.extend_from_slice(&epoch.to_be_bytes());
                out.extend_from_slice(payload);
            }
            Body::Membership(membership) => {
                out.push(MEMBERSHIP);
                membership.encode(out);
            }
        }
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Body<'a>, DecodeError> {
        Body::read(Reader::new("raft entry", bytes))
    }

    fn read(mut reader: Reader<'a>) -> Result<Body<'a>, DecodeError> {
        match reader.u8("kind")? {
            BLANK => {
                reader.finish()?;
                Ok(Body::Blank)
            }
            BATCH => Ok(Body::Batch {
                timestamp_ms: reader.u64("timestamp")?,
                epoch: reader.u64("epoch")?,
                payload: reader.rest(),
            }),
            MEMBERSHIP => {
                let membership = Membership::read(&mut reader)?;
                reader.finish()?;
                Ok(Body::Membership(membership))
            }
            tag => Err(unknown("raft entry", tag)),
        }
    }
}

/// The value of an entry's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    pub term: u64,
    pub bytes: u64,
    pub body: Body<'a>,
}

impl<'a> Entry<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        self.body.encode(out);
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, DecodeError> {
        let mut reader = Reader::new("raft entry", bytes);
        Ok(Entry {
            term: reader.u64("term")?,
            bytes: reader.u64("bytes")?,
            body: Body::read(reader)?,
        })
    }
}

/// Where the state machine of a region is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The last entry that has been applied.
    pub last: Option<LogId>,
    /// The latest timestamp of all that has been applied. It never falls.
    pub timestamp_ms: u64,
    /// The entry that made the membership what it is.
    pub membership_at: Option<LogId>,
    pub membership: Membership,
}

impl Applied {
    pub fn encode(&self, out: &mut Vec<u8>) {
        LogId::encode_option(self.last, out);
        out.extend_from_slice(&self.timestamp_ms.to_be_bytes());
        LogId::encode_option(self.membership_at, out);
        self.membership.encode(out);
    }

    pub fn decode(bytes: &[u8]) -> Result<Applied, DecodeError> {
        let mut reader = Reader::new("raft applied", bytes);
        let applied = Applied {
            last: LogId::read_option(&mut reader)?,
            timestamp_ms: reader.u64("timestamp")?,
            membership_at: LogId::read_option(&mut reader)?,
            membership: Membership::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(applied)
    }
}

/// A tag that no encoder writes.
pub fn unknown(layout: &'static str, tag: u8) -> DecodeError {
    DecodeError::UnknownRaftTag { layout, tag }
}

#[cfg(test)]
mod tests;
