//! What took long, by kind of event and over time: LATENCY.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::server::unix_seconds;

/// How many moments are kept of each kind.
const HISTORY: usize = 160;

#[derive(Default)]
pub struct Spikes(Mutex<BTreeMap<&'static str, History>>);

/// The last spikes of one kind, the oldest first.
#[derive(Clone, Default)]
pub struct History {
    pub spikes: Vec<Spike>,
    /// The longest ever, in milliseconds.
    pub longest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spike {
    /// Seconds since 1970.
    pub at: u64,
    pub milliseconds: u64,
}

impl Spikes {
    pub fn add(&self, event: &'static str, took: Duration) {
        self.add_at(event, unix_seconds(), took.as_millis() as u64);
    }

    fn add_at(&self, event: &'static str, at: u64, milliseconds: u64) {
        let mut events = self.0.lock();
        let history = events.entry(event).or_default();
        history.longest = history.longest.max(milliseconds);
        match history.spikes.last_mut() {
            // Of those in one second the longest stands for all.
            Some(last) if last.at == at => {
                last.milliseconds = last.milliseconds.max(milliseconds);
            }
            _ => {
                if history.spikes.len() == HISTORY {
                    history.spikes.remove(0);
                }
                history.spikes.push(Spike { at, milliseconds });
            }
        }
    }

    pub fn of(&self, event: &[u8]) -> Option<History> {
        let event = std::str::from_utf8(event).ok()?;
        self.0.lock().get(event).cloned()
    }

    pub fn all(&self) -> BTreeMap<&'static str, History> {
        self.0.lock().clone()
    }

    /// Forgets one kind; whether there was any.
    pub fn forget(&self, event: &[u8]) -> bool {
        let event = std::str::from_utf8(event).unwrap_or_default();
        self.0.lock().remove(event).is_some()
    }

    /// Forgets all; how many kinds there were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut *self.0.lock()).len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_second_has_one_spike_and_the_oldest_go() {
        let spikes = Spikes::default();
        spikes.add_at("command", 1, 5);
        spikes.add_at("command", 1, 9);
        spikes.add_at("command", 1, 7);
        let only = Spike {
            at: 1,
            milliseconds: 9,
        };
        assert_eq!(spikes.of(b"command").unwrap().spikes, [only]);
        for at in 2..=HISTORY as u64 + 1 {
            spikes.add_at("command", at, 1);
        }
        let history = spikes.of(b"command").unwrap();
        assert_eq!((history.spikes.len(), history.spikes[0].at), (HISTORY, 2));
        assert_eq!(history.longest, 9);
        assert!(spikes.forget(b"command") && !spikes.forget(b"command"));
    }
}
