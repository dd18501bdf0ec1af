//! Whether the disk gets back what was deleted, by itself and without being in the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::Client;
use cairn_tests::figures;

use crate::fill::{self, Kind};
use crate::foreground;
use crate::table::Table;
use crate::trial::{Disk, Trial};

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(120);
/// What may be left, as a part of what there was.
const LEFT: f64 = 0.1;

pub fn run(trial: &mut Trial, table: &mut Table) {
    let elements = trial.scale.elements;
    let named = |what: &str| format!("{what} of {elements}");
    fill::collection(&mut trial.client, Kind::Hash, "hash", elements);
    reclaimed(trial, table, &named("DEL of a hash"), |trial| {
        trial.run("DEL hash");
    });
    fill::collection(&mut trial.client, Kind::Zset, "zset", elements);
    reclaimed(trial, table, &named("SET over a zset"), |trial| {
        trial.run("SET zset value");
    });
    fill::collection(&mut trial.client, Kind::List, "list", elements);
    reclaimed(trial, table, &named("LTRIM of a list"), |trial| {
        trial.run("LTRIM list 0 9");
    });
    fill::keys(&mut trial.client, elements);
    reclaimed(trial, table, &named("FLUSHALL"), |trial| {
        trial.run("FLUSHALL");
    });
    fill::keys(&mut trial.client, elements);
    reclaimed(trial, table, &named("DEL of keys"), |trial| {
        fill::commands(&mut trial.client, elements, |numbers| {
            let names = numbers.map(fill::key);
            std::iter::once(b"DEL".to_vec()).chain(names).collect()
        });
    });
    beside_others(trial, table);
}

fn reclaimed(trial: &mut Trial, table: &mut Table, what: &str, delete: impl FnOnce(&mut Trial)) {
    let mut peak = trial.disk().all();
    delete(trial);
    let deleted = Instant::now();
    let is_low = |disk: u64, peak: u64| disk as f64 <= peak as f64 * LEFT;
    let floor = trial.scale.floor;
    let measure = |trial: &Trial| trial.disk().all().saturating_sub(floor);
    let mut disk = measure(trial);
    while !is_low(disk, peak) && deleted.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(100));
        disk = measure(trial);
        peak = peak.max(disk);
    }
    let took = deleted.elapsed().as_secs_f64();
    table.ratio_of_bytes(
        &format!("{what}: on the disk after {took:.0} s"),
        peak,
        disk,
        LEFT,
    );
}

/// What clients notice of it.
fn beside_others(trial: &mut Trial, table: &mut Table) {
    let (elements, quiet) = (trial.scale.elements, trial.scale.quiet);
    fill::collection(&mut trial.client, Kind::Hash, "hash", elements);
    settle(trial);
    let mut alone = foreground::alone(&trial.server, quiet);
    let (peak, floor) = (trial.disk().all(), trial.scale.floor);
    let is_left = |disk: Disk| disk.all().saturating_sub(floor) as f64 > peak as f64 * LEFT * 2.0;
    trial.run("DEL hash");
    let server = &trial.server;
    let (beside, ()) = foreground::beside(server, || {
        let started = Instant::now();
        while is_left(trial.disk()) && started.elapsed() < LIMIT || started.elapsed() < quiet {
            thread::sleep(Duration::from_millis(100));
        }
    });
    alone.extend(foreground::alone(server, quiet));
    let costs = foreground::compare(alone, beside);
    table.ratio("p99 of GET and SET while a hash is reclaimed", costs, 2.5);
}

/// Waits until RocksDB has dealt with what was written.
pub fn rest(client: &mut Client) {
    wait_for_none(
        client,
        &["storage_running_compactions", "storage_running_flushes"],
    );
}

/// The same, and until it has taken everything in.
pub fn settle(trial: &mut Trial) {
    let figures = [
        "storage_running_compactions",
        "storage_running_flushes",
        "storage_young_bytes",
    ];
    wait_for_none(&mut trial.client, &figures);
}

/// Waits until all of these figures have been zero for a while.
fn wait_for_none(client: &mut Client, names: &[&str]) {
    let started = Instant::now();
    let mut calm = 0;
    while calm < 10 && started.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(50));
        let mut is_busy = |name: &&str| figures::info(client, "storage", name) > 0;
        calm = if names.iter().any(&mut is_busy) {
            0
        } else {
            calm + 1
        };
    }
}

/// A hash that is made anew again and again.
pub fn run_overwrites(trial: &mut Trial, table: &mut Table) {
    let (many, overwrites) = (trial.scale.many, trial.scale.overwrites);
    fill::collection(&mut trial.client, Kind::Hash, "hash", many);
    // As it comes to lie by itself.
    settle(trial);
    thread::sleep(Duration::from_secs(7));
    settle(trial);
    let one = trial.disk().rest;
    let is_done = AtomicBool::new(false);
    let directory = trial.server.dir().to_owned();
    let most = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(Disk::of(&directory).rest);
                thread::sleep(Duration::from_millis(50));
            }
            most
        });
        for _ in 0..overwrites {
            trial.run("DEL hash");
            fill::collection(&mut trial.client, Kind::Hash, "hash", many);
        }
        is_done.store(true, Ordering::Relaxed);
        watch.join().expect("no panic")
    });
    let what = format!("a hash of {many} made {overwrites} times, to once");
    table.ratio_of_bytes(&what, one, most, 2.5);
}
