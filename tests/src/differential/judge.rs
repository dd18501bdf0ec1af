//! Whether two replies agree, by the rule of their command. Pure: no server is asked here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::fair::parsed;
use super::rule::Rule;
use crate::value::Value;

/// Why two replies do not agree.
pub type Objection = &'static str;

/// Entries of HELLO's reply that no two servers need share.
const OWN_AFFAIRS: [&[u8]; 2] = [b"id", b"version"];

/// Compares one reply of each server. `population` is what the reference held when picking.
/// A scan is compared only as far as a single reply goes; see [`scanned`] for the rest.
pub fn judge(
    argv: &[Vec<u8>],
    rule: &Rule,
    population: Option<&Value>,
    reference: &Value,
    target: &Value,
) -> Result<(), Objection> {
    if reference == target {
        return Ok(());
    }
    let is_sorted_set = argv
        .first()
        .is_some_and(|name| name.to_ascii_lowercase().starts_with(b"z"));
    let shows_negative_zero =
        has_negative_zero(reference) || population.is_some_and(has_negative_zero);
    if is_sorted_set && shows_negative_zero {
        let population = population.map(without_negative_zero);
        let (reference, target) = (
            without_negative_zero(reference),
            without_negative_zero(target),
        );
        return judge(argv, rule, population.as_ref(), &reference, &target);
    }
    if *rule == Rule::Weighed && is_about_numbers(reference) {
        return Ok(());
    }
    if reference.is_error() || target.is_error() {
        return Err("replies differ");
    }
    match rule {
        Rule::Exact | Rule::Weighed => Err("replies differ"),
        Rule::Unordered { width } => same_elements(*width, reference, target),
        Rule::Kind => same_shape(reference, target),
        Rule::Hello => same_greeting(reference, target),
        Rule::Stream => match without_moments(reference) == without_moments(target) {
            true => Ok(()),
            false => Err("replies differ beyond how long ago things were"),
        },
        Rule::Clock {
            tolerance,
            absolute,
        } => same_time(*tolerance, *absolute, reference, target),
        Rule::Pick { width, .. } => picked(argv, *width, population, reference, target),
        Rule::Pop { .. } => picked(argv, 1, population, reference, target),
        Rule::Scan { .. } => match (scan_page(reference), scan_page(target)) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err("not a page of a scan"),
        },
    }
}

fn is_about_numbers(reply: &Value) -> bool {
    let complaint = b"ERR One or more scores can't be converted into double";
    matches!(reply, Value::Error(text) if text.as_slice() == complaint)
}

/// Cairn keeps a score of negative zero as zero, by design: the one reply of Redis' it does not give.
fn without_negative_zero(value: &Value) -> Value {
    let all = |items: &[Value]| items.iter().map(without_negative_zero).collect();
    match value {
        Value::Bulk(text) if text == b"-0" => Value::bulk("0"),
        Value::Double(text) if text.as_slice() == b"-0" => Value::Double(b"0".to_vec()),
        Value::Array(items) => Value::Array(all(items)),
        Value::Set(items) => Value::Set(all(items)),
        other => other.clone(),
    }
}

fn has_negative_zero(value: &Value) -> bool {
    without_negative_zero(value) != *value
}

fn same_elements(width: usize, reference: &Value, target: &Value) -> Result<(), Objection> {
    same_shape(reference, target)?;
    let tally = |value| {
        let mut tally = BTreeMap::new();
        for element in leaves(value).chunks(width) {
            *tally.entry(element.to_vec()).or_insert(0usize) += 1;
        }
        tally
    };
    if tally(reference) == tally(target) {
        Ok(())
    } else {
        Err("elements differ, whatever their order")
    }
}

/// Equal but for the texts and numbers inside.
fn same_shape(reference: &Value, target: &Value) -> Result<(), Objection> {
    let alike = match (reference, target) {
        (Value::Bulk(_), Value::Bulk(_))
        | (Value::Int(_), Value::Int(_))
        | (Value::Double(_), Value::Double(_)) => true,
        (Value::Array(a), Value::Array(b)) | (Value::Set(a), Value::Set(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b).is_ok())
        }
        (Value::Map(a), Value::Map(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len()
                && pairs.all(|(a, b)| same_shape(&a.0, &b.0).and(same_shape(&a.1, &b.1)).is_ok())
        }
        (a, b) => a == b,
    };
    if alike {
        Ok(())
    } else {
        Err("replies differ in kind or length")
    }
}

/// What is told of a stream without how it lies in memory, and without times: the idle time of a consumer, and that of
/// a pending entry, which stands between its consumer and its deliveries.
fn without_moments(value: &Value) -> Value {
    const OWN_AFFAIRS: [&[u8]; 3] = [b"idle", b"radix-tree-keys", b"radix-tree-nodes"];
    let is_own = |name: &Value| {
        name.as_bytes()
            .is_some_and(|name| OWN_AFFAIRS.contains(&name))
    };
    match value {
        Value::Array(items) => {
            if let [
                id @ Value::Bulk(_),
                who @ Value::Bulk(_),
                Value::Int(_),
                count @ Value::Int(_),
            ] = &items[..]
            {
                return Value::Array(vec![id.clone(), who.clone(), count.clone()]);
            }
            let kept = items.iter().enumerate().filter_map(|(at, item)| {
                let is_named = at % 2 == 1 && is_own(&items[at - 1]);
                (!is_named).then(|| without_moments(item))
            });
            Value::Array(kept.collect())
        }
        Value::Map(pairs) => {
            let kept = pairs.iter().filter(|(name, _)| !is_own(name));
            let kept = kept.map(|(name, value)| (name.clone(), without_moments(value)));
            Value::Map(kept.collect())
        }
        other => other.clone(),
    }
}

fn same_greeting(reference: &Value, target: &Value) -> Result<(), Objection> {
    let same_kind = matches!(reference, Value::Map(_)) == matches!(target, Value::Map(_));
    let (Some(reference), Some(target)) = (comparable(reference), comparable(target)) else {
        return Err("not a greeting");
    };
    if same_kind && reference == target {
        Ok(())
    } else {
        Err("greetings differ beyond id and version")
    }
}

/// A greeting's entries in their order, those of no concern without their values.
fn comparable(greeting: &Value) -> Option<Vec<(Value, Option<Value>)>> {
    let pairs = greeting.clone().into_pairs()?.into_iter();
    let masked = pairs.map(|(name, value)| {
        let own = name
            .as_bytes()
            .is_some_and(|name| OWN_AFFAIRS.contains(&name));
        (name, (!own).then_some(value))
    });
    Some(masked.collect())
}

/// Zero and below are no times but statements, such as "no such key".
fn same_time(
    tolerance: i64,
    absolute: i64,
    reference: &Value,
    target: &Value,
) -> Result<(), Objection> {
    match (reference.as_int(), target.as_int()) {
        (Some(a), Some(b))
            if a > 0
                && b > 0
                && a < absolute
                && b < absolute
                && a.abs_diff(b) <= tolerance as u64 =>
        {
            Ok(())
        }
        _ => Err("times differ"),
    }
}

/// As many picks as the reference has, in the same form, each of them there to be picked.
fn picked(
    argv: &[Vec<u8>],
    width: usize,
    population: Option<&Value>,
    reference: &Value,
    target: &Value,
) -> Result<(), Objection> {
    same_shape(reference, target)?;
    let population = population.map(leaves).unwrap_or_default();
    let whole: BTreeSet<_> = population.chunks(width).collect();
    let names: BTreeSet<_> = population
        .chunks(width)
        .map(|element| &element[..1])
        .collect();
    let picks = leaves(target);
    // Values or scores come along only if asked for, and then the last word asks.
    let with_values = width == 2 && argv.len() == 4;
    let picks: Vec<_> = picks.chunks(if with_values { width } else { 1 }).collect();
    let among = if with_values { &whole } else { &names };
    if !picks.iter().all(|pick| among.contains(pick)) {
        return Err("picked what is not there");
    }
    let repeats = picks.iter().collect::<BTreeSet<_>>().len() < picks.len();
    let may_repeat = argv
        .get(2)
        .and_then(|count| parsed(count))
        .is_none_or(|count| count < 0);
    if repeats && !may_repeat {
        return Err("picked the same twice");
    }
    Ok(())
}

/// The texts of a reply from left to right, whatever the nesting.
pub fn leaves(value: &Value) -> Vec<Cow<'_, [u8]>> {
    let mut found = Vec::new();
    gather(value, &mut found);
    found
}

fn gather<'a>(value: &'a Value, found: &mut Vec<Cow<'a, [u8]>>) {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            items.iter().for_each(|item| gather(item, found));
        }
        Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            gather(key, found);
            gather(value, found);
        }),
        Value::Int(n) => found.push(n.to_string().into_bytes().into()),
        Value::Bool(b) => found.push(b.to_string().into_bytes().into()),
        Value::Null | Value::NullArray => {}
        text => found.extend(text.as_bytes().map(Cow::Borrowed)),
    }
}

/// The cursor to go on with, and the elements of this page.
pub fn scan_page(reply: &Value) -> Option<(&[u8], &[Value])> {
    match reply.items()? {
        [Value::Bulk(cursor), Value::Array(elements)] => Some((cursor, elements)),
        _ => None,
    }
}

/// ZSCAN's notation of very large scores tells which encoding a sorted set has, or has had.
fn plain_number(value: &Value) -> Value {
    let number = value.as_bytes().and_then(|text| {
        let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (number.is_finite() && number.abs() >= 1e17).then_some(number)
    });
    match number {
        Some(number) => Value::bulk(format!("{number:e}")),
        None => without_negative_zero(value),
    }
}

/// Compares all that two scans returned, duplicates aside.
pub fn scanned(width: usize, reference: &[Value], target: &[Value]) -> Result<(), Objection> {
    let plain = |items: &[Value]| -> Vec<Value> { items.iter().map(plain_number).collect() };
    let (reference, target) = (&plain(reference)[..], &plain(target)[..]);
    let set = |elements: &[Value]| -> BTreeSet<Vec<Value>> {
        elements.chunks(width).map(<[Value]>::to_vec).collect()
    };
    if set(reference) == set(target) {
        Ok(())
    } else {
        Err("scans to the end return different elements")
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::words;
    use super::*;

    /// Whether the replies to `line` agree.
    fn agree(line: &str, population: &Value, reference: Value, target: Value) -> bool {
        let argv = words(&line.split(' ').collect::<Vec<_>>());
        judge(
            &argv,
            &Rule::of(&argv),
            Some(population),
            &reference,
            &target,
        )
        .is_ok()
    }

    /// Both for commands that pick nothing.
    fn same(line: &str, reference: Value, target: Value) -> bool {
        agree(line, &Value::Null, reference, target)
    }

    fn array(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(Value::bulk).collect())
    }

    fn set(texts: &[&str]) -> Value {
        Value::Set(texts.iter().map(Value::bulk).collect())
    }

    #[test]
    fn replies_are_equal_to_the_byte_unless_a_rule_says_otherwise() {
        assert!(same("GET k", Value::bulk("a"), Value::bulk("a")));
        assert!(!same("GET k", Value::bulk("a"), Value::bulk("A")));
        assert!(!same("GET k", Value::Null, Value::bulk("")));
        assert!(!same("LPOP k 1", Value::NullArray, Value::Null));
        assert!(!same(
            "LRANGE k 0 -1",
            array(&["a", "b"]),
            array(&["b", "a"])
        ));
        assert!(!same("GET k", Value::error("ERR a"), Value::error("ERR b")));
        assert!(!same(
            "SMEMBERS k",
            Value::error("ERR a"),
            Value::error("ERR b")
        ));
        let double = |text: &str| Value::Double(text.into());
        assert!(!same("ZSCORE k m", double("1.0"), double("1")));
    }

    #[test]
    fn order_is_free_where_redis_leaves_it_free() {
        assert!(same("SMEMBERS k", set(&["a", "b"]), set(&["b", "a"])));
        assert!(!same("SMEMBERS k", set(&["a", "b"]), array(&["b", "a"])));
        assert!(!same(
            "HVALS k",
            array(&["a", "a", "b"]),
            array(&["a", "b", "b"])
        ));
        assert!(!same("KEYS *", array(&["a"]), array(&["a", "b"])));
        assert!(same(
            "HGETALL k",
            array(&["f", "1", "g", "2"]),
            array(&["g", "2", "f", "1"])
        ));
        assert!(!same(
            "HGETALL k",
            array(&["f", "1", "g", "2"]),
            array(&["f", "2", "g", "1"])
        ));
    }

    #[test]
    fn times_may_differ_by_seconds() {
        let ints = |a, b| (Value::Int(a), Value::Int(b));
        let same = |line, (a, b)| same(line, a, b);
        assert!(same("TTL k", ints(100_000, 100_001)));
        assert!(!same("TTL k", ints(100_000, 101_000)));
        assert!(!same("TTL k", ints(-1, 1)));
        assert!(!same("TTL k", ints(-1, -2)));
        assert!(same("PTTL k", ints(100_000_000, 100_000_900)));
        assert!(same("EXPIRETIME k", ints(1_800_000_000, 1_800_000_001)));
        assert!(!same("EXPIRETIME k", ints(4_000_000_000, 4_000_000_001)));
    }

    #[test]
    fn picks_are_held_to_what_is_there() {
        let members = set(&["a", "b", "c"]);
        let agree = |line, reference: &[&str], target: &[&str]| {
            agree(line, &members, array(reference), array(target))
        };
        assert!(agree("SRANDMEMBER k 2", &["a", "b"], &["c", "a"]));
        assert!(!agree("SRANDMEMBER k 2", &["a", "b"], &["c"]));
        assert!(!agree("SRANDMEMBER k 2", &["a", "b"], &["c", "x"]));
        assert!(!agree("SRANDMEMBER k 2", &["a", "b"], &["c", "c"]));
        assert!(agree("SRANDMEMBER k -2", &["a", "b"], &["c", "c"]));
        assert!(!agree("SPOP k 2", &["a", "b"], &["c", "c"]));
    }

    #[test]
    fn picks_with_values_keep_their_pairs() {
        let hash = Value::Map(vec![
            (Value::bulk("f"), Value::bulk("1")),
            (Value::bulk("g"), Value::bulk("2")),
        ]);
        let agree = |line, reference: &[&str], target: &[&str]| {
            agree(line, &hash, array(reference), array(target))
        };
        assert!(agree("HRANDFIELD k 1", &["f"], &["g"]));
        assert!(!agree("HRANDFIELD k 1", &["f"], &["1"]));
        assert!(agree("HRANDFIELD k 1 WITHVALUES", &["f", "1"], &["g", "2"]));
        assert!(!agree(
            "HRANDFIELD k 1 WITHVALUES",
            &["f", "1"],
            &["g", "1"]
        ));
    }

    #[test]
    fn a_greeting_may_differ_in_id_and_version_alone() {
        let greeting = |id: i64, mode: &str| {
            let pair = |name, value| (Value::bulk(name), value);
            Value::Map(vec![
                pair("id", Value::Int(id)),
                pair("mode", Value::bulk(mode)),
            ])
        };
        assert!(same(
            "HELLO 3",
            greeting(1, "standalone"),
            greeting(2, "standalone")
        ));
        assert!(!same(
            "HELLO 3",
            greeting(1, "standalone"),
            greeting(2, "cluster")
        ));
    }

    #[test]
    fn scans_may_repeat_but_not_lose() {
        let elements = |texts: &[&str]| texts.iter().map(Value::bulk).collect::<Vec<_>>();
        let scanned = |width, reference: &[&str], target: &[&str]| {
            scanned(width, &elements(reference), &elements(target)).is_ok()
        };
        assert!(scanned(1, &["a", "b"], &["b", "a", "b"]));
        assert!(!scanned(1, &["a", "b"], &["b"]));
        assert!(scanned(2, &["a", "1e+17"], &["a", "100000000000000000"]));
        assert!(!scanned(2, &["a", "1e+17"], &["a", "100000000000000016"]));
        assert!(!scanned(2, &["a", "1", "b", "2"], &["a", "2", "b", "1"]));
    }
}
