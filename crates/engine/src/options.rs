//! How RocksDB is set up, and why.

use std::sync::Arc;

use rust_rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DataBlockIndexType,
    Options, WriteBufferManager, statistics::StatsLevel,
};

use crate::family::Family;
use crate::filter::{FilterFactory, Gate};
use crate::listener::Listener;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const LEAST_BACKGROUND_JOBS: usize = 4;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// What the process may use in all; caches and memtables are cut from it.
    pub memory: usize,
    /// Threads for flushes and compactions.
    pub background_threads: usize,
    /// The most that flushes and compactions may write per second.
    pub compaction_rate: usize,
    /// The most tables that are kept open; None: all of them.
    pub open_tables: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            memory: 1024 * MIB,
            background_threads: 2,
            compaction_rate: 512 * MIB,
            open_tables: None,
        }
    }
}

/// The one budget that blocks, index and filter blocks, memtables, hot rows and young rows share.
pub(crate) struct Memory {
    pub(crate) cache: Cache,
    pub(crate) write_buffers: WriteBufferManager,
    /// For the cache of hot rows.
    pub(crate) row_cache: usize,
    /// For rows that wait to be moved into RocksDB.
    pub(crate) young: usize,
    /// The size at which one memtable is written out.
    memtable: usize,
}

impl Memory {
    pub(crate) fn new(settings: &EngineOptions) -> Self {
        // The rest is for what is not counted: buffers of connections, compaction buffers, table readers,
        // and the allocator's own overhead, which is about a fifth.
        let cache_bytes = settings.memory / 16 * 6;
        // The clock cache takes no lock on a hit, unlike the LRU cache. Zero lets it size itself.
        let cache = Cache::new_hyper_clock_cache(cache_bytes, 0);
        // Memtables are charged to the cache, so that a burst of writes takes its memory from cached
        // blocks and not from the machine.
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            settings.memory / 4,
            false,
            cache.clone(),
        );
        Memory {
            cache,
            write_buffers,
            row_cache: settings.memory / 8,
            young: (settings.memory / 16).min(512 * MIB),
            // Several memtables of several families must fit in their quarter. One flush takes all that wait for
            // it, and writes may have to wait for that flush: it must not be long.
            memtable: (settings.memory / 32).clamp(2 * MIB, 64 * MIB),
        }
    }
}

pub(crate) fn database(settings: &EngineOptions, memory: &Memory, gate: &Arc<Gate>) -> Options {
    let mut options = Options::default();
    // One is for flushes. Compactions above must not wait for a long one below: files would pile up that every
    // read has to pass, until writes are held up.
    let background_jobs = settings.background_threads.max(LEAST_BACKGROUND_JOBS);
    options.increase_parallelism(background_jobs as i32);
    options.set_write_buffer_manager(&memory.write_buffers);
    // There is one writer, the drain; it writes in key order, which this makes use of.
    options.set_allow_concurrent_memtable_write(false);
    // Cut a compaction into parts that run beside each other: large ones delay smaller, urgent ones.
    options.set_max_subcompactions(settings.background_threads as u32);
    // Keeps every table open, if the system allows: the readers' memory is charged to the cache, and a
    // closed table costs a point read several block reads.
    let open_tables = settings.open_tables.and_then(|count| count.try_into().ok());
    options.set_max_open_files(open_tables.unwrap_or(-1));
    // Compactions write in bursts that would hold up a foreground fsync; the limiter spreads them. The one that
    // tunes itself slows down while little is to be done, and takes minutes to find back when much is.
    options.set_ratelimiter(settings.compaction_rate as i64, 100_000, 10);
    // Writes that are to be slowed down start with this, and RocksDB finds out what is right from there. From
    // a much higher rate it would have to stop them; at a much lower one a drain, whose size was right
    // before, would take longer than commits may wait.
    options.set_delayed_write_rate((memory.young * 2).min(64 * MIB) as u64);
    // Hand dirty pages to the disk as they come instead of all at once at the end of a file.
    options.set_bytes_per_sync(MIB as u64);
    options.set_wal_bytes_per_sync(512 * KIB as u64);
    // Compactions read whole files in order, ahead by so much of each: there may be dozens at once, and their buffers are in
    // no budget.
    let read_ahead = (settings.memory / 512).clamp(256 * KIB, 2 * MIB);
    options.set_compaction_readahead_size(read_ahead);
    // A file takes what it holds. To reserve the room of a whole table, as is done otherwise, takes twice what a small
    // database has for as long as a compaction runs.
    options.set_allow_fallocate(false);
    // A family that is seldom written keeps the log it was last written to; this bounds that log.
    options.set_max_total_wal_size((settings.memory / 4).clamp(64 * MIB, 1024 * MIB) as u64);
    // An error in the background is ours to judge (see `listener`); RocksDB shall not retry in silence.
    options.set_max_bgerror_resume_count(0);
    // Opening must not read the table properties of a thousand files.
    options.set_skip_stats_update_on_db_open(true);
    // A log that the manifest says was synced in full must be found in full.
    options.set_track_and_verify_wals_in_manifest(true);
    // Counters per core, without timers: the part of the statistics that costs almost nothing.
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options.set_stats_dump_period_sec(0);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(16 * MIB);
    options.add_event_listener(Listener::new(gate.clone()));
    options
}

/// Without a gate there is no filter: for a database that is only read.
pub(crate) fn family(
    family: Family,
    settings: &EngineOptions,
    memory: &Memory,
    gate: Option<&Arc<Gate>>,
) -> ColumnFamilyDescriptor {
    let mut options = Options::default();
    let is_point_read = matches!(family, Family::Metadata | Family::Data);
    let mut tables = table(family);
    tables.set_block_cache(&memory.cache);
    options.set_block_based_table_factory(&tables);
    let memtable = match family {
        Family::Metadata | Family::Data => memory.memtable,
        Family::ZsetScore | Family::Expiry => memory.memtable / 2,
        // Small, but every commit writes here.
        Family::Meta => 8 * MIB,
    };
    options.set_write_buffer_size(memtable);
    // Room for a burst while earlier memtables are being written out.
    options.set_max_write_buffer_number(6);
    if is_point_read {
        // A memtable is searched on every point read, mostly in vain.
        options.set_memtable_prefix_bloom_ratio(0.1);
        options.set_memtable_whole_key_filtering(true);
    }
    // Fast above, where data moves often; small at the bottom, where nine tenths of it lies.
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    // Level sizes follow the size of the last level: space amplification stays near 1.1.
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_level_zero_file_num_compaction_trigger(4);
    options.set_level_zero_slowdown_writes_trigger(20);
    options.set_level_zero_stop_writes_trigger(36);
    options.set_target_file_size_base((settings.memory / 16).clamp(8 * MIB, 64 * MIB) as u64);
    options.set_max_bytes_for_level_base((memory.memtable * 4) as u64);
    // Until what is in the journal has been moved into RocksDB, which would otherwise be held up because compactions have
    // files to catch up with from before a crash (see `Engine::replay`).
    options.set_disable_auto_compactions(true);
    if family != Family::Meta {
        // A file full of tombstones is compacted before walks stumble over them.
        options.add_compact_on_deletion_collector_factory(4096, 2048, 0.5);
        if let Some(gate) = gate {
            options.set_compaction_filter_factory(FilterFactory::new(family, gate.clone()));
        }
    }
    ColumnFamilyDescriptor::new(family.name(), options)
}

/// For tables that are written elsewhere, to be taken in as they are: at the bottom, as far as may be.
pub(crate) fn foreign_tables(family: Family) -> Options {
    let mut options = Options::default();
    options.set_block_based_table_factory(&table(family));
    options.set_compression_type(DBCompressionType::Zstd);
    options
}

/// Of a filter per key. One in 250 says yes in vain: of twenty files at the top after a burst, each would cost a GET a
/// hundredth of a block read with ten.
const FILTER_BITS: f64 = 12.0;

fn table(family: Family) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    // Index and filter blocks count towards the budget, go last when it is short, and those of the
    // newest files, which every read passes, never.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);
    match family {
        // Point reads: whole keys in the bloom filter, small blocks, and a hash index inside them.
        Family::Metadata => {
            table.set_block_size(8 * KIB);
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            table.set_data_block_hash_ratio(0.75);
            table.set_bloom_filter(FILTER_BITS, false);
        }
        // Point reads and walks.
        Family::Data => {
            table.set_block_size(16 * KIB);
            table.set_bloom_filter(FILTER_BITS, false);
        }
        // Walks only: a filter would never be asked.
        Family::ZsetScore | Family::Expiry | Family::Meta => table.set_block_size(16 * KIB),
    }
    table.set_whole_key_filtering(true);
    table.set_optimize_filters_for_memory(true);
    table
}
