//! A small store whose clock stands still, so that versions and dates are the same in every run.

use std::path::Path;
use std::sync::Arc;

use cairn_engine::{Engine, EngineOptions, ManualTime};
use cairn_store::stream::{Delivery, Id, append_field};
use cairn_store::{
    End, Expiry, Hash, List, Patience, Set, Store, StoreOptions, Stream, SyncMode, WriteTxn, Zset,
    string,
};

/// 2023-11-14 22:13:20 UTC.
pub const NOW_MS: u64 = 1_700_000_000_000;

pub struct Sample {
    pub store: Arc<Store>,
    pub time: Arc<ManualTime>,
    dir: tempfile::TempDir,
}

impl Sample {
    pub fn new() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let time = Arc::new(ManualTime::at_millis(NOW_MS));
        let options = StoreOptions {
            engine: engine_options(),
            sync: SyncMode::No,
            databases: 2,
            time: Box::new(time.clone()),
            ranks: Default::default(),
        };
        let store = Store::open(dir.path(), options).unwrap();
        Sample { store, time, dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn begin(&self) -> WriteTxn {
        let mut txn = WriteTxn::new(
            self.store.clone(),
            self.store.home().clone(),
            Patience::Long,
        );
        txn.begin(0);
        txn
    }

    /// Commits what `change` does.
    pub fn change(&self, change: impl FnOnce(&mut WriteTxn)) {
        let mut txn = self.begin();
        change(&mut txn);
        self.store.commit_blocking(&mut txn).unwrap();
    }

    /// The database as somebody else sees it while the store has it open.
    pub fn read_only(&self) -> Engine {
        Engine::open_read_only(self.path(), &engine_options()).unwrap()
    }
}

fn engine_options() -> EngineOptions {
    EngineOptions {
        memory: 64 << 20,
        ..EngineOptions::default()
    }
}

pub fn set(txn: &mut WriteTxn, name: &str, value: &[u8], expiry: Expiry) {
    string::set(txn, name.as_bytes(), value, expiry).unwrap();
}

pub fn hset(txn: &mut WriteTxn, name: &str, pairs: &[(&str, &str)]) {
    let mut hash = Hash::open(txn, name.as_bytes()).unwrap();
    for (field, value) in pairs {
        hash.set(txn, field.as_bytes(), value.as_bytes()).unwrap();
    }
    hash.save(txn);
}

pub fn sadd(txn: &mut WriteTxn, name: &str, members: &[&[u8]]) {
    let mut set = Set::open(txn, name.as_bytes()).unwrap();
    for member in members {
        set.add(txn, member).unwrap();
    }
    set.save(txn);
}

pub fn zadd(txn: &mut WriteTxn, name: &str, members: &[(f64, &str)]) {
    let mut zset = Zset::open(txn, name.as_bytes()).unwrap();
    for (score, member) in members {
        let update = zset.update(txn, member.as_bytes(), |_| Ok(Some(*score)));
        update.unwrap();
    }
    zset.save(txn);
}

pub fn push(txn: &mut WriteTxn, name: &str, end: End, elements: &[&str]) {
    let mut list = List::open(txn, name.as_bytes()).unwrap();
    for element in elements {
        list.push(txn, end, element.as_bytes());
    }
    list.save(txn);
}

pub fn pop(txn: &mut WriteTxn, name: &str, end: End) {
    let mut list = List::open(txn, name.as_bytes()).unwrap();
    list.pop(txn, end).unwrap();
    list.save(txn);
}

pub fn xadd(txn: &mut WriteTxn, name: &str, ids: &[u64]) {
    let mut stream = Stream::open(txn, name.as_bytes()).unwrap();
    for ms in ids {
        let mut entry = Vec::new();
        append_field(&mut entry, b"number");
        append_field(&mut entry, ms.to_string().as_bytes());
        stream.append(txn, Id::new(*ms, 0), &entry);
    }
    stream.save(txn);
}

/// Delivers entries to a consumer of a group that is new.
pub fn read_stream(txn: &mut WriteTxn, name: &str, group: &str, consumer: &str, ids: &[u64]) {
    let mut stream = Stream::open(txn, name.as_bytes()).unwrap();
    let mut group = stream.create_group(txn, group.as_bytes(), Id::MIN, None);
    group.see(&stream, txn, consumer.as_bytes()).unwrap();
    let delivery = Delivery {
        consumer: consumer.into(),
        at_ms: NOW_MS,
        count: 1,
    };
    for ms in ids {
        let id = Id::new(*ms, 0);
        group.advance(&stream, id);
        stream.deliver(txn, &mut group, id, &delivery).unwrap();
    }
    group.save(txn, &stream);
    stream.save(txn);
}
