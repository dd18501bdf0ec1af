//! Flags of commands, by Redis' names, and the ACL categories that follow from them.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Flag {
    Write,
    ReadOnly,
    /// May make the data grow: refused when the disk is full.
    DenyOom,
    Admin,
    PubSub,
    NoScript,
    Blocking,
    Loading,
    Stale,
    SkipMonitor,
    SkipSlowlog,
    Fast,
    NoAuth,
    MayReplicate,
    NoAsyncLoading,
    NoMulti,
    NoMandatoryKeys,
    MovableKeys,
    AllowBusy,
    /// As if it came behind ASKING.
    Asking,
    Dangerous,
    Connection,
    Keyspace,
    Scripting,
    Transaction,
    /// In the category of administration, without its flag.
    Administrative,
    /// Refused to clients that may not debug the server.
    Debugging,
    /// Works on lists, sets and sorted sets alike.
    OnCollections,
}

impl Flag {
    pub const ALL: [Flag; 28] = [
        Flag::Write,
        Flag::ReadOnly,
        Flag::DenyOom,
        Flag::Admin,
        Flag::PubSub,
        Flag::NoScript,
        Flag::Blocking,
        Flag::Loading,
        Flag::Stale,
        Flag::SkipMonitor,
        Flag::SkipSlowlog,
        Flag::Fast,
        Flag::NoAuth,
        Flag::MayReplicate,
        Flag::NoAsyncLoading,
        Flag::NoMulti,
        Flag::NoMandatoryKeys,
        Flag::MovableKeys,
        Flag::AllowBusy,
        Flag::Asking,
        Flag::Dangerous,
        Flag::Connection,
        Flag::Keyspace,
        Flag::Scripting,
        Flag::Transaction,
        Flag::Administrative,
        Flag::Debugging,
        Flag::OnCollections,
    ];

    /// As COMMAND INFO prints it; `None` for what only decides the categories, and what it hides.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Flag::Write => "write",
            Flag::ReadOnly => "readonly",
            Flag::DenyOom => "denyoom",
            Flag::Admin => "admin",
            Flag::PubSub => "pubsub",
            Flag::NoScript => "noscript",
            Flag::Blocking => "blocking",
            Flag::Loading => "loading",
            Flag::Stale => "stale",
            Flag::SkipMonitor => "skip_monitor",
            Flag::SkipSlowlog => "skip_slowlog",
            Flag::Fast => "fast",
            Flag::NoAuth => "no_auth",
            Flag::NoAsyncLoading => "no_async_loading",
            Flag::NoMulti => "no_multi",
            Flag::NoMandatoryKeys => "no_mandatory_keys",
            Flag::MovableKeys => "movablekeys",
            Flag::AllowBusy => "allow_busy",
            Flag::Asking => "asking",
            // Redis keeps this one to itself.
            Flag::MayReplicate
            | Flag::Dangerous
            | Flag::Connection
            | Flag::Keyspace
            | Flag::Scripting
            | Flag::Transaction
            | Flag::Administrative
            | Flag::Debugging
            | Flag::OnCollections => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(u32);

impl Flags {
    pub const NONE: Flags = Flags(0);

    pub const fn with(self, flags: &[Flag]) -> Flags {
        let mut bits = self.0;
        let mut i = 0;
        while i < flags.len() {
            bits |= 1 << flags[i] as u8;
            i += 1;
        }
        Flags(bits)
    }

    pub const fn has(self, flag: Flag) -> bool {
        self.0 & (1 << flag as u8) != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flag::ALL
            .into_iter()
            .filter(move |flag| self.has(*flag))
            .filter_map(Flag::name)
    }
}

/// An ACL category.
pub type Category = &'static str;

/// The categories of a command, those of its flags and that of its group, in the order in which Redis
/// lists them.
pub fn categories(flags: Flags, group: &str) -> Vec<Category> {
    let mut categories = Vec::new();
    if flags.has(Flag::Keyspace) {
        categories.push("keyspace");
    }
    // What a script that only reads does is up to the script.
    if flags.has(Flag::ReadOnly) && !flags.has(Flag::Scripting) {
        categories.push("read");
    }
    if flags.has(Flag::Write) {
        categories.push("write");
    }
    categories.extend(match group {
        "string" => Some("string"),
        "bitmap" => Some("bitmap"),
        "hash" => Some("hash"),
        "list" => Some("list"),
        "set" => Some("set"),
        "sorted-set" => Some("sortedset"),
        "geo" => Some("geo"),
        "hyperloglog" => Some("hyperloglog"),
        "stream" => Some("stream"),
        _ => None,
    });
    if flags.has(Flag::OnCollections) {
        categories.extend(["set", "sortedset", "list"]);
    }
    let is_administrative = flags.has(Flag::Admin) || flags.has(Flag::Administrative);
    let by_flags = [
        ("pubsub", flags.has(Flag::PubSub)),
        ("admin", is_administrative),
        ("fast", flags.has(Flag::Fast)),
        ("slow", !flags.has(Flag::Fast)),
        ("blocking", flags.has(Flag::Blocking)),
        ("dangerous", is_administrative || flags.has(Flag::Dangerous)),
        ("connection", flags.has(Flag::Connection)),
        ("transaction", flags.has(Flag::Transaction)),
        ("scripting", flags.has(Flag::Scripting)),
    ];
    categories.extend(
        by_flags
            .iter()
            .filter(|(_, has)| *has)
            .map(|(name, _)| *name),
    );
    categories
}
