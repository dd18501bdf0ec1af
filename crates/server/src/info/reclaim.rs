//! What garbage there is, and what has become of what there was.

use std::sync::atomic::Ordering;

use cairn_store::Result;

use super::Report;
use crate::server::Server;

pub fn section(server: &Server, report: &mut Report) -> Result<()> {
    let store = &server.store;
    let garbage = store.garbage()?;
    let share = |share: f64| format!("{share:.4}");
    report.field("reclaim_keys_with_expiry", garbage.keys.expires);
    report.field("reclaim_expired_keys", garbage.due.keys);
    report.field("reclaim_expired_share", share(garbage.expired_share()));
    report.field("reclaim_expiry_lag_ms", garbage.due.lag_ms);
    report.field("reclaim_orphaned_rows", garbage.orphaned_rows);
    report.field("reclaim_orphaned_bytes", garbage.orphaned_bytes);
    report.field("reclaim_garbage_share", share(garbage.byte_share()));
    report.field("reclaim_backlog_versions", garbage.waiting_versions);
    report.field("reclaim_backlog_databases", garbage.dead_databases);
    report.field(
        "reclaim_backlog_database_bytes",
        garbage.dead_database_bytes,
    );
    let filters = store.engine().filter_counters();
    let counters = [
        ("reclaim_filtered_dead_versions", &filters.dead_versions),
        ("reclaim_filtered_cut_off", &filters.cut_off),
        ("reclaim_filtered_expired_keys", &filters.expired_metadata),
        ("reclaim_filtered_dead_databases", &filters.dead_databases),
        ("reclaim_filtered_bytes", &filters.dropped_bytes),
    ];
    for (name, counter) in counters {
        report.field(name, counter.load(Ordering::Relaxed));
    }
    let reclaimer = store.reclaimer();
    report.field("reclaim_dropped_databases", reclaimer.databases());
    report.field("reclaim_dropped_versions", reclaimer.versions());
    report.field(
        "reclaim_deleted_expired_keys",
        store.expirer().expired_keys(),
    );
    report.field(
        "reclaim_deleted_expired_fields",
        store.expirer().expired_fields(),
    );
    report.field("reclaim_deleted_stale_rows", store.expirer().stale_rows());
    // Found by looking, every so often: before the first look nothing is known.
    if let Some((orphans, age)) = garbage.last_search {
        report.field("reclaim_searched_seconds_ago", age.as_secs());
        report.field("reclaim_searched_versions", orphans.versions);
        report.field("reclaim_searched_rows", orphans.rows);
        report.field("reclaim_searched_bytes", orphans.bytes);
    }
    Ok(())
}
