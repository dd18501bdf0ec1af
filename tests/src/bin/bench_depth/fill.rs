//! Much of everything, quickly.

use cairn_tests::client::{Client, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hash,
    Set,
    Zset,
    List,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Hash, Kind::Set, Kind::Zset, Kind::List];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::Zset => "zset",
            Kind::List => "list",
        }
    }

    /// The arguments that add the element of this number.
    fn add(self, number: u64, words: &mut Vec<Vec<u8>>) {
        match self {
            Kind::Hash => words.extend([member(number), value()]),
            Kind::Set => words.push(member(number)),
            Kind::Zset => words.extend([score(number).to_string().into_bytes(), member(number)]),
            Kind::List => words.push(value()),
        }
    }

    fn command(self) -> &'static [u8] {
        match self {
            Kind::Hash => b"HSET",
            Kind::Set => b"SADD",
            Kind::Zset => b"ZADD",
            Kind::List => b"RPUSH",
        }
    }
}

pub fn member(number: u64) -> Vec<u8> {
    format!("member:{number:09}").into_bytes()
}

/// Scores in another order than members, all of them different.
pub fn score(number: u64) -> u64 {
    // Odd, so that multiplying with it is one to one within 2^32.
    number.wrapping_mul(2_654_435_761) & 0xffff_ffff
}

/// Nothing that could be compressed much.
fn value() -> Vec<u8> {
    (0..24).map(|_| fastrand::alphanumeric() as u8).collect()
}

/// How many elements one command adds, and how many commands are under way.
const AT_ONCE: u64 = 500;
const PIPELINE: usize = 4;

/// Makes a collection of so many elements.
pub fn collection(client: &mut Client, kind: Kind, name: &str, elements: u64) {
    commands(client, elements, |numbers| {
        let mut words = vec![kind.command().to_vec(), name.as_bytes().to_vec()];
        numbers.for_each(|number| kind.add(number, &mut words));
        words
    });
}

/// Makes a stream of so many entries, with the IDs 1-0, 2-0 and so on.
pub fn stream(client: &mut Client, name: &str, entries: u64) {
    for start in (0..entries).step_by(AT_ONCE as usize) {
        let numbers = start..entries.min(start + AT_ONCE);
        for number in numbers.clone() {
            let id = format!("{}-0", number + 1);
            client.send(&[
                b"XADD".as_slice(),
                name.as_bytes(),
                id.as_bytes(),
                b"field",
                &value(),
            ]);
        }
        numbers.for_each(|_| expect(client));
    }
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key:{number:09}").into_bytes()
}

/// Sets so many keys.
pub fn keys(client: &mut Client, count: u64) {
    commands(client, count, |numbers| {
        let pairs = numbers.flat_map(|number| [key(number), value()]);
        std::iter::once(b"MSET".to_vec()).chain(pairs).collect()
    });
}

/// The same, all of them due at one moment; MSET knows nothing of that.
pub fn due_keys(client: &mut Client, count: u64, at_ms: u64) {
    let at_ms = at_ms.to_string();
    for start in (0..count).step_by(AT_ONCE as usize) {
        let numbers = start..count.min(start + AT_ONCE);
        for number in numbers.clone() {
            client.send(&[
                b"SET".as_slice(),
                &key(number),
                &value(),
                b"PXAT",
                at_ms.as_bytes(),
            ]);
        }
        numbers.for_each(|_| expect(client));
    }
}

/// Sends commands that cover these numbers, some hundred each.
pub fn commands(
    client: &mut Client,
    count: u64,
    command: impl Fn(std::ops::Range<u64>) -> Vec<Vec<u8>>,
) {
    let mut under_way = 0;
    for start in (0..count).step_by(AT_ONCE as usize) {
        client.send(&command(start..count.min(start + AT_ONCE)));
        client.flush().expect("the server takes it");
        under_way += 1;
        if under_way == PIPELINE {
            expect(client);
            under_way -= 1;
        }
    }
    (0..under_way).for_each(|_| expect(client));
}

fn expect(client: &mut Client) {
    let reply = client.receive();
    assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
}
