//! What can be set, and what openraft makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openraft::SnapshotPolicy;

/// Called with the reason when the node must not go on: its log could not be made durable, or a state machine
/// failed. What is in memory then may be more than what is on the disk, so nothing may be acknowledged any more.
pub type Failure = Arc<dyn Fn(&str) + Send + Sync>;

/// The wall clock of this node, in milliseconds.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Takes note of the time of another node, in milliseconds.
pub type HearTime = Arc<dyn Fn(u64) + Send + Sync>;

#[derive(Clone)]
pub struct Config {
    /// A replica that hears nothing of a leader for somewhat longer than this, at least by a fifth, asks for votes. Many
    /// groups share a machine, so this is far longer than a round trip.
    pub election_timeout: Duration,
    /// How often a leader that has nothing else to say shows that it is there: less than two fifths of the above.
    pub heartbeat: Duration,
    /// The most payload that one message carries, and that a replica applies at once.
    pub message_bytes: usize,
    /// What the entries of one region may take in memory, besides those that are not yet on the disk.
    pub cached_bytes: usize,
    /// A log that is longer is purged as far as no member of its region needs it.
    pub log_bytes: u64,
    /// A log that is longer is purged though a member needs it: that one gets a snapshot.
    pub log_bytes_limit: u64,
    /// How long a member may take to install what it was sent.
    pub install_timeout: Duration,
    /// Whether so little room is left on this node's disk that logs are kept for nobody, and no snapshots taken in. Whoever
    /// looks at the disk says so.
    pub short_of_disk: Arc<AtomicBool>,
    pub failure: Failure,
    /// The time by which what is led here expires.
    pub wall_clock: WallClock,
    /// Told what time it is for others: `wall_clock` must not be behind that.
    pub hear_time: HearTime,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            election_timeout: Duration::from_millis(1000),
            heartbeat: Duration::from_millis(250),
            message_bytes: 1024 * 1024,
            cached_bytes: 1024 * 1024,
            log_bytes: 64 * 1024 * 1024,
            log_bytes_limit: 1024 * 1024 * 1024,
            install_timeout: Duration::from_secs(600),
            short_of_disk: Arc::default(),
            failure: Arc::new(|reason| {
                tracing::error!("raft: {reason}; the process ends");
                std::process::abort();
            }),
            wall_clock: Arc::new(|| {
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |since| since.as_millis() as u64)
            }),
            hear_time: Arc::new(|_| ()),
        }
    }
}

impl Config {
    /// How long a leader may read without asking after a quorum has answered it. The others refuse to elect another for
    /// longer (see `openraft` below), so that clocks may run at rather different speeds.
    pub fn lease(&self) -> Duration {
        self.election_timeout / 2
    }

    /// What is wrong with the times, if replicas could not be started with them.
    pub fn check(&self) -> Result<(), String> {
        match self.openraft() {
            Ok(_) => Ok(()),
            Err(openraft::ConfigError::ElectionTimeoutLTHeartBeat { .. }) => Err(
                "the time between two heartbeats must be less than two fifths of the election timeout"
                    .to_string(),
            ),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn is_short_of_disk(&self) -> bool {
        self.short_of_disk.load(Ordering::Relaxed)
    }

    pub(crate) fn openraft(&self) -> Result<openraft::Config, openraft::ConfigError> {
        let millis = |duration: Duration| duration.as_millis() as u64;
        let timeout = millis(self.election_timeout);
        openraft::Config {
            cluster_name: "cairn".to_string(),
            // A replica refuses votes for the longest timeout after it has heard of a leader, and only then waits for
            // one of its own: so it asks for votes after 1.2 to 1.6 times ours.
            election_timeout_min: timeout * 2 / 5,
            election_timeout_max: timeout * 4 / 5,
            heartbeat_interval: millis(self.heartbeat),
            // A replica that was cut off must not unseat a leader that works when it comes back,
            enable_pre_vote: Some(true),
            // and a leader whom no quorum hears must not keep others from electing one.
            quorum_loss_probe_interval: Some(2 * timeout),
            // A leader that comes back from a crash has forgotten what it promised to whom: let it be elected.
            enable_leader_restore: Some(false),
            // Snapshots are never built ahead (see `state_machine`), and what is purged is our own decision (see
            // `purge`).
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            replication_lag_threshold: u64::MAX,
            // Messages are bounded by bytes, when entries are read for them.
            max_payload_entries: 4096,
            max_append_entries: Some(4096),
            install_snapshot_timeout: millis(self.install_timeout),
            backoff: "50ms 100ms 200ms ...1s".to_string(),
            ..Default::default()
        }
        .validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_replica_could_be_started_with_are_told() {
        let with = |timeout, heartbeat| Config {
            election_timeout: Duration::from_millis(timeout),
            heartbeat: Duration::from_millis(heartbeat),
            ..Config::default()
        };
        assert_eq!(Config::default().check(), Ok(()));
        for timeout in [100, 101, 499, 600, 2500, 600_000] {
            let limit = timeout * 2 / 5;
            assert_eq!(with(timeout, limit - 1).check(), Ok(()), "{timeout}");
            for heartbeat in [limit, timeout / 2, timeout] {
                let refused = with(timeout, heartbeat).check().unwrap_err();
                assert!(refused.contains("less than two fifths"), "{refused}");
            }
        }
    }
}
