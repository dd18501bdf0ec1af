//! The command table.
//!
//! Each command is declared once, at the top of the file that implements it. Everything else derives
//! from the declaration: dispatch, arity checks, latches, the read-only and full-disk guards, COMMAND
//! and its subcommands. Whether a command reads or writes follows from its handler's signature.

mod absent;
mod acl;
mod args;
mod bitmap;
mod blocking;
mod cairn_cluster;
mod client;
mod cluster;
mod config;
mod connection;
mod debug;
pub mod dump;
mod events;
mod expire;
mod flags;
mod function;
mod geo;
mod hash;
mod hyperloglog;
mod introspection;
mod key;
mod keys;
mod list;
mod migrate;
mod partial_sort;
mod piecewise;
mod pubsub;
mod random;
mod replication;
mod rows;
mod scan;
mod script;
mod server;
mod set;
mod sort;
mod stream;
mod string;
mod syntax;
mod tracking;
mod transaction;
mod watching;
mod zset;

use std::sync::LazyLock;

use cairn_resp::Reply;
use cairn_store::{Error, Point, ReadTxn, Reading, Request, Result, WriteTxn};

pub use absent::{complaint_in_cluster, is_absent};
pub use args::{Args, OwnedArgs};
pub use blocking::Blocking;
pub use flags::{Flag, Flags};
pub use introspection::{find_by_full_name, keys_of};
pub use keys::{Access, Keys, Place, Purpose};

use crate::server::Server;
use crate::session::Session;
use crate::unit::Unit;

/// What runs when the command is called. The signature says what the command can do, and so how it is
/// isolated from others.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Reads one row, or a row and its metadata: needs no latch.
    Point(fn(Point<'_>, &Args) -> Result<Reply>),
    /// Reads several rows, under shared latches.
    Read(fn(&ReadTxn, &Args) -> Result<Reply>),
    /// Changes rows, under exclusive latches.
    Write(fn(&mut WriteTxn, &Args) -> Result<Reply>),
    /// Changes what every key depends on: runs alone.
    Exclusive(fn(&mut WriteTxn, &Args) -> Result<Reply>),
    /// The same, or has its client wait until it can.
    Blocking(Blocking),
    /// Changes no row, but is seen by others, after the commit of what came before it.
    Effect(fn(&Server, &mut WriteTxn, &Args) -> Result<Reply>),
    /// Consists of several commands, or looks at keys for the sake of the connection.
    Unit(fn(&mut Session, &Args) -> Result<Box<dyn Unit>>),
    /// Concerns the connection only.
    Session(fn(&mut Session, &Args) -> Result<Reply>),
    /// Concerns the server, and may take long.
    Admin(fn(&Server, &Args) -> Result<Reply>),
    /// Has subcommands, and does nothing itself.
    Container,
}

#[derive(Clone, Copy)]
pub struct Command {
    /// In lower case; a subcommand's is its own word only.
    pub name: &'static str,
    /// As statistics and CLIENT LIST show it: a subcommand's name follows its container's and a bar.
    pub full_name: &'static str,
    /// Its place in statistics.
    number: usize,
    /// Number of arguments, the name included; at least that many if negative.
    pub arity: i32,
    pub handler: Handler,
    flags: Flags,
    pub keys: Keys,
    pub channels: Channels,
    /// What is noted about the key specifications, in their order.
    pub notes: &'static [&'static str],
    /// What a call does to its keys, where that depends on the arguments.
    pub access: Option<fn(&Args) -> Access>,
    /// What it does is seen elsewhere before anything is committed, or is kept in the session.
    is_irrevocable: bool,
    /// It is about several databases, of which a cluster has one.
    needs_databases: bool,
    /// It is about all keys that this server has, and not about some that it names.
    pub walks_keys: bool,
    /// It writes, and looks keys up as commands do that read: these count as hits and misses.
    pub counts_lookups: bool,
    /// What it does to the keys that it reads counts as a use of them, or does not.
    uses: Uses,
    /// Finds the latches that the arguments do not tell of, under those that they do: SORT.
    pub finds_keys: Option<fn(&ReadTxn, &Args) -> Result<Request>>,
    /// The arguments after the name, for HELP.
    pub usage: &'static str,
    /// The same for COMMAND DOCS, see `syntax`.
    pub syntax: &'static str,
    /// What cluster-aware clients want to know.
    pub tips: &'static [&'static str],
    pub subcommands: &'static [Command],
    /// Whether COMMAND and the statistics show the subcommands as commands of their own.
    shows_subcommands: bool,
    pub about: About,
}

/// Which arguments are channels that the call sends to, or listens to from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    None,
    First,
    Rest,
    RestArePatterns,
}

/// Whether a command uses the keys that it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Uses {
    /// Unless its client has said that it does not.
    Keys,
    Always,
    Nothing,
}

/// What COMMAND DOCS tells.
#[derive(Clone, Copy)]
pub struct About {
    pub summary: &'static str,
    pub since: &'static str,
    pub group: &'static str,
    pub complexity: &'static str,
    /// Since when, and for the sake of what, others should be used.
    pub deprecated: Option<(&'static str, &'static str)>,
}

/// Declares a command; the rest follows by the methods below.
const fn command(name: &'static str, arity: i32, handler: Handler) -> Command {
    Command {
        name,
        full_name: name,
        number: 0,
        arity,
        handler,
        flags: Flags::NONE,
        keys: Keys::NONE,
        channels: Channels::None,
        notes: &[],
        access: None,
        is_irrevocable: false,
        needs_databases: false,
        walks_keys: false,
        counts_lookups: false,
        uses: Uses::Keys,
        finds_keys: None,
        usage: "",
        syntax: "",
        tips: &[],
        subcommands: &[],
        shows_subcommands: true,
        about: About {
            summary: "",
            since: "1.0.0",
            group: "generic",
            complexity: "",
            deprecated: None,
        },
    }
}

impl Command {
    const fn keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    const fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    const fn flags(mut self, flags: &[Flag]) -> Self {
        self.flags = self.flags.with(flags);
        self
    }

    const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// The same for subcommands that Redis does not list either.
    const fn hidden_subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self.shows_subcommands = false;
        self
    }

    const fn notes(mut self, notes: &'static [&'static str]) -> Self {
        self.notes = notes;
        self
    }

    const fn access(mut self, access: fn(&Args) -> Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Declares that what it does is not undone with a transaction.
    const fn irrevocable(mut self) -> Self {
        self.is_irrevocable = true;
        self
    }

    const fn needs_databases(mut self) -> Self {
        self.needs_databases = true;
        self
    }

    const fn walks_keys(mut self) -> Self {
        self.walks_keys = true;
        self
    }

    const fn counts_lookups(mut self) -> Self {
        self.counts_lookups = true;
        self
    }

    /// It asks about keys, and uses none: OBJECT IDLETIME is as before.
    const fn looks_on(mut self) -> Self {
        self.uses = Uses::Nothing;
        self
    }

    /// It uses keys, whatever its client has said about that.
    const fn always_uses(mut self) -> Self {
        self.uses = Uses::Always;
        self
    }

    const fn finds_keys(mut self, find: fn(&ReadTxn, &Args) -> Result<Request>) -> Self {
        self.finds_keys = Some(find);
        self
    }

    const fn usage(mut self, usage: &'static str) -> Self {
        self.usage = usage;
        self
    }

    const fn syntax(mut self, syntax: &'static str) -> Self {
        self.syntax = syntax;
        self
    }

    const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    const fn about(
        mut self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        self.about = About {
            summary,
            since,
            group,
            complexity,
            deprecated: self.about.deprecated,
        };
        self
    }

    const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Self {
        self.about.deprecated = Some((since, replaced_by));
        self
    }

    /// What was declared, and what the handler implies.
    #[inline]
    pub fn all_flags(&self) -> Flags {
        match self.handler {
            Handler::Point(_) | Handler::Read(_) => self.flags.with(&[Flag::ReadOnly]),
            // It reads as far as anybody else is concerned, and keeps what it found out: PFCOUNT.
            Handler::Write(_) if self.flags.has(Flag::ReadOnly) => self.flags,
            Handler::Write(_) | Handler::Exclusive(_) => self.flags.with(&[Flag::Write]),
            Handler::Blocking(_) if self.flags.has(Flag::ReadOnly) => {
                self.flags.with(&[Flag::Blocking])
            }
            Handler::Blocking(_) => self.flags.with(&[Flag::Write, Flag::Blocking]),
            Handler::Effect(_)
            | Handler::Unit(_)
            | Handler::Session(_)
            | Handler::Admin(_)
            | Handler::Container => self.flags,
        }
    }

    #[inline]
    pub fn has(&self, flag: Flag) -> bool {
        self.all_flags().has(flag)
    }

    /// Its ACL categories. A container does nothing to values of a type: only its subcommands do.
    pub fn categories(&self) -> Vec<flags::Category> {
        let group = match self.handler {
            Handler::Container => "",
            _ => self.about.group,
        };
        flags::categories(self.all_flags(), group)
    }

    /// Its place in statistics, below [`count`].
    pub fn number(&self) -> usize {
        self.number
    }

    /// The subcommands that are shown as commands of their own.
    pub fn shown_subcommands(&self) -> &'static [Command] {
        if self.shows_subcommands {
            self.subcommands
        } else {
            &[]
        }
    }

    /// Refuses what a cluster cannot do.
    #[inline]
    pub fn check_in_cluster(&self) -> Result<()> {
        match self.needs_databases {
            true => Err(self.not_in_cluster()),
            false => Ok(()),
        }
    }

    #[cold]
    fn not_in_cluster(&self) -> Error {
        let name = self.name.to_ascii_uppercase();
        Error::reply(format!("ERR {name} is not allowed in cluster mode"))
    }

    /// Whether it changes what functions there are.
    pub fn changes_functions(&self) -> bool {
        self.flags.has(Flag::Write) && self.flags.has(Flag::Scripting)
    }

    /// Whether all it does is to read keys, and to answer.
    pub fn reads_at_once(&self) -> bool {
        matches!(self.handler, Handler::Point(_) | Handler::Read(_)) && !self.keys.0.is_empty()
    }

    pub fn is_write(&self) -> bool {
        match self.handler {
            Handler::Write(_) | Handler::Exclusive(_) => true,
            Handler::Blocking(_) => !self.flags.has(Flag::ReadOnly),
            Handler::Unit(_) => self.flags.has(Flag::Write),
            _ => false,
        }
    }

    /// Whether it reads or writes rows and does nothing else.
    #[inline]
    pub fn is_plain(&self) -> bool {
        matches!(
            self.handler,
            Handler::Point(_) | Handler::Read(_) | Handler::Write(_)
        )
    }

    /// Whether it writes, or is seen by others, whatever its arguments are.
    pub fn writes_besides_scripts(&self) -> bool {
        self.is_write() || self.has(Flag::MayReplicate) && !self.has(Flag::Scripting)
    }

    /// What a client reads keys for that calls it; one that is quiet does not use what it reads.
    #[inline]
    pub fn reading(&self, is_quiet: bool) -> Reading {
        match self.uses {
            Uses::Keys if !is_quiet => Reading::Use,
            Uses::Always => Reading::Use,
            _ => Reading::Look,
        }
    }

    /// Whether it is not queued after MULTI.
    pub fn runs_at_once(&self) -> bool {
        self.has(Flag::Transaction) && self.name != "unwatch"
            || matches!(self.full_name, "quit" | "reset")
    }

    /// Whether those are told who want to know of keys that were asked for in vain. It looks from outside
    /// otherwise.
    pub fn tells_of_misses(&self) -> bool {
        let looks_from_outside = ["object|", "memory|", "debug"];
        !looks_from_outside
            .iter()
            .any(|name| self.full_name.starts_with(name))
    }

    /// Whether a client may call it that listens to channels and speaks the old protocol.
    pub fn is_for_listeners(&self) -> bool {
        let is_about_them = self.has(Flag::PubSub) && matches!(self.handler, Handler::Session(_));
        is_about_them && self.has(Flag::NoScript) || matches!(self.name, "ping" | "quit" | "reset")
    }

    /// Whether what it does cannot be taken back with a transaction, as is the case with all that administrators do. So
    /// a unit must not be started again once it has run. (SELECT can: units remember the database.)
    pub fn is_irrevocable(&self) -> bool {
        self.is_irrevocable || self.has(Flag::Admin)
    }

    /// Whether it may wait for another server.
    pub fn waits_for_others(&self) -> bool {
        self.is_irrevocable && self.is_write()
    }

    #[inline]
    pub fn accepts(&self, arguments: usize) -> bool {
        if self.arity >= 0 {
            arguments == self.arity as usize
        } else {
            arguments >= self.arity.unsigned_abs() as usize
        }
    }
}

/// What the files of this module declare.
fn declared() -> impl Iterator<Item = &'static Command> {
    [
        string::COMMANDS,
        bitmap::COMMANDS,
        hyperloglog::COMMANDS,
        hash::COMMANDS,
        hash::expiry::COMMANDS,
        list::COMMANDS,
        blocking::COMMANDS,
        set::COMMANDS,
        zset::COMMANDS,
        stream::COMMANDS,
        geo::COMMANDS,
        key::COMMANDS,
        dump::COMMANDS,
        migrate::COMMANDS,
        sort::COMMANDS,
        scan::COMMANDS,
        transaction::COMMANDS,
        pubsub::COMMANDS,
        connection::COMMANDS,
        client::COMMANDS,
        cluster::COMMANDS,
        cairn_cluster::COMMANDS,
        script::COMMANDS,
        function::COMMANDS,
        server::COMMANDS,
        replication::COMMANDS,
        config::COMMANDS,
        acl::COMMANDS,
        introspection::COMMANDS,
        watching::COMMANDS,
        debug::COMMANDS,
    ]
    .into_iter()
    .flatten()
}

/// The declarations, each with its number and its subcommands with theirs.
static TABLE: LazyLock<Vec<Command>> = LazyLock::new(|| {
    let mut next = 0;
    declared()
        .map(|command| numbered(command, None, &mut next))
        .collect()
});

/// The table lives as long as the process, so what is leaked here is part of it.
fn numbered(command: &Command, container: Option<&Command>, next: &mut usize) -> Command {
    let mut command = *command;
    match container {
        Some(container) if !container.shows_subcommands => {
            command.full_name = container.name;
            command.number = container.number;
            return command;
        }
        Some(container) => {
            command.full_name = format!("{}|{}", container.name, command.name).leak();
        }
        None => {}
    }
    command.number = *next;
    *next += 1;
    let subcommands = command.subcommands.iter();
    let subcommands: Vec<Command> = subcommands
        .map(|subcommand| numbered(subcommand, Some(&command), next))
        .collect();
    command.subcommands = subcommands.leak();
    command
}

/// Every command, in the order of declaration.
pub fn all() -> impl Iterator<Item = &'static Command> {
    TABLE.iter()
}

/// Every command and every subcommand that is shown, by number.
static BY_NUMBER: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    all()
        .flat_map(|command| std::iter::once(command).chain(command.shown_subcommands()))
        .collect()
});

/// How many commands there are, subcommands included.
pub fn count() -> usize {
    BY_NUMBER.len()
}

/// Every command and every subcommand that is shown.
pub fn every() -> impl Iterator<Item = &'static Command> {
    BY_NUMBER.iter().copied()
}

pub fn by_number(number: usize) -> Option<&'static Command> {
    BY_NUMBER.get(number).copied()
}

/// The commands by some letters of their names, few in each place.
static BY_NAME: LazyLock<Vec<Vec<Named>>> = LazyLock::new(|| {
    let mut table: Vec<Vec<Named>> = (0..PLACES).map(|_| Vec::new()).collect();
    for command in all() {
        let upper = command.name.to_ascii_uppercase();
        table[place_of(command.name.as_bytes())].push(Named { upper, command });
    }
    table
});

struct Named {
    upper: String,
    command: &'static Command,
}

impl Named {
    /// Clients write names in one case or the other, seldom in both.
    #[inline]
    fn is(&self, name: &[u8]) -> bool {
        name == self.upper.as_bytes() || name.eq_ignore_ascii_case(self.command.name.as_bytes())
    }
}

const PLACES: usize = 4096;

/// Where a command of this name stands, in whatever case it is written.
#[inline]
fn place_of(name: &[u8]) -> usize {
    let letter = |byte: Option<&u8>| byte.map_or(0, |byte| u32::from(byte & 0x1f));
    let letters = letter(name.first())
        | letter(name.get(1)) << 5
        | letter(name.get(2)) << 10
        | letter(name.last()) << 15;
    let hash = (letters | (name.len() as u32) << 20).wrapping_mul(0x9e37_79b9);
    (hash >> 20) as usize
}

/// Finds a command by its name in any case; allocates nothing.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let here = BY_NAME[place_of(name)].iter();
    here.filter(|named| named.is(name))
        .map(|named| named.command)
        .next()
}

impl Command {
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands
            .iter()
            .find(|subcommand| name.eq_ignore_ascii_case(subcommand.name.as_bytes()))
    }
}

/// What a call with the wrong number of arguments is told.
pub fn wrong_arity(name: &str) -> Error {
    Error::reply(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

/// The command, or subcommand, that the arguments call, if they are as many as it takes.
#[inline]
pub fn resolve(args: &Args<'_>) -> Result<&'static Command> {
    let command = find(args[0]).ok_or_else(|| unknown(args))?;
    if command.subcommands.is_empty() || args.len() < 2 {
        if command.accepts(args.len()) {
            return Ok(command);
        }
        return Err(wrong_arity(command.name));
    }
    let subcommand = command
        .subcommand(args[1])
        .ok_or_else(|| unknown_subcommand(command, args[1]))?;
    if subcommand.accepts(args.len()) {
        return Ok(subcommand);
    }
    if command.shows_subcommands {
        return Err(wrong_arity(subcommand.full_name));
    }
    Err(unknown_subcommand(command, args[1]))
}

/// The command, or subcommand, that a script calls; or, if it cannot, what the script is told, and the command
/// if there is one.
pub fn for_script(args: &Args<'_>) -> Result<&'static Command, (Option<&'static Command>, Error)> {
    const UNKNOWN: Error = Error::fixed("ERR Unknown Redis command called from script");
    let command = find(args[0]).ok_or((None, UNKNOWN))?;
    let command = match args.get(1) {
        Some(name) if !command.shown_subcommands().is_empty() => {
            command.subcommand(name).ok_or((None, UNKNOWN))?
        }
        _ => command,
    };
    if command.accepts(args.len()) {
        if let Handler::Blocking(blocking) = command.handler
            && blocking.is_told_to_wait(args)
        {
            let name = printable(args[0], 128);
            let text = format!("ERR {name} command is not allowed with BLOCK option from scripts");
            return Err((Some(command), Error::reply(text)));
        }
        return Ok(command);
    }
    let error = Error::fixed("ERR Wrong number of args calling Redis command from script");
    Err((Some(command), error))
}

/// The command that is called, if its subcommands are not shown to clients.
pub fn hiding_subcommands(args: &Args<'_>) -> Option<&'static Command> {
    let command = find(args[0])?;
    let hides = !command.subcommands.is_empty() && !command.shows_subcommands;
    (hides && args.len() > 1).then_some(command)
}

/// The command that counts as one that ran and failed, since it tells itself that it does not know a subcommand.
pub fn who_tells(args: &Args<'_>, error: &Error) -> Option<&'static Command> {
    let is_told = |_: &&'static Command| {
        resolve(args).is_err_and(|told| told.to_string() == error.to_string())
    };
    hiding_subcommands(args).filter(is_told)
}

/// The command, or subcommand, that the arguments name, however many they are.
pub fn named(args: &Args<'_>) -> Option<&'static Command> {
    let command = find(args.first()?)?;
    let subcommand = args.get(1).and_then(|name| command.subcommand(name));
    Some(subcommand.unwrap_or(command))
}

/// The same; none if a subcommand is named that is not there.
pub fn lookup(args: &Args<'_>) -> Option<&'static Command> {
    let command = find(args.first()?)?;
    match args.get(1) {
        Some(name) if !command.shown_subcommands().is_empty() => command.subcommand(name),
        _ => Some(command),
    }
}

/// What a web browser sends that was tricked into talking to us: the rest of its request must not be
/// taken for commands.
#[inline]
pub fn is_web_request(args: &Args<'_>) -> bool {
    args::is(args[0], "host:") || args::is(args[0], "post")
}

/// HELP of a container: its subcommands as they were declared.
fn help(_: &mut Session, args: &Args) -> Result<Reply> {
    let container = find(args[0]).ok_or_else(|| unknown(args))?;
    let name = container.name.to_ascii_uppercase();
    let mut lines = vec![format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    )];
    for subcommand in container.subcommands {
        let name = subcommand.name.to_ascii_uppercase();
        lines.push(
            format!("{name} {}", subcommand.usage)
                .trim_end()
                .to_string(),
        );
        lines.push(format!("    {}", subcommand.about.summary));
    }
    let lines = lines
        .into_iter()
        .map(|line| Reply::Status(line.into_bytes()));
    Ok(Reply::Array(lines.collect()))
}

fn unknown_subcommand(command: &Command, name: &[u8]) -> Error {
    let or_arguments = if command.shows_subcommands {
        ""
    } else {
        " or wrong number of arguments for"
    };
    let mut text = format!("ERR unknown subcommand{or_arguments} '").into_bytes();
    text.extend_from_slice(quotable(name, 128));
    let container = command.name.to_ascii_uppercase();
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    Error::reply(text)
}

/// What a subcommand says of arguments that it cannot take.
fn wrong_subcommand(args: &Args<'_>) -> Error {
    let name = printable(args[1], 128);
    let container = printable(args[0], 128).to_ascii_uppercase();
    Error::reply(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    ))
}

fn unknown(args: &Args<'_>) -> Error {
    if let Some(complaint) = absent::complaint(args[0]) {
        return Error::reply(complaint);
    }
    let mut beginning = Vec::new();
    for word in args.rest(1) {
        if beginning.len() >= 128 {
            break;
        }
        let word = quotable(word, 128 - beginning.len());
        beginning.extend_from_slice(&[b"'", word, b"' "].concat());
    }
    let name = quotable(args[0], 128);
    let text: [&[u8]; 4] = [
        b"ERR unknown command '",
        name,
        b"', with args beginning with: ",
        &beginning,
    ];
    Error::reply(text.concat())
}

/// The same as text, for words that are names.
fn printable(word: &[u8], most: usize) -> String {
    String::from_utf8_lossy(quotable(word, most)).into_owned()
}

/// As much of a word as an error message quotes: a zero byte ends it.
fn quotable(word: &[u8], most: usize) -> &[u8] {
    let end = word.iter().position(|byte| *byte == 0);
    &word[..end.unwrap_or(word.len()).min(most)]
}
