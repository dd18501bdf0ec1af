//! Payloads that Redis 7.0.15 has written or read: this crate finds in them what Redis does.

#![allow(clippy::unwrap_used)]

use cairn_rdb::{
    Corrupt, Dump, Id, Item, Kind, Listpack, Payload, Read, Refused, seal, seal_later,
};
use cairn_resp::number::{format_double, parse_f64, parse_i64};

#[path = "../fuzz/checks.rs"]
mod checks;

struct Golden {
    note: &'static str,
    kind: Kind,
    payload: Vec<u8>,
    content: Vec<Vec<u8>>,
}

fn golden() -> impl Iterator<Item = Golden> {
    let lines = include_str!("golden.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(|line| {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [note, kind, payload, content] = parts[..] else {
            panic!("{line}");
        };
        Golden {
            note,
            kind: match kind {
                "string" => Kind::String,
                "list" => Kind::List,
                "set" => Kind::Set,
                "zset" => Kind::Zset,
                "hash" => Kind::Hash,
                "stream" => Kind::Stream,
                _ => panic!("{kind}"),
            },
            payload: bytes_of(payload),
            content: content.split(' ').map(word).collect(),
        }
    })
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// `x*30` stands for thirty x.
fn word(word: &str) -> Vec<u8> {
    match word.split_once('*') {
        Some((letter, times)) => letter.repeat(times.parse().unwrap()).into_bytes(),
        None => word.as_bytes().to_vec(),
    }
}

/// What is in a payload, in the order of the file: that of members where the value has none.
fn content(payload: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
    let payload = Payload::open(payload)?;
    payload.check()?;
    let mut items: Vec<(f64, Vec<Vec<u8>>)> = Vec::new();
    payload.read(&mut |item| {
        items.push(match item {
            Item::String(one) | Item::Element(one) | Item::Member(one) => (0.0, vec![one.to_vec()]),
            Item::Scored(member, score) => {
                let mut text = Vec::new();
                format_double(score, &mut text);
                (score, vec![member.to_vec(), text])
            }
            Item::Field(field, value) => (0.0, vec![field.to_vec(), value.to_vec()]),
            Item::FieldUntil(field, value, at_ms) => {
                let time = at_ms.to_string().into_bytes();
                (0.0, vec![field.to_vec(), value.to_vec(), time])
            }
            item => (0.0, stream_words(item)),
        });
        Ok::<_, Corrupt>(())
    })?;
    if matches!(payload.kind(), Kind::Set | Kind::Zset | Kind::Hash) {
        items.sort_by(|a, b| a.partial_cmp(b).unwrap());
    }
    Ok(items.into_iter().flat_map(|(_, parts)| parts).collect())
}

/// A part of a stream, as the file writes it.
fn stream_words(item: Item<'_>) -> Vec<Vec<u8>> {
    let text = |id: Id| format!("{}-{}", id.ms, id.seq);
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let word = match item {
        Item::Entry(id, words) => {
            let words = words.iter().map(|word| word.with(<[u8]>::to_vec));
            return std::iter::once(text(id).into_bytes())
                .chain(words)
                .collect();
        }
        Item::Facts(facts) => {
            let ids = [facts.last, facts.first, facts.deleted].map(text).join(":");
            format!("facts:{}:{ids}:{}", facts.length, facts.added)
        }
        Item::Group {
            name: group,
            last,
            read,
        } => {
            let read = match read {
                Read::Known(read) => read.to_string(),
                Read::Unknown => "unknown".into(),
                Read::Untold => "untold".into(),
            };
            format!("group:{}:{}:{read}", name(group), text(last))
        }
        Item::Consumer {
            name: consumer,
            seen_ms,
        } => format!("consumer:{}:{seen_ms}", name(consumer)),
        Item::Pending {
            id,
            delivered_ms,
            deliveries,
        } => format!("pending:{}:{delivered_ms}:{deliveries}", text(id)),
        other => panic!("{other:?}"),
    };
    vec![word.into_bytes()]
}

#[test]
fn what_redis_wrote_is_read() {
    for Golden {
        note,
        kind,
        payload,
        content: expected,
    } in golden()
    {
        assert_eq!(Payload::open(&payload).unwrap().kind(), kind, "{note}");
        assert_eq!(content(&payload).unwrap(), expected, "{note}");
        checks::check_content(&payload[..payload.len() - 10]);
    }
}

/// Writes the content in the form that the payload has, if it is one of those that are written.
fn written(golden: &Golden) -> Option<Vec<u8>> {
    let content = &golden.content;
    let pairs = content.as_chunks::<2>().0;
    let listpack = || {
        let mut listpack = Listpack::default();
        content.iter().for_each(|part| listpack.push(part));
        listpack
    };
    Some(match golden.payload[0] {
        0 => Dump::string(&content[0]).seal(),
        2 => {
            let mut dump = Dump::set(content.len() as u64);
            content.iter().for_each(|member| dump.part(member));
            dump.seal()
        }
        4 => {
            let mut dump = Dump::hash(pairs.len() as u64);
            content.iter().for_each(|part| dump.part(part));
            dump.seal()
        }
        5 => {
            let mut dump = Dump::zset(pairs.len() as u64);
            for [member, score] in pairs.iter().rev() {
                dump.part(member);
                dump.score(parse_f64(score).unwrap());
            }
            dump.seal()
        }
        11 => {
            let mut numbers: Vec<i64> = content.iter().flat_map(|text| parse_i64(text)).collect();
            numbers.sort_unstable();
            Dump::small_set(&numbers).seal()
        }
        16 => Dump::small_hash(listpack()).seal(),
        17 => Dump::small_zset(listpack()).seal(),
        19 if !golden.note.contains("CONFIG") && !golden.note.contains("XDEL") => {
            checks::rewritten_stream(&Payload::open(&golden.payload).unwrap())
        }
        18 if !golden.note.contains("CONFIG") && !golden.note.contains("DEBUG") => {
            let mut list = Dump::list();
            content.iter().for_each(|element| list.push(element));
            Dump::of_list(list).seal()
        }
        _ => return None,
    })
}

/// Where nothing is compressed, and the order is that of the value.
#[test]
fn what_is_written_are_the_bytes_of_redis() {
    let mut same = 0;
    for golden in golden() {
        let Some(written) = written(&golden) else {
            continue;
        };
        assert_eq!(
            content(&written).unwrap(),
            golden.content,
            "{}",
            golden.note
        );
        let is_compressed = golden.payload.contains(&0xc3);
        let has_no_order = matches!(golden.payload[0], 2 | 4 | 16);
        if !is_compressed && !has_no_order {
            assert_eq!(written, golden.payload, "{}", golden.note);
            same += 1;
        }
    }
    assert!(same > 10, "{same}");
}

/// Length, last, first and largest deleted ID, number of entries ever added; and no group.
const FACTS_OF_TWO: &[u8] = b"\x02\x09\x00\x00\x00\x00\x00\x02\x00";
/// The same and two groups that have read nothing.
const TWINS: &[u8] =
    b"\x02\x09\x00\x00\x00\x00\x00\x02\x02\x01g\x00\x00\x00\x00\x00\x01g\x00\x00\x00\x00\x00";

/// Of nodes that have one entry each.
fn stream(ids: &[(u8, u8)], facts: &[u8]) -> Vec<u8> {
    let mut content = vec![19, ids.len() as u8];
    for (ms, seq) in ids {
        let node = b"\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\xff";
        content.extend([16, 0, 0, 0, 0, 0, 0, 0, *ms, 0, 0, 0, 0, 0, 0, 0, *seq]);
        content.push(node.len() as u8);
        content.extend_from_slice(node);
    }
    content.extend_from_slice(facts);
    content
}

#[test]
fn the_streams_that_are_refused_lack_little() {
    let mut payload = stream(&[(1, 0), (2, 0)], FACTS_OF_TWO);
    seal(&mut payload);
    assert!(content(&payload).is_ok());
}

/// Each with a footer that is right.
#[test]
fn what_makes_no_sense_is_refused() {
    let one_zset = |score: f64| [&b"\x05\x01\x01a"[..], &score.to_le_bytes()].concat();
    let refused: [(&str, Vec<u8>); 27] = [
        ("nothing", b"".to_vec()),
        ("no such form", b"\x08\x01a".to_vec()),
        ("a module", b"\x07\x01a".to_vec()),
        ("an empty set", b"\x02\x00".to_vec()),
        ("an empty hash", b"\x10\x07\x07\0\0\0\0\0\xff".to_vec()),
        ("an empty list of nodes", b"\x12\x00".to_vec()),
        (
            "a list of an empty node",
            b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff".to_vec(),
        ),
        ("a set with a member twice", b"\x02\x02\x01a\x01a".to_vec()),
        ("a number and its text", b"\x02\x02\xc0\x07\x017".to_vec()),
        (
            "a hash with a field twice",
            b"\x04\x02\x01a\x01b\x01a\x01c".to_vec(),
        ),
        (
            "a zset with a member twice",
            [one_zset(1.0), one_zset(2.0)[2..].to_vec()].concat(),
        ),
        ("a score that is no number", one_zset(f64::NAN)),
        (
            "a score of text that is none",
            b"\x03\x01\x01a\x03abc".to_vec(),
        ),
        (
            "a field without a value",
            b"\x10\x0a\x0a\0\0\0\x01\0\x81a\x02\xff".to_vec(),
        ),
        (
            "more members than there are",
            b"\x02\x03\x01a\x01b".to_vec(),
        ),
        (
            "very many members",
            b"\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a".to_vec(),
        ),
        ("a large element of no bytes", b"\x12\x01\x01\x00".to_vec()),
        (
            "a short name with a long length",
            b"\x09\x0b\x01\xfe\x01\0\0\0f\x01\0v\xff".to_vec(),
        ),
        (
            "a short value with a long length",
            b"\x09\x0b\x01\x01f\xfe\x01\0\0\0\0v\xff".to_vec(),
        ),
        ("a node of no kind", b"\x12\x01\x03\x01a".to_vec()),
        ("a stream that ends", stream(&[(1, 0)], b"")),
        (
            "a stream of more entries",
            stream(&[(1, 0)], b"\x02\x09\x00\x00\x00\x00\x00\x02\x00"),
        ),
        (
            "an entry above the last ID",
            stream(&[(1, 0)], b"\x01\x00\x09\x00\x00\x00\x00\x01\x00"),
        ),
        (
            "entries that do not rise",
            stream(&[(2, 0), (1, 0)], FACTS_OF_TWO),
        ),
        (
            "nodes that do not rise",
            stream(&[(1, 0), (1, 0)], FACTS_OF_TWO),
        ),
        (
            "an entry of the lowest ID",
            stream(&[(0, 0), (1, 0)], FACTS_OF_TWO),
        ),
        ("groups of one name", stream(&[(1, 0), (2, 0)], TWINS)),
    ];
    for (what, mut payload) in refused {
        if what.starts_with("a zset with") {
            payload[1] = 2;
        }
        seal(&mut payload);
        assert_eq!(content(&payload), Err(Refused::Corrupt), "{what}");
    }
}

/// Redis does not look behind the value.
#[test]
fn what_comes_behind_is_passed_over() {
    let mut payload = b"\x00\x01arest".to_vec();
    seal(&mut payload);
    assert_eq!(content(&payload).unwrap(), [b"a"]);
}

/// Fields that expire, a at 2524600800000 and b a second later, as the code of Redis 7.4 writes them: one by one, and in
/// one piece. (No Redis 7.4 was at hand.)
const ONE_BY_ONE: &[u8] =
    b"\x18\x00\x13\xef\xcd\x4b\x02\x00\x00\x03\x01\x01a\x01x\x43\xe9\x01b\x01y\x00\x01c\xc0\x07";
const IN_ONE_PIECE: &[u8] = b"\x19\x00\x13\xef\xcd\x4b\x02\x00\x00\x2e\
    \x2e\x00\x00\x00\x09\x00\x81a\x02\x81x\x02\xf4\x00\x13\xef\xcd\x4b\x02\x00\x00\x09\
    \x81b\x02\x81y\x02\xf4\xe8\x16\xef\xcd\x4b\x02\x00\x00\x09\x81c\x02\x07\x01\x00\x01\xff";

fn sealed(content: &[u8]) -> Vec<u8> {
    let mut payload = content.to_vec();
    seal_later(&mut payload);
    payload
}

#[test]
fn hashes_with_fields_that_expire_are_those_of_redis_7_4() {
    let expected: Vec<&[u8]> = vec![
        b"a",
        b"x",
        b"2524600800000",
        b"b",
        b"y",
        b"2524600801000",
        b"c",
        b"7",
    ];
    for payload in [ONE_BY_ONE, IN_ONE_PIECE] {
        assert_eq!(content(&sealed(payload)).unwrap(), expected);
        checks::check_content(payload);
    }
    let mut dump = Dump::expiring_hash(3, 2_524_600_800_000);
    let fields: [(u64, &[u8], &[u8]); 3] = [
        (2_524_600_800_000, b"a", b"x"),
        (2_524_600_801_000, b"b", b"y"),
        (0, b"c", b"7"),
    ];
    for (at_ms, field, value) in fields {
        dump.time(2_524_600_800_000, at_ms);
        dump.part(field);
        dump.part(value);
    }
    assert_eq!(dump.seal(), sealed(ONE_BY_ONE));
    // Nothing else is of that version.
    assert_eq!(content(&sealed(b"\x00\x01a")), Err(Refused::Footer));
}

#[test]
fn times_that_make_no_sense_are_refused() {
    let change = |payload: &[u8], from: usize, to: &[u8]| {
        let mut changed = payload.to_vec();
        changed[from..from + to.len()].copy_from_slice(to);
        changed
    };
    let far = u64::MAX.to_le_bytes();
    let later = (2_524_600_900_000_u64).to_le_bytes();
    let refused = [
        ("beyond all times", change(ONE_BY_ONE, 1, &far)),
        (
            "beyond the last",
            change(ONE_BY_ONE, 1, &(1_u64 << 48).to_le_bytes()),
        ),
        ("one that is none", change(IN_ONE_PIECE, 53, b"\x80")),
        ("before zero", change(IN_ONE_PIECE, 23, &far)),
        ("not in their order", change(IN_ONE_PIECE, 23, &later)),
    ];
    for (what, payload) in refused {
        assert_eq!(content(&sealed(&payload)), Err(Refused::Corrupt), "{what}");
    }
}
