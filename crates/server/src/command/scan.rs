//! SCAN, and HSCAN, SSCAN and ZSCAN.

use cairn_resp::{Reply, glob, number};
use cairn_store::keyspace::everywhere;
use cairn_store::{Collection, CollectionKind, Error, ReadTxn, Result, Type, keyspace, zset};

use super::args::{self, Args};
use super::introspection::encoding_of;
use super::key::type_named;
use super::keys::{Access, KeySpec, Keys};
use super::{Command, Handler, command};

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);

pub const COMMANDS: &[Command] = &[
    command("hscan", -3, Handler::Read(hscan))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output"])
        .syntax("key cursor:i MATCH/pattern:p? COUNT/count:i?")
        .about(
            "hash",
            "2.8.0",
            "O(COUNT)",
            "Lists fields and values step by step.",
        ),
    command("sscan", -3, Handler::Read(sscan))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output"])
        .syntax("key cursor:i MATCH/pattern:p? COUNT/count:i?")
        .about("set", "2.8.0", "O(COUNT)", "Lists members step by step."),
    command("zscan", -3, Handler::Read(zscan))
        .keys(READS_KEY)
        .tips(&["nondeterministic_output"])
        .syntax("key cursor:i MATCH/pattern:p? COUNT/count:i?")
        .about(
            "sorted-set",
            "2.8.0",
            "O(COUNT)",
            "Lists members and scores step by step.",
        ),
];

struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    /// Which type is asked for; inside, `None` if there is no such type.
    kind: Option<Option<Type>>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, at: usize, takes_type: bool) -> Result<Options<'a>> {
        let mut parsed = Options {
            pattern: None,
            count: 10,
            kind: None,
        };
        let mut options = args.options(at);
        while let Some(option) = options.next() {
            if options.is_empty() {
                return Err(Error::SYNTAX);
            }
            if args::is(option, "count") {
                let count = args::int(options.value()?)?;
                parsed.count = u64::try_from(count)
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or(Error::SYNTAX)?;
            } else if args::is(option, "match") {
                // A lone star is no condition at all.
                parsed.pattern = Some(options.value()?).filter(|pattern| *pattern != b"*");
            } else if takes_type && args::is(option, "type") {
                parsed.kind = Some(type_named(options.value()?));
            } else {
                return Err(Error::SYNTAX);
            }
        }
        Ok(parsed)
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, name, false))
    }
}

/// A cursor as C's strtoul reads it: nothing is zero, and a minus sign wraps around.
fn cursor(text: &[u8]) -> Result<u64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if text.is_empty() {
        return Ok(0);
    }
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let parsed = is_number.then(|| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let number = parsed.flatten().ok_or(Error::fixed("ERR invalid cursor"))?;
    Ok(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}

fn answer(cursor: u64, items: Vec<Reply>) -> Reply {
    let cursor = Reply::bulk(cursor.to_string());
    Reply::Array(vec![cursor, Reply::Array(items)])
}

pub fn scan(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let start = cursor(args[1])?;
    let options = Options::parse(args, 2, true)?;
    let mut names = Vec::new();
    let next = everywhere::scan_step(txn, start, options.count, |met| {
        let is_kind = options.kind.is_none_or(|kind| kind == Some(met.kind));
        if is_kind && options.matches(met.name) {
            names.push(Reply::from(met.name));
        }
    })?;
    Ok(answer(next, names))
}

fn hscan(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    scan_elements(txn, args, CollectionKind::Hash, |field, value, items| {
        items.push(field.into());
        items.push(value.into());
        Ok(())
    })
}

fn sscan(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    scan_elements(txn, args, CollectionKind::Set, |member, _, items| {
        items.push(member.into());
        Ok(())
    })
}

fn zscan(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let mut compact = None;
    scan_elements(txn, args, CollectionKind::ZSet, |member, value, items| {
        let score = zset::score_of(value)?;
        let mut text = Vec::new();
        let is_whole = score == score.trunc() && score.abs() <= LARGEST_COMPACT;
        if is_whole && score.abs() >= FIRST_WITH_EXPONENT && is_compact(txn, args[1], &mut compact)?
        {
            text.extend_from_slice((score as i64).to_string().as_bytes());
        } else {
            number::format_double(score, &mut text);
        }
        items.push(member.into());
        items.push(text.into());
        Ok(())
    })
}

/// Redis keeps a small sorted set in a compact form, and writes whole scores from there without an
/// exponent: in ZSCAN only, and up to this size.
const LARGEST_COMPACT: f64 = (i64::MAX / 2) as f64;
const FIRST_WITH_EXPONENT: f64 = 1e17;

/// Whether Redis would keep the sorted set in its compact form; asked at most once.
fn is_compact(txn: &ReadTxn, name: &[u8], known: &mut Option<bool>) -> Result<bool> {
    if let Some(known) = known {
        return Ok(*known);
    }
    let key = txn.key(name);
    let is_compact = match txn.find(&key)? {
        Some(found) => encoding_of(txn, &key, &found)? == "listpack",
        None => false,
    };
    Ok(*known.insert(is_compact))
}

fn scan_elements(
    txn: &ReadTxn,
    args: &Args,
    kind: CollectionKind,
    mut item: impl FnMut(&[u8], &[u8], &mut Vec<Reply>) -> Result<()>,
) -> Result<Reply> {
    let start = cursor(args[2])?;
    let collection = Collection::open(txn, args[1], kind)?;
    if !collection.exists() {
        return Ok(answer(0, Vec::new()));
    }
    let options = Options::parse(args, 3, false)?;
    let mut items = Vec::new();
    let next = keyspace::scan_collection(txn, &collection, start, options.count, |sub, value| {
        if options.matches(sub) {
            item(sub, value, &mut items)?;
        }
        Ok(())
    })?;
    Ok(answer(next, items))
}
