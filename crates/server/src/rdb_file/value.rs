//! Values: in the form that Redis would choose, if they are small, and otherwise element by element.

use cairn_rdb::{Form, Listpack, Quicklist, file, part, string};
use cairn_resp::number;
use cairn_store::image::{Content, Element, Pictured};
use cairn_store::{Image, Result};

use super::SMALL;
use super::stream::{self, StreamRest};
use crate::config::ENCODINGS;

/// The most bytes that a number takes in a set of numbers.
const INTSET_NUMBER: usize = 8;

/// What is left of a value that was begun.
pub enum Rest {
    Chunks,
    /// Elements, or pairs. In a hash of which that is to be told, no field expires before the time.
    Elements(Option<u64>),
    Stream(Box<StreamRest>),
}

/// Writes a key, and its value if it is small; otherwise the rest is to be written.
pub fn begin(
    image: &mut Image,
    key: &Pictured,
    keeps_times: bool,
    out: &mut Vec<u8>,
) -> Result<Option<Rest>> {
    let begin = |form, out: &mut Vec<u8>| file::append_key(&key.name, key.expire_ms, form, out);
    let (whole, form, size) = match &key.content {
        Content::Inline(value) => {
            begin(Form::String, out);
            string::append(value, out);
            return Ok(None);
        }
        Content::Chunked(length) => {
            begin(Form::String, out);
            part::count(*length, out);
            return Ok(Some(Rest::Chunks));
        }
        Content::Stream(head) => {
            begin(Form::Stream, out);
            let rest = stream::begin(image, head, out)?;
            return Ok(Some(Rest::Stream(Box::new(rest))));
        }
        Content::Hash {
            size,
            first_ms: Some(first_ms),
        } if keeps_times => {
            begin(Form::HashExpiring, out);
            out.extend_from_slice(&first_ms.to_le_bytes());
            part::count(*size, out);
            return Ok(Some(Rest::Elements(Some(*first_ms))));
        }
        Content::List(size) => (small_list(image)?, Form::List, size),
        Content::Set(size) => (small_set(image, *size)?, Form::Set, size),
        Content::Zset(size) => (small_zset(image, *size)?, Form::Zset, size),
        Content::Hash { size, .. } => (small_hash(image, *size)?, Form::Hash, size),
    };
    if let Some((form, bytes)) = whole {
        begin(form, out);
        out.extend_from_slice(&bytes);
        return Ok(None);
    }
    image.rewind();
    begin(form, out);
    part::count(*size, out);
    Ok(Some(Rest::Elements(None)))
}

impl Rest {
    /// Appends the next element; false if there was none.
    pub fn write_next(&mut self, image: &mut Image, out: &mut Vec<u8>) -> Result<bool> {
        let first_ms = match self {
            Rest::Chunks => return image.append_chunk(out),
            Rest::Stream(rest) => return rest.write_next(image, out),
            Rest::Elements(first_ms) => *first_ms,
        };
        match image.next_element()? {
            None => return Ok(false),
            Some(Element::Plain(element)) => part::text(element, out),
            Some(Element::Scored(member, score)) => {
                part::text(member, out);
                part::score(score, out);
            }
            Some(Element::Field {
                field,
                value,
                expire_ms,
            }) => {
                if let Some(first_ms) = first_ms {
                    part::field_time(first_ms, expire_ms, out);
                }
                part::text(field, out);
                part::text(value, out);
            }
        }
        Ok(true)
    }
}

/// A form, and the bytes of a value in it.
type Whole = Option<(Form, Vec<u8>)>;

/// Nothing if it turns out not to be small; so it is with the others.
fn small_list(image: &mut Image) -> Result<Whole> {
    let mut list = Quicklist::new(Vec::new());
    while let Some(element) = image.next_element()? {
        if let Element::Plain(element) = element {
            list.push(element);
        }
        if list.size() > SMALL {
            return Ok(None);
        }
    }
    Ok(Some((Form::ListOfListpacks, list.finish())))
}

fn small_set(image: &mut Image, size: u64) -> Result<Whole> {
    let most = ENCODINGS
        .intset_entries()
        .min((SMALL / INTSET_NUMBER) as u64);
    if size > most {
        return Ok(None);
    }
    let mut numbers = Vec::new();
    while let Some(element) = image.next_element()? {
        let Element::Plain(member) = element else {
            return Ok(None);
        };
        match number::parse_i64(member) {
            Some(number) => numbers.push(number),
            None => return Ok(None),
        }
    }
    numbers.sort_unstable();
    Ok(whole(Form::SetIntset, &cairn_rdb::intset(&numbers)))
}

fn small_hash(image: &mut Image, size: u64) -> Result<Whole> {
    let small = ENCODINGS.small_hash();
    if size > small.entries {
        return Ok(None);
    }
    let mut fields = Listpack::default();
    while let Some(element) = image.next_element()? {
        let Element::Field { field, value, .. } = element else {
            return Ok(None);
        };
        if !small.takes(field) || !small.takes(value) || fields.size() > SMALL {
            return Ok(None);
        }
        fields.push(field);
        fields.push(value);
    }
    Ok(whole(Form::HashListpack, &fields.finish()))
}

fn small_zset(image: &mut Image, size: u64) -> Result<Whole> {
    let small = ENCODINGS.small_zset();
    if size > small.entries {
        return Ok(None);
    }
    let mut members = Listpack::default();
    let mut text = Vec::new();
    while let Some(element) = image.next_element()? {
        let Element::Scored(member, score) = element else {
            return Ok(None);
        };
        if !small.takes(member) || members.size() > SMALL {
            return Ok(None);
        }
        members.push(member);
        text.clear();
        number::format_double(score, &mut text);
        members.push(&text);
    }
    Ok(whole(Form::ZsetListpack, &members.finish()))
}

fn whole(form: Form, node: &[u8]) -> Whole {
    let mut bytes = Vec::new();
    string::append(node, &mut bytes);
    Some((form, bytes))
}
