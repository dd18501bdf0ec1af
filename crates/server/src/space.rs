//! Keeps an eye on the disk: it is better to refuse writes while there is some room left than to have
//! RocksDB run into the wall.

use std::sync::Arc;
use std::time::Duration;

use crate::server::Server;
use crate::shortage::Shortage;

const INTERVAL: Duration = Duration::from_millis(100);

/// Runs for as long as the server does.
pub async fn watch(server: Arc<Server>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(disk) = server.store.engine().free_disk_bytes() else {
            continue;
        };
        // Compactions need room too; a small disk keeps a quarter of itself in reserve.
        let reserve = server.settings.min_free_disk.min(disk.total / 4);
        let is_full = disk.free < reserve;
        let was_full = server.store.note_disk_full(is_full);
        server.shortages.note(Shortage::Disk, is_full);
        if is_full && !was_full {
            let left = disk.free / (1 << 20);
            tracing::error!("{left} MiB are left on the disk: writes are refused");
        }
        if !is_full {
            if was_full {
                tracing::warn!("there is room on the disk again: writes are accepted");
            }
            let engine = server.store.engine().clone();
            if !engine.has_stopped_writing() {
                continue;
            }
            // It may flush, which takes its time.
            let resumed = tokio::task::spawn_blocking(move || engine.resume()).await;
            if let Ok(Err(error)) = resumed {
                tracing::error!("cannot write yet: {error}");
            }
        }
    }
}
