//! The scripts that were seen, for EVALSHA.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_script::Script;
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

/// Scripts stay until SCRIPT FLUSH, as in Redis: clients rely on it.
#[derive(Default)]
pub struct Cache {
    known: RwLock<Known>,
    /// How often all scripts were forgotten.
    flushes: AtomicU64,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<Box<str>, Script>,
    /// By a hash of the text, which takes less time than the name. Of two texts with one hash the later is found;
    /// the other is read anew each time, and no harm done.
    by_text: FxHashMap<u64, Script>,
    bytes: usize,
}

impl Cache {
    pub fn of_text(&self, text: &[u8]) -> Option<Script> {
        let hash = hash_of(text);
        let known = self.known.read();
        let script = known.by_text.get(&hash)?;
        (script.text() == text).then(|| script.clone())
    }

    pub fn named(&self, name: &[u8]) -> Option<Script> {
        let name = std::str::from_utf8(name).ok()?;
        let known = self.known.read();
        let script = known.by_name.get(name);
        // Nearly always it is spelled as SCRIPT LOAD does.
        let script = script.or_else(|| known.by_name.get(&*name.to_ascii_lowercase()));
        script.cloned()
    }

    /// Adds a script that has been compiled.
    pub fn add(&self, script: &Script) {
        if self.named(script.sha().as_bytes()).is_some() {
            return;
        }
        let hash = hash_of(script.text());
        let mut known = self.known.write();
        let before = known.by_name.insert(script.sha().into(), script.clone());
        if before.is_none() {
            known.bytes += script.text().len();
        }
        known.by_text.insert(hash, script.clone());
    }

    pub fn clear(&self) {
        let mut known = self.known.write();
        *known = Known::default();
        self.flushes.fetch_add(1, Ordering::Release);
    }

    /// Rises whenever scripts are forgotten.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    pub fn len(&self) -> usize {
        self.known.read().by_name.len()
    }

    pub fn bytes(&self) -> usize {
        self.known.read().bytes
    }
}

fn hash_of(text: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn scripts_are_found_by_text_and_by_name_until_they_are_forgotten() {
        let cache = Cache::default();
        let script = Script::new(b"return 1").unwrap();
        cache.add(&script);
        cache.add(&script);
        assert_eq!((cache.len(), cache.bytes()), (1, 8));
        let upper = script.sha().to_ascii_uppercase();
        assert!(cache.of_text(b"return 1").is_some());
        assert!(cache.of_text(b"return 2").is_none());
        assert!(cache.named(upper.as_bytes()).is_some());
        cache.clear();
        assert!(cache.named(script.sha().as_bytes()).is_none());
        assert_eq!((cache.len(), cache.bytes(), cache.flushes()), (0, 0, 1));
    }
}
