//! What is logged, and where to: one line per event, on the standard error.

use std::sync::OnceLock;

use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging, from the given level on.
pub fn start(level: &[u8]) {
    let (filter, handle) = reload::Layer::new(level_of(level));
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_filter(filter_fn(concerns_operators));
    // Whoever started a subscriber first keeps it, and the level is then theirs to decide.
    if Registry::default()
        .with(filter)
        .with(lines)
        .try_init()
        .is_ok()
    {
        let _ = LEVEL.set(handle);
    }
}

/// openraft tells of each message that is lost, and of each that comes while it stops, which is for those who look for its
/// faults. What makes a replica stop is told by whoever runs it.
fn concerns_operators(event: &Metadata<'_>) -> bool {
    !event.target().starts_with("openraft") || LevelFilter::current() >= LevelFilter::DEBUG
}

pub fn set_level(level: &[u8]) {
    if let Some(handle) = LEVEL.get() {
        // Fails only once the subscriber is gone, and with it whatever would be logged.
        let _ = handle.modify(|filter| *filter = level_of(level));
    }
}

/// Redis' levels are one step finer than their names suggest: `debug` is everything, `notice` what an
/// operator wants to see.
fn level_of(name: &[u8]) -> LevelFilter {
    match name {
        b"debug" => LevelFilter::TRACE,
        b"verbose" => LevelFilter::DEBUG,
        b"warning" => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    }
}
