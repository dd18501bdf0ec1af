//! What one client has subscribed to.

use std::collections::HashSet;
use std::sync::Arc;

use cairn_resp::{Protocol, Writer, glob};

use super::{Kind, PubSub, Published};
use crate::client::Client;

type Names = HashSet<Box<[u8]>>;

/// The subscriptions of a client; they end with this. What it is told of them goes through its outbox, where it
/// comes before, or behind, the messages that it should.
pub struct Subscriptions {
    all: Arc<PubSub>,
    client: Arc<Client>,
    channels: Names,
    patterns: Names,
    shards: Names,
}

impl Subscriptions {
    pub fn new(all: Arc<PubSub>, client: Arc<Client>) -> Subscriptions {
        Subscriptions {
            all,
            client,
            channels: Names::default(),
            patterns: Names::default(),
            shards: Names::default(),
        }
    }

    fn names(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    /// The number that a confirmation tells: channels and patterns are counted together.
    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shards.len(),
        }
    }

    pub fn add(&mut self, kind: Kind, name: &[u8]) {
        let is_new = self.names(kind).insert(name.into());
        self.note(kind);
        let word = match kind {
            Kind::Channel => "subscribe",
            Kind::Pattern => "psubscribe",
            Kind::Shard => "ssubscribe",
        };
        self.confirm(word, kind, Some(name));
        if is_new {
            self.all.of(kind).add(name, &self.client);
        }
    }

    pub fn remove(&mut self, kind: Kind, name: &[u8]) {
        if self.names(kind).remove(name) {
            self.all.of(kind).remove(name, &self.client);
        }
        self.note(kind);
        self.confirm_removal(kind, Some(name));
    }

    /// Ends all of this kind; if there is none, that is what is confirmed.
    pub fn remove_all(&mut self, kind: Kind) {
        let names: Vec<Box<[u8]>> = self.names(kind).iter().cloned().collect();
        if names.is_empty() {
            self.confirm_removal(kind, None);
        }
        names.iter().for_each(|name| self.remove(kind, name));
    }

    /// Writes a message as often as the client is to hear it; true if it is.
    pub fn write(&self, published: Published<'_>, out: &mut Vec<u8>) -> bool {
        let protocol = self.client.protocol();
        let length = out.len();
        let names = match published.is_sharded {
            true => &self.shards,
            false => &self.channels,
        };
        if names.contains(published.channel) {
            published.message().write(protocol, out);
        }
        let patterns = self.patterns.iter().filter(|_| !published.is_sharded);
        for pattern in patterns.filter(|it| glob::matches(it, published.channel, false)) {
            published.message_by(pattern).write(protocol, out);
        }
        out.len() > length
    }

    /// Ends all, and nothing is said.
    pub fn clear(&mut self) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            let names = std::mem::take(self.names(kind));
            let topics = self.all.of(kind);
            names
                .iter()
                .for_each(|name| topics.remove(name, &self.client));
            self.note(kind);
        }
    }

    fn note(&mut self, kind: Kind) {
        let count = self.names(kind).len();
        self.client.note_subscriptions(kind, count);
    }

    fn confirm_removal(&self, kind: Kind, name: Option<&[u8]>) {
        let word = match kind {
            Kind::Channel => "unsubscribe",
            Kind::Pattern => "punsubscribe",
            Kind::Shard => "sunsubscribe",
        };
        self.confirm(word, kind, name);
    }

    /// It is in the outbox for as long as this command runs only, so no limit needs to be looked at.
    fn confirm(&self, word: &str, kind: Kind, name: Option<&[u8]>) {
        let protocol: Protocol = self.client.protocol();
        let count = self.count(kind) as i64;
        self.client.outbox.push(|out| {
            let mut writer = Writer::new(out, protocol);
            writer.push(3);
            writer.bulk(word);
            match name {
                Some(name) => writer.bulk(name),
                None => writer.null(),
            }
            writer.int(count);
        });
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.clear();
    }
}
