//! SORT: the elements of a list, set or sorted set in another order, or what they lead to.
//!
//! What BY and GET look at lies under keys that no argument names. They are known once the elements are, so the keys
//! are found first, under the latch of what is sorted; then, under the latches of all, the command runs.

mod pattern;

use std::cmp::Ordering;
use std::ops::Range;

use cairn_resp::{Reply, number};
use cairn_store::{
    Builder, Direction, Error, EventClass, List, Mode, ReadTxn, Request, Result, Set, Type,
    WriteTxn, Zset,
};

use self::pattern::{Pattern, up_to_zero};
use super::args::{self, Args, is};
use super::events;
use super::flags::Flag::{Dangerous, DenyOom, MovableKeys, OnCollections};
use super::keys::{Access, Among, KeySpec, Keys, Place};
use super::partial_sort::partial_sort;
use super::{Command, Handler, command};

const GROUP: &str = "generic";
const COMPLEXITY: &str = "O(N+M*log(M)) for N elements and M returned";

const LOOKS_ELSEWHERE: KeySpec = KeySpec {
    access: Access::READ,
    place: Place::Elsewhere,
};
const LOOKED_UP: &str = "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from \
                         the content of the key we sort";
const STORED: &str = "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in \
                      the argument array";
/// The options that have words behind them, and how many.
const OPTIONS: &[(&str, usize)] = &[("LIMIT", 2), ("GET", 1), ("BY", 1), ("STORE", 1)];

pub const COMMANDS: &[Command] = &[
    command("sort", -2, Handler::Write(sort))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(1, Access::READ),
            LOOKS_ELSEWHERE,
            KeySpec {
                access: Access::OVERWRITE,
                place: Place::Option(Among {
                    word: "STORE",
                    from: 2,
                    options: OPTIONS,
                }),
            },
        ]))
        .finds_keys(found_keys)
        .flags(&[DenyOom, MovableKeys, Dangerous, OnCollections])
        .syntax(
            "key BY/pattern:p1? LIMIT/offset_count{offset:i count:i}? GET/pattern:p1?++ \
             order(ASC!|DESC!)? ALPHA/sorting!? STORE/destination:k2?",
        )
        .notes(&["", LOOKED_UP, STORED])
        .about(
            GROUP,
            "1.0.0",
            COMPLEXITY,
            "Returns or stores the elements of a list, set or sorted set in another order.",
        ),
    command("sort_ro", -2, Handler::Read(sort_ro))
        .keys(Keys(&[KeySpec::at(1, Access::READ), LOOKS_ELSEWHERE]))
        .finds_keys(found_keys_ro)
        .flags(&[MovableKeys, Dangerous, OnCollections])
        .syntax(
            "key BY/pattern:p1? LIMIT/offset_count{offset:i count:i}? GET/pattern:p1?++ \
             order(ASC!|DESC!)? ALPHA/sorting!?",
        )
        .notes(&["", LOOKED_UP])
        .about(
            GROUP,
            "7.0.0",
            COMPLEXITY,
            "Returns the elements of a list, set or sorted set in another order.",
        ),
];

/// What is sorted stands in memory, and so does what is returned of other keys.
const MOST_BYTES: u64 = 256 * 1024 * 1024;
/// What an element takes besides its bytes.
const OVERHEAD: u64 = 64;

/// How much memory is left.
pub struct Budget(u64);

impl Budget {
    fn new() -> Budget {
        Budget(MOST_BYTES)
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let left = self.0.checked_sub(bytes.saturating_add(OVERHEAD));
        self.0 = left.ok_or(Error::fixed(
            "ERR SORT would take more than 256 MB of memory",
        ))?;
        Ok(())
    }
}

struct Query<'a> {
    by: Option<Pattern<'a>>,
    /// The elements stay in the order they have.
    keeps_order: bool,
    offset: i64,
    /// Negative: no limit.
    limit: i64,
    gets: Vec<Pattern<'a>>,
    direction: Direction,
    is_by_text: bool,
    target: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(args: &Args<'a>, may_store: bool) -> Result<Query<'a>> {
        let mut query = Query {
            by: None,
            keeps_order: false,
            offset: 0,
            limit: -1,
            gets: Vec::new(),
            direction: Direction::Forward,
            is_by_text: false,
            target: None,
        };
        let mut options = args.options(2);
        while let Some(option) = options.next() {
            if is(option, "asc") {
                query.direction = Direction::Forward;
            } else if is(option, "desc") {
                query.direction = Direction::Backward;
            } else if is(option, "alpha") {
                query.is_by_text = true;
            } else if is(option, "limit") && options.len() >= 2 {
                query.offset = args::int(options.value()?)?;
                query.limit = args::int(options.value()?)?;
            } else if may_store && is(option, "store") && !options.is_empty() {
                query.target = Some(options.value()?);
            } else if is(option, "by") && !options.is_empty() {
                let by = Pattern::parse(options.value()?);
                query.by = Some(by);
                query.keeps_order |= by.is_constant();
            } else if is(option, "get") && !options.is_empty() {
                query.gets.push(Pattern::parse(options.value()?));
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(query)
    }

    /// The patterns that lead to other keys.
    fn lookups(&self) -> impl Iterator<Item = Pattern<'a>> {
        let by = self.by.filter(|_| !self.keeps_order);
        by.into_iter().chain(self.gets.iter().copied())
    }

    /// The places that are asked for, of so many.
    fn wanted(&self, len: u64) -> Range<u64> {
        let start = u64::try_from(self.offset).unwrap_or(0).min(len);
        let count = u64::try_from(self.limit).unwrap_or(u64::MAX);
        start..start.saturating_add(count).min(len)
    }
}

/// What is sorted.
enum Source {
    Nothing,
    List(List),
    Set(Set),
    Zset(Zset),
}

impl Source {
    fn open(txn: &ReadTxn, name: &[u8]) -> Result<Source> {
        let kind = txn.find(&txn.key(name))?.map(|found| found.kind());
        txn.unasked(|txn| match kind {
            None => Ok(Source::Nothing),
            Some(Type::List) => List::open(txn, name).map(Source::List),
            Some(Type::Set) => Set::open(txn, name).map(Source::Set),
            Some(Type::ZSet) => Zset::open(txn, name).map(Source::Zset),
            Some(_) => Err(Error::WRONG_TYPE),
        })
    }

    fn len(&self) -> u64 {
        match self {
            Source::Nothing => 0,
            Source::List(list) => list.len(),
            Source::Set(set) => set.len(),
            Source::Zset(zset) => zset.len(),
        }
    }

    fn is_set(&self) -> bool {
        matches!(self, Source::Set(_))
    }

    /// Shows `visit` the elements at these places of the order they have.
    fn visit(
        &self,
        txn: &ReadTxn,
        places: Range<u64>,
        direction: Direction,
        mut visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let count = places.end.saturating_sub(places.start);
        if count == 0 {
            return Ok(());
        }
        let len = self.len();
        let mut rows = match self {
            Source::Nothing => return Ok(()),
            Source::List(list) => {
                let positions = match direction {
                    Direction::Forward => places,
                    Direction::Backward => len - places.end..len - places.start,
                };
                list.rows(txn, positions, direction)?
            }
            Source::Set(set) => set.rows(txn)?,
            Source::Zset(zset) => zset.rows_from(txn, places.start, direction)?,
        };
        for _ in 0..count {
            txn.step()?;
            let Some((key, value)) = rows.next()? else {
                break;
            };
            visit(match self {
                Source::Nothing | Source::List(_) => value,
                Source::Set(set) => set.member_of(key),
                Source::Zset(zset) => zset.score_rows().member(key),
            })?;
        }
        Ok(())
    }

    fn gather(
        &self,
        txn: &ReadTxn,
        places: Range<u64>,
        direction: Direction,
        budget: &mut Budget,
    ) -> Result<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        self.visit(txn, places, direction, |element| {
            budget.take(element.len() as u64)?;
            elements.push(element.to_vec());
            Ok(())
        })?;
        Ok(elements)
    }
}

/// Who wants more latches than this is better off alone.
const MOST_LATCHES: u64 = 100_000;

/// The latches of the keys that BY and GET lead to.
fn found_keys(txn: &ReadTxn, args: &Args) -> Result<Request> {
    find_keys(txn, args, true)
}

fn found_keys_ro(txn: &ReadTxn, args: &Args) -> Result<Request> {
    find_keys(txn, args, false)
}

fn find_keys(txn: &ReadTxn, args: &Args, may_store: bool) -> Result<Request> {
    let mut request = Request::nothing();
    let Ok(query) = Query::parse(args, may_store) else {
        // The command will say what is wrong.
        return Ok(request);
    };
    let patterns: Vec<Pattern> = query
        .lookups()
        .filter(|pattern| !pattern.is_constant())
        .collect();
    if patterns.is_empty() {
        return Ok(request);
    }
    if txn.store().is_replicated() {
        // They may lie in other slots.
        let option = match query.by {
            Some(by) if !by.is_constant() => "BY",
            _ => "GET",
        };
        let text = format!("ERR {option} option of SORT denied in Cluster mode.");
        return Err(Error::reply(text));
    }
    txn.unasked(|txn| {
        let source = Source::open(txn, args[1])?;
        let (places, direction) = match query.keeps_order && !source.is_set() {
            true => (query.wanted(source.len()), query.direction),
            false => (0..source.len(), Direction::Forward),
        };
        if (places.end - places.start).saturating_mul(patterns.len() as u64) > MOST_LATCHES {
            request = Request::everything();
            return Ok(());
        }
        source.visit(txn, places, direction, |element| {
            for name in patterns.iter().filter_map(|pattern| pattern.key(element)) {
                txn.step()?;
                request.add(&name, Mode::Shared);
            }
            Ok(())
        })
    })?;
    Ok(request.sorted())
}

/// An element, and what decides about its place.
struct Weighed {
    element: Vec<u8>,
    number: f64,
    text: Option<Vec<u8>>,
}

/// The elements that are asked for, in their order.
fn sorted(txn: &ReadTxn, name: &[u8], query: &Query, budget: &mut Budget) -> Result<Vec<Vec<u8>>> {
    let source = Source::open(txn, name)?;
    let len = source.len();
    let wanted = query.wanted(len);
    // A set has no order to keep. Redis puts it in one where it matters, and here it costs nothing.
    let orders_set = query.keeps_order && source.is_set();
    if query.keeps_order && !orders_set {
        return source.gather(txn, wanted, query.direction, budget);
    }
    let by = query.by.filter(|_| !orders_set);
    let is_by_text = query.is_by_text || orders_set;
    let elements = source.gather(txn, 0..len, Direction::Forward, budget)?;
    let mut weighed = Vec::with_capacity(elements.len());
    let mut is_number_wrong = false;
    for element in elements {
        let text = match by {
            Some(by) => by.value(txn, &element, budget)?,
            None => None,
        };
        let mut number = 0.0;
        if !is_by_text {
            let weight = match by {
                Some(_) => text.as_deref(),
                None => Some(element.as_slice()),
            };
            let parsed = weight.map_or(Some(0.0), parse_number);
            is_number_wrong |= parsed.is_none();
            number = parsed.unwrap_or(0.0);
        }
        weighed.push(Weighed {
            element,
            number,
            text: text.filter(|_| is_by_text),
        });
    }
    if is_number_wrong {
        return Err(Error::fixed(
            "ERR One or more scores can't be converted into double",
        ));
    }
    let stores = query.target.is_some();
    let compare = |a: &Weighed, b: &Weighed| {
        let order = match (is_by_text, by) {
            (false, _) => by_number(a, b),
            (true, Some(_)) => by_weight(a, b, stores),
            (true, None) => by_letters(&a.element, &b.element, stores),
        };
        match query.direction {
            Direction::Forward => order,
            Direction::Backward => order.reverse(),
        }
    };
    let wanted = wanted.start as usize..wanted.end as usize;
    if by.is_some() && !wanted.is_empty() {
        partial_sort(&mut weighed, wanted.clone(), compare);
    } else {
        weighed.sort_by(compare);
    }
    let elements = weighed.into_iter().map(|weighed| weighed.element);
    Ok(elements.skip(wanted.start).take(wanted.len()).collect())
}

fn by_number(a: &Weighed, b: &Weighed) -> Ordering {
    let order = a.number.partial_cmp(&b.number);
    let order = order.unwrap_or(Ordering::Equal);
    order.then_with(|| a.element.cmp(&b.element))
}

/// What leads nowhere comes first.
fn by_weight(a: &Weighed, b: &Weighed, stores: bool) -> Ordering {
    match (&a.text, &b.text) {
        (Some(a), Some(b)) => by_letters(a, b, stores),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// In the order of their bytes; a result that is not stored is sorted as C sorts texts, which a zero byte ends.
fn by_letters(a: &[u8], b: &[u8], stores: bool) -> Ordering {
    if stores {
        a.cmp(b)
    } else {
        up_to_zero(a).cmp(up_to_zero(b))
    }
}

/// A number as `strtod` reads it, which tells of those that are too large or too small.
fn parse_number(text: &[u8]) -> Option<f64> {
    let number = number::parse_score_bound(text)?;
    let digits = up_to_zero(text);
    let is_written_infinite = digits.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let is_too_large = number.is_infinite() && !is_written_infinite;
    // All of a number's digits come before its exponent.
    let is_zero = digits
        .split(|byte| matches!(byte, b'e' | b'E' | b'p' | b'P'))
        .next()
        .is_none_or(|digits| !digits.iter().any(|byte| matches!(byte, b'1'..=b'9')));
    let is_too_small = number.abs() < f64::MIN_POSITIVE && !is_zero;
    (!is_too_large && !is_too_small).then_some(number)
}

fn sort_ro(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let query = Query::parse(args, false)?;
    reply(txn, args[1], &query)
}

fn sort(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let query = Query::parse(args, true)?;
    let Some(target) = query.target else {
        let reply = reply(txn, args[1], &query);
        txn.notify_of_misses();
        return reply;
    };
    let mut budget = Budget::new();
    let elements = sorted(txn, args[1], &query, &mut budget)?;
    let mut stored = Builder::new(txn, target);
    for element in elements {
        if query.gets.is_empty() {
            stored.element(txn, &element)?;
        }
        for get in &query.gets {
            let value = get.value(txn, &element, &mut Budget::new())?;
            stored.element(txn, &value.unwrap_or_default())?;
        }
    }
    txn.notify_of_misses();
    let size = stored.finish_list(txn, 0)?;
    events::stored(txn, EventClass::List, "sortstore", target, size);
    Ok(size.into())
}

fn reply(txn: &ReadTxn, name: &[u8], query: &Query) -> Result<Reply> {
    let mut budget = Budget::new();
    let elements = sorted(txn, name, query, &mut budget)?;
    if query.gets.is_empty() {
        return Ok(elements.into_iter().map(Reply::Bulk).collect());
    }
    let mut values = Vec::with_capacity(elements.len() * query.gets.len());
    for element in elements {
        for get in &query.gets {
            let value = get.value(txn, &element, &mut budget)?;
            values.push(value.map_or(Reply::Null, Reply::Bulk));
        }
    }
    Ok(Reply::Array(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, number) in [
            ("", Some(0.0)),
            ("5", Some(5.0)),
            (" 5", Some(5.0)),
            ("5 ", None),
            ("5\0x", Some(5.0)),
            ("0x10", Some(16.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("4e-324", None),
            ("0e-400", Some(0.0)),
            ("0.000", Some(0.0)),
            ("x", None),
        ] {
            assert_eq!(parse_number(text.as_bytes()), number, "{text:?}");
        }
    }
}
