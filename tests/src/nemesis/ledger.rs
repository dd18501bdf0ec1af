//! What a cluster has acknowledged, write by write.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cluster_client::{ClusterClient, Reached};
use super::{RECOVERY, slot};
use crate::client::Value;
use crate::ending::Ending;

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub pages: Vec<Page>,
}

/// What somebody wrote to one key: a hash with a field for each write, so that none hides another.
#[derive(Clone, Debug)]
pub struct Page {
    pub key: String,
    pub writes: Vec<Write>,
    /// Of which nobody knows whether they were done.
    pub unknown: usize,
}

/// One that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub number: u64,
    pub begun: Instant,
    pub ended: Instant,
}

impl Ledger {
    /// Has somebody write to each of the keys, one write after the other, for as long as `meanwhile` takes.
    pub fn keep<R>(
        seeds: &[String],
        keys: &[String],
        patience: Duration,
        meanwhile: impl FnOnce() -> R,
    ) -> (Ledger, R) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers = keys.iter().map(|key| {
                let client = ClusterClient::new(seeds.to_vec(), patience);
                let over = &over;
                scope.spawn(move || write(client, key, over))
            });
            let writers: Vec<_> = writers.collect();
            let result = {
                let _end = Ending(&over);
                meanwhile()
            };
            let pages = writers
                .into_iter()
                .map(|writer| writer.join().expect("a page"));
            (
                Ledger {
                    pages: pages.collect(),
                },
                result,
            )
        })
    }

    pub fn acknowledged(&self) -> usize {
        self.pages.iter().map(|page| page.writes.len()).sum()
    }

    pub fn unknown(&self) -> usize {
        self.pages.iter().map(|page| page.unknown).sum()
    }

    /// Writes that were acknowledged and are not there.
    pub fn missing(&self, client: &mut ClusterClient) -> Vec<String> {
        let pages = self.pages.iter();
        pages.flat_map(|page| page.missing(client)).collect()
    }
}

impl Page {
    pub fn slot(&self) -> u16 {
        slot(self.key.as_bytes())
    }

    /// How long after a moment a write that was begun then, or later, was acknowledged first.
    pub fn resumed_after(&self, moment: Instant) -> Option<Duration> {
        let later = self.writes.iter().find(|write| write.begun >= moment)?;
        Some(later.ended - moment)
    }

    /// The longest time between two acknowledgements, of which the second came in the `window` after a moment, or was
    /// awaited then.
    pub fn pause_after(&self, moment: Instant, window: Duration) -> Option<Duration> {
        let pairs = self
            .writes
            .windows(2)
            .map(|pair| (pair[0].ended, pair[1].ended));
        let near = pairs.filter(|(first, second)| *second >= moment && *first <= moment + window);
        near.map(|(first, second)| second - first).max()
    }

    fn missing(&self, client: &mut ClusterClient) -> Vec<String> {
        let found = fields(client, &self.key);
        let lost = self
            .writes
            .iter()
            .filter(|write| !found.contains(&write.number));
        lost.map(|write| format!("{} lacks {}", self.key, write.number))
            .collect()
    }
}

fn write(mut client: ClusterClient, key: &str, over: &AtomicBool) -> Page {
    let mut page = Page {
        key: key.to_string(),
        writes: Vec::new(),
        unknown: 0,
    };
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let command = ["HSET", key, &number.to_string(), ""].map(str::to_string);
        match client.call(key, &[command.to_vec()]) {
            Reached::Answered(_) => page.writes.push(Write {
                number,
                begun,
                ended: Instant::now(),
            }),
            Reached::Unknown(_) => page.unknown += 1,
            Reached::Refused(_) => {}
        }
    }
    page
}

fn fields(client: &mut ClusterClient, key: &str) -> BTreeSet<u64> {
    let deadline = Instant::now() + RECOVERY;
    let number = |value: &Value| std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok();
    loop {
        let asked = client.call(key, &[["HKEYS", key].map(str::to_string).to_vec()]);
        if let Reached::Answered(replies) = &asked {
            let fields = replies[0].items().unwrap_or_default();
            return fields.iter().filter_map(number).collect();
        }
        assert!(
            Instant::now() < deadline,
            "nobody tells of {key}: {asked:?}"
        );
    }
}
