//! Client-side caching: who keeps copies of what.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The clients that keep copies.
#[derive(Default)]
pub struct Tracking {
    clients: AtomicUsize,
}

impl Tracking {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 0
    }
}
