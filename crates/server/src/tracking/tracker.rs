//! What one client keeps copies of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::invalidation::tell_reader;
use super::{BY_PREFIX, ON, SPARED, Tracking};
use crate::client::Client;
use crate::command::{Args, Command, Flag};
use crate::server::Server;

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
        if self.keeps(command) {
            command.keys.visit(args, |name, _| {
                self.all.remember(self.client.id, name);
            });
        }
    }

    /// The client has run it, perhaps after a wait, and has its reply. Whoever changed a key meanwhile has told the client of it,
    /// perhaps before that reply, and has forgotten it: then the client is told again, and the next change concerns it too.
    pub fn has_waited(&self, server: &Server, command: &Command, args: &Args<'_>) {
        if self.keeps(command) {
            command.keys.visit(args, |name, _| {
                if self.all.remember(self.client.id, name) {
                    tell_reader(server, &self.client, name);
                }
            });
        }
    }

    /// A script of the client's is, which was called with these keys. As far as the client knows, it reads all of them, and
    /// nothing else.
    pub fn read_in_script(&self, command: &Command, declared: &[Vec<u8>]) {
        if self.keeps(command) {
            for name in declared {
                self.all.remember(self.client.id, name);
            }
        }
    }

    /// Whether what the command reads is to be remembered.
    fn keeps(&self, command: &Command) -> bool {
        let is_wanted = match self.asked {
            Asked::Always => true,
            Asked::IfSaid => self.is_said,
            Asked::UnlessSaid => !self.is_said,
        };
        is_wanted && command.has(Flag::ReadOnly) && !self.client.tracking.is_by_prefix()
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
