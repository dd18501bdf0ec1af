//! A store on a directory of its own, with a clock that the test sets, and rows as plain values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_encoding::row::RowKey;
use cairn_encoding::system::SystemKind;
use cairn_engine::{EngineOptions, ManualTime};
use cairn_store::{
    Direction, End, Expiry, Family, Hash, List, Mode, Patience, ReadTxn, Request, Set, Store,
    StoreOptions, Str, SyncMode, WriteTxn, Zset, string,
};
use tempfile::TempDir;

/// When the stories begin.
pub const START: u64 = 1_000_000_000;

pub struct Fixture {
    store: Option<Arc<Store>>,
    pub time: Arc<ManualTime>,
    directory: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        let mut fixture = Fixture {
            store: None,
            time: Arc::new(ManualTime::at_millis(START)),
            directory: tempfile::tempdir().unwrap(),
        };
        fixture.open();
        fixture
    }

    fn open(&mut self) {
        let store = open(self.directory.path(), self.time.clone());
        self.store = Some(store);
    }

    /// Stops the store and starts it again on the same directory.
    pub fn restart(&mut self) {
        self.store = None;
        self.open();
    }

    /// The same with another number of databases, which is 4 otherwise.
    pub fn restart_with(&mut self, databases: u32) {
        self.store = None;
        let store = open_with(self.directory.path(), self.time.clone(), databases);
        self.store = Some(store);
    }

    /// Stops it for good and leaves the directory.
    pub fn stop(&mut self) -> &Path {
        self.store = None;
        self.directory.path()
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("a store that is open")
    }

    /// A transaction with changes to come; nothing holds it to one thread or a latch.
    pub fn txn(&self) -> WriteTxn {
        let mut txn = WriteTxn::new(
            self.store().clone(),
            self.store().home().clone(),
            Patience::Long,
        );
        txn.begin(0);
        txn
    }

    pub fn commit(&self, mut txn: WriteTxn) {
        self.store().commit_blocking(&mut txn).unwrap();
    }

    /// One command: runs under no latch, and is committed.
    pub fn write<T>(&self, command: impl FnOnce(&mut WriteTxn) -> T) -> T {
        let mut txn = self.txn();
        let result = command(&mut txn);
        self.commit(txn);
        result
    }

    pub fn read<T>(&self, command: impl FnOnce(&ReadTxn) -> T) -> T {
        command(&self.txn())
    }

    pub fn compact(&self) {
        self.store().engine().compact().unwrap();
    }

    pub fn raw(&self, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
        raw(self.store(), family)
    }

    /// The user keys that have rows in the family, one for each row.
    pub fn keys_in(&self, family: Family) -> Vec<String> {
        let rows = self.raw(family);
        let names = rows.iter().map(|(key, _)| {
            let row = match family {
                Family::Metadata => RowKey::decode_metadata(key),
                Family::Data => RowKey::decode_data(key),
                Family::ZsetScore => RowKey::decode_score(key),
                Family::Expiry => RowKey::decode_expiry(key),
                Family::Meta => panic!("no user keys there"),
            };
            let (_, name) = row.unwrap().index_and_key();
            String::from_utf8(name.to_vec()).unwrap()
        });
        names.collect()
    }

    pub fn count_in(&self, family: Family) -> usize {
        self.raw(family).len()
    }

    /// How many facts of this kind the database knows about itself.
    pub fn count_of(&self, kind: SystemKind) -> usize {
        let rows = self.raw(Family::Meta);
        let prefix = kind.prefix();
        rows.iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .count()
    }

    pub fn keys(&self) -> Vec<String> {
        self.read(keys)
    }
}

pub fn open(path: &Path, time: Arc<ManualTime>) -> Arc<Store> {
    open_with(path, time, 4)
}

pub fn open_with(path: &Path, time: Arc<ManualTime>, databases: u32) -> Arc<Store> {
    Store::open(path, options(time, databases)).unwrap()
}

pub fn options(time: Arc<ManualTime>, databases: u32) -> StoreOptions {
    StoreOptions {
        engine: EngineOptions {
            memory: 64 * 1024 * 1024,
            ..EngineOptions::default()
        },
        sync: SyncMode::No,
        databases,
        time: Box::new(time),
        ranks: Default::default(),
    }
}

pub fn raw(store: &Store, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = store
        .engine()
        .rows(None, family, &[], &[], Direction::Forward);
    let mut all = Vec::new();
    while let Some((key, value)) = rows.next().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// The keys of the selected database, as KEYS finds them.
pub fn keys(txn: &ReadTxn) -> Vec<String> {
    let mut walk = cairn_store::keyspace::Walk::whole(txn).unwrap();
    let mut names = Vec::new();
    while let Some(met) = walk.next().unwrap() {
        if !met.has_expired(txn.now_ms()) {
            names.push(String::from_utf8(met.name.to_vec()).unwrap());
        }
    }
    names.sort();
    names
}

pub fn set(txn: &mut WriteTxn, name: &str, value: &str) {
    string::set(txn, name.as_bytes(), value.as_bytes(), Expiry::Never).unwrap();
}

pub fn set_until(txn: &mut WriteTxn, name: &str, value: &str, at_ms: u64) {
    string::set(txn, name.as_bytes(), value.as_bytes(), Expiry::At(at_ms)).unwrap();
}

pub fn get(txn: &ReadTxn, name: &str) -> Option<String> {
    let string = Str::find(txn, name.as_bytes()).unwrap()?;
    Some(String::from_utf8(string.to_vec(txn).unwrap()).unwrap())
}

pub fn del(txn: &mut WriteTxn, name: &str) -> bool {
    cairn_store::keys::delete(txn, name.as_bytes()).unwrap()
}

pub fn hset(txn: &mut WriteTxn, name: &str, fields: impl IntoIterator<Item = (String, String)>) {
    let mut hash = Hash::open(txn, name.as_bytes()).unwrap();
    for (field, value) in fields {
        hash.set(txn, field.as_bytes(), value.as_bytes()).unwrap();
    }
    hash.save(txn);
}

/// `count` fields that do not look alike.
pub fn fields(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|n| (format!("field:{n:06}"), format!("value of {n}")))
}

pub fn hgetall(txn: &ReadTxn, name: &str) -> Vec<(String, String)> {
    let hash = Hash::open(txn, name.as_bytes()).unwrap();
    let mut rows = hash.rows(txn).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut fields = Vec::new();
    while hash.exists()
        && let Some(row) = rows.next().unwrap()
    {
        if !row.is_due {
            fields.push((text(hash.field_of(row.row_key)), text(row.value)));
        }
    }
    let size = hash.len(txn).unwrap();
    assert_eq!(size, fields.len() as u64, "size of {name}");
    fields
}

pub fn sadd(txn: &mut WriteTxn, name: &str, members: &[&str]) {
    let mut set = Set::open(txn, name.as_bytes()).unwrap();
    for member in members {
        set.add(txn, member.as_bytes()).unwrap();
    }
    set.save(txn);
}

pub fn zadd(txn: &mut WriteTxn, name: &str, score: f64, member: &str) {
    let mut zset = Zset::open(txn, name.as_bytes()).unwrap();
    let update = zset.update(txn, member.as_bytes(), |_| Ok(Some(score)));
    update.unwrap();
    zset.save(txn);
}

pub fn rpush(txn: &mut WriteTxn, name: &str, elements: &[&str]) {
    let mut list = List::open(txn, name.as_bytes()).unwrap();
    for element in elements {
        list.push(txn, End::Right, element.as_bytes());
    }
    list.save(txn);
}

pub fn exclusive(names: &[&str]) -> Request {
    request(names, Mode::Exclusive)
}

pub fn shared(names: &[&str]) -> Request {
    request(names, Mode::Shared)
}

fn request(names: &[&str], mode: Mode) -> Request {
    let mut request = Request::default();
    for name in names {
        request.add(name.as_bytes(), mode);
    }
    request
}

/// A copy of the directory as it is now: what a process that dies at this moment leaves behind. It is taken
/// again if something was written in the background meanwhile.
pub fn crash_image(path: &Path) -> TempDir {
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = sizes(path);
        for file in before.keys() {
            let to = copy.path().join(file.strip_prefix(path).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            // One that has gone makes another copy necessary.
            _ = std::fs::copy(file, to);
        }
        if sizes(path) == before {
            return copy;
        }
    }
}

/// The files below a directory and how long they are.
fn sizes(directory: &Path) -> BTreeMap<PathBuf, Option<u64>> {
    let mut sizes = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sizes.append(&mut self::sizes(&path));
        } else {
            let size = std::fs::metadata(&path).map(|metadata| metadata.len());
            sizes.insert(path, size.ok());
        }
    }
    sizes
}

/// One of RocksDB's counters.
pub fn ticker(store: &Store, name: &str) -> u64 {
    let text = store.engine().rocksdb_statistics();
    let mut lines = text.lines().map(|line| line.split(' '));
    let mut words = lines
        .find(|words| words.clone().next() == Some(name))
        .unwrap();
    words.next_back().unwrap().parse().unwrap()
}
