//! Which region a command is for, in a cluster.
//!
//! All keys of a command lie in one slot, and the node that leads its region runs it. What names no key is for the region
//! of no keys, which every node has. On a single machine nobody asks.

use std::sync::Arc;

use cairn_store::{Error, Region, Result, slot};

use crate::cluster::gate::{Patience, Unready};
use crate::command::{Args, Command};
use crate::server::Server;

/// Tells which node to go to.
pub trait Directory: Send + Sync {
    /// The address, as clients of this kind shall use it, of the node that leads the region of a slot; none if nobody is
    /// known to.
    fn leader_of(&self, slot: u16, by_tls: bool) -> Option<String>;
}

/// The one slot of several keys.
#[derive(Default)]
pub struct SlotOfKeys {
    slot: Option<u16>,
    differ: bool,
}

impl SlotOfKeys {
    pub fn add(&mut self, key: &[u8]) {
        self.add_slot(slot(key));
    }

    pub fn add_slot(&mut self, slot: u16) {
        self.differ |= self.slot.is_some_and(|known| known != slot);
        self.slot = Some(slot);
    }

    /// None if there are no keys.
    pub fn get(&self) -> Result<Option<u16>> {
        match self.differ {
            true => Err(Error::fixed(
                "CROSSSLOT Keys in request don't hash to the same slot",
            )),
            false => Ok(self.slot),
        }
    }
}

/// A command cannot run in any region here, or not now.
pub enum Detour {
    /// The reply says why, or where to go.
    Refused(Error),
    /// It may be known soon where to go.
    Wait(Unready),
}

impl From<Error> for Detour {
    fn from(error: Error) -> Detour {
        Detour::Refused(error)
    }
}

impl From<Unready> for Detour {
    fn from(unready: Unready) -> Detour {
        Detour::Wait(unready)
    }
}

impl From<Detour> for Error {
    fn from(detour: Detour) -> Error {
        match detour {
            Detour::Refused(error) => error,
            Detour::Wait(_) => Error::fixed(DOWN),
        }
    }
}

/// What a client is told if nobody is known to lead.
pub const DOWN: &str = "CLUSTERDOWN Hash slot not served";

/// The region of a slot, if this node leads it; that without keys if there is none. `by_tls` says how the client came that
/// may be sent elsewhere.
pub fn of_slot(server: &Server, slot: Option<u16>, by_tls: bool) -> Result<Arc<Region>, Detour> {
    let Some(slot) = slot else {
        return Ok(server.store.home().clone());
    };
    let regions = server.store.regions();
    match regions.with_slot(slot).filter(|region| region.is_led()) {
        Some(region) => Ok(region.clone()),
        None => Err(elsewhere(server, slot, by_tls)),
    }
}

/// The region of a command.
pub fn of_call(
    server: &Server,
    command: &Command,
    args: &Args<'_>,
    by_tls: bool,
) -> Result<Arc<Region>, Detour> {
    of_slot(server, slot_of(command, args).get()?, by_tls)
}

/// The region of a command that reads, and for which a replica will do, if this node has it.
pub fn of_read(server: &Server, command: &Command, args: &Args<'_>) -> Option<Arc<Region>> {
    match slot_of(command, args).get().ok()? {
        Some(slot) => server.store.regions().with_slot(slot).cloned(),
        None => Some(server.store.home().clone()),
    }
}

/// What a command says of the slot that it is about.
pub fn slot_of(command: &Command, args: &Args<'_>) -> SlotOfKeys {
    let mut slot = SlotOfKeys::default();
    command.keys.visit_slots(args, |name| slot.add(name));
    slot
}

/// The number of the region of a slot, wherever that is.
pub fn number_of(server: &Server, slot: u16) -> Option<u64> {
    let regions = server.store.regions();
    if let Some(region) = regions.with_slot(slot) {
        return Some(region.id());
    }
    let node = server.cluster.get()?;
    Some(node.map().region_of(slot)?.id)
}

/// Whether this node leads the region of a slot.
pub fn is_led_here(server: &Server, slot: u16) -> bool {
    let regions = server.store.regions();
    regions
        .with_slot(slot)
        .is_some_and(|region| region.is_led())
}

/// Makes sure that what is read in the region is the latest: nobody else can have been chosen to lead it.
#[inline]
pub fn confirmed(server: &Server, region: &Region, patience: &Patience) -> Result<(), Unready> {
    if region.id() == server.store.home().id()
        || region.may_read() == Some(true)
        || patience.is_confirmed(region)
    {
        return Ok(());
    }
    Err(Unready::Unconfirmed(region.id()))
}

#[cold]
fn elsewhere(server: &Server, slot: u16, by_tls: bool) -> Detour {
    match directed(server, slot, by_tls) {
        Some(moved) => Error::reply(moved).into(),
        None if server.cluster.get().is_some() => Detour::Wait(Unready::NoLeader(slot)),
        None => Error::fixed(DOWN).into(),
    }
}

/// What a client is told who is to go to another node.
fn directed(server: &Server, slot: u16, by_tls: bool) -> Option<String> {
    let directory = server.directory.get()?;
    let address = directory.leader_of(slot, by_tls)?;
    Some(format!("MOVED {slot} {address}"))
}

/// The same, unless the slot is led here.
pub fn moved(server: &Server, slot: u16, by_tls: bool) -> Option<String> {
    match is_led_here(server, slot) {
        true => None,
        false => directed(server, slot, by_tls),
    }
}

/// Whether it is not known where a slot is led, and it is not led here.
pub fn is_unknown(server: &Server, slot: u16) -> bool {
    !is_led_here(server, slot) && directed(server, slot, false).is_none()
}
