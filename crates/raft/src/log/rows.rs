//! The rows of the log: in RocksDB, or in the memory of a simulation.

use std::io;
use std::path::Path;

use cairn_encoding::raft::{Key, Replica};
use rust_rocksdb::{
    DB, DBCompressionType, DBRecoveryMode, Direction, IteratorMode, Options, ReadOptions,
    WriteBatch,
};

const MIB: usize = 1024 * 1024;

pub(crate) enum Change {
    Put(Key, Vec<u8>),
    Delete(Key),
    /// The entries of a region from one index up to another, which stays.
    DeleteEntries {
        region: u64,
        from: u64,
        to: u64,
    },
}

pub(crate) trait Rows: Send + Sync + 'static {
    fn get(&self, key: Key) -> io::Result<Option<Vec<u8>>>;

    /// Entries from `from` up to and without `to`, in order; it may stop once they have `enough` bytes, but not before
    /// the first.
    fn entries(
        &self,
        region: u64,
        from: u64,
        to: u64,
        enough: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>>;

    fn last_entry(&self, region: u64) -> io::Result<Option<(u64, Vec<u8>)>>;

    fn replicas(&self) -> io::Result<Vec<(u64, Replica)>>;

    /// All or nothing, in the order of the calls. With `sync` it is on the disk for good when this returns, and so is
    /// all that was written before.
    fn write(&self, changes: Vec<Change>, sync: bool) -> io::Result<()>;
}

pub(crate) struct RocksRows {
    db: DB,
}

impl RocksRows {
    pub(crate) fn open(path: &Path) -> io::Result<RocksRows> {
        let mut options = Options::default();
        options.create_if_missing(true);
        // What was synced must be found. What was not may be cut off anywhere, but only at the end.
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_track_and_verify_wals_in_manifest(true);
        // The process ends when a write fails; RocksDB shall not go on in silence.
        options.set_max_bgerror_resume_count(0);
        // Entries are written once, read soon or never, and dropped from the front. Where little is written they need never
        // reach a table: what is purged before its memtable is full is written to the log alone. Where much is, tables
        // live for seconds, and are not worth compressing.
        options.set_write_buffer_size(32 * MIB);
        options.set_max_write_buffer_number(4);
        options.set_min_write_buffer_number_to_merge(2);
        options.set_max_total_wal_size(256 * MIB as u64);
        options.set_wal_bytes_per_sync(512 * 1024);
        options.set_compression_type(DBCompressionType::None);
        options.set_allow_concurrent_memtable_write(false);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(16 * MIB);
        options.set_stats_dump_period_sec(0);
        let db = DB::open(&options, path).map_err(io::Error::other)?;
        Ok(RocksRows { db })
    }
}

impl Rows for RocksRows {
    fn get(&self, key: Key) -> io::Result<Option<Vec<u8>>> {
        self.db.get(key.encode()).map_err(io::Error::other)
    }

    fn entries(
        &self,
        region: u64,
        from: u64,
        to: u64,
        enough: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let key = |index| Key::Entry { region, index }.encode();
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(key(to));
        let first = key(from);
        let rows = self
            .db
            .iterator_opt(IteratorMode::From(&first, Direction::Forward), options);
        let mut found = Vec::new();
        let mut bytes = 0;
        for row in rows {
            let (key, value) = row.map_err(io::Error::other)?;
            bytes += value.len();
            found.push((index_of(&key)?, value.into_vec()));
            if bytes >= enough {
                break;
            }
        }
        Ok(found)
    }

    fn last_entry(&self, region: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        let key = |index| Key::Entry { region, index }.encode();
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(key(0));
        let last = key(u64::MAX);
        let mut rows = self
            .db
            .iterator_opt(IteratorMode::From(&last, Direction::Reverse), options);
        match rows.next() {
            None => Ok(None),
            Some(row) => {
                let (key, value) = row.map_err(io::Error::other)?;
                Ok(Some((index_of(&key)?, value.into_vec())))
            }
        }
    }

    fn replicas(&self) -> io::Result<Vec<(u64, Replica)>> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(Key::after_replicas());
        let mut found = Vec::new();
        for row in self.db.iterator_opt(IteratorMode::Start, options) {
            let (key, value) = row.map_err(io::Error::other)?;
            let Key::Replica { region } = Key::decode(&key).map_err(io::Error::other)? else {
                return Err(io::Error::other("a row of another kind among the replicas"));
            };
            let replica = Replica::decode(&value).map_err(io::Error::other)?;
            found.push((region, replica));
        }
        Ok(found)
    }

    fn write(&self, changes: Vec<Change>, sync: bool) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.put(key.encode(), value),
                Change::Delete(key) => batch.delete(key.encode()),
                // RocksDB refuses a range that ends before it begins.
                Change::DeleteEntries { from, to, .. } if from >= to => {}
                Change::DeleteEntries { region, from, to } => {
                    let key = |index| Key::Entry { region, index }.encode();
                    batch.delete_range(key(from), key(to));
                }
            }
        }
        self.db.write(&batch).map_err(io::Error::other)?;
        if sync {
            // A write that syncs by itself would also sync, each time anew, every file of the log whose memtable is not in a
            // table yet, and the manifest with it. This way such a file is closed by the first sync after its end.
            self.db.flush_wal(true).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn index_of(key: &[u8]) -> io::Result<u64> {
    match Key::decode(key).map_err(io::Error::other)? {
        Key::Entry { index, .. } => Ok(index),
        _ => Err(io::Error::other("a row of another kind among the entries")),
    }
}
