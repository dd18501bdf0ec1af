//! What may change while the server runs, where it is looked at often: plain atomics, set by the
//! parameters that name these functions.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use cairn_resp::number;
use cairn_store::{Listeners, Policy};
use parking_lot::Mutex;
use tokio_rustls::rustls::ServerConfig;

use super::encodings::ENCODINGS;
use super::kind::Refusal;
use super::{log, special};
use crate::acl::Acl;
use crate::output_limits::OutputLimits;
use crate::propagation;

pub struct Live {
    pub max_clients: AtomicUsize,
    /// As many as there are file descriptors for.
    pub most_clients: AtomicUsize,
    /// Seconds after which an idle connection is closed; zero: never.
    pub timeout: AtomicU64,
    pub tcp_keepalive: AtomicU64,
    pub acl: Arc<Acl>,
    /// How encrypted connections are made; none if nobody may.
    pub tls: ArcSwapOption<ServerConfig>,
    /// Shared with the store, which refuses to let strings grow beyond it.
    pub max_bulk_len: Arc<AtomicUsize>,
    /// Whether a server without a password serves its own machine only.
    pub protected_mode: AtomicBool,
    /// How much of what a client sends may wait to be run before it is given up on.
    pub query_buffer_limit: AtomicUsize,
    /// Whether the time that each command takes goes into a histogram.
    pub tracks_latency: AtomicBool,
    /// From how many microseconds on a command is looked at: the least of the next two.
    pub noteworthy_us: AtomicU64,
    /// The same for the slow log; the largest number: never.
    pub slow_us: AtomicU64,
    pub slowlog_len: AtomicUsize,
    /// From how many milliseconds on something is a spike; zero: never.
    pub spike_ms: AtomicU64,
    /// The classes of events that are told of, and to whom. Shared with the store, which computes no others.
    pub event_classes: Arc<AtomicU32>,
    pub output_limits: OutputLimits,
    /// Milliseconds for which a script may run before others are told that the server is busy; zero: for ever.
    busy_threshold_ms: AtomicU64,
    /// The most keys that are remembered for clients that keep copies; zero is no limit.
    pub tracked_keys: AtomicUsize,
    pub eviction: Eviction,
}

/// How room is made: see `room`.
pub struct Eviction {
    /// Zero is no limit.
    pub max_memory: AtomicU64,
    /// None if nothing may go.
    pub policy: Mutex<Option<Policy>>,
    /// How many keys are looked at for each that goes.
    pub samples: AtomicUsize,
}

impl Live {
    pub fn new(max_bulk_len: Arc<AtomicUsize>, event_classes: Arc<AtomicU32>) -> Self {
        Live {
            max_clients: AtomicUsize::new(10_000),
            most_clients: AtomicUsize::new(usize::MAX),
            timeout: AtomicU64::new(0),
            tcp_keepalive: AtomicU64::new(300),
            acl: Arc::default(),
            tls: ArcSwapOption::empty(),
            max_bulk_len,
            protected_mode: AtomicBool::new(true),
            query_buffer_limit: AtomicUsize::new(1 << 30),
            tracks_latency: AtomicBool::new(true),
            noteworthy_us: AtomicU64::new(10_000),
            slow_us: AtomicU64::new(10_000),
            slowlog_len: AtomicUsize::new(128),
            spike_ms: AtomicU64::new(0),
            event_classes,
            output_limits: OutputLimits::default(),
            busy_threshold_ms: AtomicU64::new(5000),
            tracked_keys: AtomicUsize::new(1_000_000),
            eviction: Eviction {
                max_memory: AtomicU64::new(0),
                policy: Mutex::new(None),
                samples: AtomicUsize::new(5),
            },
        }
    }
}

impl Live {
    /// Whether a connection from this address is turned away: nobody has said yet who may come in.
    pub fn denies(&self, peer: IpAddr) -> bool {
        !is_local(peer) && self.protected_mode.load(Ordering::Relaxed) && self.acl.is_open()
    }

    pub fn busy_threshold(&self) -> Duration {
        Duration::from_millis(self.busy_threshold_ms.load(Ordering::Relaxed))
    }
}

/// Whether the address is one of this machine's to itself, also where IPv4 comes over an IPv6 socket.
pub fn is_local(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

/// A value that its kind has read as a number.
fn unsigned(value: &[u8]) -> u64 {
    let number = number::parse_i64(value).unwrap_or(i64::MAX);
    u64::try_from(number).unwrap_or(0)
}

pub fn set_max_clients(live: &Live, value: &[u8]) {
    live.max_clients
        .store(unsigned(value) as usize, Ordering::Relaxed);
}

pub fn check_max_clients(live: &Live, value: &[u8]) -> Result<(), Refusal> {
    let most = live.most_clients.load(Ordering::Relaxed);
    if unsigned(value) as usize <= most {
        return Ok(());
    }
    Err(format!(
        "The operating system is not able to handle the specified number of clients, try with {most}"
    )
    .into())
}

pub fn set_timeout(live: &Live, value: &[u8]) {
    live.timeout.store(unsigned(value), Ordering::Relaxed);
}

pub fn set_tcp_keepalive(live: &Live, value: &[u8]) {
    live.tcp_keepalive.store(unsigned(value), Ordering::Relaxed);
}

pub fn set_password(live: &Live, value: &[u8]) {
    live.acl.set_default_password(value);
}

pub fn set_channels_of_new_users(live: &Live, value: &[u8]) {
    live.acl.allow_channels(value == b"allchannels");
}

pub fn set_acl_log_len(live: &Live, value: &[u8]) {
    live.acl.log.limit(unsigned(value) as usize);
}

pub fn set_max_bulk_len(live: &Live, value: &[u8]) {
    live.max_bulk_len
        .store(unsigned(value) as usize, Ordering::Relaxed);
}

pub fn set_protected_mode(live: &Live, value: &[u8]) {
    live.protected_mode
        .store(value == b"yes", Ordering::Relaxed);
}

pub fn set_query_buffer_limit(live: &Live, value: &[u8]) {
    live.query_buffer_limit
        .store(unsigned(value) as usize, Ordering::Relaxed);
}

pub fn set_latency_tracking(live: &Live, value: &[u8]) {
    live.tracks_latency
        .store(value == b"yes", Ordering::Relaxed);
}

pub fn set_slower_than(live: &Live, value: &[u8]) {
    let micros = number::parse_i64(value).and_then(|micros| u64::try_from(micros).ok());
    live.slow_us
        .store(micros.unwrap_or(u64::MAX), Ordering::Relaxed);
    set_noteworthy(live);
}

pub fn set_slowlog_len(live: &Live, value: &[u8]) {
    live.slowlog_len
        .store(unsigned(value) as usize, Ordering::Relaxed);
}

pub fn set_spike(live: &Live, value: &[u8]) {
    live.spike_ms.store(unsigned(value), Ordering::Relaxed);
    set_noteworthy(live);
}

fn set_noteworthy(live: &Live) {
    let spike = match live.spike_ms.load(Ordering::Relaxed) {
        0 => u64::MAX,
        milliseconds => milliseconds.saturating_mul(1000),
    };
    let slow = live.slow_us.load(Ordering::Relaxed);
    live.noteworthy_us.store(slow.min(spike), Ordering::Relaxed);
}

pub fn set_event_classes(live: &Live, value: &[u8]) {
    Listeners::set_classes(&live.event_classes, special::event_bits(value));
}

pub fn set_tracked_keys(live: &Live, value: &[u8]) {
    live.tracked_keys
        .store(unsigned(value) as usize, Ordering::Relaxed);
}

pub fn set_output_limits(live: &Live, value: &[u8]) {
    live.output_limits.set(value);
}

pub fn set_busy_threshold(live: &Live, value: &[u8]) {
    live.busy_threshold_ms
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_lazy_expiry(_: &Live, value: &[u8]) {
    propagation::EXPIRES_LAZILY.store(value == b"yes", Ordering::Relaxed);
}

pub fn set_lazy_deletion(_: &Live, value: &[u8]) {
    propagation::DELETES_LAZILY.store(value == b"yes", Ordering::Relaxed);
}

pub fn set_log_level(_: &Live, value: &[u8]) {
    log::set_level(value);
}

pub fn set_hash_entries(_: &Live, value: &[u8]) {
    ENCODINGS
        .hash_entries
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_hash_value(_: &Live, value: &[u8]) {
    ENCODINGS
        .hash_value
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_intset_entries(_: &Live, value: &[u8]) {
    ENCODINGS
        .intset_entries
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_zset_entries(_: &Live, value: &[u8]) {
    ENCODINGS
        .zset_entries
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_zset_value(_: &Live, value: &[u8]) {
    ENCODINGS
        .zset_value
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_stream_entries(_: &Live, value: &[u8]) {
    ENCODINGS
        .stream_entries
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_sparse_hyperloglog(_: &Live, value: &[u8]) {
    ENCODINGS
        .sparse_hyperloglog
        .store(unsigned(value), Ordering::Relaxed);
}

pub fn set_eviction_policy(live: &Live, value: &[u8]) {
    let counts_uses = value.ends_with(b"-lfu");
    ENCODINGS.counts_uses.store(counts_uses, Ordering::Relaxed);
    cairn_engine::count_uses(counts_uses);
    let name = std::str::from_utf8(value).unwrap_or_default();
    *live.eviction.policy.lock() = Policy::named(name);
}

pub fn set_max_memory(live: &Live, value: &[u8]) {
    // Larger than any number of the protocol, it is as good as none.
    let bytes = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    let bytes = bytes.unwrap_or(u64::MAX);
    live.eviction.max_memory.store(bytes, Ordering::Relaxed);
}

pub fn set_eviction_samples(live: &Live, value: &[u8]) {
    let samples = unsigned(value) as usize;
    live.eviction.samples.store(samples, Ordering::Relaxed);
}

pub fn set_use_growth(_: &Live, value: &[u8]) {
    cairn_engine::set_count_growth(unsigned(value) as u32);
}

pub fn set_use_decay(_: &Live, value: &[u8]) {
    cairn_engine::set_count_decay(unsigned(value) as u32);
}

pub fn set_lazy_eviction(_: &Live, value: &[u8]) {
    propagation::EVICTS_LAZILY.store(value == b"yes", Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_denied_while_there_is_no_password() {
        let live = Live::new(Arc::default(), Arc::default());
        let [local, mapped, local6, other, other6] = [
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "::1",
            "192.0.2.7",
            "2001:db8::7",
        ]
        .map(|text| text.parse::<IpAddr>().expect("an address"));
        let denied = |live: &Live| {
            [local, mapped, local6, other, other6].map(|address| live.denies(address))
        };
        assert_eq!(denied(&live), [false, false, false, true, true]);
        set_password(&live, b"secret");
        assert_eq!(denied(&live), [false; 5]);
        set_password(&live, b"");
        set_protected_mode(&live, b"no");
        assert_eq!(denied(&live), [false; 5]);
    }
}
