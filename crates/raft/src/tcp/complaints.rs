//! What is said of nodes that cannot be talked to: once in a while, since they try again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The same is not said again before.
const AGAIN: Duration = Duration::from_secs(60);
/// No more than this is remembered: strangers may say what they like.
const REMEMBERED: usize = 256;

#[derive(Default)]
pub(super) struct Complaints(Mutex<BTreeMap<String, Instant>>);

impl Complaints {
    pub(super) fn tell(&self, complaint: String) {
        if self.is_new(&complaint, Instant::now()) {
            tracing::warn!("{complaint}");
        }
    }

    fn is_new(&self, complaint: &str, now: Instant) -> bool {
        let mut told = self.0.lock();
        told.retain(|_, at| now - *at < AGAIN);
        if told.contains_key(complaint) || told.len() >= REMEMBERED {
            return false;
        }
        told.insert(complaint.to_string(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_now_and_then() {
        let complaints = Complaints::default();
        let now = Instant::now();
        assert!(complaints.is_new("a", now));
        assert!(!complaints.is_new("a", now + AGAIN / 2));
        assert!(complaints.is_new("b", now + AGAIN / 2));
        assert!(complaints.is_new("a", now + AGAIN));
        for number in 0..2 * REMEMBERED {
            complaints.is_new(&number.to_string(), now + AGAIN);
        }
        assert!(!complaints.is_new("one too many", now + AGAIN));
    }
}
