//! What a connection is sent that it did not ask for just now: messages, invalidations, the lines of MONITOR.
//!
//! Anyone may put something in; the connection's own task takes it out and sends it, between replies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

#[derive(Default)]
pub struct Outbox {
    /// Spares the connection a look at the rest, nearly always.
    has_some: AtomicBool,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    waker: Option<Waker>,
    /// Nobody will take anything out any more.
    is_closed: bool,
}

impl Outbox {
    /// Puts in what `write` appends; returns how much waits now.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            return 0;
        }
        write(&mut pending.bytes);
        self.has_some.store(true, Ordering::Release);
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
        pending.bytes.len()
    }

    #[inline]
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// How much waits.
    pub fn len(&self) -> usize {
        self.pending.lock().bytes.len()
    }

    /// Throws away what is in it and whatever comes; tells whether it was open before.
    pub fn close(&self) -> bool {
        let mut pending = self.pending.lock();
        self.has_some.store(false, Ordering::Release);
        pending.bytes = Vec::new();
        !std::mem::replace(&mut pending.is_closed, true)
    }

    /// Takes out everything.
    pub fn take_into(&self, out: &mut Vec<u8>) {
        if !self.has_some() {
            return;
        }
        let mut pending = self.pending.lock();
        self.has_some.store(false, Ordering::Release);
        if out.is_empty() {
            std::mem::swap(out, &mut pending.bytes);
        } else {
            out.append(&mut pending.bytes);
        }
        pending.bytes = Vec::new();
    }

    /// Waits until there is something.
    pub fn poll_some(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_some() {
            return Poll::Ready(());
        }
        let mut pending = self.pending.lock();
        if !pending.bytes.is_empty() {
            return Poll::Ready(());
        }
        match &mut pending.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
