//! A cluster of real processes that are killed, stopped, cut off and moved about: nothing acknowledged is lost, and what clients
//! are told can be true.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Value;
use cairn_tests::fault::{one_at_a_time, setting};
use cairn_tests::nemesis::administrator::Status;
use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::nemesis::{
    ClusterClient, Damage, Fault, Ledger, Objects, Target, Trouble, run, until,
};

const PATIENCE: Duration = Duration::from_secs(5);

fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

fn client(cluster: &Cluster) -> ClusterClient {
    ClusterClient::new(cluster.fleet.addresses(), PATIENCE)
}

/// Keys in all regions.
fn keys(status: &Status) -> Vec<String> {
    let regions = status.regions.iter().enumerate();
    regions
        .flat_map(|(number, region)| [region.key(2 * number), region.key(2 * number + 1)])
        .collect()
}

/// Has all regions written to while something happens, and finds all that was acknowledged.
fn nothing_is_lost(
    cluster: &mut Cluster,
    what: &str,
    meanwhile: impl FnOnce(&mut Cluster),
) -> Ledger {
    let status = cluster.administrator.until_settled(REPLICAS);
    let (seeds, keys) = (cluster.fleet.addresses(), keys(&status));
    let (ledger, ()) = Ledger::keep(&seeds, &keys, PATIENCE, || meanwhile(cluster));
    let missing = ledger.missing(&mut client(cluster));
    assert!(missing.is_empty(), "{what}: {missing:?}");
    println!(
        "{what}: {} acknowledged, {} unknown",
        ledger.acknowledged(),
        ledger.unknown()
    );
    ledger
}

/// Replicas of a region hold the same.
fn replicas_agree(cluster: &Cluster) {
    let checked = cluster.administrator.order(&["check"]);
    assert!(checked.is_ok(), "{checked:?}");
}

#[test]
fn every_node_may_die() {
    let _turn = one_at_a_time();
    let mut cluster = Cluster::found(&Setup::default());
    nothing_is_lost(&mut cluster, "each node dies", |cluster| {
        for node in 0..cluster.fleet.len() {
            pause(500);
            cluster.fleet.kill(node);
            pause(3000);
            cluster.fleet.revive(node);
            cluster.administrator.until_settled(REPLICAS);
        }
    });
    nothing_is_lost(&mut cluster, "all nodes die", |cluster| {
        pause(500);
        (0..cluster.fleet.len()).for_each(|node| cluster.fleet.kill(node));
        (0..cluster.fleet.len()).for_each(|node| cluster.fleet.revive(node));
        cluster.administrator.until_settled(REPLICAS);
        pause(500);
    });
    nothing_is_lost(&mut cluster, "each node is restarted", |cluster| {
        for node in 0..cluster.fleet.len() {
            cluster.fleet.restart(node);
            cluster.administrator.until_settled(REPLICAS);
        }
    });
    replicas_agree(&cluster);
}

#[test]
fn every_node_sends_clients_to_the_leader() {
    let _turn = one_at_a_time();
    let cluster = Cluster::found(&Setup::default());
    let status = cluster.administrator.until_settled(REPLICAS);
    for region in &status.regions {
        let key = region.key(0);
        for node in 0..cluster.fleet.len() {
            let mut client = cluster.fleet.node(node).client();
            let reply = client.command(&["SET", &key, "value"]);
            if Some(node) == region.leader {
                assert_eq!(reply, Value::ok());
                continue;
            }
            let Value::Error(text) = reply else {
                panic!("node {node} answers for {key}: {reply:?}");
            };
            let leader = cluster.fleet.node(region.leader.expect("a leader")).addr();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(
                text.starts_with("MOVED ") && text.ends_with(&leader),
                "{text}"
            );
        }
    }
    // A value that takes long to write moves nobody's lead.
    let (region, large) = (&status.regions[0], "x".repeat(64 << 20));
    let mut client = cluster
        .fleet
        .node(region.leader.expect("a leader"))
        .client();
    let key = region.key(0);
    assert_eq!(client.command(&["SET", &key, &large]), Value::ok());
    assert_eq!(client.command(&["STRLEN", &key]), Value::Int(64 << 20));
    let leaders = |status: &Status| -> Vec<_> {
        let regions = status.regions.iter();
        regions.map(|region| (region.id, region.leader)).collect()
    };
    let after = cluster.administrator.until_settled(REPLICAS);
    assert_eq!(leaders(&after), leaders(&status));
    let mut any = cluster.fleet.node(0).client();
    let crossing = any.command(&["MSET", "a", "1", "b", "2"]);
    assert_eq!(
        crossing,
        Value::error("CROSSSLOT Keys in request don't hash to the same slot")
    );
}

#[test]
fn planned_transfers_are_quick_and_lose_nothing() {
    let _turn = one_at_a_time();
    let mut cluster = Cluster::found(&Setup::default());
    let mut moments = Vec::new();
    let ledger = nothing_is_lost(&mut cluster, "leads are handed over", |cluster| {
        let mut rng = fastrand::Rng::new();
        for _ in 0..8 {
            pause(300);
            moments.push(Instant::now());
            assert!(cluster.administrator.transfer_any(&mut rng), "a transfer");
        }
        pause(500);
    });
    let longest = moments.iter().map(|moment| {
        let resumed = ledger.pages.iter().map(|page| page.resumed_after(*moment));
        resumed.max().flatten().expect("writes go on")
    });
    let longest = longest.max().expect("transfers");
    println!("writes went on after {longest:?} at most");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

/// A → B → A, with proposals under way that were evaluated for A's first term.
#[test]
fn a_lead_that_goes_and_comes_back_commits_nothing_stale() {
    let _turn = one_at_a_time();
    let setup = Setup {
        regions: 1,
        ..Setup::default()
    };
    let cluster = Cluster::found(&setup);
    let objects = Objects {
        registers: 4,
        counters: 2,
        lists: 2,
        banks: 2,
        reads_replicas: true,
        prefix: String::new(),
        seed: 1,
    };
    let seeds = cluster.fleet.addresses();
    let mut transfers = 0;
    let history = run(&seeds, 8, &objects, PATIENCE, || {
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            let mut rng = fastrand::Rng::new();
            transfers += usize::from(cluster.administrator.transfer_any(&mut rng));
        }
    });
    let summary = history.check();
    println!("{transfers} transfers; {summary}");
    assert!(summary.anomalies.is_empty() && summary.undecided.is_empty());
    assert!(
        transfers >= 4 && summary.done > 500,
        "{transfers} transfers; {summary}"
    );
}

#[test]
fn nodes_come_and_go_while_clients_write() {
    let _turn = one_at_a_time();
    let setup = Setup {
        nodes: 4,
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    nothing_is_lost(&mut cluster, "a node is added", |cluster| {
        let address = cluster.fleet.node(3).addr();
        let added = cluster
            .administrator
            .order_at(0, &["add-node", "--address", &address]);
        assert!(added.is_ok(), "{added:?}");
        until("the new node gets its share", || {
            let status = cluster.administrator.status();
            let status = status.filter(|status| status.is_whole(REPLICAS));
            status.is_some_and(|status| {
                status
                    .regions
                    .iter()
                    .any(|region| region.voters.contains(&3))
            })
        });
    });
    nothing_is_lost(&mut cluster, "a node is removed", |cluster| {
        let status = cluster.administrator.until_settled(REPLICAS);
        let id = status.ids[&0].to_string();
        let removed = cluster
            .administrator
            .order_at(1, &["remove-node", "--id", &id]);
        assert!(removed.is_ok(), "{removed:?}");
        let status = cluster.administrator.until_settled(REPLICAS);
        let has_gone = status
            .regions
            .iter()
            .all(|region| !region.voters.contains(&0));
        assert!(has_gone, "{status:?}");
    });
    cluster.fleet.kill(0);
    nothing_is_lost(&mut cluster, "the removed node is gone", |_| pause(1000));
}

/// A follower sleeps while keys expire or are kept alive, wakes up alone and compacts what it has, and then leads.
#[test]
fn a_frozen_follower_brings_nothing_back_and_drops_nothing() {
    const KEYS: usize = 200;
    let _turn = one_at_a_time();
    let setup = Setup {
        regions: 1,
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    let status = cluster.administrator.until_settled(REPLICAS);
    let region = &status.regions[0];
    let leader = region.leader.expect("a leader");
    let follower = (leader + 1) % cluster.fleet.len();
    let mut at = cluster.fleet.node(leader).client();
    let mut all = |commands: &[&str]| {
        let commands = (0..KEYS).flat_map(|n| {
            let filled = commands
                .iter()
                .map(move |text| text.replace('#', &n.to_string()));
            filled.map(|text| text.split(' ').map(str::to_string).collect())
        });
        let replies = at.pipeline(&commands.collect::<Vec<Vec<String>>>());
        let replies = replies.expect("the leader answers");
        let refused = replies
            .iter()
            .find(|reply| matches!(reply, Value::Error(_)));
        assert_eq!(refused, None);
    };
    all(&[
        "SET gone:# x PX 3000",
        "SADD gone-set:# a b c",
        "PEXPIRE gone-set:# 3000",
        "SET renewed:# old PX 3000",
        "HSET kept:# field value",
        "PEXPIRE kept:# 3000",
    ]);
    pause(300);
    cluster.fleet.stop(follower);
    // It does not know, and by its own clock these are due when it wakes up.
    all(&["PERSIST kept:#"]);
    pause(3500);
    all(&["SET renewed:# new"]);
    let mut rng = fastrand::Rng::new();
    assert!(cluster.hurt(Fault::Part, &[follower], &mut rng));
    cluster.fleet.go_on(follower);
    let mut behind = cluster.fleet.node(follower).client();
    assert_eq!(behind.line("DEBUG COMPACT"), Value::ok());
    cluster.heal(Fault::Part, &[follower]);
    assert_eq!(behind.line("DEBUG COMPACT"), Value::ok());
    lead(&cluster, region.id, follower);
    assert_eq!(behind.line("DEBUG COMPACT"), Value::ok());
    let expected = [
        ("GET gone:#", Value::Null),
        ("SCARD gone-set:#", Value::Int(0)),
        ("GET renewed:#", Value::bulk("new")),
        ("HGET kept:# field", Value::bulk("value")),
    ];
    for (command, value) in &expected {
        for n in 0..KEYS {
            let command = command.replace('#', &n.to_string());
            assert_eq!(&behind.line(&command), value, "{command}");
        }
    }
    replicas_agree(&cluster);
}

/// Has a node lead a region.
fn lead(cluster: &Cluster, region: u64, node: usize) {
    let administrator = &cluster.administrator;
    until("the node leads", || {
        let status = administrator.until_settled(REPLICAS);
        let told = administrator.transfer(region, status.ids[&node]);
        let mut regions = status.regions.iter();
        told.is_ok() && regions.any(|found| found.id == region && found.leader == Some(node))
    });
}

/// What has expired has for all who ask, whichever node answers and whatever its clock says.
#[test]
fn keys_expire_by_the_leaders_clock_for_all() {
    const MINUTES: i64 = 60_000;
    let _turn = one_at_a_time();
    let setup = Setup {
        regions: 1,
        clocks: true,
        links: false,
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    let status = cluster.administrator.until_settled(REPLICAS);
    let (id, leader) = (status.regions[0].id, status.regions[0].leader);
    let leader = leader.expect("a leader");
    let [ahead, behind] = [1, 2].map(|step| (leader + step) % 3);
    // Nobody deletes what is due: all depends on who is asked.
    for node in 0..cluster.fleet.len() {
        let mut client = cluster.fleet.node(node).client();
        assert_eq!(client.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    }
    cluster.set_clock(ahead, 5 * MINUTES);
    let mut at = cluster.fleet.node(leader).client();
    assert_eq!(at.line("SET long x PX 200000"), Value::ok());
    let reader = |node: usize, command: &str| {
        let mut client = cluster.fleet.node(node).client();
        assert_eq!(client.line("READONLY"), Value::ok());
        client.line(command)
    };
    // By the clock of that node it is over.
    assert_eq!(reader(ahead, "GET long"), Value::bulk("x"));
    assert_eq!(reader(ahead, "EXISTS long"), Value::Int(1));
    // The leader is ahead of the third, and has hidden what is not due there.
    assert_eq!(at.line("SET short x PX 30000"), Value::ok());
    cluster.set_clock(leader, MINUTES);
    assert_eq!(at.line("GET short"), Value::Null);
    assert_eq!(reader(behind, "GET short"), Value::Null);
    // Whoever leads next has heard of the time, though nothing was written since.
    assert_eq!(at.line("SET hidden x PX 100000"), Value::ok());
    cluster.set_clock(ahead, 0);
    cluster.set_clock(leader, 3 * MINUTES);
    assert_eq!(at.line("GET hidden"), Value::Null);
    pause(500);
    cluster.fleet.kill(leader);
    until("another leads", || {
        let mut others = (0..cluster.fleet.len()).filter(|node| *node != leader);
        others.any(|node| {
            let mut client = cluster.fleet.node(node).client();
            let reply = client.line("GET hidden");
            assert_ne!(reply, Value::bulk("x"), "it came back");
            reply == Value::Null
        })
    });
    cluster.fleet.revive(leader);
    let found = cluster.administrator.until_settled(REPLICAS);
    assert!(found.regions.iter().any(|region| region.id == id));
}

/// A node is away for longer than the logs last, and catches up by snapshots, by itself.
#[test]
fn a_node_that_was_away_for_long_catches_up() {
    let _turn = one_at_a_time();
    let setup = Setup {
        flags: [
            "--cluster-log-size",
            "65536",
            "--cluster-log-limit",
            "65536",
        ]
        .map(str::to_string)
        .to_vec(),
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    nothing_is_lost(&mut cluster, "a node is away for long", |cluster| {
        cluster.fleet.kill(2);
        write_much(cluster);
        cluster.fleet.revive(2);
        cluster.administrator.until_settled(REPLICAS);
    });
    let log = cluster.fleet.node(2).log();
    assert!(log.contains("snapshot"), "it was sent a snapshot\n{log}");
    replicas_agree(&cluster);
    // What it got is whole: without another node, it is needed for everything.
    nothing_is_lost(&mut cluster, "it is needed", |cluster| {
        cluster.fleet.kill(0);
        pause(3000);
        cluster.fleet.revive(0);
        cluster.administrator.until_settled(REPLICAS);
    });
}

/// More than the logs keep, and rows of every kind.
fn write_much(cluster: &Cluster) {
    let mut client = client(cluster);
    for n in 0..1500 {
        let key = format!("much:{n}");
        let commands = [
            vec!["SET".to_string(), key.clone(), "x".repeat(1000)],
            vec![
                "ZADD".to_string(),
                format!("{{{key}}}:z"),
                "1".to_string(),
                "m".to_string(),
            ],
        ];
        client.call(&key, &commands);
    }
}

/// Everything at once, for as long as CI has time: `make chaos` goes on for longer.
#[test]
fn clients_are_told_what_can_be_true() {
    let _turn = one_at_a_time();
    let seed = setting("CHAOS_SEED", fastrand::u64(..1 << 32));
    println!("CHAOS_SEED={seed}");
    let setup = Setup {
        nodes: 4,
        founders: 4,
        clocks: true,
        disk: Some("512m"),
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    let seeds = cluster.fleet.addresses();
    let objects = Objects {
        registers: 12,
        counters: 6,
        lists: 6,
        banks: 6,
        reads_replicas: true,
        prefix: String::new(),
        seed,
    };
    let mut trouble = Trouble::of_all_kinds(seed);
    let duration = Duration::from_secs(setting("CHAOS_SECONDS", 120));
    let mut damage = Damage::default();
    let history = run(&seeds, 8, &objects, Duration::from_secs(2), || {
        damage = trouble.make(&mut cluster, duration);
    });
    let summary = history.check();
    println!("{damage}\n{summary}");
    assert!(summary.anomalies.is_empty() && summary.undecided.is_empty());
    // In less time not everything has its turn.
    if duration >= Duration::from_secs(90) {
        let lacks = damage.lacks(&cluster.possible_faults());
        assert!(lacks.is_empty(), "none of {lacks:?} was done");
    }
    let casualties = cluster.casualties();
    assert!(casualties.is_empty(), "{}", casualties.join("\n"));
    cluster.administrator.until_settled(REPLICAS);
    replicas_agree(&cluster);
}
