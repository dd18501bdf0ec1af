//! What the fields of a row mean, in words.

use cairn_encoding::chunk::{decode_chunk_sub, decode_index_sub};
use cairn_encoding::count as element_count;
use cairn_encoding::field_expiry;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::stream::{self, Fields, Sub};
use cairn_encoding::{CHUNK_SIZE, LIST_ORIGIN, score};

use super::page::{LONG, SHORT};
use super::text;

const ARROW: &str = "→";
pub const EMPTY: &str = "(empty)";

/// What follows the version in a data row's key, and what its value is.
pub fn data_layout(body: Option<&Body<'_>>) -> &'static str {
    match body {
        Some(Body::Chunked { .. }) => "chunk → bytes",
        Some(Body::List { .. }) => "index → element",
        Some(Body::Stream { .. }) => "kind | id or names → by kind",
        Some(Body::Collection { kind, .. }) => match kind {
            CollectionKind::Hash => "field → value",
            CollectionKind::Set => "member → (empty)",
            CollectionKind::ZSet => "member → score",
        },
        // Only the metadata knows the type, and it speaks of another version, or is gone.
        Some(Body::Inline(_)) | None => "sub-key → value",
    }
}

/// The sub-key and the value of a data row. Without a body its type is not known.
pub fn data(body: Option<&Body<'_>>, sub: &[u8], value: &[u8]) -> Vec<String> {
    let described = match body {
        Some(Body::Chunked { .. }) => chunk(sub, value),
        Some(Body::List { head, tail, .. }) => element(*head, *tail, sub, value),
        Some(Body::Collection {
            kind: CollectionKind::ZSet,
            ..
        }) => member(sub, value),
        Some(Body::Stream { .. }) => stream_row(sub, value),
        _ => None,
    };
    described.unwrap_or_else(|| vec![short(sub), ARROW.into(), long(value)])
}

fn chunk(sub: &[u8], value: &[u8]) -> Option<Vec<String>> {
    let number = decode_chunk_sub(sub).ok()?;
    let start = u64::from(number) * CHUNK_SIZE as u64;
    let end = start + value.len() as u64;
    Some(vec![
        number.to_string(),
        format!("bytes {start} to {end}"),
        ARROW.into(),
        text::quoted(value, SHORT / 2),
    ])
}

fn element(head: u64, tail: u64, sub: &[u8], value: &[u8]) -> Option<Vec<String>> {
    let index = decode_index_sub(sub).ok()?;
    let place = if index < head {
        format!("head - {}", head - index)
    } else if index < tail {
        format!("head + {}", index - head)
    } else {
        format!("tail + {}", index - tail)
    };
    Some(vec![index.to_string(), place, ARROW.into(), long(value)])
}

fn member(sub: &[u8], value: &[u8]) -> Option<Vec<String>> {
    let score = score::decode_value(value).ok()?;
    Some(vec![
        short(sub),
        ARROW.into(),
        text::hex(value, SHORT),
        text::number(score),
    ])
}

fn stream_row(sub: &[u8], value: &[u8]) -> Option<Vec<String>> {
    let (kind, name, meaning) = match Sub::decode(sub).ok()? {
        Sub::Entry(id) => {
            let fields: Result<Vec<&[u8]>, _> = Fields::of(value).collect();
            let fields: Vec<String> = fields.ok()?.into_iter().map(short).collect();
            ("entry", id.to_string(), fields.join(" "))
        }
        Sub::Group(name) => {
            let group = stream::Group::decode(value).ok()?;
            let meaning = format!(
                "last {}, consumers {}, pending {} from {} on",
                group.last, group.consumers, group.pending, group.low
            );
            ("group", short(name), meaning)
        }
        Sub::Consumer { group, consumer } => {
            let facts = stream::Consumer::decode(value).ok()?;
            let seen = text::date_of_millis(facts.seen_ms);
            let names = format!("{} of {}", short(consumer), short(group));
            (
                "consumer",
                names,
                format!("seen {seen}, pending {}", facts.pending),
            )
        }
        Sub::Pending { group, id } => {
            let facts = stream::Pending::decode(value).ok()?;
            let (when, who) = (
                text::date_of_millis(facts.delivered_ms),
                short(facts.consumer),
            );
            let meaning = format!("delivered to {who} on {when}, {} in all", facts.deliveries);
            ("pending", format!("{id} of {}", short(group)), meaning)
        }
        Sub::Owned {
            group,
            consumer,
            id,
        } => {
            let names = format!("{id} of {}, {}", short(group), short(consumer));
            ("owned", names, EMPTY.into())
        }
    };
    Some(vec![kind.into(), name, ARROW.into(), meaning])
}

/// The score as it is stored and as it is meant, and the member.
pub fn score_row(score: f64, member: &[u8]) -> Vec<String> {
    vec![
        text::hex(&score::encode(score), SHORT),
        text::number(score),
        short(member),
    ]
}

/// Where a block begins, and how many elements it has.
pub fn count_row(first: &[u8], value: &[u8]) -> Vec<String> {
    let elements = match element_count::decode(value) {
        Ok(elements) => elements.to_string(),
        Err(error) => error.to_string(),
    };
    vec![short(first), elements]
}

/// A row that says when a field expires.
pub fn field_row(field: &[u8], value: &[u8], now_ms: u64) -> Vec<String> {
    match field_expiry::decode(value) {
        Ok(at_ms) => {
            let at = at_ms.to_string();
            vec![short(field), ARROW.into(), at, expiry(at_ms, now_ms)]
        }
        Err(error) => vec![short(field), error.to_string()],
    }
}

/// The same in the order of time.
pub fn field_time_row(at_ms: u64, field: &[u8], now_ms: u64) -> Vec<String> {
    vec![at_ms.to_string(), expiry(at_ms, now_ms), short(field)]
}

pub fn short(bytes: &[u8]) -> String {
    text::quoted(bytes, SHORT)
}

pub fn long(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return EMPTY.into();
    }
    text::quoted(bytes, LONG)
}

/// A key as a whole: what it holds, and how much of it.
pub fn summary(metadata: &Metadata<'_>) -> String {
    let count = |number: u64, one: &str, many: &str| {
        format!("{number} {}", if number == 1 { one } else { many })
    };
    match metadata.body {
        Body::Inline(value) => {
            let length = count(value.len() as u64, "byte", "bytes");
            format!("a string of {length}, in its metadata row")
        }
        Body::Chunked { length, .. } => {
            format!("a string of {}, in chunks", count(length, "byte", "bytes"))
        }
        Body::Collection { kind, size, .. } => match kind {
            CollectionKind::Hash => format!("a hash of {}", count(size, "field", "fields")),
            CollectionKind::Set => format!("a set of {}", count(size, "member", "members")),
            CollectionKind::ZSet => {
                format!("a sorted set of {}", count(size, "member", "members"))
            }
        },
        Body::List { size, .. } => format!("a list of {}", count(size, "element", "elements")),
        Body::Stream { size, .. } => format!("a stream of {}", count(size, "entry", "entries")),
    }
}

/// The fields of a metadata value: name, value, meaning.
pub fn facts(metadata: &Metadata<'_>, flags: u8, now_ms: u64) -> Vec<[String; 3]> {
    let mut facts = vec![
        fact("flags", text::bits(flags), flags_in_words(metadata)),
        fact(
            "expire_ms",
            metadata.expire_ms,
            expiry(metadata.expire_ms, now_ms),
        ),
    ];
    if let Some(version) = metadata.version() {
        facts.push(fact("version", version, text::date_of_version(version)));
    }
    match metadata.body {
        Body::Inline(value) => facts.push(fact("value", text::quoted(value, LONG), String::new())),
        Body::Chunked { length, .. } => {
            let chunks = length.div_ceil(CHUNK_SIZE as u64);
            let meaning = format!("bytes, in up to {chunks} chunks of {CHUNK_SIZE}");
            facts.push(fact("length", length, meaning));
        }
        Body::Collection { size, fields, .. } => {
            facts.push(fact("size", size, String::new()));
            if let Some(fields) = fields {
                let [first, last] =
                    [fields.first_ms, fields.last_ms].map(|at_ms| (at_ms, expiry(at_ms, now_ms)));
                facts.push(fact("fields", fields.count, "that expire".into()));
                facts.push(fact("first_ms", first.0, first.1));
                facts.push(fact("last_ms", last.0, last.1));
            }
        }
        Body::List {
            size, head, tail, ..
        } => {
            facts.push(fact("size", size, String::new()));
            facts.push(fact("head", head, from_origin(head)));
            facts.push(fact("tail", tail, from_origin(tail) + ", exclusive"));
        }
        Body::Stream {
            version,
            size,
            rest,
        } => {
            facts.push(fact("size", size, String::new()));
            if let Ok(head) = stream::Head::of(version, size, rest) {
                facts.push(fact("added", head.added, "entries, ever".into()));
                facts.push(fact("groups", head.groups, String::new()));
                facts.push(fact("floor", head.floor, "entries below are dead".into()));
                facts.push(fact("last", head.last, "ID that was given out".into()));
                facts.push(fact("deleted", head.deleted, "largest ID".into()));
            }
        }
    }
    facts
}

/// The names of the fields, in their order.
pub fn metadata_layout(body: &Body<'_>) -> &'static str {
    match body {
        Body::Inline(_) => "flags | expire_ms | value",
        Body::Chunked { .. } => "flags | expire_ms | version | length",
        Body::Collection {
            fields: Some(_), ..
        } => "flags | expire_ms | version | size | fields | first_ms | last_ms",
        Body::Collection { .. } => "flags | expire_ms | version | size",
        Body::List { .. } => "flags | expire_ms | version | size | head | tail",
        Body::Stream { .. } => {
            "flags | expire_ms | version | size | added | groups | floor | last | deleted"
        }
    }
}

/// The lengths of those fields, the last aside.
pub fn metadata_fields(body: &Body<'_>) -> &'static [usize] {
    match body {
        Body::Inline(_) => &[1, 8],
        Body::Collection {
            fields: Some(_), ..
        } => &[1, 8, 8, 8, 8, 8],
        Body::Chunked { .. } | Body::Collection { .. } => &[1, 8, 8],
        Body::List { .. } => &[1, 8, 8, 8, 8],
        Body::Stream { .. } => &[1, 8, 8, 8, 8, 8, stream::ID_LEN, stream::ID_LEN],
    }
}

fn fact(name: &str, value: impl ToString, meaning: String) -> [String; 3] {
    [name.into(), value.to_string(), meaning]
}

fn flags_in_words(metadata: &Metadata<'_>) -> String {
    let kind = metadata.kind();
    let particular = match metadata.body {
        Body::Chunked { .. } => "bit 4: chunked; ",
        Body::Collection {
            is_counted, fields, ..
        } => match (is_counted, fields.is_some()) {
            (true, true) => "bit 6: fields expire; bit 5: counted; ",
            (false, true) => "bit 6: fields expire; ",
            (true, false) => "bit 5: counted; ",
            (false, false) => "",
        },
        _ => "",
    };
    let code = kind as u8;
    format!(
        "bit 7: 64-bit counters; {particular}bits 3-0: type {code}, {}",
        kind.name()
    )
}

pub fn expiry(expire_ms: u64, now_ms: u64) -> String {
    if expire_ms == 0 {
        return "never".into();
    }
    let date = text::date_of_millis(expire_ms);
    format!("{date}, {}", text::distance(now_ms, expire_ms))
}

fn from_origin(index: u64) -> String {
    match index.cmp(&LIST_ORIGIN) {
        std::cmp::Ordering::Less => format!("origin - {}", LIST_ORIGIN - index),
        std::cmp::Ordering::Equal => "origin".into(),
        std::cmp::Ordering::Greater => format!("origin + {}", index - LIST_ORIGIN),
    }
}
