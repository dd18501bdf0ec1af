//! What must hold for any bytes that a client may restore, shared by the fuzz target, the replay of its corpus and
//! the property tests.
//!
//! A payload is either refused or read to its end; what was read, written again in both forms, is read the same;
//! and memory stays in proportion.

use std::collections::BTreeMap;

use cairn_rdb::{Corrupt, Dump, Item, Kind, Payload, seal};

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
    if bytes < 1 << 20 {
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
        Item::Field(field, value) => field.len() + value.len(),
    }
}

fn collect(payload: &Payload<'_>) -> Content {
    let mut content = Content::new();
    let read = payload.read(&mut |item| {
        content.push(match item {
            Item::String(one) | Item::Element(one) | Item::Member(one) => {
                (one.to_vec(), Vec::new())
            }
            Item::Scored(member, score) => (member.to_vec(), score.to_le_bytes().to_vec()),
            Item::Field(field, value) => (field.to_vec(), value.to_vec()),
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
