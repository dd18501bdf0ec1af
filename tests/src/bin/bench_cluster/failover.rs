//! How long clients cannot write when a leader dies, or hands over, and whether anything is lost.

use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::nemesis::administrator::{Region, Status};
use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::nemesis::{ClusterClient, Ledger, Reached};

use crate::Options;
use crate::report::{Report, median, seconds};

const PATIENCE: Duration = Duration::from_secs(20);

/// Some region that lost its leader, and when.
struct Loss {
    moment: Instant,
    regions: Vec<Region>,
}

pub fn kills(options: &Options, report: &mut Report) {
    report.section(
        "A leader dies",
        "A node that leads some of the 16 regions is killed (`kill -9`) while a client writes to each region, at the \
         default settings. Writes have resumed when one that was begun after the kill is acknowledged; a kill takes as long \
         as the last of the regions that the node led. Every write adds a field to a hash, and in the end each \
         that was acknowledged is looked for.",
    );
    let mut cluster = founded();
    let keys = keys(&cluster.administrator.until_settled(REPLICAS));
    let seeds = cluster.fleet.addresses();
    let (ledger, losses) = Ledger::keep(&seeds, &keys, PATIENCE, || {
        let kills = (0..options.kills).map(|_| kill(&mut cluster));
        kills.collect::<Vec<_>>()
    });
    let missing = ledger.missing(&mut ClusterClient::new(seeds, PATIENCE));
    let times: Vec<Duration> = losses
        .iter()
        .filter_map(|loss| outage(&ledger, loss))
        .collect();
    let unresumed = losses.len() - times.len();
    let regions: usize = losses.iter().map(|loss| loss.regions.len()).sum();
    let (middle, longest) = (median(times.clone()), times.iter().max().copied());
    report.head(&[
        "kills",
        "regions that lost their leader",
        "writes acknowledged",
        "unknown",
        "lost",
        "median until writes resume",
        "longest",
    ]);
    report.row(&[
        &losses.len().to_string(),
        &regions.to_string(),
        &ledger.acknowledged().to_string(),
        &ledger.unknown().to_string(),
        &missing.len().to_string(),
        &seconds(middle),
        &seconds(longest),
    ]);
    let is_kept = missing.is_empty() && unresumed == 0;
    report.bar("no acknowledged write is lost", is_kept);
    let is_quick = middle.is_some_and(|middle| middle <= Duration::from_secs(3));
    report.bar("writes resume within 3 s of a kill (median)", is_quick);
}

pub fn transfers(options: &Options, report: &mut Report) {
    report.section(
        "A leader hands over",
        "`cairn cluster transfer-leader` while a client writes to each region. The pause is the longest time between two \
         acknowledgements in that region, within a second of the order.",
    );
    let cluster = founded();
    let keys = keys(&cluster.administrator.until_settled(REPLICAS));
    let seeds = cluster.fleet.addresses();
    let (ledger, losses) = Ledger::keep(&seeds, &keys, PATIENCE, || {
        let transfers = (0..options.transfers).filter_map(|_| transfer(&cluster));
        transfers.collect::<Vec<_>>()
    });
    let missing = ledger.missing(&mut ClusterClient::new(seeds, PATIENCE));
    // The longest pause around the order: it takes effect some time after it was given.
    let pauses = losses.iter().filter_map(|loss| {
        let touched = ledger
            .pages
            .iter()
            .filter(|page| loss.regions[0].holds(page.slot()));
        touched
            .filter_map(|page| page.pause_after(loss.moment, Duration::from_secs(1)))
            .max()
    });
    let pauses: Vec<Duration> = pauses.collect();
    let (middle, longest) = (median(pauses.clone()), pauses.iter().max().copied());
    report.head(&[
        "transfers",
        "writes acknowledged",
        "unknown",
        "lost",
        "median pause",
        "longest",
    ]);
    report.row(&[
        &losses.len().to_string(),
        &ledger.acknowledged().to_string(),
        &ledger.unknown().to_string(),
        &missing.len().to_string(),
        &seconds(middle),
        &seconds(longest),
    ]);
    report.bar("no acknowledged write is lost", missing.is_empty());
    let is_quick = longest.is_some_and(|longest| longest < Duration::from_secs(1));
    report.bar("writes pause for less than 1 s", is_quick);
}

fn founded() -> Cluster {
    Cluster::found(&Setup {
        regions: 16,
        links: false,
        ..Setup::default()
    })
}

/// One in each region.
fn keys(status: &Status) -> Vec<String> {
    let regions = status.regions.iter().enumerate();
    regions.map(|(number, region)| region.key(number)).collect()
}

/// Kills the node that leads most, has it back once others have taken over, and waits until all is well.
fn kill(cluster: &mut Cluster) -> Loss {
    let status = cluster.administrator.until_settled(REPLICAS);
    let nodes = 0..cluster.fleet.len();
    let victim = nodes
        .max_by_key(|node| status.led_by(*node).count())
        .expect("nodes");
    let regions: Vec<Region> = status.led_by(victim).cloned().collect();
    thread::sleep(Duration::from_millis(fastrand::u64(200..700)));
    let moment = Instant::now();
    cluster.fleet.kill(victim);
    let mut client = ClusterClient::new(cluster.fleet.addresses(), PATIENCE);
    for region in &regions {
        let key = region.key(1000);
        let probe = ["SET", &key, "probe"].map(str::to_string).to_vec();
        let reached = client.call(&key, &[probe]);
        if !matches!(reached, Reached::Answered(_)) {
            println!("region {}: {reached:?}", region.id);
        }
    }
    cluster.fleet.revive(victim);
    Loss { moment, regions }
}

fn transfer(cluster: &Cluster) -> Option<Loss> {
    thread::sleep(Duration::from_millis(500));
    let status = cluster.administrator.status()?;
    let region = &status.regions[fastrand::usize(..status.regions.len())];
    let others = region
        .voters
        .iter()
        .filter(|node| Some(**node) != region.leader);
    let to = fastrand::choice(others.collect::<Vec<_>>())?;
    let moment = Instant::now();
    let told = cluster.administrator.transfer(region.id, status.ids[to]);
    told.is_ok().then(|| Loss {
        moment,
        regions: vec![region.clone()],
    })
}

/// Until the last of the regions was written to again.
fn outage(ledger: &Ledger, loss: &Loss) -> Option<Duration> {
    let times = loss.regions.iter().map(|region| {
        let pages = ledger.pages.iter().filter(|page| region.holds(page.slot()));
        let resumed = pages.filter_map(|page| page.resumed_after(loss.moment));
        resumed.min()
    });
    times.collect::<Option<Vec<_>>>()?.into_iter().max()
}
