//! What a script or function says about itself: `#!lua flags=no-writes,allow-oom`.

/// A set of flags. A script without a shebang has none of its own, and is not held to any
/// (see [`Script::flags`](crate::Script::flags)).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(u8);

/// In the order in which FUNCTION LIST names them.
const NAMES: [(&str, Flags); 5] = [
    ("no-writes", Flags::NO_WRITES),
    ("allow-oom", Flags::ALLOW_OOM),
    ("allow-stale", Flags::ALLOW_STALE),
    ("no-cluster", Flags::NO_CLUSTER),
    ("allow-cross-slot-keys", Flags::ALLOW_CROSS_SLOT),
];

impl Flags {
    pub const NO_WRITES: Flags = Flags(1);
    pub const ALLOW_OOM: Flags = Flags(2);
    pub const ALLOW_STALE: Flags = Flags(4);
    pub const NO_CLUSTER: Flags = Flags(8);
    pub const ALLOW_CROSS_SLOT: Flags = Flags(16);

    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn insert(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .into_iter()
            .filter_map(move |(name, flag)| self.contains(flag).then_some(name))
    }

    /// As a shebang spells it.
    pub(crate) fn named(name: &[u8]) -> Option<Flags> {
        Self::find(|known| known.as_bytes() == name)
    }

    /// As redis.register_function takes it.
    pub(crate) fn named_in_any_case(name: &[u8]) -> Option<Flags> {
        Self::find(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    fn find(matches: impl Fn(&str) -> bool) -> Option<Flags> {
        NAMES
            .into_iter()
            .find_map(|(name, flag)| matches(name).then_some(flag))
    }

    /// Whether the run may write, given how it was asked for: EVAL and FCALL, or EVAL_RO and FCALL_RO.
    /// `flags` are those of the script, if it has any.
    pub fn may_write(flags: Option<Flags>, read_only: bool) -> Result<bool, &'static str> {
        match flags {
            Some(flags) if flags.contains(Flags::NO_WRITES) => Ok(false),
            Some(_) if read_only => {
                Err("ERR Can not execute a script with write flag using *_ro command.")
            }
            _ => Ok(!read_only),
        }
    }
}
