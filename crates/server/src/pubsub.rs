//! Who listens to which channels, and how messages reach them.
//!
//! A message is put into the outboxes of its receivers under the lock of its channel: so once a client has been
//! taken off a channel, nothing more comes from there, and what came before stands in its outbox.

mod subscriptions;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_resp::{Protocol, Writer, glob};
use cairn_store::EventClass;
use parking_lot::{RwLock, RwLockReadGuard};

pub use subscriptions::Subscriptions;
use subscriptions::confirmation;

use crate::client::Client;
use crate::output_limits::OutputLimits;

/// What one can subscribe to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    Pattern,
    /// A channel of a part of a cluster, in a namespace of its own.
    Shard,
}

/// All subscriptions.
#[derive(Default)]
pub struct PubSub {
    channels: Topics,
    patterns: Topics,
    shards: Topics,
}

impl PubSub {
    fn of(&self, kind: Kind) -> &Topics {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    /// How many different names of this kind somebody has subscribed to.
    pub fn count(&self, kind: Kind) -> usize {
        self.of(kind).count()
    }

    /// The names of this kind that match a pattern, or all.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let mut names = Vec::new();
        self.of(kind).visit(|name, _| {
            if pattern.is_none_or(|pattern| glob::matches(pattern, name, false)) {
                names.push(name.into());
            }
        });
        names
    }

    /// The clients that listen to something of this kind that the condition says, each as often as it does.
    pub fn listeners(
        &self,
        kind: Kind,
        is_meant: impl Fn(&Client, &[u8]) -> bool,
    ) -> Vec<Arc<Client>> {
        let mut found = Vec::new();
        self.of(kind).visit(|name, clients| {
            let meant = clients.values().filter(|client| is_meant(client, name));
            found.extend(meant.cloned());
        });
        found
    }

    /// How many clients have subscribed to this very name.
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        self.of(kind).read(name).get(name).map_or(0, living)
    }

    /// How many a message would reach now; one that is subscribed in several ways counts, and gets it, as often.
    pub fn receivers(&self, channel: &[u8], is_sharded: bool) -> usize {
        if is_sharded {
            return self.subscribers(Kind::Shard, channel);
        }
        let mut count = 0;
        if self.channels.count() > 0 {
            count += self.subscribers(Kind::Channel, channel);
        }
        if self.patterns.count() > 0 {
            self.patterns.visit(|pattern, clients| {
                if glob::matches(pattern, channel, false) {
                    count += living(clients);
                }
            });
        }
        count
    }

    /// Takes everybody off the channels of slots that have gone to another node, and tells them: they are to listen there.
    pub fn leave_shards(&self, has_gone: impl Fn(&[u8]) -> bool, limits: &OutputLimits) {
        if self.shards.count() == 0 {
            return;
        }
        self.shards.take(has_gone, |name, client| {
            let mut names = client.shards.lock();
            names.remove(name);
            let (left, protocol) = (names.len(), client.protocol());
            client.note_subscriptions(Kind::Shard, left);
            client.push(limits, |out| {
                confirmation(out, protocol, "sunsubscribe", Some(name), left);
            });
        });
    }

    /// Sends a message to all who listen, except for one if so.
    pub fn publish(&self, published: Published<'_>, except: Option<u64>, limits: &OutputLimits) {
        let send = |message: Message, clients: &Subscribers| {
            let clients = clients.iter();
            let receivers = clients.filter(|(id, _)| Some(**id) != except);
            receivers.for_each(|(_, client)| message.send(client, limits));
        };
        let channel = published.channel;
        let topics = self.of(published.kind());
        if topics.count() > 0
            && let Some(clients) = topics.read(channel).get(channel)
        {
            send(published.message(), clients);
        }
        if published.is_sharded || self.patterns.count() == 0 {
            return;
        }
        self.patterns.visit(|pattern, clients| {
            if glob::matches(pattern, channel, false) {
                send(published.message_by(pattern), clients);
            }
        });
    }

    /// Tells those who listen what happened to a key: the channel of the key gets the event's name, that of the
    /// event the key's.
    pub fn tell(
        &self,
        event: &str,
        database: u32,
        key: &[u8],
        classes: u32,
        limits: &OutputLimits,
    ) {
        if self.channels.count() == 0 && self.patterns.count() == 0 {
            return;
        }
        let event = event.as_bytes();
        if classes & EventClass::BY_KEY != 0 {
            let mut channel = format!("__keyspace@{database}__:").into_bytes();
            channel.extend_from_slice(key);
            self.publish(Published::new(&channel, event), None, limits);
        }
        if classes & EventClass::BY_EVENT != 0 {
            let mut channel = format!("__keyevent@{database}__:").into_bytes();
            channel.extend_from_slice(event);
            self.publish(Published::new(&channel, key), None, limits);
        }
    }
}

/// What is said, and where.
#[derive(Clone, Copy)]
pub struct Published<'m> {
    pub channel: &'m [u8],
    pub text: &'m [u8],
    pub is_sharded: bool,
}

impl<'m> Published<'m> {
    fn new(channel: &'m [u8], text: &'m [u8]) -> Published<'m> {
        Published {
            channel,
            text,
            is_sharded: false,
        }
    }

    /// What the channel is.
    fn kind(&self) -> Kind {
        match self.is_sharded {
            true => Kind::Shard,
            false => Kind::Channel,
        }
    }

    /// As those hear it who listen to the channel.
    fn message(&self) -> Message {
        let word: &[u8] = match self.is_sharded {
            true => b"smessage",
            false => b"message",
        };
        Message::new(&[word, self.channel, self.text])
    }

    /// As those hear it who listen to a pattern.
    fn message_by(&self, pattern: &[u8]) -> Message {
        Message::new(&[b"pmessage", pattern, self.channel, self.text])
    }
}

/// A message as it goes over the wire, but for its first byte, which is all that differs between the protocols.
pub struct Message(Vec<u8>);

impl Message {
    pub fn new(words: &[&[u8]]) -> Message {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, Protocol::Resp3).push(words.len());
        bytes.remove(0);
        let mut writer = Writer::new(&mut bytes, Protocol::Resp3);
        words.iter().for_each(|word| writer.bulk(word));
        Message(bytes)
    }

    fn send(&self, client: &Client, limits: &OutputLimits) {
        client.push(limits, |out| self.write(client.protocol(), out));
    }

    fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        out.push(match protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => b'>',
        });
        out.extend_from_slice(&self.0);
    }
}

/// Over how many locks the names are spread.
const PARTS: usize = 64;

type Subscribers = BTreeMap<u64, Arc<Client>>;
type Part = HashMap<Box<[u8]>, Subscribers>;

/// How many they are, without those who were killed and are about to go.
fn living(clients: &Subscribers) -> usize {
    let clients = clients.values();
    clients.filter(|client| !client.is_killed()).count()
}

/// The names that clients have subscribed to, and who has.
struct Topics {
    parts: Vec<RwLock<Part>>,
    hasher: RandomState,
    count: AtomicUsize,
}

impl Default for Topics {
    fn default() -> Self {
        Topics {
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
        }
    }
}

impl Topics {
    #[inline]
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn part(&self, name: &[u8]) -> &RwLock<Part> {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    fn read(&self, name: &[u8]) -> RwLockReadGuard<'_, Part> {
        self.part(name).read()
    }

    fn visit(&self, mut visit: impl FnMut(&[u8], &Subscribers)) {
        for part in &self.parts {
            let part = part.read();
            part.iter().for_each(|(name, clients)| visit(name, clients));
        }
    }

    /// Removes names, and shows who was entered for them.
    fn take(&self, is_meant: impl Fn(&[u8]) -> bool, mut visit: impl FnMut(&[u8], &Client)) {
        for part in &self.parts {
            let mut part = part.write();
            for (name, clients) in part.extract_if(|name, _| is_meant(name)) {
                self.count.fetch_sub(1, Ordering::Relaxed);
                clients.values().for_each(|client| visit(&name, client));
            }
        }
    }

    fn add(&self, name: &[u8], client: &Arc<Client>) {
        let mut part = self.part(name).write();
        let clients = part.entry(name.into()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::Relaxed);
            Subscribers::new()
        });
        clients.insert(client.id, client.clone());
    }

    fn remove(&self, name: &[u8], client: &Client) {
        let mut part = self.part(name).write();
        let Some(clients) = part.get_mut(name) else {
            return;
        };
        clients.remove(&client.id);
        if clients.is_empty() {
            part.remove(name);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
