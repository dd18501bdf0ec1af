//! Commands that wait for an element: BLPOP, BLMOVE, BZPOPMIN and their like.

use std::time::Duration;

use cairn_resp::{Reply, number};
use cairn_store::{Direction, End, Error, ReadTxn, Result, Type, WriteTxn};

use super::flags::Flag::{DenyOom, Fast, MovableKeys, NoScript};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Args, Command, Handler, OwnedArgs, command, list, stream, zset};
use crate::propagation::Propagate;

type Attempt = fn(&mut WriteTxn, &Args, Option<&[u8]>) -> Result<Option<Reply>>;

/// Makes other arguments of a command's, if they depend on the moment.
type Fix = fn(&ReadTxn, &Args) -> Result<Option<OwnedArgs>>;

/// How a command waits.
#[derive(Clone, Copy)]
pub struct Blocking {
    /// What its keys have to hold.
    pub kind: Type,
    /// Does its work, if there is something to do it on; on one key alone, if one is given.
    pub attempt: Attempt,
    /// The keys it waits for.
    pub sources: for<'a> fn(&Args<'a>) -> &'a [&'a [u8]],
    /// Which argument says for how long.
    pub(super) timeout_at: TimeoutAt,
    /// What it answers inside a transaction, where it cannot wait.
    pub(super) answers_null: bool,
    /// The arguments to wait with, where they speak of the moment at which it is called.
    pub fixed: Option<Fix>,
    /// What it is told if a key that it waits for goes, or becomes something else.
    pub gone: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(super) enum TimeoutAt {
    First,
    Last,
    /// Behind BLOCK, in milliseconds.
    Option,
}

impl Blocking {
    /// For how long to wait; none: for ever.
    pub fn timeout(&self, args: &Args) -> Result<Option<Duration>> {
        match self.timeout_at {
            TimeoutAt::First => parse_timeout(args[1]),
            TimeoutAt::Last => parse_timeout(args[args.len() - 1]),
            TimeoutAt::Option => Ok(stream::block_option(args)?.flatten()),
        }
    }

    /// Whether it waits because an option says so.
    pub fn is_told_to_wait(&self, args: &Args) -> bool {
        matches!(self.timeout_at, TimeoutAt::Option)
            && matches!(stream::block_option(args), Ok(Some(_)))
    }

    /// Whether it may have to wait.
    pub fn may_wait(&self, args: &Args) -> bool {
        !matches!(self.timeout_at, TimeoutAt::Option) || self.is_told_to_wait(args)
    }

    pub fn nothing(&self) -> Reply {
        if self.answers_null {
            Reply::Null
        } else {
            Reply::NullArray
        }
    }
}

/// Seconds, of which the smallest part counts as a millisecond.
fn parse_timeout(text: &[u8]) -> Result<Option<Duration>> {
    let seconds = number::parse_f64(text)
        .ok_or(Error::fixed("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds * 1000.0).ceil();
    // What does not fit, Redis takes for negative.
    if milliseconds < 0.0 || milliseconds >= i64::MAX as f64 {
        return Err(Error::fixed("ERR timeout is negative"));
    }
    let milliseconds = milliseconds as u64;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

const POPS_KEYS_BEFORE_TIMEOUT: Keys = Keys(&[KeySpec {
    access: Access::READ_DELETE,
    place: Place::Range {
        first: 1,
        last: -2,
        step: 1,
    },
}]);
const POPS_COUNTED_KEYS: Keys = Keys(&[KeySpec {
    access: Access::READ_DELETE,
    place: Place::Counted { count_at: 2 },
}]);
const MOVES_BETWEEN_KEYS: Keys = Keys(&[
    KeySpec::at(1, Access::READ_DELETE),
    KeySpec::at(2, Access::INSERT),
]);

/// What most have in common.
const fn waits(kind: Type, attempt: Attempt) -> Blocking {
    Blocking {
        kind,
        attempt,
        sources: all_but_timeout,
        timeout_at: TimeoutAt::Last,
        answers_null: false,
        fixed: None,
        gone: None,
    }
}

const fn pops(kind: Type, attempt: Attempt) -> Handler {
    Handler::Blocking(waits(kind, attempt))
}

const fn moves(attempt: Attempt) -> Handler {
    Handler::Blocking(Blocking {
        sources: |args| &args.rest(1)[..1],
        answers_null: true,
        ..waits(Type::List, attempt)
    })
}

/// For commands on streams, which wait if BLOCK is among their options.
pub(super) const fn reads(attempt: Attempt) -> Blocking {
    Blocking {
        sources: |args| {
            let behind = stream::STREAMS.behind(args);
            &behind[..behind.len() / 2]
        },
        timeout_at: TimeoutAt::Option,
        ..waits(Type::Stream, attempt)
    }
}

const fn pops_several(kind: Type, attempt: Attempt) -> Handler {
    Handler::Blocking(Blocking {
        // Who waits has been understood, so there is a number, and not a larger one than there are keys.
        sources: |args| {
            let count = args.int(2).map_or(0, |count| count.max(0) as usize);
            let keys = args.rest(3);
            &keys[..count.min(keys.len())]
        },
        timeout_at: TimeoutAt::First,
        ..waits(kind, attempt)
    })
}

pub const COMMANDS: &[Command] = &[
    command("blpop", -3, pops(Type::List, blpop))
        .keys(POPS_KEYS_BEFORE_TIMEOUT)
        .flags(&[NoScript])
        .syntax("key+ timeout:d")
        .about(
            "list",
            "2.0.0",
            "O(N) for N keys",
            "Takes the first element of the first list that has any, or waits for one.",
        ),
    command("brpop", -3, pops(Type::List, brpop))
        .keys(POPS_KEYS_BEFORE_TIMEOUT)
        .flags(&[NoScript])
        .syntax("key+ timeout:d")
        .about(
            "list",
            "2.0.0",
            "O(N) for N keys",
            "Takes the last element of the first list that has any, or waits for one.",
        ),
    command("blmpop", -5, pops_several(Type::List, blmpop))
        .keys(POPS_COUNTED_KEYS)
        .flags(&[MovableKeys])
        .syntax("timeout:d numkeys:i key+ where(LEFT!|RIGHT!) COUNT/count:i?")
        .about(
            "list",
            "7.0.0",
            "O(N + M) for N keys and M elements",
            "Takes elements from the first list that has any, or waits for some.",
        ),
    command("blmove", 6, moves(blmove))
        .keys(MOVES_BETWEEN_KEYS)
        .flags(&[DenyOom, NoScript])
        .syntax("source:k destination:k wherefrom(LEFT!|RIGHT!) whereto(LEFT!|RIGHT!) timeout:d")
        .about(
            "list",
            "6.2.0",
            "O(1)",
            "Takes an element from one list, or waits for one, and puts it in another.",
        ),
    command("brpoplpush", 4, moves(brpoplpush))
        .keys(MOVES_BETWEEN_KEYS)
        .flags(&[DenyOom, NoScript])
        .syntax("source:k destination:k timeout:d")
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
        .about(
            "list",
            "2.2.0",
            "O(1)",
            "Moves the last element of one list to the front of another, or waits for one.",
        ),
    command("bzpopmin", -3, pops(Type::ZSet, bzpopmin))
        .keys(POPS_KEYS_BEFORE_TIMEOUT)
        .flags(&[NoScript, Fast])
        .syntax("key+ timeout:d")
        .about(
            "sorted-set",
            "5.0.0",
            "O(log(N)) for N members",
            "Takes the member with the lowest score of the first set that has any, or waits for one.",
        ),
    command("bzpopmax", -3, pops(Type::ZSet, bzpopmax))
        .keys(POPS_KEYS_BEFORE_TIMEOUT)
        .flags(&[NoScript, Fast])
        .syntax("key+ timeout:d")
        .about(
            "sorted-set",
            "5.0.0",
            "O(log(N)) for N members",
            "Takes the member with the highest score of the first set that has any, or waits for one.",
        ),
    command("bzmpop", -5, pops_several(Type::ZSet, bzmpop))
        .keys(POPS_COUNTED_KEYS)
        .flags(&[MovableKeys])
        .syntax("timeout:d numkeys:i key+ where(MIN!|MAX!) COUNT/count:i?")
        .about(
            "sorted-set",
            "7.0.0",
            "O(K) + O(M*log(N)) for K keys, N members and M popped",
            "Takes members from the first set that has any, or waits for some.",
        ),
];

/// The keys of a command that ends with its timeout.
fn all_but_timeout<'a>(args: &Args<'a>) -> &'a [&'a [u8]] {
    &args.rest(1)[..args.len() - 2]
}

/// The keys to look at: those that are given, or the one alone.
fn looked_at<'a>(
    sources: &'a [&'a [u8]],
    only: Option<&'a [u8]>,
) -> impl Iterator<Item = &'a [u8]> {
    let is_looked_at = move |name: &&[u8]| only.is_none_or(|only| *name == only);
    sources.iter().copied().filter(is_looked_at)
}

fn blpop(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    pop_element(txn, args, only, End::Left)
}

fn brpop(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    pop_element(txn, args, only, End::Right)
}

fn pop_element(
    txn: &mut WriteTxn,
    args: &Args,
    only: Option<&[u8]>,
    end: End,
) -> Result<Option<Reply>> {
    parse_timeout(args[args.len() - 1])?;
    for name in looked_at(all_but_timeout(args), only) {
        if let Some(element) = list::pop_one(txn, name, end)? {
            txn.propagate_as(&[list::pop_word(end), name]);
            return Ok(Some(Reply::Array(vec![Reply::bulk(name), element])));
        }
    }
    Ok(None)
}

fn blmpop(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    let (keys, wanted) = list::parse_pops(args.rest(2))?;
    parse_timeout(args[1])?;
    list::pop_first(txn, looked_at(keys, only), wanted)
}

fn blmove(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    let (from, to) = list::ends(args[3], args[4])?;
    parse_timeout(args[5])?;
    let moved = list::move_element(txn, (args[1], from), (args[2], to))?;
    if moved != Reply::Null {
        // Redis, too, has its own words for the ends where it has waited.
        let [from, to] = match only {
            Some(_) => [list::end_word(from), list::end_word(to)],
            None => [args[3], args[4]],
        };
        txn.propagate_as(&[b"LMOVE", args[1], args[2], from, to]);
    }
    some(moved)
}

fn brpoplpush(txn: &mut WriteTxn, args: &Args, _: Option<&[u8]>) -> Result<Option<Reply>> {
    parse_timeout(args[3])?;
    let moved = list::move_element(txn, (args[1], End::Right), (args[2], End::Left))?;
    if moved != Reply::Null {
        txn.propagate_as(&[b"RPOPLPUSH", args[1], args[2]]);
    }
    some(moved)
}

fn some(reply: Reply) -> Result<Option<Reply>> {
    Ok((reply != Reply::Null).then_some(reply))
}

fn bzpopmin(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    pop_member(txn, args, only, Direction::Forward)
}

fn bzpopmax(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    pop_member(txn, args, only, Direction::Backward)
}

fn pop_member(
    txn: &mut WriteTxn,
    args: &Args,
    only: Option<&[u8]>,
    direction: Direction,
) -> Result<Option<Reply>> {
    parse_timeout(args[args.len() - 1])?;
    for name in looked_at(all_but_timeout(args), only) {
        if let Some([member, score]) = zset::pop_one(txn, name, direction)? {
            txn.propagate_as(&[zset::pop_word(direction), name]);
            return Ok(Some(Reply::Array(vec![Reply::bulk(name), member, score])));
        }
    }
    Ok(None)
}

fn bzmpop(txn: &mut WriteTxn, args: &Args, only: Option<&[u8]>) -> Result<Option<Reply>> {
    let (keys, wanted) = zset::parse_pops(args.rest(2))?;
    parse_timeout(args[1])?;
    zset::pop_first(txn, looked_at(keys, only), wanted)
}
