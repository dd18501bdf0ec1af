//! What can be wrong between rows.

use cairn_encoding::metadata::Type;
use cairn_encoding::stream::Id;
use cairn_encoding::{CHUNK_SIZE, DecodeError};
use cairn_engine::Family;

use crate::inspect::quoted;

/// The most of a key or member that a line shows.
const SHOWN: usize = 64;

/// One thing that is wrong, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct Violation {
    pub place: Place,
    pub fault: Fault,
}

/// Where it is wrong.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a row that cannot be given to a key.
    Family(Family),
    /// In what is said of a region of a cluster.
    Region(u64),
    Key {
        database: u32,
        name: Vec<u8>,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Family(family) => f.write_str(family.name()),
            Place::Region(region) => write!(f, "region {region}"),
            Place::Key { database, name } => {
                write!(f, "database {database}, key {}", quoted(name, SHOWN))
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("a row does not decode: {error}: {}", quoted(row, SHOWN))]
    Row { row: Vec<u8>, error: DecodeError },
    #[error("the metadata does not decode: {0}")]
    Metadata(DecodeError),
    #[error("the row of {} does not decode: {error}", quoted(sub, SHOWN))]
    Element { sub: Vec<u8>, error: DecodeError },
    #[error(
        "the row of {} has a value of {length} bytes, and should have none",
        quoted(sub, SHOWN)
    )]
    ValueNotEmpty { sub: Vec<u8>, length: usize },

    #[error("the metadata of the {} says {size}, but {rows} rows are there", kind.name())]
    Size { kind: Type, size: u64, rows: u64 },
    #[error("the {} is empty, and should not exist", kind.name())]
    Empty { kind: Type },
    #[error("the list's size is {size}, but it reaches from {head} to {tail}")]
    ListBounds { size: u64, head: u64, tail: u64 },
    #[error("the list's elements from index {from} up to {to} are missing")]
    ElementsMissing { from: u64, to: u64 },
    #[error("the stream's first entry is {first}, but its floor is {floor}")]
    StreamFloor { first: Id, floor: Id },
    #[error("the stream's entry {id} lies above its last ID, {last}")]
    EntryAboveLast { id: Id, last: Id },
    #[error("the metadata of the stream says {groups} groups, but {rows} are there")]
    Groups { groups: u64, rows: u64 },
    #[error(
        "group {} says {told} consumers, but {rows} are there",
        quoted(group, SHOWN)
    )]
    Consumers {
        group: Vec<u8>,
        told: u64,
        rows: u64,
    },
    #[error(
        "group {} says {told} pending entries, but {rows} are there",
        quoted(group, SHOWN)
    )]
    Pending {
        group: Vec<u8>,
        told: u64,
        rows: u64,
    },
    #[error(
        "consumer {} of group {} says {told} pending entries, but {rows} are there",
        quoted(consumer, SHOWN),
        quoted(group, SHOWN)
    )]
    Owned {
        group: Vec<u8>,
        consumer: Vec<u8>,
        told: u64,
        rows: u64,
    },
    #[error(
        "group {} has {id} pending below its low ID, {low}",
        quoted(group, SHOWN)
    )]
    PendingBelowLow { group: Vec<u8>, id: Id, low: Id },
    #[error(
        "the pending entries of group {} differ from those of its consumers",
        quoted(group, SHOWN)
    )]
    PendingDiffer { group: Vec<u8> },
    #[error(
        "rows of group {} are there, but the group is not",
        quoted(group, SHOWN)
    )]
    StrayGroupRows { group: Vec<u8> },
    #[error("chunk {number} ends at {end}, beyond the string's length of {length}")]
    ChunkBeyondEnd { number: u32, end: u64, length: u64 },
    #[error("chunk {number} has {length} bytes, more than {CHUNK_SIZE}")]
    ChunkTooLong { number: u32, length: usize },

    #[error(
        "member {} has score {score}, but no row in score order",
        quoted(member, SHOWN)
    )]
    ScoreRowMissing { member: Vec<u8>, score: f64 },
    #[error(
        "member {} is at {score} in score order, but has no row of its own",
        quoted(member, SHOWN)
    )]
    MemberMissing { member: Vec<u8>, score: f64 },
    #[error(
        "member {} is at {score} in score order, but has score {other}",
        quoted(member, SHOWN)
    )]
    ScoresDiffer {
        member: Vec<u8>,
        score: f64,
        other: f64,
    },
    #[error("{rows} rows in score order belong to a {}", kind.name())]
    StrayScoreRows { kind: Type, rows: u64 },

    #[error(
        "the block of {} counts {count} elements, but {rows} are there",
        quoted(first, SHOWN)
    )]
    Count {
        first: Vec<u8>,
        count: u64,
        rows: u64,
    },
    #[error("its elements should be counted, but the first block is missing")]
    CountsMissing,
    #[error("{rows} count rows are there, but nothing says that elements are counted")]
    StrayCounts { rows: u64 },

    #[error("the metadata says that {told} fields expire, but {rows} rows say so")]
    FieldTimes { told: u64, rows: u64 },
    #[error("when fields expire is said differently by name and by time")]
    FieldTimesDiffer,
    #[error("field {} expires, but is not there", quoted(field, SHOWN))]
    ExpiringFieldMissing { field: Vec<u8> },
    #[error(
        "field {} expires at {at_ms}, after what the metadata says to be the last time, {last_ms}",
        quoted(field, SHOWN)
    )]
    FieldTimeAfterLast {
        field: Vec<u8>,
        at_ms: u64,
        last_ms: u64,
    },
    #[error("{rows} rows say of a {} that fields expire", kind.name())]
    StrayFieldTimes { kind: Type, rows: u64 },
    #[error("fields expire from {at_ms} on, but no expiry row says so: they would not be deleted")]
    FieldsExpiryRowMissing { at_ms: u64 },
    #[error("it expires at {at_ms}, but no expiry row says so: it would not be deleted")]
    ExpiryRowMissing { at_ms: u64 },
    #[error(
        "version {version} is above the recorded maximum {maximum}: it could be given out again"
    )]
    VersionAboveMaximum { version: u64, maximum: u64 },
    #[error(
        "version {version} is in use and yet announced as staged: the next start would drop its rows"
    )]
    StagedInUse { version: u64 },
    #[error("a string of the old format is there, but `meta` says that none is: it cannot be seen")]
    LegacyHidden,

    #[error("index {index} has rows, but is neither a database's nor listed as dead")]
    UnknownIndex { index: u64 },
    #[error("databases {one} and {other} share index {index}")]
    SharedIndex { index: u64, one: u32, other: u32 },
    #[error("index {index} of database {database} is listed as dead")]
    DeadInUse { index: u64, database: u32 },
    #[error("index {index} is in use, but {next} is the next to be given out")]
    IndexNotBelowNext { index: u64, next: u64 },
    #[error("the maxima of version and time are missing")]
    NoMaxima,
    #[error("regions {one} and {other} share slots")]
    SharedSlots { one: u64, other: u64 },
}
