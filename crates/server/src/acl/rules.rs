//! What a user is and may do, and the notation for it.

use cairn_resp::{inline, number};

use super::check::{Denial, Reason};
use super::password::Hash;
use super::selector::{Needs, Selector};
use crate::command::{Access, Args, Command, Place, keys_of};

/// Why a rule is refused, in Redis' words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    Unknown,
    Syntax,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    NoHash,
    FirstArgOfSubcommand,
}

impl Wrong {
    pub fn text(self) -> &'static str {
        match self {
            Wrong::Unknown => "Unknown command or category name in ACL",
            Wrong::Syntax => "Syntax error",
            Wrong::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Wrong::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Wrong::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Wrong::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Wrong::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Whether what the user restores is looked at closely; nobody has said, at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sanitizing {
    Unsaid,
    Skipped,
    Done,
}

/// All that is known of a user but the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    pub is_on: bool,
    /// Whether any password will do.
    pub needs_no_password: bool,
    sanitizing: Sanitizing,
    passwords: Vec<Hash>,
    /// What is permitted, by any of these; the first is what rules outside of parentheses change.
    root: Selector,
    others: Vec<Selector>,
}

impl Rules {
    /// A new user: off, and nothing is permitted.
    pub fn new(has_all_channels: bool) -> Rules {
        Rules {
            is_on: false,
            needs_no_password: false,
            sanitizing: Sanitizing::Unsaid,
            passwords: Vec::new(),
            root: Selector::new(has_all_channels),
            others: Vec::new(),
        }
    }

    /// The default user of a server that knows no others.
    pub fn of_default_user() -> Rules {
        let mut rules = Rules::new(true);
        rules.is_on = true;
        rules.needs_no_password = true;
        for rule in ["+@all", "~*"] {
            // These are always understood.
            let _ = rules.root.apply(rule.as_bytes());
        }
        rules
    }

    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.others)
    }

    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// Those in parentheses.
    pub fn others(&self) -> &[Selector] {
        &self.others
    }

    pub fn passwords(&self) -> &[Hash] {
        &self.passwords
    }

    pub fn accepts(&self, password: &[u8]) -> bool {
        self.is_on && (self.needs_no_password || self.passwords.contains(&Hash::of(password)))
    }

    /// Whether there is nothing that the user may not do.
    pub fn permit_everything(&self) -> bool {
        self.selectors().any(Selector::permits_everything)
    }

    /// Changes the user by one rule; a selector in parentheses is one. New selectors, and users that are reset,
    /// start with all channels where `acl-pubsub-default` says so.
    pub fn apply(&mut self, rule: &[u8], has_all_channels: bool) -> Result<(), Wrong> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"skip-sanitize-payload" => self.sanitizing = Sanitizing::Skipped,
            b"sanitize-payload" => self.sanitizing = Sanitizing::Done,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"clearselectors" => self.others.clear(),
            b"reset" => {
                *self = Rules::new(has_all_channels);
                self.sanitizing = Sanitizing::Done;
            }
            _ => return self.apply_signed(rule, has_all_channels),
        }
        Ok(())
    }

    fn apply_signed(&mut self, rule: &[u8], has_all_channels: bool) -> Result<(), Wrong> {
        match rule {
            [b'>', password @ ..] => self.add_password(Hash::of(password)),
            [b'#', hash @ ..] => self.add_password(Hash::parse(hash).ok_or(Wrong::NoHash)?),
            [b'<', password @ ..] => return self.remove_password(Hash::of(password)),
            [b'!', hash @ ..] => {
                return self.remove_password(Hash::parse(hash).ok_or(Wrong::NoHash)?);
            }
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::new(has_all_channels);
                // As in Redis, quotes that do not match leave nothing.
                for rule in inline::words(rules).unwrap_or_default() {
                    selector.apply(&rule)?;
                }
                self.others.push(selector);
            }
            _ => return self.root.apply(rule),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, hash: Hash) -> Result<(), Wrong> {
        let at = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(at.ok_or(Wrong::NoSuchPassword)?);
        Ok(())
    }

    /// Whether the user may run a call; if no selector permits it, the reason that comes nearest to a permission.
    pub fn check(&self, command: &Command, args: &Args<'_>) -> Result<(), Denial> {
        let mut denial = Denial {
            reason: Reason::Command,
            at: 0,
        };
        // Who may not run it at all need not have its arguments looked at, which may be many.
        if !self
            .selectors()
            .any(|selector| selector.permits_command(command, args))
        {
            return Err(denial);
        }
        let keys = real_keys(command, args);
        for selector in self.selectors() {
            match selector.check(command, args, &keys) {
                Ok(()) => return self.check_unnamed(command, args, &keys),
                Err(other) => denial = denial.max(other),
            }
        }
        Err(denial)
    }

    /// The same for the keys that it reads and does not name, which may be any: a selector has to permit them all.
    fn check_unnamed(
        &self,
        command: &Command,
        args: &Args<'_>,
        keys: &[(usize, Access)],
    ) -> Result<(), Denial> {
        let Some(at) = unnamed_keys(command, args) else {
            return Ok(());
        };
        let permits = |selector: &Selector| {
            selector.check(command, args, keys).is_ok() && selector.permits_every_key(Needs::READ)
        };
        match self.selectors().any(permits) {
            true => Ok(()),
            false => Err(Denial {
                reason: Reason::Unnamed,
                at,
            }),
        }
    }

    pub fn permit_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors()
            .any(|selector| selector.permits_channel(channel, is_pattern))
    }

    /// Whether every channel is still permitted that was before.
    pub fn keep_channels_of(&self, before: &Rules) -> bool {
        if self.selectors().any(|selector| selector.has_all_channels) {
            return true;
        }
        let are_kept = |selector: &Selector| {
            let mut channels = selector.channels().iter();
            !selector.has_all_channels
                && channels.all(|channel| {
                    self.selectors()
                        .any(|selector| selector.channels().contains(channel))
                })
        };
        before.selectors().all(are_kept)
    }

    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        match self.sanitizing {
            Sanitizing::Unsaid => {}
            Sanitizing::Skipped => flags.push("skip-sanitize-payload"),
            Sanitizing::Done => flags.push("sanitize-payload"),
        }
        flags
    }

    /// The user as rules that make the same again.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().iter().map(|flag| (*flag).into()).collect();
        let passwords = self.passwords.iter();
        parts.extend(passwords.map(|hash| format!("#{}", hash.show()).into_bytes()));
        parts.push(self.root.describe());
        let others = self.others.iter();
        parts.extend(others.map(|selector| [b"(", &selector.describe()[..], b")"].concat()));
        parts.join(&b' ')
    }
}

/// The keys of a call: those that Redis finds, and whatever else there are latches for, lest a call touches a key that
/// was not looked at.
fn real_keys(command: &Command, args: &Args<'_>) -> Vec<(usize, Access)> {
    if has_wrong_count(command, args) {
        // The handler will refuse it, and Redis asks for no permissions.
        return Vec::new();
    }
    let mut keys = keys_of(command, args).unwrap_or_default();
    keys.retain(|(_, access)| *access != Access::NotKey);
    let mut is_known = vec![false; args.len()];
    keys.iter().for_each(|(at, _)| is_known[*at] = true);
    command.keys.visit_positions(args, |at, access| {
        if !std::mem::replace(&mut is_known[at], true) {
            keys.push((at, access));
        }
    });
    keys
}

/// Whether a number of keys is no number, or more than there are arguments.
fn has_wrong_count(command: &Command, args: &Args<'_>) -> bool {
    command.keys.0.iter().any(|spec| match spec.place {
        Place::Counted { count_at } => {
            let count = args.get(count_at).and_then(|word| number::parse_i64(word));
            let count = count.and_then(|count| usize::try_from(count).ok());
            count.is_none_or(|count| count > args.len() - count_at - 1)
        }
        _ => false,
    })
}

/// Where the first option stands that has a call read keys whose names come about as it runs: BY and GET of SORT.
fn unnamed_keys(command: &Command, args: &Args<'_>) -> Option<usize> {
    if !matches!(command.name, "sort" | "sort_ro") {
        return None;
    }
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let has_pattern = || args.get(at + 1).is_some_and(|name| name.contains(&b'*'));
        at += match word.to_ascii_lowercase().as_slice() {
            b"get" => return Some(at),
            b"by" if has_pattern() => return Some(at),
            b"by" | b"store" => 2,
            b"limit" => 3,
            _ => 1,
        };
    }
    None
}

/// Rules of which some are selectors written as several words: joins these. If a parenthesis is not closed, the
/// word that opened it.
pub fn join_selectors<'a>(words: &[&'a [u8]]) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut rules: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        let ends = word.last() == Some(&b')');
        if word.first() == Some(&b'(') && !ends {
            open = Some((word, word.to_vec()));
        } else if let Some((opened_by, mut selector)) = open.take() {
            selector.push(b' ');
            selector.extend_from_slice(word);
            match ends {
                true => rules.push(selector),
                false => open = Some((opened_by, selector)),
            }
        } else {
            rules.push(word.to_vec());
        }
    }
    match open {
        Some((opened_by, _)) => Err(opened_by),
        None => Ok(rules),
    }
}
