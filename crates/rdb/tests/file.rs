//! Whole files: those of Redis, those that this crate writes, and what is left of either when they are cut or changed.

#![allow(clippy::unwrap_used)]

use cairn_rdb::file::{
    Damage, Damaged, Part, Progress, Reader, Version, append_database, append_end, append_head,
    append_key, append_library, append_remark, append_sizes,
};
use cairn_rdb::{Facts, Form, Id, Item, Listpack, Nodes, Quicklist, Read, Sum, part, string};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::Index;

/// What Redis 7.0.15 has saved after `FUNCTION LOAD`, some SET, RPUSH, SADD, ZADD, HSET and XADD in database 0, XDEL,
/// XGROUP and XREADGROUP of the stream, and a key that expires in database 9.
const REDIS: &[u8] = include_bytes!("golden.rdb");

/// "REDIS" and the version.
const HEAD: usize = 9;

/// All that a file says, one line for each part, in pieces of that many bytes.
fn read(bytes: &[u8], piece: usize) -> Result<Vec<String>, Damaged> {
    let mut reader = Reader::default();
    let mut lines = Vec::new();
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        let progress = reader.read(&mut |part| {
            lines.push(line(part));
            Ok::<_, Damaged>(())
        })?;
        if progress == Progress::Done {
            assert!(reader.rest().is_empty());
            return Ok(lines);
        }
    }
    Err(reader.cut())
}

fn line(part: Part<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match part {
        Part::Remark(name, value) => format!("{} = {}", text(name), text(value)),
        Part::Library(code) => format!("library {}", text(code)),
        Part::Database(number) => format!("database {number}"),
        Part::Sizes(keys, expiring) => format!("{keys} keys, {expiring} expiring"),
        Part::Key {
            name,
            kind,
            expire_ms,
        } => format!("{kind:?} {} {expire_ms}", text(name)),
        Part::KeyEnd => "end".into(),
        Part::Item(item) => match item {
            Item::String(one) | Item::Element(one) | Item::Member(one) => text(one),
            Item::Scored(member, score) => format!("{} {score}", text(member)),
            Item::Field(field, value) => format!("{} {}", text(field), text(value)),
            Item::FieldUntil(field, value, at_ms) => {
                format!("{} {} {at_ms}", text(field), text(value))
            }
            Item::Entry(Id { ms, seq }, words) => {
                let words = words.iter().map(|word| word.with(text));
                format!("{ms}-{seq} {}", words.collect::<Vec<_>>().join(" "))
            }
            Item::Group { name, last, read } => {
                format!("group {} {}-{} {read:?}", text(name), last.ms, last.seq)
            }
            Item::Consumer { name, .. } => format!("consumer {}", text(name)),
            Item::Pending { id, deliveries, .. } => {
                format!("pending {}-{} {deliveries}", id.ms, id.seq)
            }
            Item::Facts(facts) => format!(
                "{} entries, last {}-{}, first {}-{}, deleted {}-{}, {} added",
                facts.length,
                facts.last.ms,
                facts.last.seq,
                facts.first.ms,
                facts.first.seq,
                facts.deleted.ms,
                facts.deleted.seq,
                facts.added
            ),
        },
    }
}

#[test]
fn what_redis_has_saved() {
    let expected = "
list 0 | a | b | 3 | 70000
long 0 | *
later 4102444800123 | soon
number 0 | -12345
numbers 0 | 1 | 2 | 300000
word 0 | hello
hash 0 | field value | 7 8
zset 0 | three -inf | one 1 | two 2.5
stream 0 | 1-1 a 1 b 2 | 3-7 c 5 | 2 entries, last 3-7, first 1-1, deleted 2-0, 3 added | group idle 3-7 Unknown \
| group readers 1-1 Unknown | consumer Ada | pending 1-1 1 | consumer Bob
other 4102444800000 | database";
    let lines = read(REDIS, usize::MAX).unwrap();
    let all = lines.join(" | ");
    for line in expected.lines().skip(1) {
        let line = line.replace('*', &"x".repeat(96));
        assert!(all.contains(&format!("{line} | end")), "{line}\n{all}");
    }
    assert!(all.contains("redis-ver = 7.0.15 | "));
    assert!(all.contains(r"library #!lua name=stones\nredis.register_function("));
    assert!(all.contains("database 0 | 10 keys, 1 expiring | "), "{all}");
    assert!(all.contains("database 9 | 1 keys, 1 expiring | String other"));
    assert_eq!(lines.iter().filter(|line| *line == "end").count(), 11);
}

#[test]
fn pieces_of_any_length_are_read_the_same() {
    let whole = read(REDIS, usize::MAX).unwrap();
    for piece in [1, 2, 3, 7, 64, 1000] {
        assert_eq!(read(REDIS, piece).as_ref(), Ok(&whole), "{piece}");
    }
}

/// Appends a file's end to its parts.
fn sealed(mut parts: Vec<u8>) -> Vec<u8> {
    let mut sum = Sum::default();
    sum.add(&parts);
    append_end(sum, &mut parts);
    parts
}

#[test]
fn golden_bytes() {
    let mut out = Vec::new();
    append_head(Version::Redis70, &mut out);
    append_remark(b"redis-bits", b"64", &mut out);
    append_library(b"code", &mut out);
    append_database(3, &mut out);
    append_sizes(2, 1, &mut out);
    append_key(b"k", 0x0190_0000_0001, Form::String, &mut out);
    string::append(b"hello", &mut out);
    append_key(b"set", 0, Form::Set, &mut out);
    part::count(2, &mut out);
    part::text(b"a", &mut out);
    part::text(b"7", &mut out);
    let expected = [
        &b"REDIS0010"[..],
        b"\xfa\x0aredis-bits\xc0\x40",
        b"\xf5\x04code",
        b"\xfe\x03\xfb\x02\x01",
        b"\xfc\x01\0\0\0\x90\x01\0\0\x00\x01k\x05hello",
        b"\x02\x03set\x02\x01a\xc0\x07",
    ];
    assert_eq!(out, expected.concat());
    let whole = sealed(out);
    assert_eq!(whole[whole.len() - 9], 0xff);
    assert_eq!(
        read(&whole, 1).unwrap(),
        [
            "redis-bits = 64",
            "library code",
            "database 3",
            "2 keys, 1 expiring",
            "String k 1717986918401",
            "hello",
            "end",
            "Set set 0",
            "a",
            "7",
            "end"
        ]
    );
    let mut later = Vec::new();
    append_head(Version::Redis74, &mut later);
    assert_eq!(later, b"REDIS0012");
}

/// A part of a file, as bytes: what is said of it, or why it is refused.
#[test]
fn what_old_files_have_and_what_is_refused() {
    let seconds = b"\xfd\x00\x5e\xd0\xb2\x00\x01k\x01v";
    let idle = b"\xf8\x40\x64\xf9\x05\x00\x01k\x01v";
    let release_candidate = b"\xf6\x03lib\x03LUA\x01\x04text\x04code";
    let undescribed = b"\xf6\x03lib\x03LUA\x00\x04code";
    let old_zset = b"\x03\x01z\x02\x01a\x031.5\x01b\xff";
    let empty = b"\x02\x01s\x00";
    let small_set = b"\x14\x01s\x0c\x0c\0\0\0\x02\0\x81a\x02\x07\x01\xff";
    let stream72 = b"\x15\x01s\0\0\x05\x06\0\0\0\0\x09\x01\x01g\x05\x06\x09\0\x01\x03Ada\
        \x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0";
    for (bytes, expected) in [
        (&seconds[..], "String k 3000000000000 | v | end"),
        (idle, "String k 0 | v | end"),
        (release_candidate, r"library #!LUA name=lib\ncode"),
        (undescribed, r"library #!LUA name=lib\ncode"),
        (old_zset, "Zset z 0 | a 1.5 | b -inf | end"),
        (empty, "Set s 0 | end"),
        (small_set, "Set s 0 | a | 7 | end"),
        (
            stream72,
            "Stream s 0 | 0 entries, last 5-6, first 0-0, deleted 0-0, 9 added | group g 5-6 Known(9) | consumer Ada | end",
        ),
    ] {
        let whole = sealed([b"REDIS0009", bytes].concat());
        for piece in [1, usize::MAX] {
            assert_eq!(read(&whole, piece).unwrap().join(" | "), expected);
        }
    }
    let refused = [
        (&b"\xf7\x01"[..], Damage::Module),
        (b"\x07\x01m\x00", Damage::Module),
        (b"\x06\x01m\x00", Damage::Module),
        (b"\x63\x01k", Damage::Type(0x63)),
        (b"\xf4\x01", Damage::Type(0xf4)),
        (b"\xfe\xc0\x01", Damage::Corrupt),
        (b"\x00\x01k\xc4", Damage::Corrupt),
        (b"\x02\x01s\x02\x01a\x01a", Damage::Twice),
        (b"\x05\x01z\x01\x01a\0\0\0\0\0\0\xf8\x7f", Damage::Corrupt),
        (b"\x10\x01h\x03abc", Damage::Corrupt),
    ];
    for (bytes, damage) in refused {
        let whole = sealed([b"REDIS0009", bytes].concat());
        for piece in [1, usize::MAX] {
            assert_eq!(read(&whole, piece).unwrap_err().damage, damage, "{bytes:?}");
        }
    }
}

#[test]
fn heads_and_ends() {
    let damage = |bytes: &[u8]| read(bytes, usize::MAX).unwrap_err().damage;
    assert_eq!(damage(b"RADIS"), Damage::Foreign);
    assert_eq!(damage(b"X"), Damage::Foreign);
    assert_eq!(damage(b"REDIS00x0\xff"), Damage::Foreign);
    assert_eq!(damage(b"REDIS0013\xff"), Damage::Version(13));
    assert_eq!(damage(b"REDIS0000\xff"), Damage::Version(0));
    assert_eq!(damage(b"REDIS0010"), Damage::Cut);
    assert_eq!(damage(b"REDIS0010\xff1234567"), Damage::Cut);
    assert_eq!(damage(b"REDIS0010\xff12345678"), Damage::Checksum);
    // Not computed, or not thought of yet.
    assert_eq!(read(b"REDIS0010\xff\0\0\0\0\0\0\0\0", 1), Ok(vec![]));
    assert_eq!(read(b"REDIS0004\xff", 1), Ok(vec![]));
    let mut reader = Reader::default();
    reader.push(b"REDIS0004\xffmore");
    let progress = reader.read(&mut |_| Ok::<_, Damaged>(()));
    assert_eq!(progress, Ok(Progress::Done));
    assert_eq!((reader.rest(), reader.position()), (&b"more"[..], 10));
}

#[test]
fn no_beginning_is_a_whole_and_no_change_goes_unnoticed() {
    for length in 0..REDIS.len() {
        let damaged = read(&REDIS[..length], usize::MAX);
        assert_eq!(damaged.unwrap_err().damage, Damage::Cut, "{length}");
    }
    for place in 0..REDIS.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut changed = REDIS.to_vec();
            changed[place] ^= bit;
            assert!(read(&changed, 1000).is_err(), "{place} {bit}");
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i32>().prop_map(|number| number.to_string().into_bytes()),
        vec(any::<u8>(), 0..70),
        vec(0u8..3, 0..300),
        (any::<u8>(), 0usize..20_000).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

/// A value as it is written, and what is to be read of it.
fn value() -> impl Strategy<Value = (Form, Vec<u8>, Vec<String>)> {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let string = bytes().prop_map(move |value| {
        let mut out = Vec::new();
        string::append(&value, &mut out);
        (Form::String, out, vec![text(&value)])
    });
    let list = vec(bytes(), 1..40).prop_map(move |elements| {
        let mut list = Quicklist::new(Vec::new());
        elements.iter().for_each(|element| list.push(element));
        let lines = elements.iter().map(|element| text(element)).collect();
        (Form::ListOfListpacks, list.finish(), lines)
    });
    let set = btree_set(bytes(), 1..40).prop_map(move |members| {
        let mut out = Vec::new();
        part::count(members.len() as u64, &mut out);
        members
            .iter()
            .for_each(|member| part::text(member, &mut out));
        let lines = members.iter().map(|member| text(member)).collect();
        (Form::Set, out, lines)
    });
    let zset = btree_map(bytes(), -1e9..1e9, 1..40).prop_map(move |members| {
        let mut out = Vec::new();
        part::count(members.len() as u64, &mut out);
        let mut lines = Vec::new();
        for (member, score) in &members {
            part::text(member, &mut out);
            part::score(*score, &mut out);
            lines.push(format!("{} {score}", text(member)));
        }
        (Form::Zset, out, lines)
    });
    let hash = (btree_map(bytes(), (bytes(), 0u64..100), 1..20), 0..3)
        .prop_map(move |(fields, form)| written_hash(&fields, form));
    let stream = (vec((1u64..5, vec(bytes(), 1..4)), 0..150), 0u64..4)
        .prop_map(|(entries, groups)| written_stream(&entries, groups));
    prop_oneof![string, list, set, zset, hash, stream]
}

type Fields = std::collections::BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn written_hash(fields: &Fields, form: i32) -> (Form, Vec<u8>, Vec<String>) {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let (mut out, mut lines, mut small) = (Vec::new(), Vec::new(), Listpack::default());
    let form = [Form::Hash, Form::HashListpack, Form::HashExpiring][form as usize];
    if form == Form::HashExpiring {
        out.extend_from_slice(&10_u64.to_le_bytes());
    }
    part::count(fields.len() as u64, &mut out);
    for (field, (value, at_ms)) in fields {
        let at_ms = if *at_ms < 10 { 0 } else { *at_ms };
        lines.push(format!("{} {}", text(field), text(value)));
        if form == Form::HashExpiring {
            part::field_time(10, at_ms, &mut out);
            if at_ms != 0 {
                lines.last_mut().unwrap().push_str(&format!(" {at_ms}"));
            }
        }
        part::text(field, &mut out);
        part::text(value, &mut out);
        small.push(field);
        small.push(value);
    }
    if form == Form::HashListpack {
        out.clear();
        string::append(&small.finish(), &mut out);
    }
    (form, out, lines)
}

fn written_stream(entries: &[(u64, Vec<Vec<u8>>)], groups: u64) -> (Form, Vec<u8>, Vec<String>) {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let (mut nodes, mut lines, mut ids) = (Nodes::new(Vec::new()), Vec::new(), Vec::new());
    let mut ms = 0;
    for (step, words) in entries {
        ms += step;
        let words: Vec<&[u8]> = words.iter().flat_map(|word| [&word[..], b"v"]).collect();
        ids.push(Id { ms, seq: 1 });
        nodes.push(Id { ms, seq: 1 }, &words);
        let words = words.iter().map(|word| text(word));
        lines.push(format!("{ms}-1 {}", words.collect::<Vec<_>>().join(" ")));
    }
    let mut out = nodes.finish();
    let (first, last) = (ids.first().copied(), ids.last().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let length = ids.len() as u64;
    let facts = Facts {
        length,
        last,
        first,
        deleted: Id::default(),
        added: length,
    };
    part::facts(&facts, &mut out);
    part::count(groups, &mut out);
    lines.push(line(Part::Item(Item::Facts(facts))));
    for group in 0..groups {
        let name = format!("group{group}");
        part::group(name.as_bytes(), last, Read::Known(length), &mut out);
        lines.push(format!(
            "group {name} {}-{} Known({length})",
            last.ms, last.seq
        ));
        part::count(length, &mut out);
        ids.iter()
            .for_each(|id| part::delivery(*id, 5, 2, &mut out));
        // Every other one is that of the second consumer; the third has none.
        part::count(3, &mut out);
        for consumer in 0..3 {
            part::consumer(format!("c{consumer}").as_bytes(), 7, &mut out);
            lines.push(format!("consumer c{consumer}"));
            let owned = ids.iter().enumerate();
            let owned = owned.filter(|(place, _)| place % 2 == consumer);
            let owned: Vec<Id> = owned.map(|(_, id)| *id).collect();
            part::count(owned.len() as u64, &mut out);
            for id in owned {
                part::owned(id, &mut out);
                lines.push(format!("pending {}-{} 2", id.ms, id.seq));
            }
        }
    }
    (Form::Stream, out, lines)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn files_come_back_whatever_the_pieces(
        values in vec((bytes(), 0u64..3, value()), 0..12),
        piece in 1usize..5000,
        place in any::<Index>(),
        change in 1u8..,
    ) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        append_head(Version::Redis74, &mut out);
        append_database(1, &mut out);
        expected.push("database 1".to_owned());
        for (name, expire_ms, (form, bytes, lines)) in &values {
            append_key(name, *expire_ms, *form, &mut out);
            out.extend_from_slice(bytes);
            let kind = form.kind();
            expected.push(format!("{kind:?} {} {expire_ms}", name.escape_ascii()));
            expected.extend(lines.clone());
            expected.push("end".into());
        }
        let whole = sealed(out);
        prop_assert_eq!(read(&whole, piece), Ok(expected.clone()));
        prop_assert_eq!(read(&whole, usize::MAX), Ok(expected));
        let cut = place.index(whole.len());
        let damaged = read(&whole[..cut], piece).unwrap_err();
        prop_assert_eq!(damaged.damage, Damage::Cut);
        // Before version 5 there was no checksum.
        let mut changed = whole;
        let place = HEAD + place.index(changed.len() - HEAD);
        changed[place] ^= change;
        prop_assert!(read(&changed, piece).is_err());
    }

    /// Nothing is taken on trust: whatever comes, it is read or refused, the same in pieces.
    #[test]
    fn noise_is_refused(noise in vec(any::<u8>(), 0..400), piece in 1usize..40) {
        let bytes = [&b"REDIS0010"[..], &noise].concat();
        let (in_pieces, whole) = (read(&bytes, piece), read(&bytes, usize::MAX));
        prop_assert_eq!(in_pieces.is_ok(), whole.is_ok());
    }

    /// The same for a file of Redis in which a few bytes are others, and whose checksum is right.
    #[test]
    fn changed_files_are_refused_or_read(
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
        piece in 1usize..3000,
    ) {
        let mut parts = REDIS[..REDIS.len() - 9].to_vec();
        for (place, byte) in changes {
            let place = HEAD + place.index(parts.len() - HEAD);
            parts[place] = byte;
        }
        let changed = sealed(parts);
        prop_assert_eq!(read(&changed, piece), read(&changed, usize::MAX));
    }
}
