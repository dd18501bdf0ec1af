//! Who wants to know which keys commands change: those who watch them, wait for them, or keep copies of them; and those who
//! follow, and are told of the commands.
//!
//! Nearly always there is nobody, and commands pay for one look at a number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_store::{Effect, Held, WriteTxn, slot};

use crate::blocked::Served;
use crate::propagation;
use crate::server::Server;
use crate::turn::Call;

/// How many they are.
#[derive(Default)]
pub struct Interest(AtomicUsize);

impl Interest {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key by the number of its database.
pub type Changed = (u32, Box<[u8]>);

/// To be called when a command, or a unit, of this client has run over the transaction; which command it was is told where
/// it is known. Whoever waited for what it made is served over the same transaction, as if nobody came between; the replies are for after its
/// commit.
pub fn attend(
    server: &Server,
    txn: &mut WriteTxn,
    held: &mut Held,
    (client, call): (u64, Option<&Call<'_>>),
    served: &mut Vec<Served>,
) {
    let is_followed = txn.is_followed();
    if is_followed {
        if let Some(Call { command, args, .. }) = call {
            propagation::end(txn, command, args);
        }
        txn.propagate_together();
    }
    // Whoever follows is told, and wants to know nothing more.
    if server.interest.count() > usize::from(is_followed) {
        let changed = note_changes(server, txn, Some(client), call);
        server.blocked.serve(server, txn, held, changed, served);
    }
}

/// Tells those who watch keys, or keep copies of them, what was changed; returns the keys that may have come to be,
/// or have more than before, or are gone.
pub fn note_changes(
    server: &Server,
    txn: &mut WriteTxn,
    by: Option<u64>,
    call: Option<&Call<'_>>,
) -> Vec<Changed> {
    let databases = txn.databases_now();
    let mut changed: Vec<Changed> = Vec::new();
    let mut remade: Vec<Changed> = Vec::new();
    for key in txn.changed_keys() {
        let database = databases.iter().position(|of| *of == key.index);
        // A database that is gone by now is dealt with as a whole.
        let Some(database) = database else { continue };
        let database = database as u32;
        let is_last = |known: &[Changed]| {
            let last = known.last();
            last.is_some_and(|last| last.0 == database && *last.1 == *key.name)
        };
        if !is_last(&changed) {
            changed.push((database, key.name.into()));
        }
        if key.is_metadata && !is_last(&remade) {
            remade.push((database, key.name.into()));
        }
    }
    for (database, name) in &changed {
        server.watches.touch(txn, *database, name);
    }
    if server.tracking.is_on() {
        if let Some(call) = call {
            put_in_order(&mut changed, call);
        }
        for (_, name) in &changed {
            let key = name.clone();
            txn.add_effect(Effect::Outdated { key, by });
        }
    }
    if let Some(before) = txn.databases_before() {
        for (database, index_before) in before.into_iter().enumerate() {
            let database = database as u32;
            if txn.index_of(database) != index_before {
                server.watches.touch_all(txn, database, index_before);
                let slots = txn.region().slots();
                let waited_for = server.blocked.keys_of(database).into_iter();
                remade.extend(waited_for.filter(|(_, name)| slots.contains(&slot(name))));
            }
        }
        if server.tracking.is_on() {
            txn.add_effect(Effect::AllOutdated);
        }
    }
    remade
}

/// A transaction keeps what one command changes in no order; those who keep copies are told in the order in which the
/// command names the keys.
fn put_in_order(changed: &mut [Changed], call: &Call<'_>) {
    if changed.len() < 2 {
        return;
    }
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    call.command.keys.visit(&call.args, |name, _| {
        let next = places.len();
        places.entry(name).or_insert(next);
    });
    changed.sort_by_key(|(_, name)| places.get(&**name).copied());
}
