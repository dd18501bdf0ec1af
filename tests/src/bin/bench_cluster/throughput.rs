//! How many writes a second, beside etcd, and how many reads, beside a single Cairn.

use std::rc::Rc;
use std::time::Duration;

use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::server::Server;

use crate::Options;
use crate::etcd::Etcd;
use crate::grpc::Puts;
use crate::load::{self, Benchmark, Clients, KEYS, Key, VALUE, Writer};
use crate::report::{Report, median};
use crate::resp::Sets;

const READERS: usize = 50;
/// As etcd has a single group. More would spread nothing on one machine, and split what is written together.
const REGIONS: usize = 1;
/// How many clients share a connection, where they do.
const SHARED: usize = 16;
/// That clients are many is what makes writes go together, so a part of them is measured as well.
const FEW: usize = 4;

pub fn writes(options: &Options, report: &mut Report) {
    let clients = options.clients;
    let few = clients / FEW;
    report.section(
        "Writes, beside etcd",
        &format!(
            "Values of {VALUE} B at {KEYS} random keys, each acknowledged when a majority has synced it. \
             {clients} clients, as many as etcd's own benchmarks have, or {few}, with one request under way each. They \
             have a connection each, or {SHARED} of them share one, as streams of etcd's gRPC and as a pipeline of Redis' protocol. The same loop on one thread asks both: etcd at its leader, Cairn, in {REGIONS} region, at the \
             leader of the keys. Rounds in turn, each with fresh nodes.",
        ),
    );
    report.head(&[
        "clients",
        "connections",
        "round",
        "etcd, puts/s",
        "Cairn, SETs/s",
        "ratio",
    ]);
    let mut bars = Vec::new();
    for (connections, at_once) in [(clients, 1), (clients / SHARED, SHARED), (few, 1)] {
        let shape = Clients {
            connections,
            at_once,
        };
        let mut ratios = Vec::new();
        for round in 1..=options.rounds {
            let Some(etcd) = of_etcd(shape, options.duration) else {
                report.text("\netcd is not installed, so there is nothing to compare.");
                return;
            };
            let cairn = of_cairn(shape, options.duration);
            ratios.push(cairn / etcd);
            report.row(&[
                &(connections * at_once).to_string(),
                &connections.to_string(),
                &round.to_string(),
                &format!("{etcd:.0}"),
                &format!("{cairn:.0}"),
                &format!("{:.1}×", cairn / etcd),
            ]);
        }
        bars.push((connections, median(ratios)));
    }
    for (connections, ratio) in bars {
        let what =
            format!("Cairn takes at least 5 times as many over {connections} connections (median)");
        report.bar(&what, ratio.is_some_and(|ratio| ratio >= 5.0));
    }
}

fn of_etcd(clients: Clients, duration: Duration) -> Option<f64> {
    let etcd = Etcd::start()?;
    let before = etcd.status().expect("a leader");
    let keys: Rc<[Key]> = load::keys().collect();
    let writers = (0..clients.connections).map(|_| Writer {
        connection: Puts::connect(&before.leader).expect("a connection"),
        keys: keys.clone(),
    });
    let rate = load::rate(writers.collect(), clients.at_once, duration).expect("etcd answers");
    let changes = etcd.status().expect("a leader").revision - before.revision;
    // What was counted was done.
    assert!(changes as f64 >= rate * duration.as_secs_f64());
    Some(rate)
}

fn of_cairn(clients: Clients, duration: Duration) -> f64 {
    let cluster = Cluster::found(&Setup {
        regions: REGIONS,
        links: false,
        ..Setup::default()
    });
    let status = cluster.administrator.until_settled(REPLICAS);
    let led_by = |node: usize| {
        let is_led =
            |key: &Key| status.region_of(key).and_then(|region| region.leader) == Some(node);
        load::keys().filter(is_led).collect::<Rc<[Key]>>()
    };
    let addresses = cluster.fleet.addresses();
    let keys: Vec<_> = (0..addresses.len()).map(led_by).collect();
    let leaders: Vec<_> = (0..addresses.len())
        .filter(|node| !keys[*node].is_empty())
        .collect();
    let nodes = leaders.into_iter().cycle().take(clients.connections);
    let writers = nodes.map(|node| Writer {
        connection: Sets::connect(&addresses[node]).expect("a connection"),
        keys: keys[node].clone(),
    });
    load::rate(writers.collect(), clients.at_once, duration).expect("Cairn answers")
}

pub fn reads(options: &Options, report: &mut Report) {
    report.section(
        "Reads, beside a single Cairn",
        &format!(
            "GET of {KEYS} keys with values of {VALUE} B by redis-benchmark, {READERS} connections: from a server by \
             itself, and from the leader of a region that has all slots. Rounds in turn, at the same servers.",
        ),
    );
    let single = Server::cairn(&[]);
    let cluster = Cluster::found(&Setup {
        regions: 1,
        links: false,
        ..Setup::default()
    });
    let status = cluster.administrator.until_settled(REPLICAS);
    let leader = status.regions[0].leader.expect("a leader");
    let ports = [single.port(), cluster.fleet.node(leader).port()];
    for port in ports {
        benchmark(port, "set", 16).run(2 * KEYS as usize);
    }
    report.head(&[
        "requests at a time",
        "round",
        "by itself, GETs/s",
        "leader, GETs/s",
        "ratio",
    ]);
    let mut bars = Vec::new();
    for pipeline in [1, 16] {
        let mut ratios = Vec::new();
        for round in 1..=options.rounds {
            let [single, leader] =
                ports.map(|port| benchmark(port, "get", pipeline).rate(options.duration));
            ratios.push(leader / single);
            report.row(&[
                &pipeline.to_string(),
                &round.to_string(),
                &format!("{single:.0}"),
                &format!("{leader:.0}"),
                &format!("{:.2}×", leader / single),
            ]);
        }
        bars.push((pipeline, median(ratios)));
    }
    for (pipeline, ratio) in bars {
        let what =
            format!("a leader answers at least 0.8 times as many, {pipeline} at a time (median)");
        report.bar(&what, ratio.is_some_and(|ratio| ratio >= 0.8));
    }
}

fn benchmark(port: u16, command: &str, pipeline: usize) -> Benchmark<'_> {
    Benchmark {
        port,
        command,
        clients: Clients {
            connections: READERS,
            at_once: pipeline,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Clients; 2] = [
        Clients {
            connections: 64,
            at_once: 1,
        },
        Clients {
            connections: 4,
            at_once: 16,
        },
    ];

    #[test]
    fn what_is_counted_is_put() {
        for clients in SHAPES {
            let Some(rate) = of_etcd(clients, Duration::from_secs(1)) else {
                println!("skipped: etcd is not installed");
                return;
            };
            assert!(rate > 10.0, "{rate}");
        }
    }

    #[test]
    fn what_is_counted_is_set() {
        for clients in SHAPES {
            let rate = of_cairn(clients, Duration::from_secs(1));
            assert!(rate > 10.0, "{rate}");
        }
    }
}
