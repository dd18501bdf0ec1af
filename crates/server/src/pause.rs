//! CLIENT PAUSE: commands wait, and run once it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::watch;

use crate::command::Command;

/// What has to wait; each mode holds what the one before it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    Writes,
    Everything,
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    mode: Mode,
    until: Instant,
}

impl Paused {
    fn holds(&self, command: &Command, writes: bool) -> bool {
        let is_concerned = match self.mode {
            Mode::Everything => true,
            Mode::Writes => writes || command.writes_besides_scripts(),
        };
        is_concerned && Instant::now() < self.until
    }
}

pub struct Pause {
    /// Spares every command a look at the rest, nearly always.
    is_on: AtomicBool,
    paused: watch::Sender<Option<Paused>>,
}

impl Default for Pause {
    fn default() -> Self {
        Pause {
            is_on: AtomicBool::new(false),
            paused: watch::Sender::new(None),
        }
    }
}

impl Pause {
    /// Begins to pause, or goes on: neither what waits nor for how long can become less.
    pub fn start(&self, mode: Mode, until: Instant) {
        self.paused.send_modify(|paused| {
            let still = paused.filter(|paused| Instant::now() < paused.until);
            *paused = Some(match still {
                None => Paused { mode, until },
                Some(before) => Paused {
                    mode: before.mode.max(mode),
                    until: before.until.max(until),
                },
            });
        });
        self.is_on.store(true, Ordering::Release);
    }

    /// When it will be over, if nobody ends it before.
    pub fn until(&self) -> Option<Instant> {
        self.paused.borrow().map(|paused| paused.until)
    }

    pub fn end(&self) {
        self.is_on.store(false, Ordering::Release);
        self.paused.send_replace(None);
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether the command has to wait. It may write because of what was queued for it, or of the script it calls.
    #[inline]
    pub fn holds(&self, command: &Command, writes: bool) -> bool {
        if !self.is_on() {
            return false;
        }
        let paused = *self.paused.borrow();
        paused.is_some_and(|paused| paused.holds(command, writes))
    }

    /// Waits until the command may run.
    pub async fn wait(&self, command: &Command, writes: bool) {
        let mut changes = self.paused.subscribe();
        loop {
            let paused = *changes.borrow_and_update();
            let Some(paused) = paused.filter(|paused| paused.holds(command, writes)) else {
                return;
            };
            // A change that cannot come, because the server is gone, ends the wait like any other.
            let _ = tokio::time::timeout_at(paused.until.into(), changes.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::command::find;

    #[test]
    fn writes_wait_or_everything_does() {
        let (get, set) = (find(b"get").unwrap(), find(b"set").unwrap());
        let pause = Pause::default();
        assert!(!pause.holds(set, false));
        let later = Instant::now() + Duration::from_secs(60);
        pause.start(Mode::Writes, later);
        assert!(pause.holds(set, false) && !pause.holds(get, false));
        pause.start(Mode::Everything, Instant::now());
        assert!(
            pause.holds(set, false) && pause.holds(get, false),
            "a pause only grows"
        );
        pause.end();
        assert!(!pause.holds(set, false));
        pause.start(Mode::Everything, Instant::now());
        assert!(!pause.holds(set, false), "its time is over");
    }

    #[test]
    fn who_waits_goes_on_when_it_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let set = find(b"set").unwrap();
        let pause = Pause::default();
        runtime.block_on(async {
            pause.start(Mode::Writes, Instant::now() + Duration::from_secs(60));
            let waiting = pause.wait(set, false);
            let ending = async {
                tokio::task::yield_now().await;
                pause.end();
            };
            let both = async { tokio::join!(waiting, ending) };
            tokio::time::timeout(Duration::from_secs(10), both)
                .await
                .unwrap();
            pause.start(Mode::Writes, Instant::now() + Duration::from_millis(5));
            pause.wait(set, false).await;
        });
    }
}
