//! What is declared of a parameter.

use super::kind::{Kind, Normalise, Refusal};
use super::live::Live;

/// One parameter: a key of the configuration file and of CONFIG GET, and perhaps a flag.
#[derive(Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    /// A name from Redis' past; both names are one value.
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub default: &'static str,
    pub change: Change,
    /// CONFIG GET shows it to who asks for this very name only.
    pub is_hidden: bool,
    /// What `--help` says about it; without this there is no flag.
    pub help: Option<&'static str>,
    /// Makes a new value take effect; without this it is only remembered.
    pub apply: Option<Apply>,
    /// What CONFIG GET shows of the value, where that is not all of it.
    pub shown: Option<Show>,
    /// Says why a value that is well formed cannot be had here and now.
    pub check: Option<Check>,
}

pub type Apply = fn(&Live, &[u8]);
pub type Show = fn(&[u8]) -> Vec<u8>;
pub type Check = fn(&Live, &[u8]) -> Result<(), Refusal>;

/// Whether CONFIG SET may change the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Allowed,
    /// Never while the server runs.
    Immutable,
    /// Only by whoever wrote the configuration file: CONFIG SET could point it at someone's files.
    Protected,
}

const fn parameter(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter {
        name,
        alias: None,
        kind,
        default,
        change: Change::Allowed,
        is_hidden: false,
        help: None,
        apply: None,
        shown: None,
        check: None,
    }
}

pub const fn yes_no(name: &'static str, default: &'static str) -> Parameter {
    parameter(name, Kind::YesNo, default)
}

pub const fn one_of(
    name: &'static str,
    words: &'static [&'static str],
    default: &'static str,
) -> Parameter {
    parameter(name, Kind::OneOf(words), default)
}

pub const fn number(name: &'static str, min: i64, max: i64, default: &'static str) -> Parameter {
    parameter(name, Kind::Number { min, max }, default)
}

pub const fn size(name: &'static str, min: u64, max: u64, default: &'static str) -> Parameter {
    parameter(name, Kind::Size { min, max }, default)
}

pub const fn text(name: &'static str, default: &'static str) -> Parameter {
    parameter(name, Kind::Text, default)
}

pub const fn size_or_percent(name: &'static str, default: &'static str) -> Parameter {
    parameter(name, Kind::SizeOrPercent, default)
}

pub const fn octal(name: &'static str, default: &'static str) -> Parameter {
    parameter(name, Kind::Octal, default)
}

pub const fn special(name: &'static str, normalise: Normalise, default: &'static str) -> Parameter {
    parameter(name, Kind::Special(normalise), default)
}

impl Parameter {
    pub const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub const fn immutable(mut self) -> Self {
        self.change = Change::Immutable;
        self
    }

    pub const fn protected(mut self) -> Self {
        self.change = Change::Protected;
        self
    }

    pub const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    pub const fn flag(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    pub const fn applies(mut self, apply: Apply) -> Self {
        self.apply = Some(apply);
        self
    }

    pub const fn shown(mut self, shown: Show) -> Self {
        self.shown = Some(shown);
        self
    }

    pub const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }
}
