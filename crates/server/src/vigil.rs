//! Keeps a thread awake while requests come close on each other.
//!
//! A thread that has nothing to do goes to sleep, and the next request has to wake it: that costs whoever sends
//! it, in the kernel, a good part of what a small command costs altogether. So for some microseconds after a request
//! the thread looks for another one instead: it asks for what is ready, without waiting.
//!
//! It does so for as long as that pays. If it looks in vain more often than not, requests come too seldom: then it rests for
//! a while, in which the thread sleeps as any other does. Nodes of a cluster do not look at all: other threads of theirs need the
//! processor before anybody has an answer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use cairn_engine::Moment;

/// How long to look for the next request, in nanoseconds: a few times as long as it takes to wake a thread.
const LOOK_FOR: u64 = 40_000;
/// How many times the processor pauses between two looks, a fiftieth of a microsecond each or two: whoever sends something has
/// to take from it what it looks at.
const PAUSES: usize = 30;
/// How often it may be in vain in a row, at most.
const MOST_CREDIT: u32 = 256;
/// How long it rests.
const REST: u64 = 1_000_000;

pub struct Vigil {
    /// When something was read last.
    last: Cell<Moment>,
    rests_since: Cell<Option<Moment>>,
    /// Wakes whoever looks for requests.
    asleep: RefCell<Option<Waker>>,
}

impl Vigil {
    pub fn new() -> Vigil {
        Vigil {
            last: Cell::new(Moment::now()),
            rests_since: Cell::new(None),
            asleep: RefCell::new(None),
        }
    }

    /// Something was read just now.
    #[inline]
    pub fn note(&self, now: Moment) {
        self.last.set(now);
        let rests = |since| now.nanoseconds_since(since) < REST;
        if self.rests_since.get().is_some_and(rests) {
            return;
        }
        if let Some(waker) = self.asleep.take() {
            waker.wake();
        }
    }

    /// Looks for requests where there are many, for as long as the thread runs.
    pub async fn keep(&self) {
        let mut credit = Credit::default();
        loop {
            self.sleep().await;
            self.rests_since.set(None);
            if self.look(&mut credit).await == Verdict::Rest {
                self.rests_since.set(Some(Moment::now()));
            }
        }
    }

    /// Until something is read.
    async fn sleep(&self) {
        let mut is_awake = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_awake, true) {
                return Poll::Ready(());
            }
            self.asleep.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Looks until it is time to sleep.
    async fn look(&self, credit: &mut Credit) -> Verdict {
        let mut before = self.last.get();
        loop {
            // All tasks that are ready run first, and then sockets are asked what they have.
            tokio::task::yield_now().await;
            let last = self.last.get();
            let has_found = last != before;
            before = last;
            let passed = Moment::now().nanoseconds_since(last);
            match credit.judge(has_found, passed) {
                Verdict::GoOn if has_found => {}
                Verdict::GoOn => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
                verdict => return verdict,
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    GoOn,
    /// Nothing has come, but something may soon.
    Sleep,
    Rest,
}

/// How often it may still be in vain.
#[derive(Default)]
struct Credit(u32);

impl Credit {
    /// So many nanoseconds have passed since something was read, be it just now.
    fn judge(&mut self, has_found: bool, passed: u64) -> Verdict {
        if has_found {
            self.0 = MOST_CREDIT.min(self.0 + 1);
        }
        if passed < LOOK_FOR {
            return Verdict::GoOn;
        }
        match self.0 > 0 {
            true => {
                self.0 -= 1;
                Verdict::Sleep
            }
            false => Verdict::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn it_goes_on_while_requests_come() {
        let mut credit = Credit::default();
        for _ in 0..2 * MOST_CREDIT {
            assert_eq!(credit.judge(true, 0), Verdict::GoOn);
            assert_eq!(credit.judge(false, LOOK_FOR - 1), Verdict::GoOn);
        }
        for _ in 0..MOST_CREDIT {
            assert_eq!(credit.judge(false, LOOK_FOR), Verdict::Sleep);
        }
        assert_eq!(credit.judge(false, LOOK_FOR), Verdict::Rest);
    }

    #[test]
    fn it_rests_if_there_was_one_and_no_other() {
        assert_eq!(Credit::default().judge(false, LOOK_FOR), Verdict::Rest);
    }

    #[test]
    fn it_finds_more_and_less_in_turn() {
        let mut credit = Credit::default();
        for _ in 0..100 {
            assert_eq!(credit.judge(true, 0), Verdict::GoOn);
            assert_eq!(credit.judge(false, LOOK_FOR), Verdict::Sleep);
        }
    }

    fn thread_time() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` lives through the call, and every thread has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    #[test]
    fn a_thread_that_is_asked_now_and_then_sleeps() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build_local(Default::default());
        let share = runtime.unwrap().block_on(async {
            let vigil = Rc::new(Vigil::new());
            let kept = vigil.clone();
            tokio::task::spawn_local(async move { kept.keep().await });
            let (started, busy) = (Moment::now(), thread_time());
            for _ in 0..300 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                vigil.note(Moment::now());
            }
            let busy = thread_time() - busy;
            busy.as_secs_f64() / started.elapsed().as_secs_f64()
        });
        assert!(share < 0.2, "{share}");
    }
}
