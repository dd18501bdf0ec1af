//! The newest map of the cluster that this node knows of: applied by its own replica of region 0, or told by others.

use std::sync::Arc;

use arc_swap::ArcSwap;
use cairn_cluster::ClusterMap;
use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Default)]
pub struct KnownMap {
    newest: ArcSwap<ClusterMap>,
    learning: Mutex<()>,
    changed: watch::Sender<u64>,
}

impl KnownMap {
    pub fn get(&self) -> Arc<ClusterMap> {
        self.newest.load_full()
    }

    /// Takes a map that some node has applied, unless this node knows a newer one. Maps have one order everywhere, that of the
    /// log of region 0, and their epochs count it.
    pub fn learn(&self, map: ClusterMap) -> bool {
        let _one_at_a_time = self.learning.lock();
        let epoch = map.epoch();
        if epoch <= self.newest.load().epoch() {
            return false;
        }
        self.newest.store(Arc::new(map));
        self.changed.send_replace(epoch);
        true
    }

    /// The epoch, for whoever wants to know of changes.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
