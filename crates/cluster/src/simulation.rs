//! Clusters that live by the planner's word: operators ask for things, nodes die and come back, steps are done late, by halves
//! or not at all. Then all is well again, and the planner must bring everything into order, and be content.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::{
    Addresses, Change, ClusterMap, Effect, Endpoint, Foundation, Founder, Group, Limits,
    MAP_REGION, NEWEST, NodeState, Observed, Peer, Settings, Step, plan,
};

pub(crate) fn addresses(number: u64) -> Addresses {
    let host = format!("10.0.0.{number}");
    Addresses {
        clients: Endpoint {
            host: host.clone(),
            port: 6379,
            tls_port: 0,
        },
        advertised: None,
        peers: Peer { host, port: 16379 },
    }
}

/// A cluster of nodes 1, 2...
pub(crate) fn founded(nodes: u64, regions: u16, replicas: u8) -> ClusterMap {
    let founder = |number| Founder {
        addresses: addresses(number),
        version: NEWEST,
        incarnation: 9,
    };
    let mut map = ClusterMap::default();
    let foundation = Foundation {
        cluster: 7,
        settings: Settings {
            replicas,
            balance: true,
        },
        nodes: (1..=nodes).map(founder).collect(),
        regions,
    };
    map.apply(&Change::Found(foundation)).unwrap();
    map
}

/// Groups that are what the map says, each led by its first voter.
pub(crate) fn obedient(map: &ClusterMap) -> Observed {
    let groups = map.regions().map(|region| {
        let voters = region.voters();
        let group = Group {
            leader: *voters.first().unwrap(),
            lag: voters.iter().map(|voter| (*voter, 0)).collect(),
            configs: vec![voters],
            learners: BTreeSet::new(),
            settled: true,
            epoch: region.epoch,
        };
        (region.id, group)
    });
    Observed {
        alive: map.nodes().map(|node| node.id).collect(),
        groups: groups.collect(),
        ..Observed::default()
    }
}

struct World {
    rng: Rng,
    map: ClusterMap,
    groups: BTreeMap<u64, Group>,
    alive: BTreeSet<u64>,
    /// Every replica that ever was, and where.
    replicas: BTreeMap<u64, (u64, u64)>,
    added: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let nodes = rng.u64(1..=6);
        let map = founded(nodes, rng.u16(1..=12), rng.u8(1..=5));
        let observed = obedient(&map);
        let mut world = World {
            rng,
            groups: observed.groups,
            alive: observed.alive,
            map,
            replicas: BTreeMap::new(),
            added: nodes,
        };
        world.check();
        world
    }

    /// What holds at every moment.
    fn check(&mut self) {
        assert_eq!(self.map.faults(), Vec::<String>::new());
        for region in self.map.regions() {
            for (id, replica) in &region.replicas {
                let place = (region.id, replica.node);
                let known = self.replicas.entry(*id).or_insert(place);
                assert_eq!(*known, place, "replica {id} is used again");
            }
        }
    }

    fn apply(&mut self, change: Change) -> bool {
        let before = self.map.clone();
        let applied = self.map.apply(&change);
        match applied {
            Ok(effect) => {
                assert_eq!(self.map.epoch(), before.epoch() + 1);
                if let Effect::Node(node) = effect {
                    self.alive.insert(node);
                }
            }
            Err(_) => assert_eq!(self.map, before, "{change:?} was refused"),
        }
        for region in before.regions() {
            let after = self.map.region(region.id).map(|after| after.epoch);
            assert!(after >= Some(region.epoch), "an epoch fell");
        }
        self.check();
        applied.is_ok()
    }

    /// Somebody asks for something.
    fn operate(&mut self) {
        let node = self.rng.u64(1..=self.added);
        let regions: Vec<u64> = self.map.regions().map(|region| region.id).collect();
        let region = regions[self.rng.usize(..regions.len())];
        let replicas = self.map.region(region).unwrap().replicas.keys();
        let replicas: Vec<u64> = replicas.copied().collect();
        let replica = replicas[self.rng.usize(..replicas.len())];
        let change = match self.rng.u8(0..12) {
            0 | 1 if self.added < 12 => {
                self.added += 1;
                Change::AddNode {
                    addresses: addresses(self.added),
                    version: NEWEST,
                    incarnation: 9,
                }
            }
            2 | 3 => Change::DrainNode { node },
            4 => Change::KeepNode { node },
            5 => Change::Configure(Settings {
                replicas: self.rng.u8(1..=5),
                balance: self.rng.u8(0..4) > 0,
            }),
            6 => Change::BeginSplit {
                region,
                at: self.rng.u16(..16384),
            },
            7 => Change::AddReplica {
                region,
                node,
                replaces: self.rng.bool().then_some(replica),
            },
            8 => Change::RemoveNode { node },
            9 => Change::Prefer {
                region,
                replica: self.rng.u8(0..4).checked_sub(1).map(|_| replica),
            },
            10 => Change::Lose { region, replica },
            _ => Change::RemoveReplica { region, replica },
        };
        self.apply(change);
    }

    /// A node dies, or comes back.
    fn disturb(&mut self) {
        let node = self.rng.u64(1..=self.added);
        if !self.alive.remove(&node) {
            self.alive.insert(node);
        }
    }

    /// Groups whose leader is gone elect another, if a majority is left; learners catch up.
    fn live(&mut self) {
        for (id, group) in &mut self.groups {
            let region = self.map.region(*id).unwrap();
            let is_alive = |replica: u64| {
                region
                    .node_of(replica)
                    .is_some_and(|node| self.alive.contains(&node))
            };
            if !is_alive(group.leader) {
                let voters: Vec<u64> = group
                    .voters()
                    .into_iter()
                    .filter(|voter| is_alive(*voter))
                    .collect();
                if !voters.is_empty() {
                    group.leader = voters[self.rng.usize(..voters.len())];
                }
            }
            for lag in group.lag.values_mut() {
                *lag /= 4;
            }
        }
    }

    fn observed(&self) -> Observed {
        let led = self.groups.iter().filter(|(id, group)| {
            let region = self.map.region(**id).unwrap();
            let is_alive = |replica: &u64| {
                region
                    .node_of(*replica)
                    .is_some_and(|node| self.alive.contains(&node))
            };
            is_alive(&group.leader)
                && group.configs.iter().all(|config| {
                    config.iter().filter(|voter| is_alive(voter)).count() * 2 > config.len()
                })
        });
        Observed {
            alive: self.alive.clone(),
            groups: led.map(|(id, group)| (*id, group.clone())).collect(),
            ..Observed::default()
        }
    }

    /// Does what was planned; in times of trouble, not all of it. Returns whether there was nothing to do.
    fn follow(&mut self, troubled: bool) -> bool {
        let observed = self.observed();
        let planned = plan(&self.map, &observed, Limits::default());
        let again = plan(&self.map, &observed, Limits::default());
        assert_eq!(planned, again, "it does not depend on chance");
        for step in &planned.steps {
            if !(troubled && self.rng.u8(0..4) == 0) {
                self.perform(step.clone(), troubled);
            }
        }
        self.live();
        planned.steps.is_empty() && planned.waiting.is_empty()
    }

    /// Nothing is put on a node that is to leave, or does not answer.
    fn check_sense(&self, step: &Step) {
        let node = match step {
            Step::Propose(Change::AddReplica { node, .. }) => {
                assert!(self.map.is_active(*node), "{step:?}");
                Some(*node)
            }
            Step::AddLearner { node, .. } => Some(*node),
            Step::Transfer { region, to } => self.map.region(*region).unwrap().node_of(*to),
            _ => return,
        };
        assert!(
            node.is_some_and(|node| self.alive.contains(&node)),
            "{step:?}"
        );
    }

    fn perform(&mut self, step: Step, troubled: bool) {
        self.check_sense(&step);
        let by_halves = troubled && self.rng.u8(0..3) == 0;
        let group = step
            .region()
            .and_then(|region| self.groups.get_mut(&region));
        match (step, group) {
            (Step::Propose(change), _) => {
                assert!(self.apply(change.clone()), "{change:?} is refused");
            }
            (Step::AddLearner { replica, .. }, Some(group)) => {
                group.learners.insert(replica);
                group.lag.insert(replica, self.rng.u64(..1_000_000));
            }
            (Step::RemoveLearner { replica, .. }, Some(group)) => {
                group.learners.remove(&replica);
            }
            (Step::ChangeVoters { region, voters }, Some(group)) => {
                assert!(voters.contains(&group.leader), "a leader is removed");
                // The map never gives up a voter of which it wants as many.
                let wanted = self.map.region(region).unwrap().voters();
                assert!(voters.is_superset(&wanted), "a voter is lost");
                assert!(voters.iter().all(|voter| group.is_member(*voter)));
                group.learners.retain(|learner| !voters.contains(learner));
                match by_halves {
                    true => group.configs = vec![group.configs[0].clone(), voters],
                    false => group.configs = vec![voters],
                }
            }
            (Step::Transfer { to, .. }, Some(group)) => {
                assert!(group.voters().contains(&to) && to != group.leader);
                if !by_halves {
                    group.leader = to;
                }
            }
            (Step::Split { region, split }, Some(group)) => {
                // Once, however often it is asked for.
                if group.epoch == self.map.region(region).unwrap().epoch {
                    group.epoch += 1;
                }
                assert!(split.replicas.keys().eq(&group.configs[0]));
            }
            (step, None) => panic!("{step:?} without a leader"),
        }
        self.begin_groups();
        let left = |replica: &u64| {
            self.map
                .regions()
                .any(|region| region.replicas.contains_key(replica))
        };
        for group in self.groups.values() {
            assert!(
                group.voters().iter().all(left),
                "the map has forgotten a voter"
            );
        }
    }

    /// Regions that came from a split have groups of their own.
    fn begin_groups(&mut self) {
        for (id, group) in obedient(&self.map).groups {
            self.groups.entry(id).or_insert(group);
        }
    }

    /// All nodes are well, and nobody asks for anything more.
    fn settle(&mut self) {
        self.alive = (1..=self.added).collect();
        let replicas = self.map.settings().replicas;
        self.apply(Change::Configure(Settings {
            replicas,
            balance: true,
        }));
        let bound = 400 + 40 * self.map.regions().count();
        for _ in 0..bound {
            self.live();
            if self.follow(false) {
                return self.check_order();
            }
        }
        let left = plan(&self.map, &self.observed(), Limits::default());
        panic!("it does not come to an end: {left:?}");
    }

    fn check_order(&self) {
        let map = &self.map;
        assert!(map.nodes().all(|node| node.state != NodeState::Draining));
        let mut replicas: BTreeMap<u64, usize> =
            map.active_nodes().map(|node| (node.id, 0)).collect();
        let mut leaders = replicas.clone();
        for region in map.regions() {
            assert!(region.is_settled());
            let group = &self.groups[&region.id];
            assert_eq!(group.configs, [region.voters()]);
            assert_eq!(group.learners, BTreeSet::new());
            assert_eq!(region.replicas.len(), map.wanted_replicas(region.id));
            let leader = region.preferred.unwrap_or(group.leader);
            assert_eq!(group.leader, leader, "who should lead does not");
            if region.id != MAP_REGION {
                for replica in region.replicas.values() {
                    *replicas.get_mut(&replica.node).expect("an active node") += 1;
                }
                *leaders
                    .get_mut(&region.node_of(group.leader).unwrap())
                    .expect("an active node") += 1;
            }
        }
        // Those who lead because somebody asked for it may be too many on one node.
        let is_free = map.regions().all(|region| region.preferred.is_none());
        for counts in [Some(replicas), is_free.then_some(leaders)] {
            let counts: Vec<usize> = counts.into_iter().flat_map(BTreeMap::into_values).collect();
            let range = (counts.iter().min(), counts.iter().max());
            let is_even = range
                .0
                .zip(range.1)
                .is_none_or(|(least, most)| most - least <= 1);
            assert!(is_even, "{counts:?}");
        }
    }
}

fn live_through(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.rng.usize(0..60) {
        match world.rng.u8(0..5) {
            0 => world.operate(),
            1 => world.disturb(),
            _ => {
                world.follow(true);
            }
        }
        world.live();
    }
    world.settle();
    let bytes = world.map.encode();
    assert_eq!(ClusterMap::decode(&bytes), Ok(world.map));
}

#[test]
fn every_cluster_comes_into_order() {
    for seed in 0..2000 {
        let lived = std::panic::catch_unwind(|| live_through(seed));
        if let Err(why) = lived {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(why);
        }
    }
}

#[test]
fn a_founded_cluster_is_in_order() {
    for (nodes, regions, replicas) in [(3, 16, 3), (1, 1, 3), (5, 7, 3), (4, 16, 2), (6, 1, 5)] {
        let map = founded(nodes, regions, replicas);
        assert_eq!(map.faults(), Vec::<String>::new());
        assert_eq!(map.replicas_on(1).count(), usize::from(regions) + 1);
        if nodes > u64::from(replicas) {
            // The first has more than its share.
            continue;
        }
        let planned = plan(&map, &obedient(&map), Limits::default());
        let moves = planned
            .steps
            .iter()
            .filter(|step| !matches!(step, Step::Transfer { .. }));
        assert_eq!(moves.count(), 0, "{nodes} nodes: {planned:?}");
    }
}

/// Nodes that are to get replicas.
fn given(map: &ClusterMap, observed: &Observed) -> Vec<u64> {
    let steps = plan(map, observed, Limits::default()).steps.into_iter();
    let given = steps.filter_map(|step| match step {
        Step::Propose(Change::AddReplica { node, .. }) => Some(node),
        _ => None,
    });
    given.collect()
}

#[test]
fn nodes_without_room_are_given_nothing() {
    let mut map = founded(4, 2, 3);
    map.apply(&Change::DrainNode { node: 2 }).unwrap();
    let mut observed = obedient(&map);
    assert!(given(&map, &observed).contains(&3));
    observed.short_of_disk.insert(3);
    let elsewhere = given(&map, &observed);
    assert!(!elsewhere.is_empty() && !elsewhere.contains(&3));
    // What is on its way there when the room runs out is given up.
    let moved = Change::AddReplica {
        region: 1,
        node: 4,
        replaces: None,
    };
    map.apply(&moved).unwrap();
    let replica = map.region(1).unwrap().replica_on(4).unwrap();
    let abandoned = Step::Propose(Change::Abandon { region: 1, replica });
    let steps = |observed: &Observed| plan(&map, observed, Limits::default()).steps;
    assert!(!steps(&observed).contains(&abandoned));
    observed.short_of_disk.insert(4);
    assert!(steps(&observed).contains(&abandoned));
}

#[test]
fn nothing_is_evened_out_with_nodes_without_room() {
    // All is on three nodes, and one has just come.
    let mut map = founded(3, 8, 3);
    let new = Change::AddNode {
        addresses: addresses(4),
        version: NEWEST,
        incarnation: 9,
    };
    map.apply(&new).unwrap();
    let mut observed = obedient(&map);
    assert!(given(&map, &observed).contains(&4));
    observed.short_of_disk.insert(4);
    assert!(given(&map, &observed).is_empty());
}
