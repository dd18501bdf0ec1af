//! What RocksDB tells us while it works.

use std::sync::Arc;

use rust_rocksdb::event_listener::{
    BackgroundErrorStatus, CompactionJobInfo, DBBackgroundErrorReason, EventListener, FlushJobInfo,
    MutableStatus, WriteStallInfo,
};

use crate::filter::Gate;
use crate::priority::{come_last, give_way};

pub(crate) struct Listener {
    gate: Arc<Gate>,
}

impl Listener {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Listener { gate }
    }
}

impl EventListener for Listener {
    // Both are told on the thread that does it.
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        give_way();
    }

    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        come_last();
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        if !self.gate.is_closing() {
            // Only for want of room: whatever else went wrong does not get better by itself.
            if format!("{:?}", status.result()).contains("No space left") {
                self.gate.stop_writing();
            }
            tracing::error!(?reason, "RocksDB stops writing: {:?}", status.result());
        }
    }

    fn on_error_recovery_begin(
        &self,
        _: DBBackgroundErrorReason,
        _: &BackgroundErrorStatus,
        resume: &mut bool,
    ) {
        // After a failed sync nobody knows what is on the disk: going on in silence is the one thing
        // that must not happen.
        *resume = false;
    }

    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        let name = info.cf_name().unwrap_or_default();
        tracing::debug!(
            family = %String::from_utf8_lossy(&name),
            from = ?info.prev(),
            to = ?info.cur(),
            "write stall condition"
        );
    }
}

/// Ends the process: what is on the disk is no longer known.
pub(crate) fn fatal(what: &str, error: &dyn std::fmt::Display) -> ! {
    tracing::error!(
        "{what}: {error}; stopping, because acknowledged writes may not be on the disk"
    );
    // SAFETY: _exit takes any status and does not return. Destructors must not run: they would write.
    unsafe { libc::_exit(1) }
}
