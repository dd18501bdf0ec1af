//! The threads that work for nobody in particular.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_engine::{EngineError, Family, give_way};
use parking_lot::{Condvar, Mutex};

use crate::count::{RECOUNT, RUN};
use crate::error::{Error, Result};
use crate::expirer::Progress;
use crate::store::Store;

/// How the background goes about its work.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often the expirer looks for what is due.
    pub expire_interval: Duration,
    /// How many keys it deletes in one batch, at most.
    pub expire_batch: usize,
    /// How often large dead versions are looked for.
    pub reclaim_interval: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            expire_interval: Duration::from_millis(100),
            expire_batch: 32,
            reclaim_interval: Duration::from_secs(60),
        }
    }
}

/// How often the reclaimer looks whether someone has told of something, how often it looks for flushed databases, and
/// how long it rests after each step.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const BETWEEN_ROUNDS: Duration = Duration::from_millis(500);
const A_LITTLE: Duration = Duration::from_millis(20);
/// How many keys one look for dead versions covers before it rests.
const RECLAIM_STEP: usize = 1000;
/// How many old-format strings are moved before it rests.
const LEGACY_STEP: usize = 256;

/// A key that has been due for so long is late.
const LATE: Duration = Duration::from_secs(4);

/// Runs until dropped.
pub struct Background {
    store: Arc<Store>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    signal: Condvar,
}

impl Stop {
    /// Rests for so long; true if it is time to stop.
    fn rest(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.signal.wait_for(&mut stopped, time);
        }
        *stopped
    }
}

/// What a job does next.
enum Next {
    Rest(Duration),
    /// It has nothing to do any more.
    Retire,
}

/// Who comes first when there are too few processors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    AsOthers,
    GivesWay,
}

type Job = Box<dyn FnMut(&Arc<Store>) -> Result<Next> + Send>;

/// How long a job rests after it failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

impl Background {
    pub fn start(store: &Arc<Store>, pace: Pace) -> std::io::Result<Background> {
        let stop = Arc::new(Stop::default());
        let mut threads = Vec::new();
        // The expirer must keep up with what is due, and rests by itself.
        let jobs: [(&str, Rank, Job); 6] = [
            ("expirer", Rank::AsOthers, expire(pace)),
            ("reclaimer", Rank::GivesWay, reclaim(pace)),
            ("legacy", Rank::GivesWay, move_legacy()),
            ("counter", Rank::GivesWay, count()),
            ("ranks", Rank::GivesWay, keep_ranks()),
            ("measurer", Rank::GivesWay, measure()),
        ];
        for (name, rank, job) in jobs {
            let (store, stop) = (store.clone(), stop.clone());
            let builder = std::thread::Builder::new().name(name.into());
            threads.push(builder.spawn(move || {
                if rank == Rank::GivesWay {
                    give_way();
                }
                run(name, job, &store, &stop);
            })?);
        }
        Ok(Background {
            store: store.clone(),
            stop,
            threads,
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.store.counts().stop();
        self.stop.signal.notify_all();
        // A compaction may take minutes; what it would have left out is found again after the next start.
        self.store.engine().pause_compactions();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        self.store.engine().go_on_compacting();
    }
}

fn run(name: &str, mut job: Job, store: &Arc<Store>, stop: &Stop) {
    loop {
        let rest = match job(store) {
            Ok(Next::Rest(time)) => time,
            Ok(Next::Retire) => return,
            // A full disk, most likely: it is tried again.
            Err(error) => {
                tracing::error!("the {name} failed: {error}");
                AFTER_FAILURE
            }
        };
        if stop.rest(rest) {
            return;
        }
    }
}

/// Batches are short: whoever wants the processor, or one of their latches, waits for no more than one.
const EXPIRER_TURN: Duration = Duration::from_micros(100);
const LEAST_EXPIRED: usize = 4;
/// How many times as large they may be in a cluster.
const REPLICATED: usize = 16;

fn expire(pace: Pace) -> Job {
    let mut batch = LEAST_EXPIRED;
    Box::new(move |store| {
        let started = Instant::now();
        // Where each batch waits until others agree, more has to go into one.
        let (most, turn) = match store.is_replicated() {
            true => (
                pace.expire_batch * REPLICATED,
                EXPIRER_TURN * REPLICATED as u32,
            ),
            false => (pace.expire_batch, EXPIRER_TURN),
        };
        let progress = store.expire_some(batch.min(most))?;
        Ok(Next::Rest(match progress {
            Progress::Idle => pace.expire_interval,
            Progress::More { lag, waited } => {
                let worked = started.elapsed().saturating_sub(waited);
                batch = next_batch(batch, worked, turn).min(most);
                expirer_rest(worked, lag)
            }
        }))
    })
}

/// As many as can be dealt with in one turn, judging from the last batch.
fn next_batch(batch: usize, took: Duration, turn: Duration) -> usize {
    let in_time = batch as f64 * turn.div_duration_f64(took.max(Duration::from_nanos(1)));
    // One that took long was interrupted, most likely.
    (in_time as usize)
        .clamp(batch / 2, batch + 1)
        .max(LEAST_EXPIRED)
}

/// Three times as much rest as work while nothing is late: a quarter of a core, and the foreground never waits for more
/// than one batch. The further it falls behind, the less.
fn expirer_rest(worked: Duration, lag: Duration) -> Duration {
    (worked * 3).div_f64(1.0 + lag.as_secs_f64() / LATE.as_secs_f64())
}

/// What others have told of is dealt with at once, flushed databases soon; dead versions are looked for, family by family,
/// now and then.
fn reclaim(pace: Pace) -> Job {
    let mut last_look = Instant::now();
    let mut last_round = Instant::now();
    let mut places: Vec<(Family, Vec<u8>)> = Vec::new();
    Box::new(move |store| {
        let started = Instant::now();
        if store.reclaim_noted()? {
            return Ok(Next::Rest(A_LITTLE));
        }
        if last_round.elapsed() >= BETWEEN_ROUNDS {
            store.reclaim_abandoned()?;
            store.reclaim_databases()?;
            store.write_out_when_quiet()?;
            last_round = Instant::now();
        }
        if places.is_empty() && last_look.elapsed() >= pace.reclaim_interval {
            places = vec![(Family::ZsetScore, Vec::new()), (Family::Data, Vec::new())];
        }
        let Some((family, from)) = places.pop() else {
            return Ok(Next::Rest(BETWEEN_LOOKS));
        };
        if let Some(next) = store.reclaim_versions(family, &from, RECLAIM_STEP)? {
            places.push((family, next));
        }
        last_look = Instant::now();
        Ok(Next::Rest(started.elapsed().max(A_LITTLE)))
    })
}

fn move_legacy() -> Job {
    let mut place = Vec::new();
    Box::new(move |store| {
        if !store.may_have_legacy() {
            return Ok(Next::Retire);
        }
        match store.move_legacy(&place, LEGACY_STEP)? {
            Some(next) => place = next,
            None => return Ok(Next::Retire),
        }
        Ok(Next::Rest(Duration::from_millis(1)))
    })
}

/// How often it is looked whether ranks were asked for.
const RANKS_INTERVAL: Duration = Duration::from_millis(50);

fn keep_ranks() -> Job {
    Box::new(|store| {
        let started = Instant::now();
        let has_more = store.keep_ranks()?;
        // Half a core while there is much to do.
        Ok(Next::Rest(if has_more {
            started.elapsed()
        } else {
            RANKS_INTERVAL
        }))
    })
}

/// How often it is looked whether how much data there is has to be counted, and how many times as long as a count took nothing
/// is counted afterwards.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
const RESTS_PER_COUNT: u32 = 9;

fn measure() -> Job {
    Box::new(|store| {
        let started = Instant::now();
        match store.count_doubtful_data() {
            // It was told to give up.
            Err(Error::Engine(EngineError::Closing)) => return Ok(Next::Retire),
            result => result?,
        }
        let rest = started.elapsed() * RESTS_PER_COUNT;
        Ok(Next::Rest(rest.max(MEASURE_INTERVAL)))
    })
}

fn count() -> Job {
    Box::new(|store| {
        let has_more = match store.recount(RUN) {
            // It was told to give up.
            Err(Error::Engine(EngineError::Closing)) => return Ok(Next::Retire),
            result => result?,
        };
        Ok(Next::Rest(if has_more { A_LITTLE } else { RECOUNT }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_the_expirer_takes_a_turn() {
        let micros = Duration::from_micros;
        assert_eq!(next_batch(20, micros(50), EXPIRER_TURN), 21);
        assert_eq!(next_batch(20, micros(101), EXPIRER_TURN), 19);
        // One that was interrupted says little, and there is a least.
        assert_eq!(next_batch(20, micros(5_000), EXPIRER_TURN), 10);
        assert_eq!(next_batch(5, micros(5_000), EXPIRER_TURN), LEAST_EXPIRED);
        assert_eq!(next_batch(5, Duration::ZERO, EXPIRER_TURN), 6);
    }

    #[test]
    fn the_expirer_rests_less_the_further_it_is_behind() {
        let rest = |lag| expirer_rest(Duration::from_millis(10), Duration::from_secs(lag));
        assert_eq!(rest(0), Duration::from_millis(30));
        assert_eq!(rest(4), Duration::from_millis(15));
        assert_eq!(rest(36), Duration::from_millis(3));
    }
}
