//! Commands on keys of several regions, leaders that come and go, time, and restarts: as a simple model says.

use std::collections::{BTreeMap, BTreeSet};

use cairn_store::databases::flush;
use cairn_store::{Family, WriteTxn};
use proptest::prelude::*;

use super::node::Node;
use super::{expire_all, is_refused, name_in, three};
use crate::support::*;

const REGIONS: [u64; 3] = [7, 8, 9];
const NAMES: usize = 6;

#[derive(Clone, Debug)]
enum Act {
    Set {
        region: usize,
        name: usize,
        lives_ms: Option<u64>,
    },
    /// Several keys in one transaction.
    SetAll {
        region: usize,
    },
    Hset {
        region: usize,
        name: usize,
        field: u8,
    },
    Del {
        region: usize,
        name: usize,
    },
    Flush {
        region: usize,
    },
    Lead {
        region: usize,
    },
    Lose {
        region: usize,
        is_told: bool,
    },
    Pass {
        ms: u64,
    },
    Expire,
    Reclaim,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let (region, name) = (0..REGIONS.len(), 0..NAMES);
    prop_oneof![
        4 => (region.clone(), name.clone(), prop::option::of(1..200u64))
            .prop_map(|(region, name, lives_ms)| Act::Set { region, name, lives_ms }),
        1 => region.clone().prop_map(|region| Act::SetAll { region }),
        3 => (region.clone(), name.clone(), 0..4u8)
            .prop_map(|(region, name, field)| Act::Hset { region, name, field }),
        2 => (region.clone(), name).prop_map(|(region, name)| Act::Del { region, name }),
        1 => region.clone().prop_map(|region| Act::Flush { region }),
        2 => region.clone().prop_map(|region| Act::Lead { region }),
        1 => (region, any::<bool>()).prop_map(|(region, is_told)| Act::Lose { region, is_told }),
        2 => (1..150u64).prop_map(|ms| Act::Pass { ms }),
        2 => Just(Act::Expire),
        1 => Just(Act::Reclaim),
        1 => Just(Act::Restart),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    /// What a string holds; none for a hash.
    text: Option<String>,
    fields: BTreeSet<u8>,
    expire_ms: u64,
}

type Keys = BTreeMap<String, Value>;

struct Story {
    node: Node,
    keys: [Keys; 3],
    led: [bool; 3],
    now_ms: u64,
    writes: u64,
}

impl Story {
    fn begin() -> Story {
        Story {
            node: Node::new(&three()),
            keys: Default::default(),
            led: [true; 3],
            now_ms: START,
            writes: 0,
        }
    }

    /// Commits a command, and has the model follow if the region is led.
    fn write(
        &mut self,
        region: usize,
        command: impl FnOnce(&mut WriteTxn),
        follow: impl FnOnce(&mut Keys),
    ) {
        let result = self.node.try_write(REGIONS[region], command);
        match self.led[region] {
            true => {
                result.unwrap();
                follow(&mut self.keys[region]);
            }
            false => assert!(is_refused(result)),
        }
    }

    fn live(&self, region: usize) -> Vec<(&String, &Value)> {
        let is_live = |value: &Value| value.expire_ms == 0 || value.expire_ms >= self.now_ms;
        let keys = self.keys[region].iter();
        keys.filter(|(_, value)| is_live(value)).collect()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Set {
                region,
                name,
                lives_ms,
            } => {
                self.writes += 1;
                let (name, text) = (name_in(REGIONS[region], name), self.writes.to_string());
                let expire_ms = lives_ms.map_or(0, |ms| self.now_ms + ms);
                let value = Value {
                    text: Some(text.clone()),
                    fields: BTreeSet::new(),
                    expire_ms,
                };
                let command = |txn: &mut WriteTxn| match expire_ms {
                    0 => set(txn, &name, &text),
                    at_ms => set_until(txn, &name, &text, at_ms),
                };
                self.write(region, command, |keys| {
                    keys.insert(name.clone(), value);
                });
            }
            Act::SetAll { region } => {
                let names: Vec<_> = (0..NAMES).map(|n| name_in(REGIONS[region], n)).collect();
                let command =
                    |txn: &mut WriteTxn| names.iter().for_each(|name| set(txn, name, "all"));
                self.write(region, command, |keys| {
                    let value = Value {
                        text: Some("all".into()),
                        fields: BTreeSet::new(),
                        expire_ms: 0,
                    };
                    keys.extend(names.iter().map(|name| (name.clone(), value.clone())));
                });
            }
            Act::Hset {
                region,
                name,
                field,
            } => {
                let name = name_in(REGIONS[region], name);
                let mut live = self.live(region).into_iter();
                let known = live.find(|(of, _)| **of == name);
                let known = known.map(|(_, value)| value.clone());
                if known.as_ref().is_some_and(|value| value.text.is_some()) {
                    return;
                }
                let mut value = known.unwrap_or(Value {
                    text: None,
                    fields: BTreeSet::new(),
                    expire_ms: 0,
                });
                value.fields.insert(field);
                let fields = [(field.to_string(), "value".to_string())];
                let command = |txn: &mut WriteTxn| hset(txn, &name, fields);
                self.write(region, command, |keys| {
                    keys.insert(name.clone(), value);
                });
            }
            Act::Del { region, name } => {
                let name = name_in(REGIONS[region], name);
                let was_there = self.live(region).iter().any(|(of, _)| **of == name);
                let mut is_deleted = false;
                // One that is not there changes nothing, and nobody is asked.
                if was_there {
                    let command = |txn: &mut WriteTxn| is_deleted = del(txn, &name);
                    self.write(region, command, |keys| {
                        keys.remove(&name);
                    });
                    assert!(is_deleted);
                }
            }
            Act::Flush { region } => {
                let has_keys = !self.node.read(REGIONS[region], keys).is_empty();
                if has_keys {
                    self.write(region, |txn| flush(txn, [0]), Keys::clear);
                }
            }
            Act::Lead { region } => {
                self.node.lead(REGIONS[region]).unwrap();
                self.led[region] = true;
            }
            Act::Lose { region, is_told } => {
                match is_told {
                    true => self.node.lose(REGIONS[region]),
                    false => self.node.forget(REGIONS[region]),
                }
                self.led[region] = false;
            }
            Act::Pass { ms } => {
                self.now_ms += ms;
                self.node.time.set_millis(self.now_ms);
            }
            Act::Expire => expire_all(self.node.store()),
            Act::Reclaim => {
                self.node.store().reclaim_databases().unwrap();
                while self.node.store().reclaim_noted().unwrap() {}
                for family in [Family::Data, Family::ZsetScore] {
                    let searched = self.node.store().reclaim_versions(family, &[], 10_000);
                    assert_eq!(searched.unwrap(), None);
                }
            }
            Act::Restart => {
                // Versions are not kept by this node: none is given out twice if time goes on.
                self.now_ms += 1;
                self.node.time.set_millis(self.now_ms);
                self.node.restart(&three());
                self.led = [false; 3];
            }
        }
    }

    fn check(&self) {
        for (number, region) in REGIONS.into_iter().enumerate() {
            let live = self.live(number);
            let mut names: Vec<_> = live.iter().map(|(name, _)| (*name).clone()).collect();
            names.sort();
            let txn = self.node.txn(region);
            assert_eq!(keys(&txn), names, "in region {region}");
            for (name, value) in live {
                match &value.text {
                    Some(text) => assert_eq!(get(&txn, name).as_ref(), Some(text)),
                    None => {
                        let fields = hgetall(&txn, name).into_iter();
                        let found: BTreeSet<u8> =
                            fields.map(|(field, _)| field.parse().unwrap()).collect();
                        assert_eq!(found, value.fields);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn regions_are_what_a_model_says(acts in prop::collection::vec(act(), 1..60)) {
        let mut story = Story::begin();
        for act in acts {
            story.act(act);
            story.check();
        }
    }
}
