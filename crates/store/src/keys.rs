//! What can be done to a key whatever it holds: delete, expire, rename, copy, move.

use cairn_encoding::field_expiry::{self, FieldTimes};
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowKey;
use cairn_encoding::stream::{Id, entry_sub};
use cairn_engine::{Direction, EngineError, Family};

use crate::collection::Collection;
use crate::error::Result;
use crate::fresh::Fresh;
use crate::key::Key;
use crate::string::{self, Expiry};
use crate::txn::{ReadTxn, Shape, Stamp, WriteTxn};

/// Deletes the key; true if it was there.
pub fn delete(txn: &mut WriteTxn, name: &[u8]) -> Result<bool> {
    let key = txn.key(name);
    let Some(stamp) = txn.find(&key)?.map(|found| found.stamp()) else {
        return Ok(false);
    };
    txn.remove(&key, &stamp);
    Ok(true)
}

/// Deletes whatever the key holds, also if it has expired; true if it has not.
pub fn clear(txn: &mut WriteTxn, name: &[u8]) -> Result<bool> {
    let key = txn.key(name);
    let Some(stamp) = txn.find_even_expired(&key)?.map(|found| found.stamp()) else {
        return Ok(false);
    };
    txn.remove(&key, &stamp);
    Ok(txn.is_live(&stamp))
}

/// When the key expires: `None` if it is absent, zero if never.
pub fn expiry_of(txn: &ReadTxn, name: &[u8]) -> Result<Option<u64>> {
    let found = txn.find(&txn.key(name))?;
    Ok(found.map(|found| found.expire_ms))
}

/// Sets when an existing key expires, zero for never. The value is not touched, whatever its size.
pub fn set_expiry(txn: &mut WriteTxn, name: &[u8], at_ms: u64) -> Result<()> {
    let key = txn.key(name);
    let Some(found) = txn.peek(&key)? else {
        return Ok(());
    };
    let Stamp {
        shape,
        fields,
        expire_ms: before,
        is_legacy,
    } = found.stamp();
    if is_legacy {
        let value = found.inline().to_vec();
        drop(found);
        return string::put(txn, &key, &value, Expiry::At(at_ms));
    }
    let beside = found.beside_shape()?.to_vec();
    drop(found);
    let metadata = Metadata {
        expire_ms: at_ms,
        body: body(shape, fields, &beside)?,
    };
    txn.put_metadata(&key, &metadata, before);
    Ok(())
}

/// Whether fields of a hash have become due since that moment, and are still there; nobody sees them any more.
pub fn has_lost_fields(txn: &ReadTxn, key: &Key, since_ms: u64) -> Result<bool> {
    match Collection::find(txn, key.clone())? {
        Some(hash) => hash.has_hidden_since(txn, since_ms),
        None => Ok(false),
    }
}

/// Metadata as it was, from its shape and what it said beside it.
fn body(shape: Shape, fields: Option<FieldTimes>, beside: &[u8]) -> Result<Body<'_>> {
    Ok(match shape {
        Shape::Inline { .. } => Body::Inline(beside),
        Shape::Chunked { version, length } => Body::Chunked { version, length },
        Shape::Collection {
            kind,
            version,
            size,
            is_counted,
            ..
        } => Body::Collection {
            kind,
            version,
            size,
            is_counted,
            fields,
        },
        Shape::List {
            version,
            size,
            head,
            tail,
        } => Body::List {
            version,
            size,
            head,
            tail,
        },
        Shape::Stream { version, size } => Body::Stream {
            version,
            size,
            rest: beside
                .try_into()
                .map_err(|_| EngineError::Corrupt("the metadata of a stream is cut off".into()))?,
        },
    })
}

/// Copies the key over another one, in any database, expiry included; what that held is replaced. False
/// if the source is absent. The two must differ.
pub fn copy(txn: &mut WriteTxn, from: &Key, to: &Key) -> Result<bool> {
    let Some(found) = txn.peek(from)? else {
        return Ok(false);
    };
    txn.store().check_room()?;
    let stamp = found.stamp();
    let Stamp {
        fields,
        expire_ms,
        is_legacy,
        ..
    } = stamp;
    if is_legacy {
        let value = found.inline().to_vec();
        drop(found);
        string::put(txn, to, &value, Expiry::At(expire_ms))?;
        return Ok(true);
    }
    let floor = found.stream_head()?.map(|head| head.floor);
    let beside = found.beside_shape()?.to_vec();
    drop(found);
    let replaced = txn.find_even_expired(to)?.map(|found| found.stamp());
    if let Some(replaced) = replaced {
        txn.remains().add(to, replaced.shape);
    }
    let fields_before = replaced.and_then(|replaced| replaced.fields_expiry());
    // A string of the old format has no expiry row.
    let before = replaced
        .filter(|replaced| !replaced.is_legacy)
        .map_or(0, |replaced| replaced.expire_ms);
    let shape = copy_rows(txn, from, to, &stamp, floor)?;
    let metadata = Metadata {
        expire_ms,
        body: body(shape, fields, &beside)?,
    };
    txn.put_metadata(to, &metadata, before);
    let copied = Stamp { shape, ..stamp };
    txn.move_fields_expiry(to, fields_before, copied.fields_expiry());
    // What was there before counts as deleted.
    txn.notify_new(to);
    Ok(true)
}

/// Renames the key; false if it is absent. The two must differ.
pub fn rename(txn: &mut WriteTxn, from: &Key, to: &Key) -> Result<bool> {
    let Some(stamp) = txn.find(from)?.map(|found| found.stamp()) else {
        return Ok(false);
    };
    copy(txn, from, to)?;
    txn.remove(from, &stamp);
    Ok(true)
}

/// Copies the rows under a new version of the other key, and returns the shape with that version. The entries of a
/// stream begin at its `floor`.
fn copy_rows(
    txn: &mut WriteTxn,
    from: &Key,
    to: &Key,
    stamp: &Stamp,
    floor: Option<Id>,
) -> Result<Shape> {
    let mut shape = stamp.shape;
    let (Shape::Chunked { version, .. }
    | Shape::Collection { version, .. }
    | Shape::List { version, .. }
    | Shape::Stream { version, .. }) = &mut shape
    else {
        return Ok(shape);
    };
    let old = *version;
    let new = txn.next_version();
    *version = new;
    let (mut lower, mut upper) = from.version_range(old);
    if let Shape::List { head, tail, .. } = shape {
        // Rows outside have been popped.
        lower = from.data(old, &head.to_be_bytes());
        upper = from.data(old, &tail.to_be_bytes());
    }
    if let Some(floor) = floor {
        // Entries below have been trimmed. All other rows lie above.
        lower = from.data(old, &entry_sub(floor));
    }
    // Counts are copied with what they count, and times with the fields that expire then.
    let mut fresh = Fresh::new(to, new);
    for family in [Family::Data, Family::ZsetScore] {
        let mut rows = txn.rows(family, &lower, &upper, Direction::Forward)?;
        while let Some((row_key, value)) = rows.next()? {
            txn.step()?;
            if family == Family::ZsetScore && is_outdated(stamp, row_key, value)? {
                continue;
            }
            let copied = to.data(new, from.sub_of(row_key));
            fresh.put(txn, family, &copied, value)?;
        }
    }
    fresh.finish(txn);
    Ok(shape)
}

/// Whether a row says of a field that it expires, at a time that is past and dealt with.
fn is_outdated(stamp: &Stamp, row_key: &[u8], value: &[u8]) -> Result<bool> {
    let Shape::Collection {
        kind: CollectionKind::Hash,
        ..
    } = stamp.shape
    else {
        return Ok(false);
    };
    let at_ms = match RowKey::decode_score(row_key)? {
        RowKey::Field { .. } => field_expiry::decode(value)?,
        RowKey::FieldTime { at_ms, .. } => at_ms,
        _ => return Ok(false),
    };
    Ok(stamp.fields.is_none_or(|fields| at_ms < fields.first_ms))
}
