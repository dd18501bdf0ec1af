//! Before a command is evaluated, this node must certainly lead the region of its keys. If that cannot be told at once, the
//! command waits here: for the others' word, or for a leader to be elected.

use std::sync::Arc;
use std::time::Duration;

use cairn_store::{Error, Lead, Region, Result};
use tokio::time::{Instant, timeout_at};

use super::node::ClusterNode;
use crate::route::{self, DOWN};
use crate::server::Server;
use crate::session::Session;

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
    /// Others have said, after the command came, that this node leads in these ways.
    confirmed: Vec<Arc<Lead>>,
}

impl Patience {
    fn until(&mut self, limit: Duration) -> Instant {
        *self.until.get_or_insert_with(|| Instant::now() + limit)
    }

    /// Whether the command need not ask for this region. What was acknowledged before it came was applied here when the
    /// others answered, whatever has happened since.
    pub fn is_confirmed(&self, region: &Region) -> bool {
        let is_known = |lead: Arc<Lead>| self.confirmed.iter().any(|it| Arc::ptr_eq(it, &lead));
        !self.confirmed.is_empty() && region.lead().is_some_and(is_known)
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
            timeout_at(until, async {
                confirmed.extend(node.confirm(region).await)
            })
            .await
        }
    };
    waited.map_err(|_| Error::fixed(DOWN))
}

/// Makes sure that this node still leads all that it believes to lead, for a command that looks at all keys; and that of the rest
/// that it has somebody else leads. A node that has stepped down may have been the last to lead: whoever asks all nodes for
/// their keys must not be told by everyone that they have none.
pub fn all_confirmed(server: &Server, patience: &Patience) -> Result<(), Unready> {
    let regions = server.store.regions();
    regions.all().try_for_each(|region| {
        let slots = region.slots();
        match region.is_led() {
            true => route::confirmed(server, region, patience),
            false if !slots.is_empty() && route::is_unknown(server, slots.start) => {
                Err(Unready::NoLeader(slots.start))
            }
            false => Ok(()),
        }
    })
}

/// The same for one that is part of a unit, which has a thread of its own and waits there: for a word of others, but not for an
/// election, since it holds latches.
pub fn confirm_all(server: &Server) -> Result<()> {
    let mut patience = Patience::default();
    while let Err(unready) = all_confirmed(server, &patience) {
        if let Unready::NoLeader(_) = unready {
            return Err(Error::fixed(DOWN));
        }
        let node = server.cluster.get().ok_or(Error::fixed(DOWN))?;
        node.runtime
            .block_on(wait(server, unready, &mut patience))?;
    }
    Ok(())
}

/// Where a client shall go whose command was refused, since others lead the slot by now. Most clients follow that more readily
/// than they try again. None if it is led here again, or nobody is known to lead it within the time.
pub async fn moved(session: &Session, slot: u16, patience: &mut Patience) -> Option<String> {
    let server = &session.server;
    if route::is_unknown(server, slot) {
        wait(server, Unready::NoLeader(slot), patience).await.ok()?;
    }
    route::moved(server, slot, session.client.is_encrypted)
}

/// A replica that has caught up with its leader.
pub struct CaughtUp {
    pub region: Arc<Region>,
    /// The leader's time when it had, in milliseconds; none if it may show the past.
    pub at: Option<u64>,
}

/// Waits until this node has applied, of a region that another leads, all that was acknowledged before; none if that
/// cannot be found out.
pub async fn catch_up(server: &Server, region: Arc<Region>) -> Option<CaughtUp> {
    let node = server.cluster.get()?;
    let at = match node.settings.reads_stale {
        true => None,
        false => {
            let (raft, id) = (node.raft.clone(), region.id());
            let asked = node
                .runtime
                .spawn(async move { raft.follower_barrier(id).await });
            Some(asked.await.ok()?.ok()?)
        }
    };
    Some(CaughtUp { region, at })
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
