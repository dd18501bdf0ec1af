//! How a reply compares to the one a script expects.
//!
//! Replies are compared as the lines they are written in. Where Redis leaves something open, the
//! reply is first brought into the one form that scripts hold: elements in byte order, `*` for a
//! random pick. So a script never depends on what the server is free to choose.

use super::notation;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The same reply. The usual case, without a modifier.
    Exact,
    /// `unordered`: elements in any order; written in byte order.
    Unordered,
    /// `pairs`: the same for flat arrays of field and value, as RESP2 sends maps.
    Pairs,
    /// `within 0.5`: numbers may differ by as much.
    Within(f64),
    /// `glob`: each line of the script is a pattern, in which `*` stands for any text.
    Glob,
    /// `picks a b c`: each string, written `*`, is one of these, and none comes twice.
    Picks(Vec<Vec<u8>>),
    /// `draws a b c`: the same, and they may repeat.
    Draws(Vec<Vec<u8>>),
}

impl Check {
    /// The reply's lines, in the form that a script holds.
    pub fn lines(&self, reply: &Value) -> Vec<String> {
        match self {
            Check::Unordered => notation::lines(&sorted(reply, 1)),
            Check::Pairs => notation::lines(&sorted(reply, 2)),
            Check::Picks(_) | Check::Draws(_) => notation::lines(&masked(reply)),
            Check::Exact | Check::Within(_) | Check::Glob => notation::lines(reply),
        }
    }

    /// Whether `actual`, the lines of `reply`, are what the script expects.
    pub fn accepts(&self, expected: &[String], actual: &[String], reply: &Value) -> bool {
        let each_line = |agree: &dyn Fn(&str, &str) -> bool| {
            expected.len() == actual.len()
                && expected
                    .iter()
                    .zip(actual)
                    .all(|(want, got)| agree(want, got))
        };
        match self {
            Check::Exact | Check::Unordered | Check::Pairs => expected == actual,
            Check::Within(tolerance) => {
                each_line(&|want, got| want == got || is_near(want, got, *tolerance))
            }
            Check::Glob => each_line(&matches_glob),
            Check::Picks(pool) => {
                let picked = strings(reply);
                let distinct = picked
                    .iter()
                    .enumerate()
                    .all(|(i, s)| !picked[..i].contains(s));
                expected == actual && distinct && picked.iter().all(|s| pool.contains(s))
            }
            Check::Draws(pool) => {
                expected == actual && strings(reply).iter().all(|s| pool.contains(s))
            }
        }
    }
}

/// The reply with its elements in order: each group of as many stays together. Of a SCAN reply, a
/// cursor and an array, it is the array that is put in order.
fn sorted(value: &Value, group: usize) -> Value {
    match value {
        Value::Array(items) => match items.as_slice() {
            [cursor @ Value::Bulk(_), elements @ Value::Array(_)] => {
                Value::Array(vec![cursor.clone(), sorted(elements, group)])
            }
            items => {
                let mut groups: Vec<&[Value]> = items.chunks(group).collect();
                groups.sort();
                Value::Array(groups.concat())
            }
        },
        Value::Set(items) => {
            let mut items = items.clone();
            items.sort();
            Value::Set(items)
        }
        Value::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort();
            Value::Map(pairs)
        }
        other => other.clone(),
    }
}

/// The reply with `*` for each string.
fn masked(value: &Value) -> Value {
    match value {
        Value::Bulk(_) => Value::Simple(b"*".to_vec()),
        Value::Array(items) => Value::Array(items.iter().map(masked).collect()),
        Value::Set(items) => Value::Set(items.iter().map(masked).collect()),
        other => other.clone(),
    }
}

fn strings(value: &Value) -> Vec<Vec<u8>> {
    match value {
        Value::Bulk(bytes) => vec![bytes.clone()],
        Value::Array(items) | Value::Set(items) => items.iter().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Whether two lines differ in nothing but the number they end with, and in that not by much.
fn is_near(want: &str, got: &str, tolerance: f64) -> bool {
    let split = |line: &str| -> Option<(String, f64)> {
        let text = line.strip_suffix('"').unwrap_or(line);
        let number = text.rfind(['"', ' ']).map_or(0, |at| at + 1);
        Some((text[..number].into(), text[number..].parse().ok()?))
    };
    match (split(want), split(got)) {
        (Some((before, want)), Some((also, got))) => {
            before == also && (want - got).abs() <= tolerance
        }
        _ => false,
    }
}

/// Whether `text` reads like `pattern`, whose stars stand for any text.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((before, pattern)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut rest) = text.strip_prefix(before) else {
        return false;
    };
    loop {
        if matches_glob(pattern, rest) {
            return true;
        }
        let mut characters = rest.chars();
        if characters.next().is_none() {
            return false;
        }
        rest = characters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(items: &[&str]) -> Value {
        Value::Array(items.iter().map(Value::bulk).collect())
    }

    /// Whether a reply passes where another was recorded.
    fn passes(check: &Check, recorded: &Value, reply: &Value) -> bool {
        check.accepts(&check.lines(recorded), &check.lines(reply), reply)
    }

    #[test]
    fn order_is_free_only_where_said() {
        let (one, other) = (array(&["a", "b", "c", "d"]), array(&["c", "d", "a", "b"]));
        assert!(!passes(&Check::Exact, &one, &other));
        assert!(passes(&Check::Unordered, &one, &other));
        assert!(passes(&Check::Pairs, &one, &other));
        assert!(!passes(&Check::Pairs, &one, &array(&["b", "a", "c", "d"])));
        assert!(!passes(
            &Check::Unordered,
            &one,
            &array(&["a", "b", "c", "c"])
        ));
        assert!(!passes(
            &Check::Unordered,
            &array(&["a"]),
            &Value::bulk("a")
        ));
    }

    #[test]
    fn numbers_may_differ_only_as_far_as_said() {
        let check = Check::Within(0.1);
        assert!(passes(&check, &Value::bulk("1.5"), &Value::bulk("1.59")));
        assert!(!passes(&check, &Value::bulk("1.5"), &Value::bulk("1.7")));
        assert!(!passes(&check, &Value::Int(1), &Value::bulk("1")));
        assert!(passes(
            &Check::Within(5.0),
            &Value::Int(100),
            &Value::Int(96)
        ));
        assert!(!passes(
            &Check::Within(5.0),
            &Value::Int(100),
            &Value::Int(-2)
        ));
        assert!(!passes(&check, &array(&["1"]), &array(&["1", "1"])));
    }

    #[test]
    fn picks_are_members_and_distinct() {
        let pool = ["a", "b", "c"].map(|s| s.as_bytes().to_vec()).to_vec();
        let (picks, draws) = (Check::Picks(pool.clone()), Check::Draws(pool));
        let recorded = array(&["a", "b"]);
        assert!(passes(&picks, &recorded, &array(&["c", "a"])));
        assert!(!passes(&picks, &recorded, &array(&["c", "c"])));
        assert!(passes(&draws, &recorded, &array(&["c", "c"])));
        assert!(!passes(&draws, &recorded, &array(&["c", "d"])));
        assert!(!passes(&picks, &recorded, &array(&["c"])));
        assert!(!passes(&picks, &recorded, &Value::Null));
    }

    #[test]
    fn globs_cover_whole_lines() {
        assert!(matches_glob("id=* addr=*:*", "id=3 addr=127.0.0.1:80"));
        assert!(!matches_glob("id=*", "no id=3"));
        assert!(!matches_glob("*x", "xy"));
        assert!(matches_glob("*", ""));
        assert!(!matches_glob("(integer) 1", "(integer) 11"));
    }
}
