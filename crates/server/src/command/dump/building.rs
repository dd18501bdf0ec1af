//! A value that is put together of the parts that Redis' bytes consist of, whether they come from a payload or a file.

use cairn_rdb::{Corrupt, Item, Kind, Read};
use cairn_store::stream::{self, Id, append_field};
use cairn_store::{Builder, Error, Expiry, Result, WriteTxn, string};

/// Why a value was not finished.
pub enum Stopped {
    Corrupt,
    Store(Error),
}

impl From<Corrupt> for Stopped {
    fn from(Corrupt: Corrupt) -> Self {
        Stopped::Corrupt
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Store(error)
    }
}

/// A value under construction. Nobody sees it before it is finished, by which time its key must be absent. A string
/// has one part, and is there with it.
pub struct Building {
    expire_ms: u64,
    form: Form,
}

enum Form {
    /// Of the key with this name.
    String(Vec<u8>),
    Collection(Kind, Box<Builder>),
    /// With room for an entry.
    Stream(Box<stream::Builder>, Vec<u8>),
}

impl Building {
    /// Of a key that expires then, unless it is zero.
    pub fn new(txn: &WriteTxn, name: &[u8], kind: Kind, expire_ms: u64) -> Building {
        let form = match kind {
            Kind::String => Form::String(name.to_vec()),
            Kind::Stream => {
                let builder = stream::Builder::new(txn, name);
                Form::Stream(Box::new(builder), Vec::new())
            }
            Kind::List | Kind::Set | Kind::Zset | Kind::Hash => {
                Form::Collection(kind, Box::new(Builder::new(txn, name)))
            }
        };
        Building { expire_ms, form }
    }

    /// Adds the next part.
    pub fn add(&mut self, txn: &mut WriteTxn, item: Item<'_>) -> Result<(), Stopped> {
        match &mut self.form {
            Form::String(name) => match item {
                Item::String(value) => {
                    let expiry = match self.expire_ms {
                        0 => Expiry::Never,
                        at_ms => Expiry::At(at_ms),
                    };
                    Ok(string::set(txn, name, value, expiry)?)
                }
                _ => Err(Stopped::Corrupt),
            },
            Form::Collection(_, builder) => add_element(builder, txn, item),
            Form::Stream(builder, entry) => add_to_stream(builder, entry, txn, item),
        }
    }

    /// Makes it that of its key, unless it is a collection without elements.
    pub fn finish(self, txn: &mut WriteTxn) -> Result<()> {
        match self.form {
            Form::String(_) => Ok(()),
            Form::Stream(builder, _) => builder.finish(txn, self.expire_ms),
            Form::Collection(kind, builder) => {
                match kind {
                    Kind::List => builder.finish_list(txn, self.expire_ms),
                    Kind::Set => builder.finish_set(txn, self.expire_ms),
                    Kind::Zset => builder.finish_zset(txn, self.expire_ms),
                    _ => builder.finish_hash(txn, self.expire_ms),
                }?;
                Ok(())
            }
        }
    }
}

fn add_element(builder: &mut Builder, txn: &WriteTxn, item: Item<'_>) -> Result<(), Stopped> {
    match item {
        Item::Element(element) => Ok(builder.element(txn, element)?),
        Item::Member(member) => Ok(builder.member(txn, member)?),
        Item::Scored(member, score) => Ok(builder.scored(txn, member, score)?),
        Item::Field(field, value) => Ok(builder.field(txn, field, value)?),
        // Meanwhile it may have expired.
        Item::FieldUntil(_, _, at_ms) if at_ms <= txn.now_ms() => Ok(()),
        Item::FieldUntil(field, value, at_ms) => Ok(builder.field_until(txn, field, value, at_ms)?),
        _ => Err(Stopped::Corrupt),
    }
}

fn add_to_stream(
    builder: &mut stream::Builder,
    entry: &mut Vec<u8>,
    txn: &WriteTxn,
    item: Item<'_>,
) -> Result<(), Stopped> {
    let id = |id: cairn_rdb::Id| Id::new(id.ms, id.seq);
    match item {
        Item::Entry(at, words) => {
            entry.clear();
            for word in words {
                word.with(|word| append_field(entry, word));
            }
            Ok(builder.entry(txn, id(at), entry)?)
        }
        Item::Facts(facts) => {
            builder.facts(id(facts.last), id(facts.deleted), facts.added);
            Ok(())
        }
        Item::Group { name, last, read } => {
            let read = match read {
                Read::Known(read) => Some(Some(read)),
                Read::Unknown => Some(None),
                Read::Untold => None,
            };
            Ok(builder.group(txn, name, id(last), read)?)
        }
        Item::Consumer { name, seen_ms } => Ok(builder.consumer(txn, name, seen_ms)?),
        Item::Pending {
            id: at,
            delivered_ms,
            deliveries,
        } => Ok(builder.pending(txn, id(at), delivered_ms, deliveries)?),
        _ => Err(Stopped::Corrupt),
    }
}
