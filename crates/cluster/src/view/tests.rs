use super::*;
use crate::change::Change;
use crate::simulation::{addresses, founded, obedient};

/// Three nodes and four regions; node 1 leads the first two, 2 the third, 3 the last.
fn cluster() -> (ClusterMap, Observed) {
    let map = founded(3, 4, 3);
    let mut observed = obedient(&map);
    for (region, node) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
        let leader = map.region(region).unwrap().replica_on(node).unwrap();
        observed.groups.get_mut(&region).unwrap().leader = leader;
    }
    (map, observed)
}

fn view<'a>(map: &'a ClusterMap, observed: &'a Observed) -> View<'a> {
    View {
        map,
        observed,
        own: 2,
        tls: false,
        replica_reads: false,
    }
}

#[test]
fn slots_are_routed() {
    let (map, mut observed) = cluster();
    let at = |observed: &Observed, slot| view(&map, observed).route(slot).error();
    assert_eq!(at(&observed, 0).unwrap(), "MOVED 0 10.0.0.1:6379");
    assert_eq!(at(&observed, 8191).unwrap(), "MOVED 8191 10.0.0.1:6379");
    assert_eq!(at(&observed, 8192), None);
    assert_eq!(at(&observed, 16383).unwrap(), "MOVED 16383 10.0.0.3:6379");
    observed.groups.remove(&4);
    assert_eq!(
        at(&observed, 16383).unwrap(),
        "CLUSTERDOWN Hash slot not served"
    );
}

#[test]
fn advertised_addresses_are_told() {
    let (mut map, observed) = cluster();
    let advertised = crate::Endpoint {
        host: "db.example".into(),
        port: 7000,
        tls_port: 7443,
    };
    let addresses = crate::Addresses {
        advertised: Some(advertised),
        ..addresses(1)
    };
    let version = crate::NEWEST;
    let node = 1;
    map.apply(&Change::UpdateNode {
        node,
        addresses,
        version,
    })
    .unwrap();
    let plain = view(&map, &observed);
    assert_eq!(plain.route(0).error().unwrap(), "MOVED 0 db.example:7000");
    let tls = View { tls: true, ..plain };
    assert_eq!(tls.route(0).error().unwrap(), "MOVED 0 db.example:7443");
}

#[test]
fn nodes_as_redis_lists_them() {
    let (map, mut observed) = cluster();
    observed.alive.remove(&3);
    let view = view(&map, &observed);
    let name = |node| node_name(7, node);
    let expected = format!(
        "{} 10.0.0.1:6379@16379 master - 0 0 1 connected 0-8191\n\
         {} 10.0.0.2:6379@16379 myself,master - 0 0 2 connected 8192-12287\n\
         {} 10.0.0.3:6379@16379 master,fail - 0 0 3 disconnected 12288-16383\n",
        name(1),
        name(2),
        name(3)
    );
    assert_eq!(view.nodes(), expected);
    assert_eq!(view.my_id(), name(2));
    assert_eq!(view.replicas(&name(1)), Ok(vec![]));
    assert_eq!(view.replicas("x"), Err("ERR Unknown node x".to_string()));
}

#[test]
fn a_node_that_leads_nothing_may_be_shown_as_a_replica() {
    let (map, mut observed) = cluster();
    let leader = map.region(4).unwrap().replica_on(1).unwrap();
    observed.groups.get_mut(&4).unwrap().leader = leader;
    let view = View {
        replica_reads: true,
        ..view(&map, &observed)
    };
    let name = |node| node_name(7, node);
    let line = format!(
        "{} 10.0.0.3:6379@16379 slave {} 0 0 3 connected",
        name(3),
        name(1)
    );
    assert!(view.nodes().contains(&(line.clone() + "\n")));
    assert_eq!(view.replicas(&name(1)), Ok(vec![line]));
    let refused = view.replicas(&name(3));
    assert_eq!(
        refused,
        Err("ERR The specified node is not a master".to_string())
    );
    let hidden = View {
        replica_reads: false,
        ..view
    };
    assert!(!hidden.nodes().contains("slave"));
}

fn slots_node(node: u64) -> Answer {
    Answer::List(vec![
        Answer::text(format!("10.0.0.{node}")),
        Answer::Int(6379),
        Answer::text(node_name(7, node)),
        Answer::Map(vec![]),
    ])
}

#[test]
fn slots_as_redis_lists_them() {
    let (map, mut observed) = cluster();
    let range = |first, last, nodes: &[u64]| {
        let bounds = [Answer::Int(first), Answer::Int(last)];
        let nodes = nodes.iter().map(|node| slots_node(*node));
        Answer::List(bounds.into_iter().chain(nodes).collect())
    };
    let leaders = view(&map, &observed).slots();
    let expected = [
        range(0, 8191, &[1]),
        range(8192, 12287, &[2]),
        range(12288, 16383, &[3]),
    ];
    assert_eq!(leaders, Answer::List(expected.to_vec()));
    observed.alive.remove(&3);
    observed.groups.remove(&4);
    let all = View {
        replica_reads: true,
        ..view(&map, &observed)
    };
    let expected = [range(0, 8191, &[1, 2]), range(8192, 12287, &[2, 1])];
    assert_eq!(all.slots(), Answer::List(expected.to_vec()));
}

#[test]
fn shards_as_redis_lists_them() {
    let (map, observed) = cluster();
    let Answer::List(shards) = view(&map, &observed).shards() else {
        panic!("a list");
    };
    assert_eq!(shards.len(), 3);
    let pairs = |fields: Vec<(&str, Answer)>| {
        let fields = fields
            .into_iter()
            .map(|(name, value)| (Answer::text(name), value));
        Answer::Map(fields.collect())
    };
    let node = pairs(vec![
        ("id", Answer::text(node_name(7, 1))),
        ("port", Answer::Int(6379)),
        ("ip", Answer::text("10.0.0.1")),
        ("endpoint", Answer::text("10.0.0.1")),
        ("role", Answer::text("master")),
        ("replication-offset", Answer::Int(0)),
        ("health", Answer::text("online")),
    ]);
    let shard = pairs(vec![
        (
            "slots",
            Answer::List(vec![Answer::Int(0), Answer::Int(8191)]),
        ),
        ("nodes", Answer::List(vec![node])),
    ]);
    assert_eq!(shards[0], shard);
}

#[test]
fn info_tells_whether_all_slots_are_served() {
    let (map, mut observed) = cluster();
    let info = view(&map, &observed).info();
    assert_eq!(
        info,
        "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:3\r\n\
         cluster_size:3\r\ncluster_current_epoch:3\r\ncluster_my_epoch:2\r\n"
    );
    observed.groups.remove(&4);
    let info = view(&map, &observed).info();
    assert!(info.starts_with("cluster_state:fail\r\n"));
    assert!(info.contains("cluster_slots_ok:12288\r\n"));
    assert!(info.contains("cluster_slots_fail:4096\r\n"));
}

#[test]
fn links_are_the_connections_to_other_nodes() {
    let (map, observed) = cluster();
    let view = view(&map, &observed);
    let Answer::List(links) = view.links(&[(1, 77)]) else {
        panic!("a list");
    };
    let [Answer::Map(fields)] = links.as_slice() else {
        panic!("one link");
    };
    assert_eq!(fields[1].1, Answer::text(node_name(7, 1)));
    assert_eq!(fields[2].1, Answer::Int(77));
    assert!(view.knows(&node_name(7, 3)));
    assert!(!view.knows("x"));
}
