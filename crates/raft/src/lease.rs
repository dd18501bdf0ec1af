//! For how long a leader may read without asking anybody.
//!
//! It leads, has applied all that was acknowledged before, and a quorum has just confirmed that none of them will elect
//! another for a while. Until when that holds is worked out when somebody asks who has not been told yet, and remembered, so that
//! most who ask look at a clock and at one number.
//!
//! What was worked out stays true, whatever this replica learns afterwards: the promise was given. Only what this replica
//! does by itself can break it: to hand over, to remove itself, and to give slots away. Whoever does that takes the lease back
//! first. And while this machine is suspended, time goes on for the others: so it is told by a clock that does not stand still
//! then, and what was confirmed before counts for nothing afterwards.
//!
//! Followers may apply what is committed before the leader does. Once one of them reads, what it shows must not be
//! unknown here: for a while, the leader then reads only where it has applied all that is committed, and waits otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::Config;
use crate::group::{Group, Role, role};
use crate::runtime::{Instant, now, uptime};

/// For how many election timeouts a follower may show what it has applied after it has asked. It gives up before.
const SHOWN: u32 = 10;

/// By how many nanoseconds two clocks may part without a reason: they are asked one after the other.
const JITTER: u64 = 5_000_000;

pub(crate) struct Lease {
    since: Instant,
    /// What [`uptime`] was then.
    began: u64,
    /// In nanoseconds from then, by the same.
    until: AtomicU64,
    /// Until when followers may read, in the same.
    shown_until: AtomicU64,
    /// Until when those may who have asked this replica.
    asked_until: AtomicU64,
    terms: Mutex<Terms>,
}

/// How far a replica is, as far as reads are concerned.
#[derive(Default)]
pub(crate) struct Places {
    committed: AtomicU64,
    applied: AtomicU64,
}

impl Places {
    pub(crate) fn note_committed(&self, index: u64) {
        self.committed.fetch_max(index, Ordering::AcqRel);
    }

    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    pub(crate) fn note_applied(&self, index: u64) {
        self.applied.fetch_max(index, Ordering::AcqRel);
    }

    fn are_one(&self) -> bool {
        // In this order: what is applied later was committed later.
        let committed = self.committed();
        committed <= self.applied.load(Ordering::Acquire)
    }
}

/// Held while it is worked out until when the lease holds, so that it cannot be taken back meanwhile.
#[derive(Default)]
struct Terms {
    /// The last term in which it gave leadership away by itself.
    transferred: u64,
    /// Those who have taken the lease back for a while.
    suspended: usize,
    sleep: Sleep,
}

/// For how long the machine was suspended, as far as was seen, in nanoseconds.
#[derive(Default)]
struct Sleep {
    slept: u64,
    /// When it was found out, by the clock that stands still.
    woke: Option<u64>,
}

impl Sleep {
    /// Compares what two clocks say, of which one stands still meanwhile.
    fn look(&mut self, passed: u64, awake: u64) {
        let slept = passed.saturating_sub(awake);
        if slept.abs_diff(self.slept) > JITTER {
            *self = Sleep {
                slept,
                woke: Some(awake),
            };
        }
    }

    /// Whether the machine may have been suspended since.
    fn is_after(&self, awake: u64) -> bool {
        self.woke.is_some_and(|woke| awake <= woke)
    }
}

impl Lease {
    pub(crate) fn new() -> Lease {
        Lease {
            since: now(),
            began: uptime(),
            until: AtomicU64::new(0),
            shown_until: AtomicU64::new(0),
            asked_until: AtomicU64::new(0),
            terms: Mutex::default(),
        }
    }

    /// The time, whether the machine was suspended or not.
    #[inline]
    fn time(&self) -> u64 {
        uptime().saturating_sub(self.began)
    }

    /// A moment, by the clock that stands still while it is.
    fn awake(&self, at: Instant) -> u64 {
        nanos(at - self.since)
    }

    /// Whether followers read, and are to know soon what is committed.
    pub(crate) fn is_asked(&self) -> bool {
        self.time() < self.asked_until.load(Ordering::Acquire)
    }

    /// A follower is about to read.
    pub(crate) fn note_asked(&self, config: &Config) {
        let until = self.time() + nanos(config.election_timeout * SHOWN);
        self.asked_until.fetch_max(until, Ordering::AcqRel);
        self.shown_until.fetch_max(until, Ordering::AcqRel);
    }

    /// This replica begins to lead. A follower that has asked the leader before may read what this one commits.
    pub(crate) fn note_lead(&self, config: &Config) {
        let until = self.time() + nanos(config.election_timeout * SHOWN);
        self.shown_until.fetch_max(until, Ordering::AcqRel);
    }

    fn take_back(&self, change: impl FnOnce(&mut Terms)) {
        let mut terms = self.terms.lock();
        change(&mut terms);
        self.until.store(0, Ordering::Release);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells of a replica, for as long as it runs, whether it may read.
#[derive(Clone)]
pub struct ReadLease(pub(crate) Arc<Group>);

impl ReadLease {
    #[inline]
    pub fn holds(&self) -> bool {
        self.0.holds_lease()
    }
}

/// While it exists, the replica reads only after having asked.
pub struct Suspended(Arc<Group>);

impl Drop for Suspended {
    fn drop(&mut self) {
        self.0.lease.take_back(|terms| terms.suspended -= 1);
    }
}

impl Group {
    /// Whether it may read what it has applied, without asking anybody.
    #[inline]
    pub(crate) fn holds_lease(&self) -> bool {
        let now = self.lease.time();
        let holds = now < self.lease.until.load(Ordering::Acquire) || self.renews_lease(now);
        let is_shown = now < self.lease.shown_until.load(Ordering::Acquire);
        holds && (!is_shown || self.log.places().are_one())
    }

    #[cold]
    fn renews_lease(&self, time: u64) -> bool {
        let mut terms = self.lease.terms.lock();
        self.look_for_sleep(&mut terms);
        let until = match terms.suspended {
            0 => self.leased_until(time, &terms),
            _ => None,
        };
        let until = until.unwrap_or(0);
        self.lease.until.store(until, Ordering::Release);
        time < until
    }

    fn look_for_sleep(&self, terms: &mut Terms) {
        let lease = &self.lease;
        terms.sleep.look(lease.time(), lease.awake(now()));
    }

    /// How old what a quorum has confirmed may be. What it has before the machine was suspended is older than openraft believes.
    pub(crate) fn trusted_age(&self) -> Duration {
        let mut terms = self.lease.terms.lock();
        self.look_for_sleep(&mut terms);
        let acked =
            self.metrics(|metrics| metrics.last_quorum_acked.map(|acked| acked.into_inner()));
        match acked.is_some_and(|acked| terms.sleep.is_after(self.lease.awake(acked))) {
            true => Duration::ZERO,
            false => self.config.lease(),
        }
    }

    /// As of now; none if it must not read in any case.
    fn leased_until(&self, time: u64, terms: &Terms) -> Option<u64> {
        self.metrics(|metrics| {
            let Role::Leader { term, ready: true } = role(metrics, self.replica) else {
                return None;
            };
            // Those to whom it hands over are free to elect at once.
            if terms.transferred >= term {
                return None;
            }
            let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
            // One that removes itself hands over when it is done with that.
            if !voters.contains(&self.replica) {
                return None;
            }
            let lease = time + nanos(self.config.lease());
            // It promises to itself, as long as nobody else is taken in: that takes an entry of its own log.
            if voters.len() == 1 {
                return Some(lease);
            }
            let acked = metrics.last_quorum_acked?.into_inner();
            match terms.sleep.is_after(self.lease.awake(acked)) {
                true => None,
                false => Some(lease.saturating_sub(nanos(now() - acked))),
            }
        })
    }

    /// From now on, whatever this replica is told in this term, it reads only after having asked.
    pub(crate) fn gives_up_lease(&self, term: u64) {
        self.lease
            .take_back(|terms| terms.transferred = terms.transferred.max(term));
    }

    pub(crate) fn suspends_lease(self: &Arc<Self>) -> Suspended {
        self.lease.take_back(|terms| terms.suspended += 1);
        Suspended(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_confirmed_before_the_machine_was_suspended_does_not_count() {
        let mut sleep = Sleep::default();
        const SECOND: u64 = 1_000_000_000;
        sleep.look(5 * SECOND + 1000, 5 * SECOND);
        assert!(!sleep.is_after(4 * SECOND));
        // One clock went on for a minute, the other did not.
        sleep.look(66 * SECOND, 6 * SECOND);
        assert!(sleep.is_after(5 * SECOND));
        assert!(!sleep.is_after(6 * SECOND + 1));
        sleep.look(67 * SECOND + 1000, 7 * SECOND);
        assert!(!sleep.is_after(6 * SECOND + 1), "it has been awake since");
        sleep.look(70 * SECOND, 8 * SECOND);
        assert!(sleep.is_after(7 * SECOND));
    }

    #[test]
    fn what_is_committed_has_to_be_applied() {
        let places = Places::default();
        assert!(places.are_one());
        places.note_committed(5);
        assert!(!places.are_one());
        places.note_applied(4);
        assert!(!places.are_one());
        places.note_applied(6);
        assert!(places.are_one(), "what is applied is committed");
        places.note_applied(5);
        assert!(places.are_one(), "it never goes back");
    }
}
