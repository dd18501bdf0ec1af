//! Entries as they are sent: an ID, and an array of fields and values.

use std::collections::VecDeque;

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::stream::{Fields, Id, id_at};
use cairn_store::{Result, Rows, Stream};

use crate::command::rows;

/// An ID as Redis prints it.
pub fn id_text(id: Id) -> Vec<u8> {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms), seq.format(id.seq));
    [ms.as_bytes(), b"-", seq.as_bytes()].concat()
}

pub fn id_reply(id: Id) -> Reply {
    Reply::Bulk(id_text(id))
}

/// Entries, or their IDs, that have been gathered: what they look like does not depend on the protocol.
#[derive(Default)]
pub struct Gathered {
    count: usize,
    /// As they are sent.
    body: Vec<u8>,
    is_begun: bool,
}

impl Gathered {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn add(&mut self, id: Id, entry: &[u8]) {
        self.count += 1;
        write_entry(&mut self.writer(), id, entry);
    }

    pub fn add_id(&mut self, id: Id) {
        self.count += 1;
        self.writer().bulk(id_text(id));
    }

    fn writer(&mut self) -> Writer<'_> {
        Writer::new(&mut self.body, Protocol::Resp2)
    }

    pub fn reply(self) -> Reply {
        Reply::Stream(Box::new(self))
    }
}

impl ReplyStream for Gathered {
    fn write(&mut self, out: &mut Writer<'_>, _: usize) -> Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            out.array(self.count);
        }
        out.bytes().append(&mut self.body);
        Ok(Progress::Done)
    }
}

fn write_entry(out: &mut Writer<'_>, id: Id, entry: &[u8]) {
    out.array(2);
    out.bulk(id_text(id));
    write_fields(out, entry);
}

fn write_fields(out: &mut Writer<'_>, entry: &[u8]) {
    out.array(Fields::of(entry).count());
    // A field that cannot be read ends the entry, and is counted.
    for field in Fields::of(entry) {
        out.bulk(field.unwrap_or_default());
    }
}

pub fn entry_reply(id: Id, entry: &[u8]) -> Reply {
    let fields = Fields::of(entry).map(|field| Reply::from(field.unwrap_or_default()));
    Reply::Array(vec![id_reply(id), Reply::Array(fields.collect())])
}

/// Exactly `count` entries, from their rows.
pub fn entries(stream: &Stream, count: u64, rows: Rows) -> Reply {
    let at = stream.id_offset();
    let item = move |row_key: &[u8], entry: &[u8], out: &mut Writer<'_>| {
        write_entry(out, id_at(&row_key[at..]).unwrap_or_default(), entry);
    };
    rows::reply(rows::Shape::Array, count, rows, item)
}

/// What several streams have, each under its key.
pub fn by_key(streams: Vec<(&[u8], Reply)>) -> Reply {
    let streams = streams
        .into_iter()
        .map(|(name, reply)| (Some(name.into()), reply));
    Reply::Stream(Box::new(ByKey {
        is_begun: false,
        streams: streams.collect(),
    }))
}

struct ByKey {
    is_begun: bool,
    /// A name that is missing has been sent.
    streams: VecDeque<(Option<Box<[u8]>>, Reply)>,
}

impl ReplyStream for ByKey {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        let is_old = out.protocol() == Protocol::Resp2;
        if !std::mem::replace(&mut self.is_begun, true) {
            match is_old {
                true => out.array(self.streams.len()),
                false => out.map(self.streams.len()),
            }
        }
        while let Some((name, reply)) = self.streams.front_mut() {
            if let Some(name) = name.take() {
                if is_old {
                    out.array(2);
                }
                out.bulk(name);
            }
            if let Reply::Stream(stream) = reply {
                if stream.write(out, limit)? == Progress::More {
                    return Ok(Progress::More);
                }
            } else {
                std::mem::replace(reply, Reply::Null).write(out)?;
            }
            self.streams.pop_front();
        }
        Ok(Progress::Done)
    }
}
