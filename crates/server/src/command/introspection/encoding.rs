//! OBJECT and MEMORY USAGE: what Redis would say of the same value, read off as few rows as possible.

use cairn_resp::{Reply, number};
use cairn_store::{
    CollectionKind, Direction, Error, Family, Found, Key, ReadTxn, Result, Shape, string,
};

use crate::command::Args;
use crate::command::args::{int, is};
use crate::config::{ENCODINGS, Small};

pub fn object_encoding(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let key = txn.key(args[2]);
    match txn.find(&key)? {
        Some(found) => Ok(encoding_of(txn, &key, &found)?.into()),
        None => Ok(Reply::Null),
    }
}

pub fn object_refcount(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let exists = txn.exists(&txn.key(args[2]))?;
    Ok(exists.then_some(1i64).into())
}

/// As far as it is known: see `cairn_engine::Access`.
pub fn object_idletime(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let key = txn.key(args[2]);
    if !txn.exists(&key)? {
        return Ok(Reply::Null);
    }
    if ENCODINGS.counts_uses() {
        return Err(Error::fixed(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    Ok(txn.access(&key).idle_seconds().into())
}

pub fn object_freq(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let key = txn.key(args[2]);
    if !txn.exists(&key)? {
        return Ok(Reply::Null);
    }
    if !ENCODINGS.counts_uses() {
        return Err(Error::fixed(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
             that when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ));
    }
    Ok(u64::from(txn.access(&key).frequency()).into())
}

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;
/// The most digits, sign included, that fit a 64-bit number.
const LONGEST_INTEGER: usize = 20;

/// The name of the structure that Redis 7.0 would hold this value in.
pub fn encoding_of(txn: &ReadTxn, key: &Key, found: &Found<'_>) -> Result<&'static str> {
    Ok(match found.shape {
        Shape::Chunked { .. } => "raw",
        Shape::Inline { .. } => encoding_of_string(found.inline()),
        Shape::List { .. } => "quicklist",
        Shape::Stream { .. } => "stream",
        Shape::Collection {
            kind,
            version,
            size,
            expires,
            ..
        } => match kind {
            CollectionKind::Hash => {
                let is_small = is_small(txn, key, version, size, ENCODINGS.small_hash())?;
                match (is_small, expires) {
                    // The name that Redis 7.4 has for it.
                    (true, true) => "listpackex",
                    (true, false) => "listpack",
                    (false, _) => "hashtable",
                }
            }
            CollectionKind::ZSet => {
                // A score is kept as a number, and never too long.
                let is_small = is_small(txn, key, version, size, ENCODINGS.small_zset())?;
                if is_small { "listpack" } else { "skiplist" }
            }
            CollectionKind::Set => {
                let is_intset = size <= ENCODINGS.intset_entries()
                    && every_row(txn, key, version, |member, _| {
                        number::parse_i64(member).is_some()
                    })?;
                if is_intset { "intset" } else { "hashtable" }
            }
        },
    })
}

fn encoding_of_string(value: &[u8]) -> &'static str {
    if value.len() <= LONGEST_INTEGER && number::parse_i64(value).is_some() {
        "int"
    } else if value.len() <= EMBEDDED {
        "embstr"
    } else {
        "raw"
    }
}

fn is_small(txn: &ReadTxn, key: &Key, version: u64, size: u64, small: Small) -> Result<bool> {
    let both = |sub: &[u8], value: &[u8]| small.takes(sub) && small.takes(value);
    Ok(size <= small.entries && every_row(txn, key, version, both)?)
}

/// Whether all elements meet the condition; the walk ends at the first that does not.
fn every_row(
    txn: &ReadTxn,
    key: &Key,
    version: u64,
    meets: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<bool> {
    let (lower, upper) = key.version_range(version);
    let mut rows = txn.rows(Family::Data, &lower, &upper, Direction::Forward)?;
    while let Some((row_key, value)) = rows.next()? {
        txn.step()?;
        if !meets(key.sub_of(row_key), value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Flags, expiry, version and size in a metadata row.
const METADATA_HEAD: usize = 25;

/// How many elements are looked at unless the caller says otherwise.
const SAMPLES: u64 = 5;

pub fn memory_usage(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let mut samples = SAMPLES;
    let mut options = args.options(3);
    while let Some(option) = options.next() {
        if !is(option, "samples") {
            return Err(Error::SYNTAX);
        }
        samples = u64::try_from(int(options.value()?)?).map_err(|_| Error::SYNTAX)?;
        if samples == 0 {
            samples = u64::MAX;
        }
    }
    let key = txn.key(args[2]);
    match txn.peek(&key)? {
        Some(found) => Ok(bytes_of(txn, &key, &found, samples)?.into()),
        None => Ok(Reply::Null),
    }
}

/// About how many bytes the rows of the key take, from the mean of the first `samples` elements.
pub fn bytes_of(txn: &ReadTxn, key: &Key, found: &Found<'_>, samples: u64) -> Result<u64> {
    let metadata = (key.metadata().len() + METADATA_HEAD + found.inline().len()) as u64;
    let (version, elements, indexes) = match found.shape {
        Shape::Inline { .. } => return Ok(metadata),
        Shape::Chunked { length, .. } => {
            let chunks = length.div_ceil(string::CHUNK_SIZE as u64);
            let row_key = key.metadata().len() as u64 + 12;
            return Ok(metadata + length + chunks * row_key);
        }
        Shape::List { version, size, .. } | Shape::Stream { version, size } => (version, size, 1),
        // A member of a sorted set is stored twice: by name and by score.
        Shape::Collection {
            kind,
            version,
            size,
            ..
        } => (
            version,
            size,
            if kind == CollectionKind::ZSet { 2 } else { 1 },
        ),
    };
    let (mut seen, mut bytes) = (0, 0);
    let (lower, upper) = key.version_range(version);
    let mut rows = txn.rows(Family::Data, &lower, &upper, Direction::Forward)?;
    while seen < samples
        && let Some((row_key, value)) = rows.next()?
    {
        txn.step()?;
        seen += 1;
        bytes += (row_key.len() + value.len()) as u64;
    }
    let mean = bytes as f64 / seen.max(1) as f64;
    Ok(metadata + (mean * elements as f64) as u64 * indexes)
}
