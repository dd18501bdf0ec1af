//! Before a command is evaluated, this node must certainly lead the region of its keys. If that cannot be told at once, the
//! command waits here: for the others' word, or for a leader to be elected.

use std::sync::Arc;
use std::time::Duration;

use cairn_store::{Error, Lead, Region, Result};
use tokio::time::{Instant, timeout_at};

use super::node::ClusterNode;
use crate::route::{self, DOWN};
use crate::server::Server;

/// How soon a command that could not be confirmed looks again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Why a command cannot run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Nobody is known to lead the region of this slot, or this node is about to.
    NoLeader(u16),
    /// Others have to be asked whether this node still leads the region.
    Unconfirmed(u64),
}

/// How a command waits: until when, since it first had to, and what it has learnt by that.
#[derive(Default)]
pub struct Patience {
    until: Option<Instant>,
    /// Others have said, after the command came, that this node leads in this way.
    confirmed: Option<Arc<Lead>>,
}

impl Patience {
    fn until(&mut self, limit: Duration) -> Instant {
        *self.until.get_or_insert_with(|| Instant::now() + limit)
    }

    /// Whether the command need not ask for this region. What was acknowledged before it came was applied here when the
    /// others answered, whatever has happened since.
    pub fn is_confirmed(&self, region: &Region) -> bool {
        let confirmed = self.confirmed.as_ref();
        confirmed.is_some_and(|confirmed| {
            let lead = region.lead();
            lead.is_some_and(|lead| Arc::ptr_eq(&lead, confirmed))
        })
    }
}

/// Waits until the command may be tried again; an error if it is not worth it any more.
pub async fn wait(server: &Server, unready: Unready, patience: &mut Patience) -> Result<()> {
    let Some(node) = server.cluster.get() else {
        return Err(Error::fixed(DOWN));
    };
    // One election, and some time to get round to it.
    let until = patience.until(node.settings.raft.election_timeout * 2);
    let waited = match unready {
        Unready::NoLeader(slot) => timeout_at(until, node.news_of(server, slot)).await,
        Unready::Unconfirmed(region) => {
            let confirmed = &mut patience.confirmed;
            timeout_at(until, async { *confirmed = node.confirm(region).await }).await
        }
    };
    waited.map_err(|_| Error::fixed(DOWN))
}

/// Where a client shall go whose command was refused, since others lead the slot by now. Most clients follow that more readily
/// than they try again. None if it is led here again, or nobody is known to lead it within the time.
pub async fn moved(server: &Server, slot: u16, patience: &mut Patience) -> Option<String> {
    wait(server, Unready::NoLeader(slot), patience).await.ok()?;
    route::moved(server, slot)
}

/// Waits until this node has applied, of a region that another leads, all that was acknowledged before; false if that
/// cannot be found out.
pub async fn catch_up(server: &Server, region: u64) -> bool {
    let Some(node) = server.cluster.get() else {
        return false;
    };
    if node.settings.reads_stale {
        return true;
    }
    let raft = node.raft.clone();
    let asked = node
        .runtime
        .spawn(async move { raft.follower_barrier(region).await });
    matches!(asked.await, Ok(Ok(())))
}

impl ClusterNode {
    /// Waits until it is known who leads the region of a slot, and ready for it.
    async fn news_of(&self, server: &Server, slot: u16) {
        let mut news = self.follow_news();
        while route::is_unknown(server, slot) {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Asks others whether this node leads, together with all who wait for the same; as what, if it does. If not, or nobody
    /// answers, the next attempt finds out what to do.
    async fn confirm(&self, region: u64) -> Option<Arc<Lead>> {
        let lead = self.placed(region).and_then(|region| region.lead());
        let raft = self.raft.clone();
        let asked = self
            .runtime
            .spawn(async move { raft.read_barrier(region).await });
        match asked.await {
            Ok(Ok(())) if lead.is_some() => lead,
            _ => {
                tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                None
            }
        }
    }
}
