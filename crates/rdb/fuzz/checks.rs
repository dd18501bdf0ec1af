//! What must hold for any bytes that a client may restore, shared by the fuzz target, the replay of its corpus and
//! the property tests.
//!
//! A payload is either refused or read to its end; what was read, written again in both forms, is read the same;
//! and memory stays in proportion.

use std::collections::BTreeMap;

use cairn_rdb::{Corrupt, Dump, Id, Item, Kind, Payload, Read, seal};

/// What is in a payload: names and values, those of a list in order.
type Content = Vec<(Vec<u8>, Vec<u8>)>;

/// `content` is a payload without its footer, so that a fuzzer need not find checksums.
pub fn check_content(content: &[u8]) {
    let mut payload = content.to_vec();
    seal(&mut payload);
    let Ok(payload) = Payload::open(&payload) else {
        return;
    };
    let is_good = payload.check().is_ok();
    let mut items = 0_usize;
    let mut bytes = 0_usize;
    let read = payload.read(&mut |item| {
        items += 1;
        bytes += size(item);
        Ok::<_, Corrupt>(())
    });
    if !is_good {
        return;
    }
    assert!(read.is_ok(), "what is checked can be read");
    // A copy takes three bytes, and is 264 at most; an element of a compressed node takes two, and is 20 or so.
    assert!(bytes <= content.len() * 264 * 16 + 64, "{bytes}");
    assert!(items <= content.len() * 264 + 1);
    if payload.kind() == Kind::Stream {
        check_stream(&payload);
    } else if bytes < 1 << 20 {
        let content = collect(&payload);
        let again = write(payload.kind(), &content);
        let again = Payload::open(&again).expect("what is written opens");
        assert_eq!(again.check(), Ok(()));
        assert_eq!(
            in_order(again.kind(), collect(&again)),
            in_order(payload.kind(), content)
        );
    }
}

fn size(item: Item<'_>) -> usize {
    match item {
        Item::String(one) | Item::Element(one) | Item::Member(one) => one.len(),
        Item::Scored(member, score) => {
            assert!(!score.is_nan());
            member.len() + 8
        }
        Item::Field(field, value) | Item::FieldUntil(field, value, _) => field.len() + value.len(),
        Item::Entry(_, words) => words.iter().map(|word| word.with(<[u8]>::len)).sum(),
        Item::Group { name, .. } | Item::Consumer { name, .. } => name.len(),
        Item::Facts(_) | Item::Pending { .. } => 0,
    }
}

/// The parts of a stream as text, but for what an old one does not tell. Whether a number is stored as one is no
/// difference.
fn parts(payload: &Payload<'_>) -> Vec<String> {
    let mut parts = Vec::new();
    let read = payload.read(&mut |item| {
        parts.push(match item {
            Item::Entry(id, words) => {
                let words: Vec<Vec<u8>> = words.iter().map(|w| w.with(<[u8]>::to_vec)).collect();
                format!("{id:?} {words:?}")
            }
            item => format!("{item:?}").replace("Untold", "Unknown"),
        });
        Ok::<_, Corrupt>(())
    });
    assert!(read.is_ok());
    parts
}

fn check_stream(payload: &Payload<'_>) {
    let again = rewritten_stream(payload);
    let again = Payload::open(&again).expect("what is written opens");
    assert_eq!(again.check(), Ok(()));
    assert_eq!(parts(&again), parts(payload));
}

/// A group of a stream: its consumers, and what they have pending.
struct Members {
    name: Vec<u8>,
    last: Id,
    read: Read,
    consumers: Vec<(Vec<u8>, u64, Vec<Id>)>,
    pending: BTreeMap<Id, (u64, u64)>,
}

/// Reads a stream, and writes it again.
pub fn rewritten_stream(payload: &Payload<'_>) -> Vec<u8> {
    let mut nodes = Dump::stream();
    let mut facts = None;
    let mut groups: Vec<Members> = Vec::new();
    let read = payload.read(&mut |item| {
        match item {
            Item::Entry(id, words) => {
                let words: Vec<Vec<u8>> = words.iter().map(|w| w.with(<[u8]>::to_vec)).collect();
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                nodes.push(id, &words);
            }
            Item::Facts(told) => facts = Some(told),
            Item::Group { name, last, read } => groups.push(Members {
                name: name.to_vec(),
                last,
                read,
                consumers: Vec::new(),
                pending: BTreeMap::new(),
            }),
            Item::Consumer { name, seen_ms } => {
                let group = groups.last_mut().expect("a group");
                group.consumers.push((name.to_vec(), seen_ms, Vec::new()));
            }
            Item::Pending {
                id,
                delivered_ms,
                deliveries,
            } => {
                let group = groups.last_mut().expect("a group");
                group.pending.insert(id, (delivered_ms, deliveries));
                group.consumers.last_mut().expect("a consumer").2.push(id);
            }
            other => panic!("{other:?}"),
        }
        Ok::<_, Corrupt>(())
    });
    assert!(read.is_ok());
    let mut dump = Dump::of_stream(nodes, &facts.expect("facts"));
    dump.count(groups.len() as u64);
    for group in groups {
        dump.group(&group.name, group.last, group.read);
        dump.count(group.pending.len() as u64);
        for (id, (delivered_ms, deliveries)) in group.pending {
            dump.delivery(id, delivered_ms, deliveries);
        }
        dump.count(group.consumers.len() as u64);
        for (name, seen_ms, pending) in group.consumers {
            dump.consumer(&name, seen_ms);
            dump.count(pending.len() as u64);
            pending.into_iter().for_each(|id| dump.owned(id));
        }
    }
    dump.seal()
}

fn collect(payload: &Payload<'_>) -> Content {
    let mut content = Content::new();
    let read = payload.read(&mut |item| {
        content.push(match item {
            Item::String(one) | Item::Element(one) | Item::Member(one) => {
                (one.to_vec(), Vec::new())
            }
            Item::Scored(member, score) => (member.to_vec(), score.to_le_bytes().to_vec()),
            Item::Field(field, value) | Item::FieldUntil(field, value, _) => {
                (field.to_vec(), value.to_vec())
            }
            other => panic!("{other:?}"),
        });
        Ok::<_, Corrupt>(())
    });
    assert!(read.is_ok());
    content
}

/// Names are there once, but in lists.
fn in_order(kind: Kind, content: Content) -> Content {
    if kind == Kind::List {
        return content;
    }
    let count = content.len();
    let by_name: BTreeMap<_, _> = content.into_iter().collect();
    assert_eq!(by_name.len(), count);
    by_name.into_iter().collect()
}

fn write(kind: Kind, content: &Content) -> Vec<u8> {
    let size = content.len() as u64;
    let mut dump = match kind {
        Kind::String => return Dump::string(&content[0].0).seal(),
        Kind::List => {
            let mut list = Dump::list();
            content.iter().for_each(|(element, _)| list.push(element));
            return Dump::of_list(list).seal();
        }
        Kind::Set => Dump::set(size),
        Kind::Zset => Dump::zset(size),
        Kind::Hash => Dump::hash(size),
        Kind::Stream => unreachable!("it has a check of its own"),
    };
    for (name, value) in content {
        dump.part(name);
        match kind {
            Kind::Zset => dump.score(f64::from_le_bytes(value[..].try_into().expect("a score"))),
            Kind::Hash => dump.part(value),
            _ => {}
        }
    }
    dump.seal()
}
