//! What a transaction does that is not a row, and is seen outside: events and messages.
//!
//! They are gathered in the transaction and shown when it is committed, so nothing is seen that a crash could take
//! back, and a command that is undone, or run twice, is heard of once or never.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_engine::Access;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Something happened to a key.
    Event {
        class: EventClass,
        name: &'static str,
        database: u32,
        key: Box<[u8]>,
    },
    /// PUBLISH, and SPUBLISH.
    Message {
        channel: Box<[u8]>,
        text: Box<[u8]>,
        is_sharded: bool,
        /// A client that has read it already, in its own reply.
        except: Option<u64>,
    },
    /// Fields of a hash have expired, the last of them at that time.
    FieldsExpired {
        database: u32,
        key: Box<[u8]>,
        last_ms: u64,
    },
    /// What clients keep of a key is outdated.
    Outdated {
        key: Box<[u8]>,
        /// The client that changed it; none if it was none.
        by: Option<u64>,
    },
    /// What clients keep of anything is.
    AllOutdated,
    /// The node leads a region no more: keys may change without its knowing.
    LeadEnded,
    /// A key has expired that somebody may wait for, or that followers still have.
    Expired { database: u32, key: Box<[u8]> },
    /// A key was deleted to make room.
    Evicted { database: u32, key: Box<[u8]> },
    /// What is known of the last use of a key is this, whatever its change was. Nobody is shown it.
    Accessed {
        metadata_key: Vec<u8>,
        access: Access,
    },
    /// Fields of a hash have expired that followers still have.
    FieldsGone {
        database: u32,
        key: Box<[u8]>,
        fields: Vec<Box<[u8]>>,
    },
    /// What followers are to do in this database, in the words of whoever has done it here; none if there is nothing for them to do.
    Propagated { database: u32, request: Vec<u8> },
    /// What followers were told so far, they do at once or not at all.
    Together,
}

/// The classes of events that can be asked for, by Redis' letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EventClass {
    /// `g`: whatever can happen to a key of any type.
    Generic = 1 << 2,
    /// `$`
    String = 1 << 3,
    /// `l`
    List = 1 << 4,
    /// `s`
    Set = 1 << 5,
    /// `h`
    Hash = 1 << 6,
    /// `z`
    Zset = 1 << 7,
    /// `x`
    Expired = 1 << 8,
    /// `e`
    Evicted = 1 << 9,
    /// `t`
    Stream = 1 << 10,
    /// `m`: a key was asked for that is not there.
    Missed = 1 << 11,
    /// `d`
    Module = 1 << 13,
    /// `n`
    New = 1 << 14,
}

impl EventClass {
    /// `K`, beside the classes: whoever listens to a key hears of its events.
    pub const BY_KEY: u32 = 1;
    /// `E`: whoever listens to an event hears of its keys.
    pub const BY_EVENT: u32 = 1 << 1;
}

/// Shows effects to whom they concern.
pub trait Observer: Send + Sync {
    /// In the order in which they came about; all of one commit, which is visible. The latches of whoever
    /// committed are still held.
    fn show(&self, effects: Vec<Effect>);
}

/// Who wants to know of changes.
#[derive(Default)]
pub struct Listeners {
    /// The classes of events that somebody wants: nothing is computed for the sake of others. Beside them stands
    /// [`Listeners::FOLLOWED`].
    classes: Arc<AtomicU32>,
    /// Somebody keeps copies of keys.
    are_kept: AtomicBool,
    /// How many wait for something that becomes of a key, and cannot do without it.
    depending: Arc<AtomicUsize>,
    observer: OnceLock<Box<dyn Observer>>,
}

impl Listeners {
    /// Among the classes: others follow, and are told of every change.
    pub const FOLLOWED: u32 = 1 << 31;

    /// Whether others follow. Begun under the latch of everything, it holds for all that a transaction does under its latches.
    #[inline]
    pub fn are_followed(&self) -> bool {
        self.classes.load(Ordering::Relaxed) & Self::FOLLOWED != 0
    }

    pub fn follow(&self, are_followed: bool) {
        match are_followed {
            true => self.classes.fetch_or(Self::FOLLOWED, Ordering::Relaxed),
            false => self.classes.fetch_and(!Self::FOLLOWED, Ordering::Relaxed),
        };
    }

    /// The classes of events to tell of, from now on.
    pub fn set_classes(classes: &AtomicU32, wanted: u32) {
        let besides = |before: u32| Some(before & Self::FOLLOWED | wanted);
        let _ = classes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, besides);
    }

    /// Whether somebody wants to know, before a command runs, which of its keys have expired.
    #[inline]
    pub fn hear_of_expired(&self) -> bool {
        let wanted = EventClass::Expired as u32 | Self::FOLLOWED;
        self.classes.load(Ordering::Relaxed) & wanted != 0
    }

    /// Whether somebody wants to know of such events.
    #[inline]
    pub fn hear(&self, class: EventClass) -> bool {
        self.classes.load(Ordering::Relaxed) & class as u32 != 0
    }

    /// The classes to tell of, which can be changed at any time.
    pub fn classes(&self) -> &Arc<AtomicU32> {
        &self.classes
    }

    /// Whether somebody keeps copies of keys, and is to know when they expire.
    pub fn are_kept(&self) -> bool {
        self.are_kept.load(Ordering::Relaxed)
    }

    pub fn keep(&self, are_kept: bool) {
        self.are_kept.store(are_kept, Ordering::Relaxed);
    }

    /// Whether somebody waits who cannot do without a key, and is to know when it expires.
    pub fn depend(&self) -> bool {
        self.depending.load(Ordering::Relaxed) > 0
    }

    /// How many they are, which whoever lets them wait counts.
    pub fn depending(&self) -> &Arc<AtomicUsize> {
        &self.depending
    }

    /// Who shows effects; the first who asks.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        // There is one server to a store.
        let _ = self.observer.set(observer);
    }

    pub(crate) fn show(&self, effects: Vec<Effect>) {
        if let Some(observer) = self.observer.get() {
            observer.show(effects);
        }
    }
}
