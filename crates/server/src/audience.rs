//! Shows what commits did beside their rows to those whom it concerns.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use cairn_store::{Effect, Observer, slot};

use crate::propagation::{evicting_word, expiring_word, request};
use crate::pubsub::Published;
use crate::replication::Told;
use crate::route;
use crate::server::Server;
use crate::tracking::Outdated;

/// The store outlives the server that watches it.
pub struct Audience(Weak<Server>);

impl Audience {
    pub fn of(server: &Arc<Server>) -> Audience {
        Audience(Arc::downgrade(server))
    }
}

impl Observer for Audience {
    fn show(&self, effects: Vec<Effect>) {
        let Some(server) = self.0.upgrade() else {
            return;
        };
        let limits = &server.live.output_limits;
        let is_followed = server.store.listeners().are_followed();
        let mut outdated = Outdated::default();
        let mut told = Told::default();
        for effect in effects {
            match effect {
                Effect::Message {
                    channel,
                    text,
                    is_sharded,
                    except,
                } => {
                    let message = Published {
                        channel: &channel,
                        text: &text,
                        is_sharded,
                    };
                    server.pubsub.publish(message, except, limits);
                    // Who listens to a channel of a slot does so where that is led: here.
                    if let Some(node) = server.cluster.get().filter(|_| !is_sharded) {
                        node.publish(&channel, &text);
                    }
                }
                Effect::Event {
                    name,
                    database,
                    key,
                    ..
                } => {
                    let classes = server.live.event_classes.load(Ordering::Relaxed);
                    server.pubsub.tell(name, database, &key, classes, limits);
                }
                Effect::FieldsExpired {
                    database,
                    key,
                    last_ms,
                } => server.watches.lose_fields(database, key, last_ms),
                Effect::Outdated { key, by } => outdated.add(key, by),
                Effect::AllOutdated => outdated.add_all(),
                Effect::LeadEnded => {
                    outdated.add_all();
                    // They are told where to wait, and those who listen that they are to listen elsewhere.
                    server.blocked.retry_all();
                    let has_gone = |name: &[u8]| !route::is_led_here(&server, slot(name));
                    server.pubsub.leave_shards(has_gone, limits);
                }
                Effect::Expired { database, key } => {
                    if is_followed {
                        told.add(database, request(&[expiring_word(), &key]));
                    }
                    server.blocked.expired((database, key));
                }
                Effect::Evicted { database, key } => {
                    if is_followed {
                        told.add(database, request(&[evicting_word(), &key]));
                    }
                    server.blocked.expired((database, key));
                }
                // The store has noted it.
                Effect::Accessed { .. } => {}
                Effect::FieldsGone {
                    database,
                    key,
                    fields,
                } => {
                    let mut words: Vec<&[u8]> = vec![b"HDEL", &key];
                    words.extend(fields.iter().map(|field| &field[..]));
                    told.add(database, request(&words));
                }
                Effect::Propagated { database, request } => told.add(database, request),
                Effect::Together => told.close_group(),
            }
        }
        told.finish();
        if !told.is_empty() {
            server.replication.tell(&told, limits);
        }
        outdated.tell(&server);
    }
}
