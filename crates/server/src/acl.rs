//! Users, and what they may do.
//!
//! A [`User`] is who a client is; its [`Rules`] are a value that never changes, and that ACL SETUSER replaces as a
//! whole: so every thread sees the old rules or the new ones, and once the change is confirmed, the new ones. Most
//! users may do everything, and for those a command pays one look at a flag ([`User::may_do_everything`]).
//!
//! The rest follows from the command table: which commands there are ([`commands`]), their categories, and which
//! arguments are keys or channels. A user that is deleted permits nothing any more, to whoever still refers to it,
//! and its clients are closed.

mod category;
mod check;
mod commands;
mod file;
mod log;
mod password;
mod rules;
mod selector;
pub mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use category::Category;
pub use check::{Context, Denial, Reason};
pub use log::Entry;
pub use password::generate;
pub use rules::Rules;
pub use selector::{Selector, has_space};

use crate::client::Client;
use crate::command::{Args, Command};
use crate::stats::Counter;
use log::Log;
use rules::join_selectors;

pub const DEFAULT: &[u8] = b"default";

#[derive(Debug)]
pub struct User {
    pub name: Box<[u8]>,
    rules: ArcSwap<Rules>,
    /// Of the rules: there is nothing that they do not permit.
    may_do_everything: AtomicBool,
}

impl User {
    fn new(name: &[u8], rules: Rules) -> Arc<User> {
        let user = User {
            name: name.into(),
            may_do_everything: AtomicBool::new(rules.permit_everything()),
            rules: ArcSwap::from_pointee(rules),
        };
        Arc::new(user)
    }

    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    fn become_by(&self, rules: Rules) {
        let may_do_everything = rules.permit_everything();
        self.rules.store(Arc::new(rules));
        // Whoever sees this sees the rules as well.
        let flag = &self.may_do_everything;
        flag.store(may_do_everything, Ordering::Release);
    }

    /// It is deleted, and whoever is it may do nothing from now on.
    fn retire(&self) {
        self.become_by(Rules::new(false));
    }

    #[inline]
    pub fn may_do_everything(&self) -> bool {
        self.may_do_everything.load(Ordering::Acquire)
    }

    /// Whether the user may run this call.
    #[inline]
    pub fn check(&self, command: &Command, args: &Args<'_>) -> Result<(), Denial> {
        if self.may_do_everything() {
            return Ok(());
        }
        self.rules.load().check(command, args)
    }

    pub fn may_listen_to(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.may_do_everything() || self.rules.load().permit_channel(channel, is_pattern)
    }
}

type Users = BTreeMap<Box<[u8]>, Arc<User>>;

/// All users.
pub struct Acl {
    /// Who every client is at first; it is never deleted.
    default: Arc<User>,
    users: Mutex<Users>,
    pub log: Log,
    /// `acl-pubsub-default`: whether new users may use all channels.
    allows_channels: AtomicBool,
    denied: [Counter; Reason::COUNT],
}

impl Default for Acl {
    fn default() -> Self {
        let default = User::new(DEFAULT, Rules::of_default_user());
        Acl {
            users: Mutex::new(Users::from([(DEFAULT.into(), default.clone())])),
            default,
            log: Log::default(),
            allows_channels: AtomicBool::new(false),
            denied: Default::default(),
        }
    }
}

/// A user has been changed.
pub struct Changed {
    pub user: Arc<User>,
    pub has_lost_channels: bool,
}

impl Acl {
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether clients have to say who they are.
    pub fn default_needs_password(&self) -> bool {
        let rules = self.default.rules.load();
        !rules.needs_no_password || !rules.is_on
    }

    /// Whether nobody has said yet who may come in: see `protected-mode`.
    pub fn is_open(&self) -> bool {
        self.default.rules.load().needs_no_password
    }

    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.lock().get(name).cloned()
    }

    /// All users, by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.users.lock().values().cloned().collect()
    }

    /// All users, each in a line that makes it again.
    pub fn describe(&self) -> Vec<Vec<u8>> {
        let users = self.all().into_iter();
        let line = |user: Arc<User>| {
            [
                b"user ",
                &user.name[..],
                b" ",
                &user.rules.load().describe(),
            ]
            .concat()
        };
        users.map(line).collect()
    }

    /// The user of this name, if the password is right.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.find(name)?;
        user.rules.load().accepts(password).then_some(user)
    }

    /// `acl-pubsub-default`.
    pub fn allow_channels(&self, allow: bool) {
        self.allows_channels.store(allow, Ordering::Relaxed);
    }

    fn allows_channels(&self) -> bool {
        self.allows_channels.load(Ordering::Relaxed)
    }

    /// `requirepass`: the password of the default user; empty is none.
    pub fn set_default_password(&self, password: &[u8]) {
        let _one_at_a_time = self.users.lock();
        let mut rules = Rules::clone(&self.default.rules.load());
        let rule = match password {
            [] => b"nopass".to_vec(),
            _ => [b">", password].concat(),
        };
        for rule in [b"resetpass", &rule[..]] {
            // These are always understood.
            let _ = rules.apply(rule, self.allows_channels());
        }
        self.default.become_by(rules);
    }

    /// Changes a user by all of the rules, or by none; one that is not there is made.
    pub fn set(&self, name: &[u8], words: &[&[u8]]) -> Result<Changed, Vec<u8>> {
        let allows_channels = self.allows_channels();
        let rules = join_selectors(words).map_err(|word| {
            let text: [&[u8]; 3] = [
                b"Unmatched parenthesis in acl selector starting at '",
                word,
                b"'.",
            ];
            text.concat()
        })?;
        let mut users = self.users.lock();
        let known = users.get(name).cloned();
        let before = match &known {
            Some(user) => user.rules(),
            None => Arc::new(Rules::new(allows_channels)),
        };
        let mut after = Rules::clone(&before);
        for rule in &rules {
            after.apply(rule, allows_channels).map_err(|wrong| {
                let reason = wrong.text().as_bytes();
                let text: [&[u8]; 4] = [b"Error in ACL SETUSER modifier '", rule, b"': ", reason];
                text.concat()
            })?;
        }
        let has_lost_channels = known.is_some() && !after.keep_channels_of(&before);
        let user = match known {
            Some(user) => {
                user.become_by(after);
                user
            }
            None => {
                let user = User::new(name, after);
                users.insert(name.into(), user.clone());
                user
            }
        };
        Ok(Changed {
            user,
            has_lost_channels,
        })
    }

    /// Takes users off. Their clients are for the caller to close.
    pub fn delete(&self, names: &[&[u8]]) -> Vec<Arc<User>> {
        let mut users = self.users.lock();
        let deleted: Vec<Arc<User>> = names
            .iter()
            .filter_map(|name| users.remove(*name))
            .collect();
        deleted.iter().for_each(|user| user.retire());
        deleted
    }

    /// Replaces all users by these, but for the default one, which gets its new rules. Returns those that were there.
    fn replace(&self, mut by: BTreeMap<Vec<u8>, Rules>) -> Vec<Arc<User>> {
        let mut users = self.users.lock();
        let default = by.remove(DEFAULT);
        self.default
            .become_by(default.unwrap_or_else(Rules::of_default_user));
        let new = by.into_iter();
        let new = new.map(|(name, rules)| (name.as_slice().into(), User::new(&name, rules)));
        let mut new: Users = new.collect();
        new.insert(DEFAULT.into(), self.default.clone());
        let mut old = std::mem::replace(&mut *users, new);
        old.remove(DEFAULT);
        old.values().for_each(|user| user.retire());
        old.into_values().collect()
    }

    /// Counts and logs that something was not permitted to a client.
    pub fn note(
        &self,
        client: &Client,
        user: &[u8],
        reason: Reason,
        context: Context,
        object: &[u8],
    ) {
        if reason == Reason::Unnamed {
            // Redis has the command itself say so, and takes no note of it.
            return;
        }
        self.denied[reason as usize].add(1);
        let mut line = Vec::new();
        client.describe(&mut line);
        line.truncate(line.trim_ascii_end().len());
        self.log
            .add(Entry::new(reason, context, object, user, line));
    }

    /// How often something was not permitted for this reason.
    pub fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].get()
    }

    pub fn reset_counters(&self) {
        self.denied.iter().for_each(Counter::reset);
    }
}

#[cfg(test)]
mod tests;
