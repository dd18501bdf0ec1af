//! What happens per second right now: differences of counters, sampled ten times a second and averaged
//! over the last sixteen samples, as Redis does it.

use std::time::Instant;

use parking_lot::Mutex;

const SAMPLES: usize = 16;

/// Counters that only rise.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub commands: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Per second.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Rate {
    pub commands: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

#[derive(Default)]
pub struct Rates(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    last: Option<(Instant, Totals)>,
    rates: [Rate; SAMPLES],
    next: usize,
}

impl Rates {
    /// Takes a sample.
    pub fn sample(&self, now: Instant, totals: Totals) {
        let mut samples = self.0.lock();
        if let Some((then, before)) = samples.last {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
            // A reset in between makes the counters fall.
            let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let at = samples.next;
            samples.rates[at] = Rate {
                commands: per_second(totals.commands, before.commands),
                bytes_in: per_second(totals.bytes_in, before.bytes_in),
                bytes_out: per_second(totals.bytes_out, before.bytes_out),
            };
            samples.next = (at + 1) % SAMPLES;
        }
        samples.last = Some((now, totals));
    }

    pub fn now(&self) -> Rate {
        let samples = self.0.lock();
        let mean =
            |of: fn(&Rate) -> f64| samples.rates.iter().map(of).sum::<f64>() / SAMPLES as f64;
        Rate {
            commands: mean(|rate| rate.commands),
            bytes_in: mean(|rate| rate.bytes_in),
            bytes_out: mean(|rate| rate.bytes_out),
        }
    }

    pub fn reset(&self) {
        *self.0.lock() = Samples::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_steady_load_is_its_rate() {
        let rates = Rates::default();
        let start = Instant::now();
        for step in 0..40 {
            let totals = Totals {
                commands: step * 100,
                bytes_in: step * 1000,
                bytes_out: 7,
            };
            rates.sample(start + Duration::from_millis(100) * step as u32, totals);
        }
        let rate = rates.now();
        assert!((rate.commands - 1000.0).abs() < 1.0, "{rate:?}");
        assert!((rate.bytes_in - 10_000.0).abs() < 1.0, "{rate:?}");
        assert_eq!(rate.bytes_out, 0.0);
        rates.reset();
        assert_eq!(rates.now(), Rate::default());
    }
}
