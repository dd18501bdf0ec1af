//! All keys at one moment: whatever is done later does not show, and what was there before does, in whichever form.

use std::collections::BTreeMap;

use cairn_store::image::{Content, Element};
use cairn_store::legacy::write_legacy;
use cairn_store::{Image, databases, functions};

use crate::field_expiry::hexpire;
use crate::support::*;

/// What an image shows: by database and name, expiry and elements as text.
type Shown = BTreeMap<(u32, String), (u64, Vec<String>)>;

fn shown(image: &mut Image) -> Shown {
    let mut all = Shown::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Some(key) = image.next().unwrap() {
        let mut parts = Vec::new();
        match &key.content {
            Content::Inline(value) => parts.push(text(value)),
            Content::Chunked(length) => {
                let mut value = Vec::new();
                while image.append_chunk(&mut value).unwrap() {}
                assert_eq!(value.len() as u64, *length);
                parts.push(format!("{length} bytes"));
            }
            Content::Stream(_) => panic!("there is none"),
            Content::List(size)
            | Content::Set(size)
            | Content::Zset(size)
            | Content::Hash { size, .. } => {
                for _ in 0..2 {
                    parts.clear();
                    image.rewind();
                    while let Some(element) = image.next_element().unwrap() {
                        parts.push(match element {
                            Element::Plain(element) => text(element),
                            Element::Scored(member, score) => format!("{} {score}", text(member)),
                            Element::Field {
                                field,
                                value,
                                expire_ms,
                            } => format!("{} {} {expire_ms}", text(field), text(value)),
                        });
                    }
                    assert_eq!(parts.len() as u64, *size);
                }
            }
        }
        let before = all.insert((key.database, text(&key.name)), (key.expire_ms, parts));
        assert!(before.is_none(), "each key comes once");
    }
    all
}

fn entry(name: &str, expire_ms: u64, parts: &[&str]) -> ((u32, String), (u64, Vec<String>)) {
    let parts = parts.iter().map(|part| part.to_string()).collect();
    ((0, name.to_owned()), (expire_ms, parts))
}

fn filled() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.write(|txn| {
        write_legacy(txn, b"old", b"value", 0);
        write_legacy(txn, b"old with a ttl", b"value", START + 100);
        write_legacy(txn, b"old and gone", b"value", START + 5);
        write_legacy(txn, b"moved", b"before", 0);
        hset(txn, "hash", fields(3));
        hset(txn, "timed", fields(4));
        rpush(txn, "list", &["a", "b", "c"]);
        set(txn, "string", "value");
        set(txn, "long", &"x".repeat(100_000));
        functions::put(txn, b"stones", b"code");
    });
    fixture.restart();
    fixture.write(|txn| {
        set(txn, "moved", "after");
        hexpire(txn, "timed", "field:000001", START + 5);
        hexpire(txn, "timed", "field:000002", START + 100);
        hset(txn, "all due", fields(2));
        hexpire(txn, "all due", "field:000000", START + 5);
        hexpire(txn, "all due", "field:000001", START + 7);
        txn.select(2);
        set(txn, "other", "database");
    });
    fixture.time.set_millis(START + 10);
    fixture
}

fn expected() -> Shown {
    let until = format!("field:000002 value of 2 {}", START + 100);
    let mut expected = Shown::from([
        entry("old", 0, &["value"]),
        entry("old with a ttl", START + 100, &["value"]),
        entry("moved", 0, &["after"]),
        entry(
            "hash",
            0,
            &[
                "field:000000 value of 0 0",
                "field:000001 value of 1 0",
                "field:000002 value of 2 0",
            ],
        ),
        entry(
            "timed",
            0,
            &[
                "field:000000 value of 0 0",
                &until,
                "field:000003 value of 3 0",
            ],
        ),
        entry("list", 0, &["a", "b", "c"]),
        entry("string", 0, &["value"]),
        entry("long", 0, &["100000 bytes"]),
    ]);
    expected.insert((2, "other".into()), (0, vec!["database".into()]));
    expected
}

/// Whether all of it is young, or none.
#[test]
fn an_image_shows_what_lives_in_every_form() {
    let fixture = filled();
    for _ in 0..2 {
        let mut image = Image::open(fixture.store()).unwrap();
        assert_eq!(image.libraries(), [b"code".to_vec()]);
        assert_eq!(shown(&mut image), expected());
        Image::prepare(fixture.store()).unwrap();
    }
}

#[test]
fn what_has_expired_shows_where_another_server_decides_about_it() {
    let fixture = filled();
    let field = |number: u32, at: u64| format!("field:{number:06} value of {number} {at}");
    let due = [field(0, START + 5), field(1, START + 7)];
    let timed = [
        field(0, 0),
        field(1, START + 5),
        field(2, START + 100),
        field(3, 0),
    ];
    let mut all = expected();
    all.extend([
        entry("old and gone", START + 5, &["value"]),
        entry("all due", 0, &due.each_ref().map(String::as_str)),
        entry("timed", 0, &timed.each_ref().map(String::as_str)),
    ]);
    let image = Image::open(fixture.store()).unwrap();
    assert_eq!(shown(&mut image.with_expired()), all);
}

#[test]
fn what_is_done_later_does_not_show() {
    let fixture = filled();
    let mut image = Image::open(fixture.store()).unwrap();
    fixture.write(|txn| {
        del(txn, "list");
        del(txn, "old");
        set(txn, "string", "changed");
        set(txn, "new", "key");
        hset(txn, "hash", fields(9));
        functions::delete(txn, b"stones");
    });
    // Half of it has been read when everything goes.
    let first = image.next().unwrap().unwrap();
    fixture.write(|txn| databases::swap(txn, 0, 2));
    fixture.write(|txn| databases::flush(txn, 0..4));
    fixture.time.set_millis(START + 1000);
    fixture.compact();
    fixture.store().reclaim_databases().unwrap();
    fixture.compact();
    let mut rest = expected();
    let name = String::from_utf8(first.name).unwrap();
    let (expire_ms, _) = rest.remove(&(first.database, name)).unwrap();
    assert_eq!(first.expire_ms, expire_ms);
    assert_eq!(shown(&mut image), rest);
    assert_eq!(image.libraries(), [b"code".to_vec()]);
    assert_eq!(
        shown(&mut Image::open(fixture.store()).unwrap()),
        Shown::new()
    );
}

#[test]
fn databases_that_nobody_can_select_do_not_show() {
    let mut fixture = filled();
    fixture.restart_with(2);
    let mut image = Image::open(fixture.store()).unwrap();
    let mut rest = expected();
    rest.remove(&(2, "other".into())).unwrap();
    assert_eq!(shown(&mut image), rest);
}
