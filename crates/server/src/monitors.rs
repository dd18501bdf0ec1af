//! MONITOR: clients that are shown every command.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::client::Client;
use crate::output_limits::OutputLimits;

#[derive(Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Mutex<Vec<Arc<Client>>>,
}

/// One of them, for as long as it exists.
pub struct Monitor {
    all: Arc<Monitors>,
    client: Arc<Client>,
}

impl Monitors {
    pub fn enter(self: &Arc<Self>, client: &Arc<Client>) -> Monitor {
        self.clients.lock().push(client.clone());
        client.is_monitor.store(true, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        Monitor {
            all: self.clone(),
            client: client.clone(),
        }
    }

    #[inline]
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Shows a command that `origin` ran: an address, or `lua`.
    pub fn show(&self, limits: &OutputLimits, database: u32, origin: &str, words: &[&[u8]]) {
        let line = line(database, origin, words);
        for client in &*self.clients.lock() {
            client.push(limits, |out| out.extend_from_slice(line.as_bytes()));
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let mut clients = self.all.clients.lock();
        clients.retain(|client| client.id != self.client.id);
        self.client.is_monitor.store(false, Ordering::Relaxed);
        self.all.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn line(database: u32, origin: &str, words: &[&[u8]]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let mut line = format!("+{seconds}.{micros:06} [{database} {origin}]");
    for word in words {
        line.push_str(" \"");
        quote(word, &mut line);
        line.push('"');
    }
    line.push_str("\r\n");
    line
}

fn quote(word: &[u8], line: &mut String) {
    for byte in word {
        match byte {
            b'\\' => line.push_str("\\\\"),
            b'"' => line.push_str("\\\""),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_redis_does() {
        let mut line = String::new();
        quote(b"a\x00\n\"\\\xff\t\x07", &mut line);
        assert_eq!(line, "a\\x00\\n\\\"\\\\\\xff\\t\\a");
    }
}
