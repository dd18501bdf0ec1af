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
}

impl Subscriptions {
    pub fn new(all: Arc<PubSub>, client: Arc<Client>) -> Subscriptions {
        Subscriptions {
            all,
            client,
            channels: Names::default(),
            patterns: Names::default(),
        }
    }

    fn with_names<T>(&mut self, kind: Kind, work: impl FnOnce(&mut Names) -> T) -> T {
        match kind {
            Kind::Channel => work(&mut self.channels),
            Kind::Pattern => work(&mut self.patterns),
            Kind::Shard => work(&mut self.client.shards.lock()),
        }
    }

    /// The number that a confirmation tells: channels and patterns are counted together.
    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.client.shards.lock().len(),
        }
    }

    pub fn add(&mut self, kind: Kind, name: &[u8]) {
        let is_new = self.with_names(kind, |names| names.insert(name.into()));
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
        if self.with_names(kind, |names| names.remove(name)) {
            self.all.of(kind).remove(name, &self.client);
        }
        self.note(kind);
        self.confirm_removal(kind, Some(name));
    }

    /// Ends all of this kind; if there is none, that is what is confirmed.
    pub fn remove_all(&mut self, kind: Kind) {
        let names: Vec<_> = self.with_names(kind, |names| names.iter().cloned().collect());
        if names.is_empty() {
            self.confirm_removal(kind, None);
        }
        names.iter().for_each(|name| self.remove(kind, name));
    }

    /// Writes a message as often as the client is to hear it; true if it is.
    pub fn write(&self, published: Published<'_>, out: &mut Vec<u8>) -> bool {
        let protocol = self.client.protocol();
        let length = out.len();
        let hears = match published.is_sharded {
            true => self.client.shards.lock().contains(published.channel),
            false => self.channels.contains(published.channel),
        };
        if hears {
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
            let names = self.with_names(kind, std::mem::take);
            let topics = self.all.of(kind);
            names
                .iter()
                .for_each(|name| topics.remove(name, &self.client));
            self.note(kind);
        }
    }

    fn note(&mut self, kind: Kind) {
        let client = self.client.clone();
        self.with_names(kind, |names| client.note_subscriptions(kind, names.len()));
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
        let (protocol, count) = (self.client.protocol(), self.count(kind));
        let outbox = &self.client.outbox;
        outbox.push(|out| confirmation(out, protocol, word, name, count));
    }
}

/// What a client is told when it has been entered for a name or taken off it, and has so many left.
pub(super) fn confirmation(
    out: &mut Vec<u8>,
    protocol: Protocol,
    word: &str,
    name: Option<&[u8]>,
    count: usize,
) {
    let mut writer = Writer::new(out, protocol);
    writer.push(3);
    writer.bulk(word);
    match name {
        Some(name) => writer.bulk(name),
        None => writer.null(),
    }
    writer.int(count as i64);
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.clear();
    }
}
