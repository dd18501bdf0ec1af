//! Writes the layouts.

use crate::change::Change;
use crate::map::Settings;
use crate::node::{Addresses, Endpoint, Node, NodeState};
use crate::region::{Duty, Region};

pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Nobody has four billion of anything: it would not fit into memory.
    pub(super) fn all<T>(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Writer, T),
    ) {
        self.0
            .extend_from_slice(&(values.len() as u32).to_be_bytes());
        values.for_each(|value| write(self, value));
    }

    /// A host that is longer than its length can say has been refused before.
    fn host(&mut self, host: &str) {
        self.u16(host.len() as u16);
        self.0.extend_from_slice(host.as_bytes());
    }

    fn endpoint(&mut self, endpoint: &Endpoint) {
        self.host(&endpoint.host);
        self.u16(endpoint.port);
        self.u16(endpoint.tls_port);
    }

    fn addresses(&mut self, addresses: &Addresses) {
        self.endpoint(&addresses.clients);
        self.option(addresses.advertised.as_ref(), Writer::endpoint);
        self.host(&addresses.peers.host);
        self.u16(addresses.peers.port);
    }

    pub(super) fn settings(&mut self, settings: Settings) {
        self.u8(settings.replicas);
        self.u8(u8::from(settings.balance));
    }

    pub(super) fn node(&mut self, node: &Node) {
        self.u64(node.id);
        self.addresses(&node.addresses);
        self.u8(match node.state {
            NodeState::Active => 0,
            NodeState::Draining => 1,
            NodeState::Removed => 2,
        });
        self.u16(node.version);
        self.u64(node.incarnation);
    }

    pub(super) fn region(&mut self, region: &Region) {
        self.u64(region.id);
        self.option(region.slots, |out, slots| {
            out.u16(slots.first());
            out.u16(slots.last());
        });
        self.u64(region.epoch);
        self.all(region.replicas.iter(), |out, (id, replica)| {
            out.u64(*id);
            out.u64(replica.node);
            let (duty, replaces) = match replica.duty {
                Duty::Voter => (0, None),
                Duty::Learner { replaces } => (1, replaces),
                Duty::Leaving => (2, None),
            };
            out.u8(duty);
            out.option(replaces, Writer::u64);
        });
        self.option(region.preferred, Writer::u64);
        self.option(region.split.as_ref(), |out, split| {
            out.u16(split.at);
            out.u64(split.region);
            out.all(split.replicas.iter(), |out, (old, new)| {
                out.u64(*old);
                out.u64(*new);
            });
        });
    }

    pub(super) fn change(&mut self, change: &Change) {
        match change {
            Change::Found(foundation) => {
                self.u8(1);
                self.u64(foundation.cluster);
                self.settings(foundation.settings);
                self.all(foundation.nodes.iter(), |out, founder| {
                    out.addresses(&founder.addresses);
                    out.u16(founder.version);
                    out.u64(founder.incarnation);
                });
                self.u16(foundation.regions);
            }
            Change::AddNode {
                addresses,
                version,
                incarnation,
            } => {
                self.u8(2);
                self.addresses(addresses);
                self.u16(*version);
                self.u64(*incarnation);
            }
            Change::UpdateNode {
                node,
                addresses,
                version,
            } => {
                self.u8(3);
                self.u64(*node);
                self.addresses(addresses);
                self.u16(*version);
            }
            Change::DrainNode { node } => self.numbers(4, &[*node]),
            Change::KeepNode { node } => self.numbers(5, &[*node]),
            Change::RemoveNode { node } => self.numbers(6, &[*node]),
            Change::Configure(settings) => {
                self.u8(7);
                self.settings(*settings);
            }
            Change::AddReplica {
                region,
                node,
                replaces,
            } => {
                self.numbers(8, &[*region, *node]);
                self.option(*replaces, Writer::u64);
            }
            Change::Promote { region, replica } => self.numbers(9, &[*region, *replica]),
            Change::Abandon { region, replica } => self.numbers(10, &[*region, *replica]),
            Change::RemoveReplica { region, replica } => self.numbers(11, &[*region, *replica]),
            Change::Drop { region, replica } => self.numbers(12, &[*region, *replica]),
            Change::Prefer { region, replica } => {
                self.numbers(13, &[*region]);
                self.option(*replica, Writer::u64);
            }
            Change::BeginSplit { region, at } => {
                self.numbers(14, &[*region]);
                self.u16(*at);
            }
            Change::FinishSplit { region, epoch } => self.numbers(15, &[*region, *epoch]),
            Change::Lose { region, replica } => self.numbers(16, &[*region, *replica]),
        }
    }

    fn numbers(&mut self, tag: u8, numbers: &[u64]) {
        self.u8(tag);
        numbers.iter().for_each(|number| self.u64(*number));
    }
}
