//! The end of what threads do for as long as a test goes on.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells others that it is over when this is dropped, also because what they accompany has panicked: they would go on
/// for ever, and so would the test.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
