//! The network between the nodes of a story: late, lossy, and cut in two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::node::Node;
use crate::runtime::{Later, sleep, within};
use crate::simulation::runtime::{random, spawn_on};
use crate::transport::{CallError, Service, Transport};

#[derive(Clone, Default)]
pub(crate) struct Net(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Arc<Node>>,
    /// From whom to whom nothing passes.
    cut: BTreeSet<(u64, u64)>,
    /// One in so many messages is lost.
    lossy: Option<u64>,
    /// The most milliseconds that a message takes.
    latency: u64,
}

impl Net {
    pub(crate) fn join(&self, node: Arc<Node>) {
        self.0.lock().nodes.insert(node.id(), node);
    }

    pub(crate) fn leave(&self, node: u64) -> Option<Arc<Node>> {
        self.0.lock().nodes.remove(&node)
    }

    pub(crate) fn node(&self, node: u64) -> Option<Arc<Node>> {
        self.0.lock().nodes.get(&node).cloned()
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.0.lock().nodes.values().cloned().collect()
    }

    /// Nothing passes from the one to the other.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.0.lock().cut.insert((from, to));
    }

    pub(crate) fn weather(&self, lossy: Option<u64>, latency: u64) {
        let mut state = self.0.lock();
        state.lossy = lossy;
        state.latency = latency;
    }

    pub(crate) fn heal(&self) {
        let mut state = self.0.lock();
        state.cut.clear();
        state.lossy = None;
        state.latency = 2;
    }

    /// Takes a message from one node to another; false if it is lost.
    async fn pass(&self, from: u64, to: u64) -> bool {
        let (latency, lossy) = {
            let state = self.0.lock();
            (state.latency, state.lossy)
        };
        sleep(Duration::from_micros(random(50..latency * 1000 + 51))).await;
        let lost = lossy.is_some_and(|lossy| random(0..lossy) == 0);
        !lost && !self.0.lock().cut.contains(&(from, to))
    }
}

/// The network as one node has it.
pub(crate) struct Port {
    pub node: u64,
    pub net: Net,
}

impl Transport for Port {
    fn call(
        &self,
        to: u64,
        request: Bytes,
        limit: Duration,
    ) -> Later<'static, Result<Bytes, CallError>> {
        let (from, net) = (self.node, self.net.clone());
        Box::pin(async move {
            let (told, answer) = tokio::sync::oneshot::channel();
            let there = net.clone();
            if !net.pass(from, to).await {
                sleep(limit).await;
                return Err(CallError::TimedOut);
            }
            let Some(node) = net.node(to) else {
                return Err(CallError::Unreachable("it is down".to_string()));
            };
            // The one who answers goes on also if nobody waits for it any more, and dies with its node.
            spawn_on(to, async move {
                let response = node.serve(from, request).await;
                if there.pass(to, from).await {
                    told.send(response).ok();
                } else {
                    sleep(Duration::from_secs(3600)).await;
                }
            });
            match within(limit, answer).await {
                Some(Ok(response)) => Ok(response),
                Some(Err(_)) => Err(CallError::Unreachable("it went down".to_string())),
                None => Err(CallError::TimedOut),
            }
        })
    }
}
