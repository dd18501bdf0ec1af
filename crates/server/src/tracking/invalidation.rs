//! Telling clients that their copies are outdated.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cairn_resp::{Protocol, Writer};

use super::Tracking;
use crate::client::Client;
use crate::server::Server;

/// The channel of those who listen by the old protocol.
const CHANNEL: &str = "__redis__:invalidate";

/// What one commit made outdated: each key once, with the client that changed it last, in the order of their changes.
#[derive(Default)]
pub struct Outdated {
    keys: Vec<Change>,
    /// Where in that order a key is.
    places: HashMap<Box<[u8]>, usize>,
    everything: bool,
}

struct Change {
    key: Box<[u8]>,
    by: Option<u64>,
}

impl Outdated {
    pub fn add(&mut self, key: Box<[u8]>, by: Option<u64>) {
        match self.places.entry(key) {
            Entry::Occupied(place) => self.keys[*place.get()].by = by,
            Entry::Vacant(place) => {
                let key = place.key().clone();
                place.insert(self.keys.len());
                self.keys.push(Change { key, by });
            }
        }
    }

    pub fn add_all(&mut self) {
        self.everything = true;
    }

    /// Tells all whom it concerns.
    pub fn tell(self, server: &Server) {
        if !server.tracking.is_on() {
            return;
        }
        if self.everything {
            tell_all(server);
        }
        if self.keys.is_empty() {
            return;
        }
        tell_by_prefix(server, &self.keys);
        for Change { key, by } in &self.keys {
            tell_readers(server, key, *by);
        }
    }
}

fn tell_readers(server: &Server, key: &[u8], by: Option<u64>) {
    let readers = server.tracking.table.lock().take(key);
    for id in readers {
        let Some(client) = server.clients.get(id) else {
            continue;
        };
        if client.tracking.is_spared() && by == Some(id) {
            // It may have read the key after it changed it, in the same commit: the next change concerns it.
            server.tracking.remember(id, key);
            continue;
        }
        tell_reader(server, &client, key);
    }
}

pub(super) fn tell_reader(server: &Server, client: &Client, key: &[u8]) {
    if client.tracking.is_on() && !client.tracking.is_by_prefix() {
        send(server, client, Content::Keys(&[key]));
    }
}

/// Those who asked for prefixes get one message for all keys of a commit, in the order of their bytes.
fn tell_by_prefix(server: &Server, changes: &[Change]) {
    let mut concerned = Vec::new();
    for (prefix, clients) in &*server.tracking.prefixes.lock() {
        let begins_so = |change: &&Change| change.key.starts_with(prefix);
        let changes: Vec<&Change> = changes.iter().filter(begins_so).collect();
        if !changes.is_empty() {
            concerned.push((changes, clients.clone()));
        }
    }
    for (changes, clients) in concerned {
        for id in clients {
            let Some(client) = server.clients.get(id) else {
                continue;
            };
            let is_own = |change: &Change| client.tracking.is_spared() && change.by == Some(id);
            let others = changes.iter().filter(|change| !is_own(change));
            let mut names: Vec<&[u8]> = others.map(|change| &*change.key).collect();
            names.sort_unstable();
            if !names.is_empty() {
                send(server, &client, Content::Keys(&names));
            }
        }
    }
}

fn tell_all(server: &Server) {
    server.tracking.table.lock().clear();
    for client in server.clients.all() {
        if client.tracking.is_on() {
            send(server, &client, Content::Everything);
        }
    }
}

impl Tracking {
    /// Forgets keys until they are no more than so many, and tells those who have read them: zero is no limit.
    pub fn shrink(&self, server: &Server, most: usize) {
        if most == 0 {
            return;
        }
        let next = || self.table.lock().take_oldest(most);
        while let Some((key, readers)) = next() {
            for client in readers.iter().filter_map(|id| server.clients.get(*id)) {
                tell_reader(server, &client, &key);
            }
        }
    }
}

enum Content<'a> {
    Keys(&'a [&'a [u8]]),
    Everything,
}

/// Sends a message to a client, or to the one it has named.
fn send(server: &Server, client: &Client, content: Content<'_>) {
    let limits = &server.live.output_limits;
    let protocol = client.protocol();
    let write = |out: &mut Vec<u8>| {
        let mut writer = Writer::new(out, protocol);
        match content {
            Content::Keys(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
            Content::Everything => writer.null(),
        }
    };
    let push = |out: &mut Vec<u8>| {
        let mut writer = Writer::new(out, Protocol::Resp3);
        writer.push(2);
        writer.bulk("invalidate");
        write(out);
    };
    let redirect = client.tracking.redirect();
    if redirect == 0 {
        if protocol == Protocol::Resp3 {
            client.push(limits, push);
        }
        return;
    }
    match server.clients.get(redirect) {
        Some(other) if other.protocol() == Protocol::Resp3 => other.push(limits, push),
        // By the old protocol only messages can come unasked.
        Some(other) if other.is_subscriber() => other.push(limits, |out| {
            let mut writer = Writer::new(out, Protocol::Resp2);
            writer.push(3);
            writer.bulk("message");
            writer.bulk(CHANNEL);
            write(out);
        }),
        Some(_) => {}
        None => {
            client.tracking.set_broken();
            if protocol == Protocol::Resp3 {
                client.push(limits, |out| {
                    let mut writer = Writer::new(out, protocol);
                    writer.push(2);
                    writer.bulk("tracking-redir-broken");
                    writer.int(redirect as i64);
                });
            }
        }
    }
}
