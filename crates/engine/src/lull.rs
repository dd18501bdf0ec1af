//! Whether the process has next to nothing to do.
//!
//! What is put off, so that it takes no time from those whom clients wait for, is best done while nobody waits. How much the
//! threads have run tells that: reads ask for the processor as much as writes do, and so do flushes and compactions. Whoever
//! writes slowly and steadily takes little of it, and is better off if rows stay young for long: then there is no lull.
//! Those who wait for a slow disk all the time are not told from those who have nothing to do.

use std::time::Duration;

use crate::clock::{Moment, processor_time, thread_time};

/// For how long there has to be next to nothing to do. The sooner that is noticed, the more of what is left from one burst is done
/// when the next one comes.
const LOOKED_AT: Duration = Duration::from_millis(50);
/// What was seen over a longer time tells nothing about the end of it.
const TOO_LONG: Duration = Duration::from_millis(150);
/// Next to nothing is less than such a part of that time, on any processor.
const NEXT_TO_NOTHING: u32 = 20;
/// The background commits something now and then.
const FEW_COMMITS: u64 = 1;

/// Looks on from a thread that works in such times. What it does itself does not count.
pub(crate) struct Lull {
    since: Seen,
    is_on: bool,
}

/// What is to be seen at some moment.
struct Seen {
    at: Moment,
    /// How long other threads have run.
    others: Duration,
    /// How many times something has been committed.
    commits: u64,
}

impl Seen {
    fn now(commits: u64) -> Seen {
        Seen {
            at: Moment::now(),
            others: processor_time().saturating_sub(thread_time()),
            commits,
        }
    }
}

/// Whether next to nothing was done in such a time, in which others ran for so long and committed so often.
fn is_quiet(passed: Duration, others: Duration, commits: u64) -> bool {
    passed < TOO_LONG && others < passed / NEXT_TO_NOTHING && commits <= FEW_COMMITS
}

impl Lull {
    pub(crate) fn new(commits: u64) -> Lull {
        Lull {
            since: Seen::now(commits),
            is_on: false,
        }
    }

    /// Whether the others have had next to nothing to do of late. To be asked again and again, of one thread; so many times has
    /// something been committed by now.
    pub(crate) fn is_on(&mut self, commits: u64) -> bool {
        let passed = Moment::now().since(self.since.at);
        if passed >= LOOKED_AT {
            let before = std::mem::replace(&mut self.since, Seen::now(commits));
            let others = self.since.others.saturating_sub(before.others);
            self.is_on = is_quiet(passed, others, commits - before.commits);
        }
        // What has been seen holds until it is looked at again, unless somebody writes again.
        self.is_on && commits - self.since.commits <= FEW_COMMITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn work_for(time: Duration) {
        let before = thread_time();
        while thread_time() - before < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn it_is_quiet_if_little_was_done_and_committed_in_a_time_that_is_not_too_long() {
        let little = LOOKED_AT / (NEXT_TO_NOTHING + 1);
        assert!(is_quiet(LOOKED_AT, little, FEW_COMMITS));
        assert!(!is_quiet(LOOKED_AT, LOOKED_AT / NEXT_TO_NOTHING, 0));
        assert!(!is_quiet(LOOKED_AT, little, FEW_COMMITS + 1));
        assert!(!is_quiet(TOO_LONG, little, 0));
    }

    #[test]
    fn what_others_do_counts() {
        let mut lull = Lull::new(0);
        assert!(!lull.is_on(0));
        thread::scope(|scope| {
            scope.spawn(|| work_for(LOOKED_AT));
        });
        assert!(!lull.is_on(0));
    }

    #[test]
    fn what_the_thread_does_itself_does_not_count() {
        let of_this_process = |work: Duration| {
            let before = Seen::now(0);
            work_for(work);
            Seen::now(0).others - before.others
        };
        // Other tests may run in this process at the same time.
        let is_seen = |_| of_this_process(LOOKED_AT / 20) < LOOKED_AT / 40;
        assert!((0..1000).any(is_seen));
    }

    #[test]
    fn it_ends_when_somebody_writes_again() {
        let mut lull = Lull {
            since: Seen::now(10),
            is_on: true,
        };
        assert!(lull.is_on(10));
        assert!(lull.is_on(10 + FEW_COMMITS));
        assert!(!lull.is_on(11 + FEW_COMMITS));
    }
}
