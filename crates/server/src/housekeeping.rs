//! What the server does at regular times: sampling its counters, looking what it is short of, and closing connections that nobody uses, or that
//! do not take what they are sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_engine::{Memory, advance_access_clock};

use crate::server::Server;
use crate::shortage;
use crate::stats::Totals;

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;

/// Runs for as long as the server does.
pub async fn run(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for tick in (0..TICKS_PER_SECOND).cycle() {
        ticks.tick().await;
        advance_access_clock();
        let stats = &server.stats;
        let totals = Totals {
            commands: stats.commands(),
            bytes_in: stats.bytes_in.get(),
            bytes_out: stats.bytes_out.get(),
        };
        stats.rates.sample(Instant::now(), totals);
        if server.tracking.is_on() {
            // The limit may have been lowered.
            server.shrink_tracking();
        }
        shortage::look(&server);
        if tick == 0 {
            stats.note_memory(Memory::now().allocated);
            server.replication.tick(&server);
            server.upstream.tick(&server);
            close_idle(&server);
            close_overfull(&server);
        }
    }
}

fn close_idle(server: &Server) {
    let timeout = server.live.timeout.load(Ordering::Relaxed);
    if timeout == 0 {
        return;
    }
    for client in server.clients.all() {
        if client.is_idle(timeout * 1000) {
            tracing::debug!("{}: closed, idle for {timeout} seconds", client.peer);
            client.kill();
        }
    }
}

/// What waits for a client may do so for a time only, whether more comes or not.
fn close_overfull(server: &Server) {
    for client in server.clients.all() {
        let pushed = client.outbox.len();
        if pushed > 0 {
            let waiting = pushed + client.output.used();
            client.check_output(&server.live.output_limits, waiting);
        }
    }
}
