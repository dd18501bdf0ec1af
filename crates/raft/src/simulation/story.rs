//! One seed's story: clients write and read while everything goes wrong, then all is well again, and what was told must
//! turn out to be true.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cairn_encoding::raft::Membership;

use crate::error::Outcome;
use crate::group::{Member, Role};
use crate::node::Node;
use crate::runtime::{now, sleep, within};
use crate::simulation::cluster::{Cluster, REGION};
use crate::simulation::history::{Counts, History};
use crate::simulation::invariants;
use crate::simulation::machine::WRONG_EPOCH;
use crate::simulation::runtime::{as_owner, random, spawn_on};

/// The node of the clients, which never fails.
const CLIENTS: u64 = 0;

#[derive(Clone)]
struct Story {
    cluster: Cluster,
    history: History,
    over: Arc<AtomicBool>,
    batches: Arc<AtomicU64>,
    moves: Arc<AtomicU64>,
}

pub(crate) async fn tell(nodes: u64, spare: u64, troubles: u64) -> Counts {
    let story = Story {
        cluster: Cluster::new(nodes, spare).await,
        history: History::default(),
        over: Arc::default(),
        batches: Arc::default(),
        moves: Arc::default(),
    };
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(story.start(Story::write_all_along));
        clients.push(story.start(Story::read_all_along));
    }
    clients.push(story.start(Story::watch_all_along));
    if spare > 0 {
        clients.push(story.start(Story::move_all_along));
    }
    for _ in 0..troubles {
        story.trouble().await;
        sleep(Duration::from_millis(random(0..1500))).await;
        invariants::check(&story.cluster);
    }
    story.recover().await;
    let before = story.history.acknowledged();
    while story.history.acknowledged() < before + 10 {
        sleep(Duration::from_millis(50)).await;
    }
    story.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    story.end().await;
    Counts {
        snapshots: story.cluster.installed(),
        moves: story.moves.load(Ordering::Relaxed),
        ..story.history.counts()
    }
}

impl Story {
    fn start<F>(&self, client: impl FnOnce(Story) -> F) -> tokio::sync::oneshot::Receiver<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (told, done) = tokio::sync::oneshot::channel();
        let client = client(self.clone());
        spawn_on(CLIENTS, async move {
            client.await;
            told.send(()).ok();
        });
        done
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A node that is gone need not answer; any other must.
    async fn patiently<T: Send>(
        &self,
        node: &Arc<Node>,
        answer: impl Future<Output = T> + Send,
    ) -> Option<T> {
        // What it does for a client is done by its process, and ends with that.
        let mut answer = std::pin::pin!(answer);
        let asked = poll_fn(|context| match self.cluster.runs(node) {
            true => as_owner(node.id(), || answer.as_mut().poll(context)).map(Some),
            false => Poll::Ready(None),
        });
        let answer = within(Duration::from_secs(60), asked).await.flatten();
        assert!(answer.is_some() || !self.cluster.runs(node), "no answer");
        answer
    }

    async fn write_all_along(self) {
        while !self.is_over() {
            sleep(Duration::from_millis(random(1..60))).await;
            let Some((node, term)) = self.cluster.leader() else {
                continue;
            };
            // Evaluated now, and proposed when leadership may have come and gone.
            if random(0..4) == 0 {
                sleep(Duration::from_millis(random(0..3000))).await;
            }
            let number = self.batches.fetch_add(1, Ordering::Relaxed);
            let payload = Bytes::from(format!(
                "batch {number}{}",
                " ".repeat(random(0..100) as usize)
            ));
            let proposal = node.propose(REGION, term, 0, payload.clone());
            match self.patiently(&node, proposal).await {
                Some(Outcome::Applied { index, response }) => {
                    assert_ne!(response, WRONG_EPOCH);
                    self.history.applied(index, payload);
                }
                Some(Outcome::Unknown) | None => self.history.unknown(),
                Some(Outcome::NotLeader(_) | Outcome::Stale) => self.history.refused(payload),
                Some(Outcome::TooLarge) => panic!("it is small"),
            }
        }
    }

    async fn read_all_along(self) {
        while !self.is_over() {
            sleep(Duration::from_millis(random(1..40))).await;
            let nodes = self.cluster.net.nodes();
            let Some(node) = nodes.get(random(0..nodes.len().max(1) as u64) as usize) else {
                continue;
            };
            let before = self.history.highest();
            let asked = match random(0..4) {
                0 => {
                    let asked = self.patiently(node, node.follower_barrier(REGION));
                    asked.await.map(|asked| asked.map(|_| ()))
                }
                _ => self.patiently(node, node.read_barrier(REGION)).await,
            };
            // A node that is gone reads nothing.
            if asked == Some(Ok(())) && self.cluster.runs(node) {
                let machine = self.cluster.hardware(node.id()).machine;
                let seen = machine.state(REGION).applied.last.map(|last| last.index);
                self.history.read(before, seen);
            }
        }
    }

    async fn watch_all_along(self) {
        while !self.is_over() {
            sleep(Duration::from_millis(5)).await;
            for node in self.cluster.net.nodes() {
                if let Role::Leader { term, .. } = node.role(REGION) {
                    self.history.leads(term, node.id());
                }
            }
        }
    }

    /// Moves replicas between nodes, as an operator does that tries until it is done.
    async fn move_all_along(self) {
        while !self.is_over() {
            sleep(Duration::from_millis(random(100..2000))).await;
            let Some((leader, _)) = self.cluster.leader() else {
                continue;
            };
            let Some(status) = leader.status(REGION) else {
                continue;
            };
            if let [_, wanted] = &status.membership.configs[..] {
                // Whoever began this did not get to its end.
                let changed = leader.change_voters(REGION, wanted.clone());
                self.patiently(&leader, changed).await;
                continue;
            }
            self.clear_away(&status.membership).await;
            let taken: BTreeSet<u64> = status.membership.nodes.values().copied().collect();
            let nodes = self.cluster.net.nodes();
            let free = nodes
                .iter()
                .find(|node| !taken.contains(&node.id()) && node.status(REGION).is_none());
            let (Some(free), [voters]) = (free, &status.membership.configs[..]) else {
                continue;
            };
            let new = Member {
                replica: self.cluster.new_replica(),
                node: free.id(),
            };
            if self.cluster.start(new.node, new.replica).await.is_none() {
                continue;
            }
            let added = leader.add_learner(REGION, new);
            if self.patiently(&leader, added).await != Some(Ok(())) {
                continue;
            }
            let leaves = random(0..voters.len() as u64) as usize;
            let mut voters: Vec<u64> = voters.iter().copied().collect();
            voters[leaves] = new.replica;
            let changed = leader.change_voters(REGION, voters.into_iter().collect());
            if self.patiently(&leader, changed).await == Some(Ok(())) {
                self.moves.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Destroys replicas that are certainly no members any more, and learners that nobody made voters.
    async fn clear_away(&self, membership: &Membership) {
        let (leader, _) = self.cluster.wait_for_leader().await;
        let barrier = self.patiently(&leader, leader.read_barrier(REGION));
        if barrier.await != Some(Ok(())) {
            return;
        }
        let Some(current) = leader.status(REGION) else {
            return;
        };
        if !current.settled || current.membership != *membership || membership.configs.len() != 1 {
            return;
        }
        for replica in membership.nodes.keys() {
            if !membership.configs[0].contains(replica) {
                let removed = leader.remove_learner(REGION, *replica);
                self.patiently(&leader, removed).await;
                return;
            }
        }
        for node in self.cluster.net.nodes() {
            let Some(status) = node.status(REGION) else {
                continue;
            };
            if !membership.nodes.contains_key(&status.replica) && self.cluster.runs(&node) {
                let (told, destroyed) = tokio::sync::oneshot::channel();
                spawn_on(node.id(), async move {
                    node.destroy(REGION).await.ok();
                    told.send(()).ok();
                });
                // It may crash meanwhile.
                destroyed.await.ok();
            }
        }
    }

    fn any_node(&self) -> u64 {
        let count = self.cluster.hardware.lock().len() as u64;
        random(1..count + 1)
    }

    async fn trouble(&self) {
        let cluster = &self.cluster;
        let node = self.any_node();
        let kind = random(0..12);
        tracing::info!("at {} ms: trouble {kind} for node {node}", now().millis());
        match kind {
            0..=2 if cluster.is_up(node) => cluster.crash(node, random(0..2) == 0),
            0..=2 => cluster.boot(node).await,
            3 => {
                // All at once.
                let count = cluster.hardware.lock().len() as u64;
                for node in 1..=count {
                    if cluster.is_up(node) {
                        cluster.crash(node, true);
                    }
                }
                for node in 1..=count {
                    cluster.boot(node).await;
                }
            }
            4 => {
                // Cut off, in one direction or both.
                let count = cluster.hardware.lock().len() as u64;
                let direction = random(0..3);
                for other in 1..=count {
                    if direction != 0 {
                        cluster.net.cut(node, other);
                    }
                    if direction != 1 {
                        cluster.net.cut(other, node);
                    }
                }
            }
            5 => {
                let other = self.any_node();
                cluster.net.cut(node, other);
            }
            6 => cluster.net.weather(Some(random(2..20)), random(1..300)),
            7 => cluster.slow_disk(node, random(0..400)),
            8 => cluster.skew(node, random(0..20_000) as i64 - 10_000),
            9 => cluster.net.heal(),
            _ => {
                if let Some((leader, _)) = cluster.leader()
                    && let Some(status) =
                        cluster.net.node(node).and_then(|node| node.status(REGION))
                {
                    leader.transfer(REGION, status.replica).await.ok();
                }
            }
        }
    }

    async fn recover(&self) {
        tracing::info!("at {} ms: all is well again", now().millis());
        self.cluster.net.heal();
        let count = self.cluster.hardware.lock().len() as u64;
        for node in 1..=count {
            self.cluster.slow_disk(node, 1);
            if !self.cluster.is_up(node) {
                self.cluster.boot(node).await;
            }
        }
    }

    /// All replicas come to the same state, and it holds what was acknowledged.
    async fn end(&self) {
        let applied = |node: u64| {
            let state = self.cluster.hardware(node).machine.state(REGION);
            state.applied.last
        };
        loop {
            let (leader, _) = self.cluster.wait_for_leader().await;
            let voters: BTreeSet<u64> = leader
                .status(REGION)
                .map(|status| status.membership.nodes.into_values().collect())
                .unwrap_or_default();
            let reached: BTreeSet<_> = voters.iter().map(|node| applied(*node)).collect();
            if reached.len() == 1 {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        invariants::check(&self.cluster);
        let (leader, _) = self.cluster.wait_for_leader().await;
        let state = self.cluster.hardware(leader.id()).machine.state(REGION);
        self.history.check_against(&state.history);
    }
}
