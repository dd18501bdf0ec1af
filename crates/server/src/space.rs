//! Keeps an eye on the disk: it is better to refuse writes while there is some room left than to have
//! RocksDB run into the wall. In a cluster that goes for the disks, too, of all who have replicas of what is led here.

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
        let is_short = disk.free < reserve;
        let node = server.cluster.get();
        if let Some(node) = node {
            node.note_disk(is_short);
        }
        let follower = node.and_then(|node| node.short_follower());
        let is_full = is_short || follower.is_some();
        let was_full = server.store.note_disk_full(is_full);
        server.shortages.note(Shortage::Disk, is_full);
        if is_full && !was_full {
            match follower {
                Some(follower) if !is_short => {
                    tracing::error!("node {follower} is short of disk: writes are refused");
                }
                _ => {
                    let left = disk.free / (1 << 20);
                    tracing::error!("{left} MiB are left on the disk: writes are refused");
                }
            }
        }
        if was_full && !is_full {
            tracing::warn!("there is room on the disk again: writes are accepted");
        }
        if !is_short {
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
