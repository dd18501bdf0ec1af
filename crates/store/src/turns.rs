//! Work that nobody waits for, in short turns: who wants the processor gets it soon, however long the work takes.

use std::thread;
use std::time::{Duration, Instant};

/// How long a turn takes, and the rest after it.
const TURN: Duration = Duration::from_micros(200);
const REST: Duration = Duration::from_micros(400);

/// A long piece of work on a thread that may sleep, and holds nothing that anybody waits for.
pub(crate) struct Turns {
    began: Instant,
    worked: Duration,
}

impl Turns {
    pub(crate) fn begin() -> Self {
        Turns {
            began: Instant::now(),
            worked: Duration::ZERO,
        }
    }

    /// To be called often: rests if the turn is over.
    pub(crate) fn go_on(&mut self) {
        let worked = self.began.elapsed();
        if worked >= TURN {
            self.worked += worked;
            thread::sleep(REST);
            self.began = Instant::now();
        }
    }

    /// How long it was worked in all, without the rests.
    pub(crate) fn worked(&self) -> Duration {
        self.worked + self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_come_between_turns_and_are_no_work() {
        let started = Instant::now();
        let mut turns = Turns::begin();
        while turns.worked() < TURN * 20 {
            turns.go_on();
        }
        // A turn that was interrupted counts for several.
        assert!(started.elapsed() >= turns.worked());
        assert!(started.elapsed() - turns.worked() >= REST);
    }
}
