//! Commands that took long: SLOWLOG.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::client::Client;
use crate::server::unix_seconds;

/// How many arguments of a command are kept, and how much of each.
const MOST_ARGUMENTS: usize = 32;
const MOST_BYTES: usize = 128;

#[derive(Default)]
pub struct Slowlog(Mutex<Log>);

#[derive(Default)]
struct Log {
    next_id: u64,
    /// The latest first.
    entries: VecDeque<Entry>,
}

#[derive(Clone)]
pub struct Entry {
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    pub took: Duration,
    pub args: Vec<Vec<u8>>,
    pub peer: String,
    pub name: Vec<u8>,
}

impl Slowlog {
    pub fn add(&self, client: &Client, words: &[&[u8]], took: Duration, most_entries: usize) {
        let mut log = self.0.lock();
        let entry = Entry {
            id: log.next_id,
            at: unix_seconds(),
            took,
            args: shortened(words),
            peer: client.peer.to_string(),
            name: client.name.lock().clone(),
        };
        log.next_id += 1;
        log.entries.push_front(entry);
        log.entries.truncate(most_entries);
    }

    /// The latest so many.
    pub fn latest(&self, count: usize) -> Vec<Entry> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    pub fn clear(&self) {
        self.0.lock().entries.clear();
    }
}

fn shortened(words: &[&[u8]]) -> Vec<Vec<u8>> {
    let kept = match words.len() {
        all @ 0..=MOST_ARGUMENTS => all,
        // The last place tells of the rest.
        _ => MOST_ARGUMENTS - 1,
    };
    let mut shortened: Vec<Vec<u8>> = words[..kept].iter().map(|word| cut(word)).collect();
    if kept < words.len() {
        let more = words.len() - kept;
        shortened.push(format!("... ({more} more arguments)").into_bytes());
    }
    shortened
}

fn cut(word: &[u8]) -> Vec<u8> {
    match word.get(..MOST_BYTES) {
        Some(head) if word.len() > MOST_BYTES => {
            let more = word.len() - MOST_BYTES;
            [head, format!("... ({more} more bytes)").as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut() {
        let long = [b'A'; 129];
        assert_eq!(cut(&long[..128]), [b'A'; 128]);
        let expected = [&long[..128], b"... (1 more bytes)"].concat();
        assert_eq!(cut(&long), expected);
        let words = [&b"word"[..]; 33];
        assert_eq!(shortened(&words[..32]).len(), 32);
        let cut = shortened(&words);
        assert_eq!(cut.len(), 32);
        assert_eq!(cut[31], b"... (2 more arguments)");
    }
}
