//! How much may wait for a client that does not take what it is sent: `client-output-buffer-limit`.
//!
//! Replies need no limit, since a client that does not read them is not served further. What others have it sent
//! comes whether it reads or not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cairn_resp::number;

use crate::client::Client;

/// The limits of the classes of clients; zero is none.
#[derive(Default)]
pub struct OutputLimits {
    normal: Limit,
    subscribers: Limit,
    /// Of those who follow this server.
    replicas: Limit,
}

#[derive(Default)]
struct Limit {
    hard: AtomicUsize,
    soft: AtomicUsize,
    /// For how long the soft limit may be passed.
    seconds: AtomicU64,
}

impl OutputLimits {
    /// Takes over what CONFIG GET shows: for each class its name and three numbers.
    pub fn set(&self, text: &[u8]) {
        let words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
        for class in words.chunks_exact(4) {
            let limit = match class[0] {
                b"normal" => &self.normal,
                b"pubsub" => &self.subscribers,
                b"slave" => &self.replicas,
                _ => continue,
            };
            let number = |at: usize| number::parse_i64(class[at]).unwrap_or(i64::MAX) as u64;
            limit.hard.store(number(1) as usize, Ordering::Relaxed);
            limit.soft.store(number(2) as usize, Ordering::Relaxed);
            limit.seconds.store(number(3), Ordering::Relaxed);
        }
    }

    /// Whether those who do not listen to anything have a limit, which is unusual.
    #[inline]
    pub fn limit_replies(&self) -> bool {
        let Limit { hard, soft, .. } = &self.normal;
        hard.load(Ordering::Relaxed) > 0 || soft.load(Ordering::Relaxed) > 0
    }

    fn of(&self, client: &Client) -> &Limit {
        if client.is_replica() {
            &self.replicas
        } else if client.is_subscriber() {
            &self.subscribers
        } else {
            &self.normal
        }
    }
}

/// Since when a client has been above its soft limit, in milliseconds of its own time and one more; zero if it
/// is not.
#[derive(Default)]
pub struct Excess(AtomicU64);

impl Excess {
    /// Whether so much may not wait for the client, or not for so long.
    pub fn is_too_much(&self, limits: &OutputLimits, client: &Client, waiting: usize) -> bool {
        let limit = limits.of(client);
        let is_above = |limit: &AtomicUsize| {
            let most = limit.load(Ordering::Relaxed);
            most > 0 && waiting >= most
        };
        if is_above(&limit.hard) {
            return true;
        }
        if !is_above(&limit.soft) {
            self.0.store(0, Ordering::Relaxed);
            return false;
        }
        let now = client.connected.elapsed().as_millis() as u64 + 1;
        match self.0.load(Ordering::Relaxed) {
            0 => {
                self.0.store(now, Ordering::Relaxed);
                false
            }
            since => now.saturating_sub(since) > limit.seconds.load(Ordering::Relaxed) * 1000,
        }
    }
}
