//! What one client keeps copies of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{BY_PREFIX, ON, SPARED, Tracking};
use crate::client::Client;
use crate::command::{Args, Command, Flag};

/// Whether what it reads is remembered without being said so, or only if it says so, or unless it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asked {
    #[default]
    Always,
    /// OPTIN
    IfSaid,
    /// OPTOUT
    UnlessSaid,
}

/// A client that keeps copies, until this is dropped.
pub struct Tracker {
    all: Arc<Tracking>,
    client: Arc<Client>,
    pub asked: Asked,
    /// CLIENT CACHING: it has been said, for the next command.
    pub is_said: bool,
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracker {
    pub fn start(all: Arc<Tracking>, client: Arc<Client>) -> Tracker {
        all.start();
        Tracker {
            all,
            client,
            asked: Asked::Always,
            is_said: false,
            prefixes: BTreeSet::new(),
        }
    }

    /// From now on it is like this.
    pub fn set(&mut self, redirect: u64, is_by_prefix: bool, is_spared: bool, asked: Asked) {
        let mut flags = ON;
        if is_by_prefix {
            flags |= BY_PREFIX;
        }
        if is_spared {
            flags |= SPARED;
        }
        let state = &self.client.tracking;
        state.redirect.store(redirect, Ordering::Relaxed);
        state.flags.store(flags, Ordering::Relaxed);
        self.asked = asked;
    }

    pub fn add_prefix(&mut self, prefix: &[u8]) {
        self.all.add_prefix(self.client.id, prefix);
        self.prefixes.insert(prefix.into());
    }

    pub fn is_spared(&self) -> bool {
        self.client.tracking.is_spared()
    }

    /// The client is about to run this command.
    pub fn read(&self, command: &Command, args: &Args<'_>) {
        let is_wanted = match self.asked {
            Asked::Always => true,
            Asked::IfSaid => self.is_said,
            Asked::UnlessSaid => !self.is_said,
        };
        if is_wanted && command.has(Flag::ReadOnly) && !self.client.tracking.is_by_prefix() {
            command.keys.visit(args, |name, _| {
                self.all.remember(self.client.id, name);
            });
        }
    }

    /// What was said holds for one command, and those between MULTI and EXEC count as one.
    pub fn has_run(&mut self, command: &Command) {
        if !command.full_name.starts_with("client|") {
            self.is_said = false;
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.client.tracking.flags.store(0, Ordering::Relaxed);
        for prefix in &self.prefixes {
            self.all.remove_prefix(self.client.id, prefix);
        }
        self.all.stop();
    }
}
