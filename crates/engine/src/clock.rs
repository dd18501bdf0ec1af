//! Time and versions that only rise.
//!
//! Both are asked of the wall clock and then forced upwards: a timestamp is never below one that a
//! commit has carried, a version never below one that was handed out, whatever the wall clock does and
//! however often the server restarts. The committer stores both maxima with each batch.

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_encoding::version;

/// Where wall-clock time comes from. Tests bring their own.
pub trait TimeSource: Send + Sync {
    /// Microseconds since the epoch.
    fn micros(&self) -> u64;
}

/// The machine's clock.
pub struct SystemTime;

impl TimeSource for SystemTime {
    /// Every command asks, so it is asked without the detours of the standard library.
    #[inline]
    fn micros(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is a timespec that lives through the call, and this clock is always there.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
        // Before the epoch is as good as at it.
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds * 1_000_000 + now.tv_nsec as u64 / 1000
    }
}

/// A clock that stands still until it is told otherwise.
pub struct ManualTime(AtomicU64);

impl ManualTime {
    pub fn at_millis(millis: u64) -> Self {
        ManualTime(AtomicU64::new(millis * 1000))
    }

    pub fn set_millis(&self, millis: u64) {
        self.0.store(millis * 1000, Ordering::SeqCst);
    }
}

impl TimeSource for ManualTime {
    fn micros(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<T: TimeSource + ?Sized> TimeSource for std::sync::Arc<T> {
    fn micros(&self) -> u64 {
        (**self).micros()
    }
}

pub struct Clock {
    source: Box<dyn TimeSource>,
    version: AtomicU64,
    timestamp_ms: AtomicU64,
}

impl Clock {
    pub fn new(source: Box<dyn TimeSource>) -> Self {
        Clock {
            source,
            version: AtomicU64::new(0),
            timestamp_ms: AtomicU64::new(0),
        }
    }

    /// Forces both to be at least these; called with what the database remembers when it is opened.
    pub fn advance_to(&self, version: u64, timestamp_ms: u64) {
        self.version.fetch_max(version, Ordering::SeqCst);
        self.timestamp_ms.fetch_max(timestamp_ms, Ordering::SeqCst);
    }

    /// Now, in milliseconds: the wall clock, or the largest timestamp so far if that is later.
    pub fn now_ms(&self) -> u64 {
        let wall = self.source.micros() / 1000;
        // Nearly always it is still the same millisecond: threads that only look share the cache line.
        let largest = self.timestamp_ms.load(Ordering::SeqCst);
        if wall <= largest {
            return largest;
        }
        self.timestamp_ms
            .fetch_max(wall, Ordering::SeqCst)
            .max(wall)
    }

    /// The wall clock in microseconds, for TIME and for measuring; may step back.
    pub fn wall_micros(&self) -> u64 {
        self.source.micros()
    }

    /// A version greater than every one before it.
    pub fn next_version(&self) -> u64 {
        let wall = self.source.micros();
        let mut last = self.version.load(Ordering::Relaxed);
        loop {
            let next = version::next(wall, last);
            match self.version.compare_exchange_weak(
                last,
                next,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return next,
                Err(actual) => last = actual,
            }
        }
    }

    /// The largest version and timestamp so far.
    pub fn maxima(&self) -> (u64, u64) {
        (
            self.version.load(Ordering::SeqCst),
            self.timestamp_ms.load(Ordering::SeqCst),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn versions_and_timestamps_rise_when_the_clock_steps_back() {
        let time = Arc::new(ManualTime::at_millis(1_000_000));
        let clock = Clock::new(Box::new(time.clone()));
        let (version, now) = (clock.next_version(), clock.now_ms());
        time.set_millis(5);
        assert_eq!(clock.next_version(), version + 1);
        assert_eq!(clock.now_ms(), now);
    }

    #[test]
    fn versions_follow_the_clock_and_what_was_remembered() {
        let time = Arc::new(ManualTime::at_millis(10));
        let clock = Clock::new(Box::new(time.clone()));
        assert_eq!(clock.next_version(), 10_000 << 11);
        clock.advance_to(1 << 60, 99);
        assert_eq!(clock.next_version(), (1 << 60) + 1);
        assert_eq!(clock.now_ms(), 99);
        time.set_millis(100);
        assert_eq!(clock.now_ms(), 100);
    }
}
