//! What time it is for a region, by the clocks of those who lead it.
//!
//! A leader hides what has expired by its own clock. Should another lead next, whose clock is behind, what was hidden must not
//! come back. What is written carries the leader's time, so the log sees to that for writes. For reads, a leader says what
//! time it is with all that it sends. Who votes tells the candidate what time it must be by now for the last leader of whom it
//! has heard: a leader reads by its lease only for less time than passes before anybody is elected after it, and those
//! who confirmed the lease have a part in every election. So the new leader's clock is not behind.

use parking_lot::Mutex;

use crate::runtime::{Instant, now};

/// What was last heard of a leader's clock.
#[derive(Default)]
pub(crate) struct LeadersTime(Mutex<Option<Heard>>);

#[derive(Clone, Copy)]
struct Heard {
    term: u64,
    ms: u64,
    at: Instant,
}

impl Heard {
    fn by_now(self) -> u64 {
        let since = (now() - self.at).as_millis();
        self.ms
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl LeadersTime {
    /// The leader of a term has said what time it is. Messages overtake each other.
    pub(crate) fn hear(&self, term: u64, ms: u64) {
        let at = now();
        let mut heard = self.0.lock();
        let is_old = |before: &Heard| (before.term, before.ms) > (term, ms);
        if !heard.as_ref().is_some_and(is_old) {
            *heard = Some(Heard { term, ms, at });
        }
    }

    /// What time it must be for it by now; 0 if none was heard of.
    pub(crate) fn by_now(&self) -> u64 {
        let heard = *self.0.lock();
        heard.map_or(0, Heard::by_now)
    }
}

#[cfg(test)]
mod tests {
    use openraft::rt::AsyncRuntime;

    use super::*;
    use crate::runtime::{Runtime, sleep};

    #[test]
    fn the_time_of_the_latest_leader_goes_on() {
        Runtime::run(async {
            let time = LeadersTime::default();
            assert_eq!(time.by_now(), 0);
            time.hear(2, 5000);
            time.hear(2, 4000);
            time.hear(1, 9000);
            let heard = time.by_now();
            assert!((5000..6000).contains(&heard), "{heard}");
            sleep(std::time::Duration::from_millis(20)).await;
            assert!(time.by_now() >= heard + 20);
            time.hear(3, 100);
            assert!(time.by_now() < 4000);
        });
    }
}
