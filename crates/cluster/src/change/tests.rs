use super::*;
use cairn_encoding::SLOTS;

use crate::found::{Foundation, Founder};
use crate::layout::NEWEST;
use crate::region::MAP_REGION;
use crate::simulation::{addresses, founded};
use crate::slots::SlotRange;

/// What is refused has changed nothing.
#[track_caller]
fn refused(map: &mut ClusterMap, change: Change, why: &str) {
    let before = map.clone();
    let refusal = map.apply(&change).expect_err("it is refused");
    assert_eq!(refusal.to_string(), why);
    assert_eq!(*map, before);
}

#[track_caller]
fn done(map: &mut ClusterMap, change: Change) -> Effect {
    let effect = map.apply(&change).expect("it fits");
    assert_eq!(map.faults(), Vec::<String>::new());
    effect
}

#[test]
fn a_cluster_is_founded_once() {
    let mut map = ClusterMap::default();
    refused(
        &mut map,
        Change::DrainNode { node: 1 },
        "there is no cluster yet",
    );
    let founder = |number| Founder {
        addresses: addresses(number),
        version: NEWEST,
        incarnation: 9,
    };
    let foundation = |nodes: Vec<Founder>, regions, replicas| {
        Change::Found(Foundation {
            cluster: 7,
            settings: Settings {
                replicas,
                balance: true,
            },
            nodes,
            regions,
        })
    };
    let begins = "a cluster begins with at least one node, and with 1 to 16384 regions";
    refused(&mut map, foundation(vec![], 1, 3), begins);
    refused(&mut map, foundation(vec![founder(1)], 0, 3), begins);
    refused(&mut map, foundation(vec![founder(1)], 16385, 3), begins);
    let twice = "10.0.0.1:16379 is named twice";
    refused(
        &mut map,
        foundation(vec![founder(1), founder(1)], 1, 3),
        twice,
    );
    let none = "a region can have 1 to 9 replicas, not 0";
    refused(&mut map, foundation(vec![founder(1)], 1, 0), none);
    let old = Founder {
        version: 0,
        ..founder(1)
    };
    let version = "it takes version 1, and node 1 reads version 0 at most";
    refused(&mut map, foundation(vec![old], 1, 1), version);

    let nodes = vec![founder(1), founder(2), founder(3)];
    done(&mut map, foundation(nodes.clone(), 16, 3));
    refused(
        &mut map,
        foundation(nodes, 16, 3),
        "there is a cluster already",
    );
    assert_eq!(map.regions().count(), 17);
    assert_eq!(map.region_of(0).unwrap().id, 1);
    assert_eq!(map.region_of(16383).unwrap().id, 16);
    assert!(map.regions().all(|region| region.replicas.len() == 3));
    let regions = map.regions_by_slot().unwrap();
    assert!((0..SLOTS).all(|slot| map.region_of(slot).unwrap().id == regions[usize::from(slot)]));
    assert_eq!(ClusterMap::default().regions_by_slot(), None);
}

/// The data of a standalone server is that of region 1, which has all slots.
#[test]
fn a_standalone_server_becomes_a_cluster() {
    let mut map = founded(1, 1, 3);
    let region = map.region(1).unwrap();
    assert_eq!(region.slots, Some(SlotRange::ALL));
    assert_eq!(region.replicas.len(), 1);
    assert_eq!(map.wanted_replicas(1), 1);
    let version = NEWEST;
    for number in 2..=3 {
        let addresses = addresses(number);
        let added = done(
            &mut map,
            Change::AddNode {
                addresses,
                version,
                incarnation: 9,
            },
        );
        assert_eq!(added, Effect::Node(number));
    }
    assert_eq!(map.wanted_replicas(1), 3);
    assert_eq!(map.wanted_replicas(MAP_REGION), 3);
}

#[test]
fn nodes_come_and_go() {
    let mut map = founded(3, 1, 3);
    let add = |number| Change::AddNode {
        addresses: addresses(number),
        version: NEWEST,
        incarnation: 9,
    };
    let taken = "node 2 has the address 10.0.0.2:16379 already";
    refused(&mut map, add(2), taken);
    let few = "3 replicas are wanted, and 2 nodes would be left: add a node first, or want fewer";
    refused(&mut map, Change::DrainNode { node: 2 }, few);
    assert_eq!(done(&mut map, add(4)), Effect::Node(4));
    done(&mut map, Change::DrainNode { node: 4 });
    refused(
        &mut map,
        Change::DrainNode { node: 4 },
        "node 4 is draining",
    );
    done(&mut map, Change::KeepNode { node: 4 });
    refused(&mut map, Change::KeepNode { node: 4 }, "node 4 is active");
    refused(&mut map, Change::RemoveNode { node: 4 }, "node 4 is active");
    done(&mut map, Change::DrainNode { node: 4 });
    done(&mut map, Change::RemoveNode { node: 4 });
    // Its address is free, and its number is not.
    assert_eq!(done(&mut map, add(4)), Effect::Node(5));
    refused(&mut map, Change::KeepNode { node: 4 }, "node 4 is removed");
    refused(
        &mut map,
        Change::DrainNode { node: 9 },
        "there is no node 9",
    );
    done(&mut map, Change::DrainNode { node: 1 });
    refused(
        &mut map,
        Change::RemoveNode { node: 1 },
        "node 1 has replicas",
    );
    let update = |node, number| Change::UpdateNode {
        node,
        addresses: addresses(number),
        version: NEWEST,
    };
    done(&mut map, update(2, 22));
    assert_eq!(map.node(2).unwrap().endpoint().host, "10.0.0.22");
    refused(&mut map, update(4, 44), "node 4 is removed");
    refused(
        &mut map,
        update(3, 22),
        "node 2 has the address 10.0.0.22:16379 already",
    );
}

#[test]
fn a_replica_moves() {
    let mut map = founded(4, 1, 3);
    let on = |map: &ClusterMap, node| map.region(1).unwrap().replica_on(node);
    let (region, old) = (1, on(&map, 1).unwrap());
    done(
        &mut map,
        Change::Prefer {
            region,
            replica: Some(old),
        },
    );
    let add = Change::AddReplica {
        region,
        node: 4,
        replaces: Some(old),
    };
    let Effect::Replica(new) = done(&mut map, add.clone()) else {
        panic!("a replica");
    };
    refused(&mut map, add, "region 1 is being changed");
    let drop_old = Change::Drop {
        region,
        replica: old,
    };
    let promote = Change::Promote {
        region,
        replica: new,
    };
    refused(
        &mut map,
        drop_old.clone(),
        &format!("region 1 has no replica {old} for that"),
    );
    refused(
        &mut map,
        Change::BeginSplit { region, at: 5 },
        "region 1 is being changed",
    );
    done(&mut map, promote.clone());
    refused(
        &mut map,
        promote,
        &format!("region 1 has no replica {new} for that"),
    );
    let moved = map.region(1).unwrap();
    assert_eq!(moved.leaving(), [old].into());
    assert_eq!(moved.preferred, None);
    assert_eq!(moved.voters().len(), 3);
    done(&mut map, drop_old);
    assert_eq!(on(&map, 1), None);
    assert_eq!(on(&map, 4), Some(new));
    // Back again, under another number.
    let back = Change::AddReplica {
        region,
        node: 1,
        replaces: None,
    };
    assert_eq!(done(&mut map, back), Effect::Replica(new + 1));
    let replica = new + 1;
    done(&mut map, Change::Abandon { region, replica });
    refused(
        &mut map,
        Change::Abandon { region, replica },
        &format!("region 1 has no replica {replica} for that"),
    );
    done(&mut map, Change::Drop { region, replica });
    let twice = Change::AddReplica {
        region,
        node: 4,
        replaces: None,
    };
    refused(&mut map, twice, "region 1 has a replica on node 4");
}

#[test]
fn no_replica_is_given_up_that_is_wanted() {
    let mut map = founded(1, 1, 1);
    let replica = map.region(1).unwrap().replica_on(1).unwrap();
    let why = "region 1 would have fewer than the 1 replicas that are wanted";
    refused(&mut map, Change::RemoveReplica { region: 1, replica }, why);
}

/// A node whose replica is gone stays, and is given another under a new number.
#[test]
fn a_lost_replica_leaves_however_few_there_are() {
    let mut map = founded(4, 1, 3);
    let region = 1;
    let lost = map.region(region).unwrap().replica_on(3).unwrap();
    let replaces = Some(lost);
    let new = Change::AddReplica {
        region,
        node: 4,
        replaces,
    };
    done(&mut map, new);
    let lose = Change::Lose {
        region,
        replica: lost,
    };
    done(&mut map, lose.clone());
    let known = map.region(region).unwrap();
    assert_eq!(known.voters().len(), 2);
    assert!(known.leaving().contains(&lost) && known.replaced().is_empty());
    refused(
        &mut map,
        lose,
        &format!("region 1 has no replica {lost} for that"),
    );
    done(
        &mut map,
        Change::Drop {
            region,
            replica: lost,
        },
    );
    assert!(map.is_gone(region, lost));
    assert_eq!(map.region(region).unwrap().replica_on(3), None);
}

#[test]
fn the_last_voter_cannot_be_lost() {
    let mut map = founded(1, 1, 1);
    let replica = map.region(1).unwrap().replica_on(1).unwrap();
    let why = "region 1 would have fewer than the 1 replicas that are wanted";
    refused(&mut map, Change::Lose { region: 1, replica }, why);
}

#[test]
fn a_region_is_split() {
    let mut map = founded(3, 2, 3);
    let region = 1;
    refused(
        &mut map,
        Change::BeginSplit { region, at: 0 },
        "region 1 cannot be split at slot 0",
    );
    let outside = "region 1 cannot be split at slot 8192";
    refused(&mut map, Change::BeginSplit { region, at: 8192 }, outside);
    let at = 100;
    refused(
        &mut map,
        Change::BeginSplit {
            region: MAP_REGION,
            at,
        },
        "region 0 cannot be split at slot 100",
    );
    refused(
        &mut map,
        Change::FinishSplit { region, epoch: 2 },
        "region 1 is not being split",
    );
    assert_eq!(
        done(&mut map, Change::BeginSplit { region, at }),
        Effect::Region(3)
    );
    // Until the region's log has done it, nothing is otherwise.
    assert_eq!(map.region_of(100).unwrap().id, 1);
    let stale = "the epoch of region 1 is 1 already, and not 1";
    refused(&mut map, Change::FinishSplit { region, epoch: 1 }, stale);
    assert_eq!(
        done(&mut map, Change::FinishSplit { region, epoch: 2 }),
        Effect::Region(3)
    );
    assert_eq!(map.region_of(99).unwrap().id, 1);
    let new = map.region_of(100).unwrap();
    assert_eq!((new.id, new.epoch), (3, 2));
    let nodes = |id| {
        let replicas = map.region(id).unwrap().replicas.values();
        replicas.map(|replica| replica.node).collect::<Vec<_>>()
    };
    assert_eq!(nodes(1), nodes(3));
}

/// While nodes are upgraded one by one, nothing is written that one of them cannot read.
#[test]
fn nothing_is_changed_that_a_node_cannot_read() {
    let mut map = founded(3, 1, 3);
    map.nodes.get_mut(&2).unwrap().version = 0;
    let why = "it takes version 1, and node 2 reads version 0 at most";
    refused(&mut map, Change::Configure(Settings::default()), why);
    map.nodes.get_mut(&2).unwrap().version = NEWEST;
    let old = Change::AddNode {
        addresses: addresses(4),
        version: 0,
        incarnation: 9,
    };
    refused(
        &mut map,
        old,
        "it takes version 1, and node 4 reads version 0 at most",
    );
}

/// As if version 2 were the newest, and changed the settings in a new way.
#[test]
fn nodes_are_upgraded_one_by_one() {
    let mut map = founded(3, 1, 3);
    let old = Change::Configure(Settings::default());
    for node in 1..=3 {
        // All that was possible before is so still, and nodes of the old version read the map.
        done(&mut map, old.clone());
        let refusal = Refusal::Version {
            needed: 2,
            node,
            version: 1,
        };
        assert_eq!(map.apply_in(&old, 2), Err(refusal));
        assert_eq!(ClusterMap::decode_up_to(1, &map.encode()).unwrap(), map);
        let upgraded = Change::UpdateNode {
            node,
            addresses: addresses(node),
            version: 2,
        };
        done(&mut map, upgraded);
    }
    assert_eq!(ClusterMap::decode_up_to(1, &map.encode()).unwrap(), map);
    assert_eq!(map.apply_in(&old, 2), Ok(Effect::Done));
    assert!(ClusterMap::decode_up_to(1, &map.encode()).is_err());
    assert_eq!(ClusterMap::decode_up_to(2, &map.encode()).unwrap(), map);
    let late = Change::AddNode {
        addresses: addresses(4),
        version: 1,
        incarnation: 9,
    };
    let why = "it takes version 2, and node 4 reads version 1 at most";
    refused(&mut map, late, why);
}

#[test]
fn what_was_given_up_is_known_by_its_number() {
    let mut map = founded(4, 1, 3);
    let old = *map.region(1).unwrap().replicas.keys().next().unwrap();
    let free = (1..=4).find(|node| map.region(1).unwrap().replica_on(*node).is_none());
    let add = Change::AddReplica {
        region: 1,
        node: free.unwrap(),
        replaces: Some(old),
    };
    let before = map.clone();
    let Ok(Effect::Replica(new)) = map.apply(&add) else {
        panic!("no replica");
    };
    assert!(!before.is_gone(1, new), "it is too old to know");
    assert!(!map.is_gone(1, old) && !map.is_gone(1, new));
    for change in [
        Change::Promote {
            region: 1,
            replica: new,
        },
        Change::Drop {
            region: 1,
            replica: old,
        },
    ] {
        map.apply(&change).unwrap();
    }
    assert!(map.is_gone(1, old) && !map.is_gone(1, new));
    map.apply(&Change::BeginSplit { region: 1, at: 99 })
        .unwrap();
    let split = map.region(1).unwrap().split.clone().unwrap();
    assert!(split.replicas.values().all(|new| !map.is_gone(2, *new)));
    map.apply(&Change::FinishSplit {
        region: 1,
        epoch: 9,
    })
    .unwrap();
    assert!(split.replicas.values().all(|new| !map.is_gone(2, *new)));
}
