//! How much is much.

use std::time::Duration;

pub struct Scale {
    pub name: &'static str,
    /// Elements of a large collection, and keys of a large database.
    pub elements: u64,
    /// The same for random picks, for keys that are due at once, and for a collection that is overwritten.
    pub many: u64,
    /// How often that is overwritten.
    pub overwrites: u64,
    /// Bytes of a large string.
    pub string: u64,
    /// What goes through a queue.
    pub queued: u64,
    /// Rounds that a median is taken of, and commands in each.
    pub rounds: usize,
    pub commands: u64,
    /// How long the foreground is measured while nothing else is going on.
    pub quiet: Duration,
    /// Bytes that may be on the disk however little there was: logs, mostly.
    pub floor: u64,
    /// What bars about time are multiplied with: the shorter a measurement, the more a busy machine disturbs it.
    pub slack: f64,
    /// How often a group may be measured until its bars are met. Whoever is disturbed now and then meets them in the
    /// end; what really grew with size misses them each time.
    pub attempts: usize,
}

impl Scale {
    pub const FULL: Scale = Scale {
        name: "full",
        elements: 5_000_000,
        many: 1_000_000,
        overwrites: 20,
        string: 100 << 20,
        queued: 10_000_000,
        rounds: 9,
        commands: 400,
        quiet: Duration::from_secs(5),
        floor: 0,
        slack: 1.0,
        attempts: 1,
    };

    const SMALL: Scale = Scale {
        name: "small",
        elements: 100_000,
        many: 50_000,
        overwrites: 5,
        string: 10 << 20,
        queued: 100_000,
        rounds: 5,
        commands: 100,
        quiet: Duration::from_millis(1500),
        floor: 32 << 20,
        slack: 4.0,
        attempts: 3,
    };

    pub fn named(name: &str) -> Option<Scale> {
        [Scale::FULL, Scale::SMALL]
            .into_iter()
            .find(|scale| scale.name == name)
    }
}
