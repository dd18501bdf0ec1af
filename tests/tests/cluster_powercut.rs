//! The power of a cluster's nodes goes, at any moment: of one while the others go on, or of all at once.
//!
//! What was acknowledged has been synced by a majority, so all of it is there afterwards, and once: whatever has to be applied
//! again is, though logs are purged and tables compacted all the while. Clients work on counters, lists and
//! accounts, which show what was applied twice or not at all, and what they are told is judged as in `nemesis`. What they
//! leave is looked at again after all later cuts. See `powercut.rs` for how the power is cut.
//!
//! - `POWERCUT_ROUNDS`: how many rounds each test runs.
//! - `CRASH_SEED`: the random choices of a run that failed. Its timing is another matter.
//! - `CRASH_KEEP`: leaves the data directories behind.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use cairn_tests::client::Value;
use cairn_tests::ending::Ending;
use cairn_tests::fault::{check_offline, one_at_a_time, setting};
use cairn_tests::linearizability::History;
use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::nemesis::churn::{Churn, compact};
use cairn_tests::nemesis::{ClusterClient, Objects, Reached, run, until};
use cairn_tests::powercut::Damage;
use fastrand::Rng;

const NODES: usize = 3;
const REGIONS: usize = 3;
const CLIENTS: usize = 6;
const CHURNERS: usize = 2;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The least that there is. A log of this length is purged.
const LOG_SIZE: usize = 65_536;

/// Round by round: now and then values are such that the logs' own tables are written and compacted, too. And now and then there
/// is no garbage, and nobody compacts: both make durable what is there, and would hide that a log was purged of what is not.
const LOADS: [Churn; 3] = [
    Churn {
        largest: 300_000,
        garbage: true,
    },
    Churn {
        largest: 4_000,
        garbage: false,
    },
    Churn {
        largest: 4_000,
        garbage: true,
    },
];

/// In milliseconds: how long there is load before the power goes and when it is back, how long others go on meanwhile, and after
/// what time it goes a second time.
const LOAD: Range<u64> = 800..2500;
const AFTERWARDS: Range<u64> = 200..1000;
const AWAY: Range<u64> = 1500..3500;
const STARTING: Range<u64> = 0..300;
const CATCHING_UP: Range<u64> = 0..1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    One,
    All,
}

#[derive(Debug, Default)]
struct Tally {
    cuts: usize,
    damage: Damage,
    done: usize,
    unknown: usize,
    refused: usize,
    churned: usize,
    snapshots: usize,
}

struct Trial {
    outage: Outage,
    cluster: Cluster,
    rng: Rng,
    /// What keys hold to which nobody writes any more.
    settled: BTreeMap<String, Value>,
    tally: Tally,
}

/// One node that was away gets a snapshot soon. Where all are, logs grow until machines are made durable.
fn flags(outage: Outage) -> Vec<String> {
    let log_limit = match outage {
        Outage::One => LOG_SIZE,
        Outage::All => 16 * LOG_SIZE,
    };
    let flags = [
        ("--cluster-log-size", LOG_SIZE.to_string()),
        ("--cluster-log-limit", log_limit.to_string()),
        ("--cluster-election-timeout", "500".to_string()),
        ("--cluster-heartbeat", "100".to_string()),
        // With little memory, rows are drained and tables written soon.
        ("--memory", "64mb".to_string()),
    ];
    let flags = flags.into_iter();
    flags
        .flat_map(|(name, value)| [name.to_string(), value])
        .collect()
}

impl Trial {
    fn begin(outage: Outage) -> Trial {
        let seed = setting("CRASH_SEED", fastrand::u64(..));
        println!("{outage:?}, CRASH_SEED={seed}");
        let cluster = Cluster::found(&Setup {
            nodes: NODES,
            founders: NODES,
            regions: REGIONS,
            flags: flags(outage),
            power: true,
            links: false,
            ..Setup::default()
        });
        Trial {
            outage,
            cluster,
            rng: Rng::with_seed(seed),
            settled: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    fn round(&mut self, number: usize) {
        let objects = Objects {
            registers: 4,
            counters: 8,
            lists: 8,
            banks: 4,
            reads_replicas: true,
            prefix: format!("round:{number}:"),
            seed: self.rng.u64(..),
        };
        let before = self.snapshots();
        let seeds = self.cluster.fleet.addresses();
        let history = run(&seeds, CLIENTS, &objects, PATIENCE, || {
            self.under_load(LOADS[number % LOADS.len()]);
        });
        self.tally.snapshots += self.snapshots() - before;
        self.judge(&history);
        self.cluster.administrator.until_settled(REPLICAS);
        let checked = self.cluster.administrator.order(&["check"]);
        assert!(checked.is_ok(), "round {number}: {checked:?}");
        self.look_again(&history);
    }

    /// Has the outage come while much is written, and some of the nodes compact everything.
    fn under_load(&mut self, load: Churn) {
        let over = AtomicBool::new(false);
        let seeds = self.cluster.fleet.addresses();
        self.tally.churned += thread::scope(|scope| {
            let churners: Vec<_> = (0..CHURNERS)
                .map(|_| {
                    let client = ClusterClient::new(seeds.clone(), PATIENCE);
                    let (rng, over) = (self.rng.fork(), &over);
                    scope.spawn(move || load.write(client, rng, over))
                })
                .collect();
            for address in &seeds {
                let (mut rng, over) = (self.rng.fork(), &over);
                if load.garbage && rng.bool() {
                    scope.spawn(move || compact(address, rng, over));
                }
            }
            {
                let _end = Ending(&over);
                self.power_fails();
            }
            let churned = churners.into_iter().map(|one| one.join().expect("churn"));
            churned.sum::<usize>()
        });
    }

    fn power_fails(&mut self) {
        self.pause(LOAD);
        let mut nodes: Vec<usize> = (0..NODES).collect();
        self.rng.shuffle(&mut nodes);
        if self.outage == Outage::One {
            nodes.truncate(1);
        }
        self.cut(&nodes);
        // Recovery has to withstand what it recovers from.
        if self.rng.u8(..3) == 0 {
            let after = Duration::from_millis(self.rng.u64(STARTING));
            let damage = self.cluster.interrupt_start(&nodes, after, &mut self.rng);
            self.note(damage, &nodes);
        }
        if self.outage == Outage::One {
            self.pause(AWAY);
        }
        self.cluster.restore_power(&nodes);
        if self.rng.bool() {
            self.pause(CATCHING_UP);
            self.cut(&nodes);
            self.cluster.restore_power(&nodes);
        }
        self.cluster.administrator.until_settled(REPLICAS);
        self.pause(AFTERWARDS);
        let casualties = self.cluster.casualties();
        assert!(casualties.is_empty(), "{}", casualties.join("\n"));
    }

    fn cut(&mut self, nodes: &[usize]) {
        let damage = self.cluster.cut_power(nodes, &mut self.rng);
        self.note(damage, nodes);
    }

    fn note(&mut self, damage: Damage, nodes: &[usize]) {
        self.tally.cuts += 1;
        self.tally.damage += damage;
        for node in nodes {
            self.check_offline(*node);
        }
    }

    /// It walks all rows: it sees what no command shows.
    fn check_offline(&self, node: usize) {
        let checked = check_offline(self.cluster.fleet.node(node).dir());
        assert_eq!(checked, Ok(()), "node {node}");
    }

    fn judge(&mut self, history: &History) {
        let summary = history.check();
        println!("{summary}");
        assert!(summary.anomalies.is_empty(), "{summary}");
        assert!(summary.undecided.is_empty(), "{summary}");
        assert!(summary.done > 100, "hardly anything: {summary}");
        self.tally.done += summary.done;
        self.tally.unknown += summary.unknown;
        self.tally.refused += summary.refused;
    }

    /// Whether all that earlier rounds have left is as it was, and remembers what this one leaves.
    fn look_again(&mut self, history: &History) {
        let seeds = self.cluster.fleet.addresses();
        let mut client = ClusterClient::new(seeds, PATIENCE);
        for (key, left) in &self.settled {
            assert_eq!(&read(&mut client, key), left, "{key}");
        }
        let values = history.registers.keys().chain(history.counters.keys());
        let keys = values.chain(history.lists.keys()).cloned();
        let logs = history
            .transfers
            .keys()
            .map(|bank| format!("{{{bank}}}:log"));
        let news = keys.chain(logs).map(|key| (read(&mut client, &key), key));
        self.settled.extend(news.map(|(left, key)| (key, left)));
    }

    /// How many regions were replaced by a snapshot, since their log was purged of what a node lacked.
    fn snapshots(&self) -> usize {
        let logs = (0..NODES).map(|node| self.cluster.fleet.node(node).log());
        logs.map(|log| log.matches("a snapshot was put in place").count())
            .sum()
    }

    fn end(mut self, rounds: usize) -> Tally {
        for node in 0..NODES {
            self.cluster.fleet.end(node);
            self.check_offline(node);
        }
        let (outage, tally) = (self.outage, self.tally);
        // Past the capture of the test runner: a run that went well has something to say, too.
        let _ = writeln!(
            io::stderr(),
            "power cuts, {outage:?}, {rounds} rounds: {tally:?}"
        );
        // Or nothing was purged, and nothing taken back.
        assert!(tally.churned > rounds * REGIONS * 2 * LOG_SIZE, "{tally:?}");
        assert!(tally.damage.bytes > 0, "{tally:?}");
        tally
    }

    fn pause(&mut self, range: Range<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(range)));
    }
}

fn read(client: &mut ClusterClient, key: &str) -> Value {
    let words = match key.contains("list:") || key.ends_with(":log") {
        true => vec!["LRANGE", key, "0", "-1"],
        false => vec!["GET", key],
    };
    let command: Vec<String> = words.into_iter().map(str::to_string).collect();
    let mut found = None;
    until("a key is read", || {
        if let Reached::Answered(mut replies) = client.call(key, std::slice::from_ref(&command)) {
            found = replies.pop();
        }
        found.is_some()
    });
    found.expect("it is")
}

fn withstands(outage: Outage) -> Tally {
    let _turn = one_at_a_time();
    let rounds = setting("POWERCUT_ROUNDS", 4);
    let mut trial = Trial::begin(outage);
    (0..rounds).for_each(|number| trial.round(number));
    trial.end(rounds)
}

/// That it gets snapshots shows that logs were really purged.
#[test]
fn one_node_loses_its_power_and_nothing_is_lost() {
    let tally = withstands(Outage::One);
    assert!(tally.snapshots > 0, "{tally:?}");
}

#[test]
fn all_nodes_lose_their_power_at_once_and_nothing_is_lost() {
    withstands(Outage::All);
}
