//! What commands cost.

use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};

/// Microseconds where there is little, and where there is much.
#[derive(Clone, Copy)]
pub struct Costs {
    pub base: f64,
    pub deep: f64,
}

/// Medians of both, measured in turn.
pub fn in_turn(
    rounds: usize,
    mut base: impl FnMut() -> Duration,
    mut deep: impl FnMut() -> Duration,
) -> Costs {
    // The first round finds caches cold, and is not counted.
    base();
    deep();
    let rounds = (0..rounds).map(|_| (base(), deep()));
    let (base, deep) = rounds.unzip::<_, _, Vec<_>, Vec<_>>();
    Costs {
        base: median(base),
        deep: median(deep),
    }
}

pub fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    micros(times[times.len() / 2])
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How long one command takes on average, of so many.
pub fn mean(client: &mut Client, count: u64, mut next: impl FnMut(u64) -> Vec<String>) -> Duration {
    let mut took = Duration::ZERO;
    for number in 0..count {
        took += once(client, &next(number));
    }
    took / count as u32
}

/// The same with many sent at a time, and the next before the last are answered: so the server always has something to
/// do. A client that waits for replies measures how soon both are woken, too, which on a small machine is another time
/// for one server than for another.
pub fn mean_of_many(
    client: &mut Client,
    count: u64,
    next: impl FnMut(u64) -> Vec<String>,
) -> Duration {
    const AT_A_TIME: usize = 16;
    const UNDER_WAY: usize = 4 * AT_A_TIME;
    let commands: Vec<_> = (0..count).map(next).collect();
    let started = Instant::now();
    let mut unanswered = 0;
    for some in commands.chunks(AT_A_TIME) {
        some.iter().for_each(|command| client.send(command));
        client.flush().expect("the server takes it");
        unanswered += some.len();
        while unanswered > UNDER_WAY - AT_A_TIME {
            assert!(!client.receive().is_error());
            unanswered -= 1;
        }
    }
    (0..unanswered).for_each(|_| assert!(!client.receive().is_error()));
    started.elapsed() / count as u32
}

/// The same for a command that another one makes possible, which is not counted.
pub fn prepared(client: &mut Client, count: u64, prepare: &str, line: &str) -> Duration {
    let (prepare, line) = (words(prepare), words(line));
    let mut took = Duration::ZERO;
    for _ in 0..count {
        once(client, &prepare);
        took += once(client, &line);
    }
    took / count as u32
}

/// How long this one command takes, which must not fail.
pub fn once<A: AsRef<[u8]>>(client: &mut Client, command: &[A]) -> Duration {
    let (took, reply) = timed(client, command);
    assert!(!reply.is_error(), "{reply:?}");
    took
}

pub fn timed<A: AsRef<[u8]>>(client: &mut Client, command: &[A]) -> (Duration, Value) {
    client.send(command);
    let sent = Instant::now();
    let reply = client.receive();
    (sent.elapsed(), reply)
}

/// The words of a command.
pub fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// For what takes long to prepare: measured once, and only if that misses the bar twice more, of which the median
/// counts. What really grew with size would miss it each time, by far.
pub fn few(most: f64, mut costs: impl FnMut() -> Costs) -> Costs {
    let first = costs();
    if first.deep <= first.base * most {
        return first;
    }
    let mut all = [first, costs(), costs()];
    all.sort_by(|a, b| (a.deep / a.base).total_cmp(&(b.deep / b.base)));
    all[1]
}
