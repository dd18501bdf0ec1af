//! Which arguments are keys, and what is done to them.

use cairn_store::Mode;

use super::args::{Args, is};

/// What a command does to a key, by Redis' names: one of the first four, and a purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads the value.
    ReadOnly(Purpose),
    /// Changes the value in a way that depends on it.
    ReadWrite(Purpose),
    /// Replaces the value whatever it was.
    Overwrite(Purpose),
    /// Deletes the key.
    Remove(Purpose),
    /// Only looks like a key, to those who find out where in a cluster a command belongs.
    NotKey,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Looks at metadata only: EXISTS, TYPE, STRLEN.
    Nothing,
    /// Returns or copies the value.
    Access,
    Update,
    Insert,
    Delete,
    /// Both returns the value and changes it: GETSET, INCR.
    AccessUpdate,
    AccessInsert,
    AccessDelete,
}

impl Access {
    pub const READ: Access = Access::ReadOnly(Purpose::Access);
    /// Type, size, existence.
    pub const PEEK: Access = Access::ReadOnly(Purpose::Nothing);
    pub const UPDATE: Access = Access::ReadWrite(Purpose::Update);
    pub const INSERT: Access = Access::ReadWrite(Purpose::Insert);
    pub const DELETE: Access = Access::ReadWrite(Purpose::Delete);
    pub const READ_UPDATE: Access = Access::ReadWrite(Purpose::AccessUpdate);
    pub const READ_DELETE: Access = Access::ReadWrite(Purpose::AccessDelete);
    pub const OVERWRITE: Access = Access::Overwrite(Purpose::Update);
    pub const REMOVE: Access = Access::Remove(Purpose::Delete);

    pub fn mode(self) -> Mode {
        match self {
            Access::ReadOnly(_) | Access::NotKey => Mode::Shared,
            _ => Mode::Exclusive,
        }
    }

    /// As COMMAND INFO prints it.
    pub fn names(self) -> Vec<&'static str> {
        let (kind, purpose) = match self {
            Access::ReadOnly(purpose) => ("RO", purpose),
            Access::ReadWrite(purpose) => ("RW", purpose),
            Access::Overwrite(purpose) => ("OW", purpose),
            Access::Remove(purpose) => ("RM", purpose),
            Access::NotKey => return vec!["not_key"],
        };
        let mut names = vec![kind];
        names.extend_from_slice(match purpose {
            Purpose::Nothing => &[],
            Purpose::Access => &["access"],
            Purpose::Update => &["update"],
            Purpose::Insert => &["insert"],
            Purpose::Delete => &["delete"],
            Purpose::AccessUpdate => &["access", "update"],
            Purpose::AccessInsert => &["access", "insert"],
            Purpose::AccessDelete => &["access", "delete"],
        });
        names
    }
}

/// Where keys stand among the arguments. Position 0 is the command's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// From `first` to `last` (negative: counted from the end), every `step`.
    Range {
        first: usize,
        last: i32,
        step: usize,
    },
    /// Argument `count_at` says how many keys follow it.
    Counted { count_at: usize },
    /// The first half of what follows an option. Those who do not know the others look for it from argument `from` on.
    HalfBehind { option: Among, from: usize },
    /// The argument at a position, unless it is empty and keys stand behind an option instead.
    Unless { position: usize, option: Among },
    /// All that follows an option.
    AllBehind(Among),
    /// Behind a word that may stand anywhere from `from` on.
    Behind { word: &'static str, from: usize },
    /// Behind an option. Of several the last counts.
    Option(Among),
    /// Not among the arguments.
    Elsewhere,
}

/// An option among others, from argument `from` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Among {
    pub word: &'static str,
    pub from: usize,
    /// The others that have words behind them, and how many.
    pub options: &'static [(&'static str, usize)],
}

impl Among {
    /// The positions behind it, each time that it stands there.
    pub fn positions(self, args: &Args<'_>) -> impl Iterator<Item = usize> {
        let mut at = self.from;
        std::iter::from_fn(move || {
            while let Some(word) = args.get(at) {
                let option = self.options.iter().find(|(option, _)| is(word, option));
                let behind = at + 1;
                at = behind + option.map_or(0, |(_, words)| *words);
                if is(word, self.word) {
                    return Some(behind);
                }
            }
            None
        })
        .filter(|at| *at < args.len())
    }

    /// All that follows it.
    pub fn behind<'a>(self, args: &Args<'a>) -> &'a [&'a [u8]] {
        let first = self.positions(args).next();
        first.map_or(&[], |at| args.rest(at))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpec {
    pub access: Access,
    pub place: Place,
}

impl KeySpec {
    pub const fn at(position: usize, access: Access) -> KeySpec {
        KeySpec {
            access,
            place: Place::Range {
                first: position,
                last: position as i32,
                step: 1,
            },
        }
    }

    #[inline]
    fn visit(&self, args: &Args<'_>, visit: &mut impl FnMut(usize, Access)) {
        let end = args.len();
        match self.place {
            Place::Range { first, last, step } => {
                let last = if last < 0 {
                    args.len() as i64 + i64::from(last)
                } else {
                    i64::from(last)
                };
                let mut position = first;
                while (position as i64) <= last && position < args.len() {
                    visit(position, self.access);
                    position += step;
                }
            }
            Place::Counted { count_at } => {
                let count = args.get(count_at).and_then(|text| count_of(text));
                let first = count_at + 1;
                let last = first.saturating_add(count.unwrap_or(0));
                if last <= end {
                    (first..last).for_each(|at| visit(at, self.access));
                }
            }
            Place::HalfBehind { option, .. } => {
                let behind = option.behind(args).len();
                let first = end - behind;
                (first..first + behind / 2).for_each(|at| visit(at, self.access));
            }
            Place::Unless { position, option } => {
                if let Some(name) = args.get(position)
                    && (!name.is_empty() || option.behind(args).is_empty())
                {
                    visit(position, self.access);
                }
            }
            Place::AllBehind(option) => {
                let first = end - option.behind(args).len();
                (first..end).for_each(|at| visit(at, self.access));
            }
            Place::Behind { word, from } => {
                for at in from + 1..end {
                    if is(args[at - 1], word) {
                        visit(at, self.access);
                    }
                }
            }
            Place::Option(option) => {
                if let Some(position) = option.positions(args).last() {
                    visit(position, self.access);
                }
            }
            Place::Elsewhere => {}
        }
    }
}

/// The key specifications of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys(pub &'static [KeySpec]);

impl Keys {
    pub const NONE: Keys = Keys(&[]);

    /// Calls `visit` for every key among the arguments.
    #[inline]
    pub fn visit<'a>(&self, args: &Args<'a>, mut visit: impl FnMut(&'a [u8], Access)) {
        self.visit_positions(args, |at, access| visit(args[at], access));
    }

    /// The same with where they stand. Arguments that make no sense name no keys: the handler will refuse them before it
    /// touches any.
    #[inline]
    pub fn visit_positions(&self, args: &Args<'_>, mut visit: impl FnMut(usize, Access)) {
        for spec in self.0.iter().filter(|spec| spec.access != Access::NotKey) {
            spec.visit(args, &mut visit);
        }
    }

    /// Calls `visit` for whatever says to a cluster which slot a command is about: keys, and channels of a slot.
    #[inline]
    pub fn visit_slots<'a>(&self, args: &Args<'a>, mut visit: impl FnMut(&'a [u8])) {
        for spec in self.0 {
            spec.visit(args, &mut |at, _| visit(args[at]));
        }
    }

    /// The key, where the command names one and no others.
    #[inline]
    pub fn only<'a>(&self, args: &Args<'a>) -> Option<(&'a [u8], Access)> {
        match self.0 {
            &[
                KeySpec {
                    access,
                    place: Place::Range { first, last, .. },
                },
            ] if i64::from(last) == first as i64 && access != Access::NotKey => {
                Some((args.get(first)?, access))
            }
            _ => None,
        }
    }
}

/// A key count as C's atoi reads it: as many digits as there are, and of the number its lowest bits. Where the handler is
/// stricter it will refuse the command.
pub fn count_of(text: &[u8]) -> Option<usize> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let end = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    let number: i64 = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    usize::try_from(number as i32).ok()
}
