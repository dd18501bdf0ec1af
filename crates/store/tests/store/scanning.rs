//! SCAN's promise: what stays for the whole scan is returned at least once, whatever comes and goes
//! meanwhile, and even if the server forgot where the scan stood. And RANDOMKEY reaches every key.

use std::collections::{BTreeSet, HashSet};

use cairn_store::{Collection, CollectionKind, Hash, Set, WriteTxn, databases, keyspace};
use fastrand::Rng;

use crate::support::*;

/// Keys that share a slot and keys that do not; empty and long ones among them.
fn name(n: usize) -> String {
    match n % 5 {
        0 => format!("{{tag}}:{n}"),
        1 => format!("{{other}}:{n}"),
        2 => format!("{n}:{}", "long".repeat(1 + n % 1_500)),
        _ => format!("key:{n}"),
    }
}

const STABLE: std::ops::Range<usize> = 0..300;
const VOLATILE: std::ops::Range<usize> = 300..600;

/// Adds or removes some of what may come and go.
fn disturb(random: &mut Rng, mut change: impl FnMut(usize, bool)) {
    for _ in 0..random.usize(0..20) {
        change(random.usize(VOLATILE), random.bool());
    }
}

fn restarts_now(fixture: &mut Fixture, random: &mut Rng, left: &mut u32) {
    if *left > 0 && random.u32(0..20) == 0 {
        *left -= 1;
        fixture.restart();
    }
}

#[test]
fn a_scan_returns_what_stays() {
    let mut random = Rng::with_seed(7);
    let mut fixture = Fixture::new();
    fixture.write(|txn| STABLE.for_each(|n| set(txn, &name(n), "stays")));
    for round in 0..8 {
        let (mut cursor, mut met, mut restarts) = (0, HashSet::new(), 4);
        for step in 0.. {
            assert!(step < 5_000, "the scan does not end");
            let count = random.u64(1..30);
            cursor = fixture.read(|txn| {
                keyspace::scan(txn, cursor, count, |key| {
                    met.insert(String::from_utf8(key.name.to_vec()).unwrap());
                })
                .unwrap()
            });
            if cursor == 0 {
                break;
            }
            fixture.write(|txn| {
                disturb(&mut random, |n, adds| match adds {
                    true => set(txn, &name(n), "comes"),
                    false => {
                        del(txn, &name(n));
                    }
                });
            });
            restarts_now(&mut fixture, &mut random, &mut restarts);
        }
        for n in STABLE {
            assert!(met.contains(&name(n)), "{} in round {round}", name(n));
        }
    }
}

#[test]
fn a_scan_of_a_collection_returns_what_stays() {
    let mut random = Rng::with_seed(8);
    let mut fixture = Fixture::new();
    let field = |n: usize| (name(n), format!("value of {n}"));
    fixture.write(|txn| hset(txn, "hash", STABLE.map(field)));
    for round in 0..8 {
        let (mut cursor, mut met, mut restarts) = (0, HashSet::new(), 4);
        for step in 0.. {
            assert!(step < 5_000, "the scan does not end");
            let count = random.u64(1..30);
            cursor = fixture.read(|txn| {
                let hash = Hash::open(txn, b"hash").unwrap();
                keyspace::scan_collection(txn, hash.collection(), cursor, count, |field, value| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    met.insert((text(field), text(value)));
                    Ok(())
                })
                .unwrap()
            });
            if cursor == 0 {
                break;
            }
            fixture.write(|txn| disturb_hash(txn, &mut random));
            restarts_now(&mut fixture, &mut random, &mut restarts);
        }
        for n in STABLE {
            assert!(met.contains(&field(n)), "{} in round {round}", name(n));
        }
    }
}

fn disturb_hash(txn: &mut WriteTxn, random: &mut Rng) {
    let mut hash = Hash::open(txn, b"hash").unwrap();
    disturb(random, |n, adds| {
        if adds {
            hash.set(txn, name(n).as_bytes(), b"comes").unwrap();
        } else {
            hash.remove(txn, name(n).as_bytes()).unwrap();
        }
    });
    hash.save(txn);
}

/// The key that a cursor stands for is deleted, and then the cursor forgotten: the hardest case.
#[test]
fn a_forgotten_cursor_whose_key_is_gone_misses_nothing() {
    let mut fixture = Fixture::new();
    let names: Vec<String> = (0..50).map(|n| format!("{{tag}}:{n}")).collect();
    fixture.write(|txn| names.iter().for_each(|name| set(txn, name, "value")));
    let mut met = Vec::new();
    let mut step = |fixture: &Fixture, cursor| {
        fixture.read(|txn| {
            keyspace::scan(txn, cursor, 10, |key| {
                met.push(String::from_utf8(key.name.to_vec()).unwrap());
            })
            .unwrap()
        })
    };
    let mut cursor = step(&fixture, 0);
    // Keys of one slot lie by length and bytes, so this is the tenth.
    let tenth = "{tag}:9";
    fixture.write(|txn| assert!(del(txn, tenth)));
    fixture.restart();
    while cursor != 0 {
        cursor = step(&fixture, cursor);
    }
    assert_eq!(met[9], tenth);
    let met: BTreeSet<String> = met.into_iter().collect();
    assert_eq!(met, names.into_iter().collect());
}

#[test]
fn a_scan_that_nothing_disturbs_returns_each_key_once() {
    let mut fixture = Fixture::new();
    fixture.write(|txn| STABLE.for_each(|n| set(txn, &name(n), "value")));
    for count in [1, 7, 100_000] {
        for forgets in [false, true] {
            if forgets && count == 1 {
                continue;
            }
            let (mut cursor, mut met) = (0, Vec::new());
            loop {
                cursor = fixture.read(|txn| {
                    keyspace::scan(txn, cursor, count, |key| met.push(key.name.to_vec())).unwrap()
                });
                assert!(met.len() <= STABLE.len(), "a key is met twice");
                if cursor == 0 {
                    break;
                }
                if forgets {
                    fixture.restart();
                }
            }
            assert_eq!(met.len(), STABLE.len());
            assert_eq!(met.iter().collect::<HashSet<_>>().len(), STABLE.len());
        }
    }
}

#[test]
fn a_scan_skips_what_has_expired_and_any_cursor_is_harmless() {
    let fixture = Fixture::new();
    fixture.write(|txn| {
        STABLE.for_each(|n| set(txn, &name(n), "value"));
        VOLATILE.for_each(|n| set_until(txn, &name(n), "value", START + 1));
        sadd(txn, "set", &["a", "b"]);
    });
    fixture.time.set_millis(START + 2);
    for cursor in [1, 12_345, 1 << 48, u64::MAX, 5_000 << 48 | 77, 16_384 << 48] {
        fixture.read(|txn| {
            keyspace::scan(txn, cursor, 1_000, |key| {
                assert!(!VOLATILE.map(name).any(|name| name.as_bytes() == key.name));
            })
            .unwrap();
            let set = Set::open(txn, b"set").unwrap();
            keyspace::scan_collection(txn, set.collection(), cursor, 10, |_, _| Ok(())).unwrap();
        });
    }
}

#[test]
fn a_scan_of_an_absent_collection_is_over_at_once() {
    let fixture = Fixture::new();
    fixture.read(|txn| {
        let absent = Collection::open(txn, b"absent", CollectionKind::Set).unwrap();
        for cursor in [0, 5] {
            let next = keyspace::scan_collection(txn, &absent, cursor, 10, |_, _| unreachable!());
            assert_eq!(next.unwrap(), 0);
        }
    });
}

#[test]
fn a_cursor_of_one_database_means_nothing_in_another() {
    let fixture = Fixture::new();
    for database in [0, 1] {
        fixture.write(|txn| {
            txn.begin(database);
            (0..20).for_each(|n| set(txn, &format!("{{tag}}:{n}"), "value"));
        });
    }
    let cursor = fixture.read(|txn| keyspace::scan(txn, 0, 10, |_| {}).unwrap());
    fixture.write(|txn| databases::swap(txn, 0, 1));
    let mut rest = 0;
    fixture.read(|txn| keyspace::scan(txn, cursor, 100, |_| rest += 1).unwrap());
    assert!(rest >= 10);
}

#[test]
fn a_random_key_can_be_any_key() {
    let fixture = Fixture::new();
    let mut names: BTreeSet<Vec<u8>> = (0..150).map(|n| format!("{{tag}}:{n}").into()).collect();
    names.extend(["a", "b", "c"].map(|name| name.as_bytes().to_vec()));
    fixture.write(|txn| {
        for name in &names {
            set(txn, std::str::from_utf8(name).unwrap(), "value");
        }
        set_until(txn, "expired", "value", START + 1);
    });
    fixture.time.set_millis(START + 2);
    let mut picked = BTreeSet::new();
    for _ in 0..50_000 {
        let key = fixture.read(|txn| keyspace::random_key(txn).unwrap().unwrap());
        picked.insert(key);
        if picked.len() == names.len() {
            break;
        }
    }
    assert!(picked == names, "{} of {}", picked.len(), names.len());
}

#[test]
fn an_empty_database_has_no_random_key() {
    let fixture = Fixture::new();
    let pick = || fixture.read(|txn| keyspace::random_key(txn).unwrap());
    assert_eq!(pick(), None);
    fixture.write(|txn| set_until(txn, "expired", "value", START + 1));
    fixture.time.set_millis(START + 2);
    assert_eq!(pick(), None);
}

/// A client may ask for everything at once, and gets it in steps that stay small.
#[test]
fn a_step_is_bounded_whatever_is_asked_for() {
    let fixture = Fixture::new();
    let name = |n: usize| format!("{n:05}");
    let (many, large) = (25_000, "x".repeat(100_000));
    fixture.write(|txn| {
        hset(txn, "many", (0..many).map(|n| (name(n), String::new())));
        hset(txn, "large", (0..25).map(|n| (name(n), large.clone())));
    });
    let steps = |key: &str| {
        let (mut cursor, mut steps, mut met) = (0, Vec::new(), HashSet::new());
        loop {
            let before = met.len();
            cursor = fixture.read(|txn| {
                let hash = Hash::open(txn, key.as_bytes()).unwrap();
                let visit = |field: &[u8], _: &[u8]| {
                    met.insert(field.to_vec());
                    Ok(())
                };
                keyspace::scan_collection(txn, hash.collection(), cursor, u64::MAX, visit).unwrap()
            });
            steps.push(met.len() - before);
            if cursor == 0 {
                return steps;
            }
        }
    };
    let step = usize::try_from(keyspace::STEP_ROWS).unwrap();
    assert_eq!(steps("many"), [step, step, many - 2 * step]);
    let step = keyspace::STEP_BYTES.div_ceil(large.len() + name(0).len());
    assert_eq!(steps("large"), [step, step, 25 - 2 * step]);

    fixture.write(|txn| (0..many).for_each(|n| set(txn, &name(n), "value")));
    let (mut cursor, mut steps) = (0, 0);
    loop {
        cursor = fixture.read(|txn| keyspace::scan(txn, cursor, u64::MAX, |_| {}).unwrap());
        steps += 1;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(steps, 3);
}
