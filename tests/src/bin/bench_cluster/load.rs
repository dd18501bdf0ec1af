//! Clients that ask as fast as they are answered.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub const VALUE: usize = 100;
pub const KEYS: u64 = 100_000;

/// How many ask, and over how many connections.
#[derive(Clone, Copy)]
pub struct Clients {
    pub connections: usize,
    /// Requests under way on each.
    pub at_once: usize,
}

/// A connection on which requests need not wait for each other.
pub trait Writes: AsRawFd {
    /// Queues a request. It leaves with the next [`flush`](Writes::flush).
    fn begin(&mut self, key: &[u8], value: &[u8]);

    fn flush(&mut self) -> io::Result<()>;

    /// Waits until requests have been answered, one at least, and returns how many.
    fn finish(&mut self) -> io::Result<usize>;
}

/// Writes to some of the keys, over a connection of its own.
pub struct Writer<C> {
    pub connection: C,
    pub keys: Rc<[Key]>,
}

/// In one piece with its neighbours: to find one by chance shall cost no more than it must.
pub type Key = [u8; 16];

pub fn keys() -> impl Iterator<Item = Key> {
    (0..KEYS).map(|number| {
        let key = format!("key:{number:012}");
        Key::try_from(key.as_bytes()).expect("twelve digits")
    })
}

/// Writes per second. One thread does all, whomever it asks, so that clients cost the same for all that are compared.
pub fn rate<C: Writes>(
    mut writers: Vec<Writer<C>>,
    at_once: usize,
    duration: Duration,
) -> io::Result<f64> {
    let arrivals = Arrivals::of(writers.iter().map(|writer| writer.connection.as_raw_fd()))?;
    let begun = Instant::now();
    let mut done = 0;
    for writer in &mut writers {
        writer.begin(at_once)?;
    }
    let mut ready = Vec::with_capacity(writers.len());
    while begun.elapsed() < duration {
        arrivals.next(&mut ready)?;
        for &place in &ready {
            let finished = writers[place].connection.finish()?;
            done += finished;
            writers[place].begin(finished)?;
        }
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

impl<C: Writes> Writer<C> {
    fn begin(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let key = &self.keys[fastrand::usize(..self.keys.len())];
            self.connection.begin(key, &[b'x'; VALUE]);
        }
        self.connection.flush()
    }
}

/// On which of many connections something has arrived.
struct Arrivals {
    epoll: OwnedFd,
}

impl Arrivals {
    fn of(connections: impl Iterator<Item = RawFd>) -> io::Result<Arrivals> {
        // SAFETY: it takes nothing but a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and nobody else has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for (place, connection) in (0u64..).zip(connections) {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: place,
            };
            let (add, event) = (libc::EPOLL_CTL_ADD, &raw mut event);
            // SAFETY: the event lives until the call has ended, which copies it.
            if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, connection, event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Arrivals { epoll })
    }

    /// Their places; none if nothing arrives for a second.
    fn next(&self, places: &mut Vec<usize>) -> io::Result<()> {
        const MOST: usize = 256;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let (epoll, room) = (self.epoll.as_raw_fd(), MOST as i32);
        // SAFETY: there is room for as many events as are asked for.
        let told = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, 1000) };
        let told = usize::try_from(told).map_err(|_| io::Error::last_os_error())?;
        places.clear();
        places.extend(events[..told].iter().map(|event| event.u64 as usize));
        Ok(())
    }
}

/// What redis-benchmark asks for.
pub struct Benchmark<'a> {
    pub port: u16,
    pub command: &'a str,
    pub clients: Clients,
}

impl Benchmark<'_> {
    /// Requests per second, measured for about so long.
    pub fn rate(&self, duration: Duration) -> f64 {
        let probe = self.run(20_000);
        self.run((probe * duration.as_secs_f64()) as usize)
    }

    pub fn run(&self, requests: usize) -> f64 {
        let mut program = Command::new("redis-benchmark");
        program.args(["--csv", "-p", &self.port.to_string(), "-t", self.command]);
        program.args([
            "-n",
            &requests.max(1000).to_string(),
            "-r",
            &KEYS.to_string(),
        ]);
        program.args([
            "-c",
            &self.clients.connections.to_string(),
            "-P",
            &self.clients.at_once.to_string(),
        ]);
        program.args(["-d", &VALUE.to_string()]);
        let output = program.output().expect("redis-benchmark runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = said
            .lines()
            .last()
            .and_then(|line| line.split('"').nth(3)?.parse().ok());
        rate.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    }
}
