//! The rows of a log in memory, and what of them a power cut would leave.

use std::collections::BTreeMap;
use std::io;

use cairn_encoding::raft::{Key, Replica};
use parking_lot::Mutex;

use crate::log::{Change, Rows};

#[derive(Default)]
pub(crate) struct MemoryRows(Mutex<Disk>);

#[derive(Default)]
struct Disk {
    current: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was changed since the last sync, and what it was before.
    unsynced: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Disk {
    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let before = match value {
            Some(value) => self.current.insert(key.clone(), value),
            None => self.current.remove(&key),
        };
        self.unsynced.push((key, before));
    }
}

impl MemoryRows {
    /// Takes back all that was not synced.
    pub(crate) fn cut_power(&self) {
        let mut disk = self.0.lock();
        while let Some((key, before)) = disk.unsynced.pop() {
            match before {
                Some(value) => disk.current.insert(key, value),
                None => disk.current.remove(&key),
            };
        }
    }
}

fn entry(region: u64, index: u64) -> Vec<u8> {
    Key::Entry { region, index }.encode()
}

fn index(key: &[u8]) -> u64 {
    match Key::decode(key) {
        Ok(Key::Entry { index, .. }) => index,
        other => panic!("{other:?} among the entries"),
    }
}

impl Rows for MemoryRows {
    fn get(&self, key: Key) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().current.get(&key.encode()).cloned())
    }

    fn entries(
        &self,
        region: u64,
        from: u64,
        to: u64,
        enough: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let disk = self.0.lock();
        let mut bytes = 0;
        let mut found = Vec::new();
        for (key, value) in disk.current.range(entry(region, from)..entry(region, to)) {
            bytes += value.len();
            found.push((index(key), value.clone()));
            if bytes >= enough {
                break;
            }
        }
        Ok(found)
    }

    fn last_entry(&self, region: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let disk = self.0.lock();
        let mut rows = disk
            .current
            .range(entry(region, 0)..entry(region, u64::MAX));
        let last = rows.next_back();
        Ok(last.map(|(key, value)| (index(key), value.clone())))
    }

    fn replicas(&self) -> io::Result<Vec<(u64, Replica)>> {
        let disk = self.0.lock();
        let rows = disk.current.range(..Key::after_replicas());
        let replicas = rows.map(|(key, value)| match Key::decode(key) {
            Ok(Key::Replica { region }) => (region, Replica::decode(value).unwrap()),
            other => panic!("{other:?} among the replicas"),
        });
        Ok(replicas.collect())
    }

    fn write(&self, changes: Vec<Change>, sync: bool) -> io::Result<()> {
        let mut disk = self.0.lock();
        for change in changes {
            match change {
                Change::Put(key, value) => disk.set(key.encode(), Some(value)),
                Change::Delete(key) => disk.set(key.encode(), None),
                Change::DeleteEntries { from, to, .. } if from >= to => {}
                Change::DeleteEntries { region, from, to } => {
                    let keys: Vec<_> = disk
                        .current
                        .range(entry(region, from)..entry(region, to))
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in keys {
                        disk.set(key, None);
                    }
                }
            }
        }
        if sync {
            disk.unsynced.clear();
        }
        Ok(())
    }
}
