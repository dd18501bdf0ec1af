//! What lies on the disk, and what is being done about it.

use cairn_store::Result;

use super::Report;
use crate::server::Server;

pub fn section(server: &Server, report: &mut Report) -> Result<()> {
    let store = &server.store;
    let engine = store.engine();
    let statistics = engine.statistics();
    report.field("storage_sst_bytes", statistics.sst_bytes);
    report.field("storage_live_data_bytes", statistics.live_data_bytes);
    report.field("storage_estimated_keys", statistics.estimated_keys);
    report.field("storage_memtable_bytes", statistics.memtable_bytes);
    report.field("storage_young_bytes", statistics.young_bytes);
    report.field(
        "storage_rows_in_memory_bytes",
        statistics.rows_in_memory_bytes,
    );
    report.field("storage_block_cache_bytes", statistics.block_cache_bytes);
    report.field(
        "storage_block_cache_capacity",
        statistics.block_cache_capacity,
    );
    report.field("storage_table_reader_bytes", statistics.table_reader_bytes);
    report.field(
        "storage_pending_compaction_bytes",
        statistics.pending_compaction_bytes,
    );
    report.field(
        "storage_running_compactions",
        statistics.running_compactions,
    );
    report.field("storage_running_flushes", statistics.running_flushes);
    report.field("storage_write_stopped", u8::from(statistics.write_stopped));
    report.field("storage_delayed_write_rate", statistics.delayed_write_rate);
    report.field("storage_flushed_bytes", statistics.flushed_bytes);
    report.field("storage_compacted_bytes", statistics.compacted_bytes);
    report.field("storage_logged_bytes", statistics.logged_bytes);
    report.field("storage_missed_data_blocks", statistics.missed_data_blocks);
    report.field(
        "storage_missed_index_blocks",
        statistics.missed_index_blocks,
    );
    report.field(
        "storage_missed_filter_blocks",
        statistics.missed_filter_blocks,
    );
    report.field("storage_commits", server.stats.commits.get());
    if let Some(disk) = engine.free_disk_bytes() {
        report.field("storage_disk_free_bytes", disk.free);
        report.field("storage_disk_total_bytes", disk.total);
    }
    report.field("storage_disk_full", u8::from(store.disk_is_full()));
    Ok(())
}
