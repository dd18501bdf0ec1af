//! One set of permissions: commands, with the keys and channels that they may touch.

use cairn_resp::glob;

use super::category::Category;
use super::check::{Denial, Reason};
use super::commands::Commands;
use super::rules::Wrong;
use crate::command::{self, Access, Args, Channels, Command, Flag, Purpose};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    pub commands: Commands,
    pub has_all_keys: bool,
    keys: Vec<KeyPattern>,
    pub has_all_channels: bool,
    channels: Vec<Vec<u8>>,
}

/// What may be done to the keys of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyPattern {
    pattern: Vec<u8>,
    may_read: bool,
    may_write: bool,
}

/// What a call does to a key, as far as permissions go. Whoever only asks for type or size needs any of the two.
#[derive(Clone, Copy)]
pub struct Needs {
    pub read: bool,
    pub write: bool,
}

impl Needs {
    pub const READ: Needs = Needs {
        read: true,
        write: false,
    };

    pub fn of(access: Access) -> Needs {
        let purpose = match access {
            Access::ReadOnly(purpose)
            | Access::ReadWrite(purpose)
            | Access::Overwrite(purpose)
            | Access::Remove(purpose) => purpose,
            Access::NotKey => Purpose::Nothing,
        };
        Needs {
            read: matches!(
                purpose,
                Purpose::Access | Purpose::AccessUpdate | Purpose::AccessDelete
            ),
            write: !matches!(purpose, Purpose::Nothing | Purpose::Access),
        }
    }
}

impl KeyPattern {
    fn permits(&self, needs: Needs) -> bool {
        (self.may_read || !needs.read) && (self.may_write || !needs.write)
    }

    fn describe(&self) -> Vec<u8> {
        let sign: &[u8] = match (self.may_read, self.may_write) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        };
        [sign, &self.pattern].concat()
    }
}

impl Selector {
    /// Permits nothing; but all channels, where `acl-pubsub-default` says so.
    pub fn new(has_all_channels: bool) -> Selector {
        Selector {
            commands: Commands::none(),
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels,
            channels: Vec::new(),
        }
    }

    /// Whether there is nothing that it does not permit.
    pub fn permits_everything(&self) -> bool {
        self.has_all_keys && self.has_all_channels && self.commands.is_all()
    }

    /// Changes what is permitted by one rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.commands = Commands::all(),
            b"nocommands" | b"-@all" => self.commands = Commands::none(),
            _ => return self.apply_signed(rule),
        }
        Ok(())
    }

    fn apply_signed(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, true, true),
            [b'%', permissions @ ..] => self.add_keys_for(permissions),
            [b'&', channel @ ..] => self.add_channel(channel),
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = Category::named(name).ok_or(Wrong::Unknown)?;
                self.commands.set_category(category, *sign == b'+');
                Ok(())
            }
            // What is not there is neither permitted nor forbidden by a rule that Redis takes.
            [b'+' | b'-', name @ ..] if command::is_absent(name) => Ok(()),
            [b'+', name @ ..] => self.allow(name),
            [b'-', name @ ..] => {
                let command = command::find_by_full_name(name).ok_or(Wrong::Unknown)?;
                self.commands.set(command, false);
                Ok(())
            }
            _ => Err(Wrong::Syntax),
        }
    }

    fn allow(&mut self, name: &[u8]) -> Result<(), Wrong> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let command = command::find_by_full_name(name).ok_or(Wrong::Unknown)?;
            self.commands.set(command, true);
            return Ok(());
        };
        let (outer, word) = (&name[..bar], &name[bar + 1..]);
        let command = command::find_by_full_name(outer).ok_or(Wrong::Unknown)?;
        if outer.contains(&b'|') {
            return Err(Wrong::FirstArgOfSubcommand);
        }
        if word.is_empty() {
            return Err(Wrong::Syntax);
        }
        if command.shown_subcommands().is_empty() {
            self.commands.allow_first_arg(command, word);
        } else {
            let subcommand = command::find_by_full_name(name).ok_or(Wrong::Unknown)?;
            self.commands.set(subcommand, true);
        }
        Ok(())
    }

    /// `%R~pattern` and its like, without the percent sign.
    fn add_keys_for(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        let end = rule.iter().position(|byte| *byte == b'~');
        let (letters, pattern) = match end {
            Some(end) => (&rule[..end], &rule[end + 1..]),
            None => (rule, &[][..]),
        };
        let (may_read, may_write) = match letters.to_ascii_uppercase().as_slice() {
            b"R" => (true, false),
            b"W" => (false, true),
            b"RW" | b"WR" => (true, true),
            // That it comes too late is told before that it makes no sense.
            _ if self.has_all_keys => return Err(Wrong::KeysAfterAll),
            _ => return Err(Wrong::Syntax),
        };
        self.add_keys(pattern, may_read, may_write)
    }

    fn add_keys(&mut self, pattern: &[u8], may_read: bool, may_write: bool) -> Result<(), Wrong> {
        if self.has_all_keys {
            return Err(Wrong::KeysAfterAll);
        }
        if has_space(pattern) {
            return Err(Wrong::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.may_read |= may_read;
                known.may_write |= may_write;
            }
            None => self.keys.push(KeyPattern {
                pattern: pattern.to_vec(),
                may_read,
                may_write,
            }),
        }
        Ok(())
    }

    fn add_channel(&mut self, channel: &[u8]) -> Result<(), Wrong> {
        if self.has_all_channels {
            return Err(Wrong::ChannelsAfterAll);
        }
        if has_space(channel) {
            return Err(Wrong::Syntax);
        }
        if !self.channels.iter().any(|known| known == channel) {
            self.channels.push(channel.to_vec());
        }
        Ok(())
    }

    pub fn permits_key(&self, key: &[u8], needs: Needs) -> bool {
        let is_permitted =
            |known: &KeyPattern| known.permits(needs) && glob::matches(&known.pattern, key, false);
        self.has_all_keys || self.keys.iter().any(is_permitted)
    }

    /// Whether any key at all may be used so.
    pub fn permits_every_key(&self, needs: Needs) -> bool {
        let is_every = |known: &KeyPattern| known.permits(needs) && known.pattern == b"*";
        self.has_all_keys || self.keys.iter().any(is_every)
    }

    /// A pattern of channels is permitted only if it is one of the permitted patterns itself.
    pub fn permits_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let is_permitted = |known: &Vec<u8>| match is_pattern {
            true => known == channel,
            false => glob::matches(known, channel, false),
        };
        self.has_all_channels || self.channels.iter().any(is_permitted)
    }

    pub fn channels(&self) -> &[Vec<u8>] {
        &self.channels
    }

    /// Whether a call is permitted, whose keys are these.
    pub fn permits_command(&self, command: &Command, args: &Args<'_>) -> bool {
        command.has(Flag::NoAuth) || self.commands.allows(command, args)
    }

    pub fn check(
        &self,
        command: &Command,
        args: &Args<'_>,
        keys: &[(usize, Access)],
    ) -> Result<(), Denial> {
        if !self.permits_command(command, args) {
            return Err(Denial {
                reason: Reason::Command,
                at: 0,
            });
        }
        for (at, access) in keys {
            if !self.permits_key(args[*at], Needs::of(*access)) {
                return Err(Denial {
                    reason: Reason::Key,
                    at: *at,
                });
            }
        }
        let (channels, is_pattern) = match command.channels {
            Channels::None => (0..0, false),
            Channels::First => (1..2, false),
            Channels::Rest => (1..args.len(), false),
            Channels::RestArePatterns => (1..args.len(), true),
        };
        for at in channels {
            if !self.permits_channel(args[at], is_pattern) {
                return Err(Denial {
                    reason: Reason::Channel,
                    at,
                });
            }
        }
        Ok(())
    }

    /// The key patterns as rules.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let patterns: Vec<Vec<u8>> = self.keys.iter().map(KeyPattern::describe).collect();
        patterns.join(&b' ')
    }

    pub fn describe_channels(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let patterns = self.channels.iter();
        let patterns: Vec<Vec<u8>> = patterns.map(|name| [b"&", &name[..]].concat()).collect();
        patterns.join(&b' ')
    }

    /// All of it as rules.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        if self.has_all_keys || !self.keys.is_empty() {
            parts.push(self.describe_keys());
        }
        if !self.has_all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        if self.has_all_channels || !self.channels.is_empty() {
            parts.push(self.describe_channels());
        }
        parts.push(self.commands.describe());
        parts.join(&b' ')
    }
}

/// Names and patterns have no blanks in them, so that rules can be written in a line.
pub fn has_space(text: &[u8]) -> bool {
    text.iter()
        .any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}
