//! Time and versions that only rise.
//!
//! Both are asked of the wall clock and then forced upwards: a timestamp is never below one that a
//! commit has carried, a version never below one that was handed out, whatever the wall clock does and
//! however often the server restarts. The committer stores both maxima with each batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_encoding::version;

/// A moment of a clock that only rises and has nothing to do with the time of day: for measuring, and for those who
/// have just asked it and need not ask again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    nanoseconds: u64,
}

impl Moment {
    #[inline]
    pub fn now() -> Moment {
        let nanoseconds = read(libc::CLOCK_MONOTONIC);
        Moment { nanoseconds }
    }

    #[inline]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// The same for those who count them. In 64 bits, which last for centuries.
    #[inline]
    pub fn nanoseconds_since(self, earlier: Moment) -> u64 {
        self.nanoseconds.saturating_sub(earlier.nanoseconds)
    }

    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }
}

/// Asks a clock of the machine, in nanoseconds. Every command does, so the detours of the standard library are avoided.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec that lives through the call, and the clocks asked for are always there.
    unsafe { libc::clock_gettime(clock, &mut now) };
    // Before the epoch is as good as at it.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + now.tv_nsec as u64
}

/// How long all threads of the process have run, on any processor.
pub(crate) fn processor_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// How long this thread has run.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Where wall-clock time comes from. Tests bring their own.
pub trait TimeSource: Send + Sync {
    /// Microseconds since the epoch.
    fn micros(&self) -> u64;

    /// The same at a moment that has just passed.
    fn micros_at(&self, _moment: Moment) -> u64 {
        self.micros()
    }
}

/// How long the wall clock is taken to run like the one that only rises, before they are compared again: so long it
/// takes to notice that somebody has set it.
const BELIEVED_NS: u64 = 1_000_000;

/// The machine's clock.
#[derive(Default)]
pub struct SystemTime {
    /// How far it was ahead of the clock that only rises, in nanoseconds, and when they are to be compared again. Two
    /// threads that do so at once may mix their answers, of which each is as good as the other.
    ahead: AtomicU64,
    compare_at: AtomicU64,
}

impl SystemTime {
    #[cold]
    fn compare(&self) {
        let (rising, wall) = (read(libc::CLOCK_MONOTONIC), read(libc::CLOCK_REALTIME));
        // Wraps around if the wall clock stands before the start of the machine; so does the sum.
        self.ahead
            .store(wall.wrapping_sub(rising), Ordering::Relaxed);
        self.compare_at
            .store(rising + BELIEVED_NS, Ordering::Relaxed);
    }
}

impl TimeSource for SystemTime {
    #[inline]
    fn micros(&self) -> u64 {
        read(libc::CLOCK_REALTIME) / 1000
    }

    #[inline]
    fn micros_at(&self, moment: Moment) -> u64 {
        if moment.nanoseconds >= self.compare_at.load(Ordering::Relaxed) {
            self.compare();
        }
        let ahead = self.ahead.load(Ordering::Relaxed);
        moment.nanoseconds.wrapping_add(ahead) / 1000
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

    fn micros_at(&self, moment: Moment) -> u64 {
        (**self).micros_at(moment)
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
        self.not_before(self.source.micros() / 1000)
    }

    /// The same for those who have just asked a clock.
    #[inline]
    pub fn ms_at(&self, moment: Moment) -> u64 {
        self.not_before(self.source.micros_at(moment) / 1000)
    }

    /// This time, or the largest timestamp so far if that is later.
    #[inline]
    fn not_before(&self, wall: u64) -> u64 {
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
    fn a_moment_has_the_time_of_the_wall_clock() {
        let time = SystemTime::default();
        let begin = Moment::now();
        for _ in 0..1000 {
            let (before, moment, after) = (time.micros(), Moment::now(), time.micros());
            let at = time.micros_at(moment);
            // The two clocks may drift apart between two comparisons, by less than this.
            let slack = 1000;
            assert!(
                before <= at + slack && at <= after + slack,
                "{before} {at} {after}"
            );
            std::thread::sleep(Duration::from_micros(10));
        }
        assert!(begin.elapsed() >= Duration::from_millis(10));
        assert_eq!(begin.since(Moment::now()), Duration::ZERO);
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
