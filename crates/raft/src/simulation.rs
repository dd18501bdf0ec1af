//! Thousands of stories in which everything goes wrong, each told by its seed.

pub(crate) mod cluster;
pub(crate) mod history;
pub(crate) mod machine;
pub(crate) mod net;
pub(crate) mod rows;
pub(crate) mod runtime;
pub(crate) mod story;

use std::time::Duration;

/// `CAIRN_SEEDS=from..to` tells others than the first.
fn seeds() -> std::ops::Range<u64> {
    let Ok(seeds) = std::env::var("CAIRN_SEEDS") else {
        return 0..60;
    };
    let (from, to) = seeds.split_once("..").expect("CAIRN_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

/// `RUST_LOG=openraft=info` shows what a story is about.
fn narrate() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let narrator = tracing_subscriber::fmt().with_env_filter(filter);
    narrator.without_time().with_ansi(false).try_init().ok();
}

fn tell_one(seed: u64) -> (usize, usize, u64, u64, usize) {
    let (told, mut counts) = tokio::sync::oneshot::channel();
    runtime::run(seed, Duration::from_secs(600), async move {
        let nodes = if seed.is_multiple_of(4) { 5 } else { 3 };
        let history = story::tell(nodes, 15).await;
        told.send(history.counts()).ok();
    });
    counts.try_recv().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost() {
    narrate();
    for seed in seeds() {
        let began = std::time::Instant::now();
        let (applied, refused, unknown, reads, leaders) = tell_one(seed);
        println!(
            "seed {seed}: {applied} applied, {refused} refused, {unknown} unknown, {reads} reads, {leaders} terms; {:?}",
            began.elapsed()
        );
    }
}
