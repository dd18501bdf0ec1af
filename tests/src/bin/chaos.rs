//! Hurts a cluster for as long as asked, while clients write down all they are told, and looks whether that can be true.
//!
//! ```text
//! chaos [--minutes N] [--seed S] [--nodes N] [--regions N] [--clients N] [--faults Kill,Part]
//! ```
//!
//! It goes round by round, each with keys of its own, so that histories stay short enough to be judged. The seed says which
//! faults come in which order, and what clients do; when they come to it is the machine's affair, so a seed tells a
//! story again that is alike, and rarely the same.
//!
//! It fails if something was wrong, if some history could not be judged, and if, in two minutes or more, a kind of fault was
//! never done that can be done on this machine.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::ending::Ending;
use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::nemesis::{Damage, Fault, Objects, Trouble, run};
use fastrand::Rng;

const ROUND: Duration = Duration::from_secs(60);
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

struct Options {
    minutes: f64,
    seed: u64,
    nodes: usize,
    regions: usize,
    clients: usize,
    faults: Option<Vec<Fault>>,
}

#[derive(Default)]
struct Total {
    rounds: usize,
    damage: Damage,
    done: usize,
    unknown: usize,
    refused: usize,
    undecided: usize,
    /// What was wrong, each with the seed of its round.
    wrong: Vec<String>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            eprintln!("chaos: {reason}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", options.seed);
    let mut cluster = Cluster::found(&Setup {
        nodes: options.nodes,
        founders: options.nodes,
        regions: options.regions,
        disk: Some("1g"),
        clocks: true,
        ..Setup::default()
    });
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let mut total = Total::default();
    while Instant::now() < end && total.wrong.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        round(&options, &mut cluster, left.min(ROUND), &mut total);
    }
    println!(
        "{} rounds, {} faults: {}\n{} operations done, {} unknown, {} refused; {} objects undecided, {} things wrong",
        total.rounds,
        total.damage.total(),
        total.damage,
        total.done,
        total.unknown,
        total.refused,
        total.undecided,
        total.wrong.len(),
    );
    let lacks = total.damage.lacks(&wanted(&options, &cluster));
    if !lacks.is_empty() {
        println!("none of {lacks:?} was done");
    }
    match total.wrong.is_empty() && total.undecided == 0 && lacks.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What has to have been done, if there was time for it.
fn wanted(options: &Options, cluster: &Cluster) -> Vec<Fault> {
    let mut possible = cluster.possible_faults();
    if let Some(faults) = &options.faults {
        possible.retain(|fault| faults.contains(fault));
    }
    if options.minutes < 2.0 {
        possible.clear();
    }
    possible
}

fn round(options: &Options, cluster: &mut Cluster, duration: Duration, total: &mut Total) {
    let seed = options.seed.wrapping_add(total.rounds as u64);
    let objects = Objects {
        registers: 12,
        counters: 6,
        lists: 6,
        banks: 6,
        reads_replicas: true,
        prefix: format!("round:{}:", total.rounds),
        seed,
    };
    let mut trouble = Trouble::of_all_kinds(seed);
    if let Some(faults) = &options.faults {
        trouble.faults.clone_from(faults);
    }
    let mut damage = Damage::default();
    let history = run(
        &cluster.fleet.addresses(),
        options.clients,
        &objects,
        PATIENCE,
        || damage = restless(cluster, &mut trouble, duration),
    );
    let summary = history.check();
    println!("round {}, seed {seed}: {damage}; {summary}", total.rounds);
    let mut wrong: Vec<String> = summary.anomalies.iter().map(ToString::to_string).collect();
    wrong.extend(cluster.casualties());
    if wrong.is_empty() {
        cluster.administrator.until_settled(REPLICAS);
        wrong.extend(cluster.administrator.order(&["check"]).err());
    }
    for what in &wrong {
        println!("seed {seed}: {what}");
    }
    if !wrong.is_empty() {
        (0..options.nodes).for_each(|node| println!("{}", cluster.fleet.node(node).log_tail()));
    }
    total.rounds += 1;
    total.damage += damage;
    total.done += summary.done;
    total.unknown += summary.unknown;
    total.refused += summary.refused;
    total.undecided += summary.undecided.len();
    total.wrong.extend(wrong);
}

/// Makes trouble, and has somebody hand leads about meanwhile, whatever else goes on.
fn restless(cluster: &mut Cluster, trouble: &mut Trouble, duration: Duration) -> Damage {
    let (administrator, mut rng) = (cluster.administrator.clone(), trouble.rng.fork());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = Ending(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(rng.u64(500..4000)));
                administrator.transfer_any(&mut rng);
            }
        });
        trouble.make(cluster, duration)
    })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        minutes: 5.0,
        seed: Rng::new().u64(..1 << 32),
        nodes: 4,
        regions: 4,
        clients: 8,
        faults: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or(format!("{flag} needs a value"))?;
        let wrong = || format!("{flag} {value}: not a number");
        let number = || value.parse::<usize>().map_err(|_| wrong());
        match flag.as_str() {
            "--minutes" => options.minutes = value.parse().map_err(|_| wrong())?,
            "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
            "--nodes" => options.nodes = number()?,
            "--regions" => options.regions = number()?,
            "--clients" => options.clients = number()?,
            "--faults" => {
                let faults = value.split(',').map(Fault::named);
                options.faults = Some(faults.collect::<Result<_, _>>()?);
            }
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    Ok(options)
}
