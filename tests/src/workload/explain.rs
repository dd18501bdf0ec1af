//! The message of a failure: how a server's state differs from the nearest one it might have had.

use std::collections::BTreeSet;

use super::history::History;
use super::model::{Argv, Bytes, Entry, Model, Object};
use crate::check::Dump;
use crate::client::describe;

/// How many differing keys, and elements of each, are shown.
const SHOWN: usize = 6;

/// The moment of a history that comes nearest to the server's state.
pub struct Closest {
    at: usize,
    pub differing: usize,
    shown: String,
}

impl Closest {
    pub fn at(at: usize, state: &Model, differing: &BTreeSet<Bytes>, found: &Dump) -> Closest {
        let mut shown = String::new();
        for key in differing.iter().take(SHOWN) {
            let difference = difference(state.get(key), found.entries.get(key));
            shown.push_str(&format!("    {}: {difference}\n", key.escape_ascii()));
        }
        Closest {
            at,
            differing: differing.len(),
            shown,
        }
    }

    pub fn explain(&self, history: &History, at_least: usize) -> String {
        let Closest {
            at,
            differing,
            shown,
        } = self;
        let (sent, acknowledged) = (history.steps.len(), history.acknowledged());
        let mut text = format!(
            "no state after {at_least} or more of {sent} commands ({acknowledged} acknowledged) is the \
             server's; closest is {at}, with {differing} keys differing:\n{shown}  the commands around it:\n"
        );
        let around = at.saturating_sub(3)..(at + 4).min(sent);
        for (n, step) in around.clone().zip(&history.steps[around]) {
            text.push_str(&format!("    {n}: {}\n", describe_all(&step.commands)));
        }
        text
    }
}

/// The commands of a step, in one line.
pub fn describe_all(commands: &[Argv]) -> String {
    let commands = commands.iter().map(|argv| describe(argv));
    commands.collect::<Vec<_>>().join("; ")
}

fn difference(expected: Option<&Entry>, found: Option<&Entry>) -> String {
    let (Some(expected), Some(found)) = (expected, found) else {
        return format!("expected {}, found {}", sketch(expected), sketch(found));
    };
    if expected.object == found.object {
        return format!(
            "expiry {:?}, found {:?}",
            expected.expires_at, found.expires_at
        );
    }
    let (ours, theirs) = (elements(&expected.object), elements(&found.object));
    format!(
        "expected {}, found {}; missing {:?}, not expected {:?}",
        sketch(Some(expected)),
        sketch(Some(found)),
        ours.difference(&theirs).take(SHOWN).collect::<Vec<_>>(),
        theirs.difference(&ours).take(SHOWN).collect::<Vec<_>>(),
    )
}

fn sketch(entry: Option<&Entry>) -> String {
    let Some(Entry { object, expires_at }) = entry else {
        return "nothing".into();
    };
    let (kind, unit) = match object {
        Object::String(_) => ("string", "bytes"),
        Object::Hash(_) => ("hash", "fields"),
        Object::List(_) => ("list", "elements"),
        Object::Set(_) => ("set", "members"),
        Object::Zset(_) => ("zset", "members"),
    };
    let expiry = expires_at
        .map(|due| format!(" until {due}"))
        .unwrap_or_default();
    format!("a {kind} of {} {unit}{expiry}", object.len())
}

/// What two objects may differ in, spelled out. A string counts in pieces, a list by position.
fn elements(object: &Object) -> BTreeSet<String> {
    let brief = |bytes: &[u8]| bytes[..bytes.len().min(24)].escape_ascii().to_string();
    match object {
        Object::String(value) => {
            let pieces = value.chunks(1024).enumerate();
            pieces
                .map(|(n, piece)| format!("{}: {}", n * 1024, brief(piece)))
                .collect()
        }
        Object::Hash(hash) => hash
            .iter()
            .map(|(field, value)| format!("{}={}", brief(field), brief(value)))
            .collect(),
        Object::List(list) => list
            .iter()
            .enumerate()
            .map(|(n, element)| format!("{n}: {}", brief(element)))
            .collect(),
        Object::Set(set) => set.iter().map(|member| brief(member)).collect(),
        Object::Zset(zset) => zset
            .iter()
            .map(|(member, score)| format!("{}={score}", brief(member)))
            .collect(),
    }
}
