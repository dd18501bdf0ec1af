//! Connections of one thread that wait for the same latches.
//!
//! The first of them queues up for all. When the latches are granted, what all of them have to do becomes one batch of the turn
//! that goes on then, with one commit. If each had a place of its own in the queue, a key that clients of several threads write
//! would cost a commit, and another thread that is woken, for each command.

use std::cell::RefCell;
use std::rc::Rc;

use cairn_store::Request;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// What connections of a thread wait for, and who waits behind the first for each.
#[derive(Default)]
pub struct LatchWaits(RefCell<FxHashMap<Wanted, Rc<Notify>>>);

/// Latches, and the region that they are wanted for: a turn has a part for each.
type Wanted = (u64, Request);

/// How a connection comes to its latches.
pub enum Place<'w> {
    /// It queues up for them.
    First(First<'w>),
    /// Another of its thread does, and it tries again when that goes on.
    Behind(Rc<Notify>),
}

/// Queues up for others too. However that ends, they go on.
#[must_use]
pub struct First<'w> {
    waits: &'w LatchWaits,
    wanted: Wanted,
}

impl LatchWaits {
    /// The latches of the request are sorted.
    pub fn enter(&self, region: u64, request: &Request) -> Place<'_> {
        let mut waits = self.0.borrow_mut();
        let wanted = (region, request.clone());
        if let Some(first_goes_on) = waits.get(&wanted) {
            return Place::Behind(first_goes_on.clone());
        }
        waits.insert(wanted.clone(), Rc::default());
        Place::First(First {
            waits: self,
            wanted,
        })
    }
}

impl First<'_> {
    /// Has those behind go on now. Whether there is somebody.
    pub fn lead(self) -> bool {
        let waits = self.waits.0.borrow();
        let is_followed = |behind| Rc::strong_count(behind) > 1;
        waits.get(&self.wanted).is_some_and(is_followed)
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let behind = self.waits.0.borrow_mut().remove(&self.wanted);
        if let Some(behind) = behind {
            behind.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use cairn_store::Mode;
    use tokio::task::JoinHandle;

    use super::*;

    fn request(key: &[u8], mode: Mode) -> Request {
        let mut request = Request::default();
        request.add(key, mode);
        request.sorted()
    }

    async fn run_others() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn those_who_want_the_same_wait_behind_one_of_them() {
        let runtime = tokio::runtime::Builder::new_current_thread().build_local(Default::default());
        runtime.unwrap().block_on(async {
            let waits = Rc::new(LatchWaits::default());
            let is_first = |request: &Request| matches!(waits.enter(1, request), Place::First(_));
            let written = request(b"key", Mode::Exclusive);
            let Place::First(first) = waits.enter(1, &written) else {
                panic!("nobody else waits");
            };
            assert!(is_first(&request(b"key", Mode::Shared)));
            assert!(is_first(&request(b"other", Mode::Exclusive)));
            assert!(matches!(waits.enter(2, &written), Place::First(_)));
            let wait = || -> JoinHandle<()> {
                let Place::Behind(first) = waits.enter(1, &written) else {
                    panic!("somebody waits for it");
                };
                tokio::task::spawn_local(async move { first.notified().await })
            };
            let behind = [wait(), wait()];
            run_others().await;
            assert!(behind.iter().all(|waiting| !waiting.is_finished()));
            assert!(first.lead());
            run_others().await;
            assert!(behind.iter().all(JoinHandle::is_finished));
            let Place::First(alone) = waits.enter(1, &written) else {
                panic!("nobody waits any more");
            };
            assert!(!alone.lead());
            // Who is killed while he queues up leaves nobody behind.
            let Place::First(killed) = waits.enter(1, &written) else {
                panic!("nobody waits any more");
            };
            let behind = wait();
            run_others().await;
            drop(killed);
            run_others().await;
            assert!(behind.is_finished());
        });
    }
}
