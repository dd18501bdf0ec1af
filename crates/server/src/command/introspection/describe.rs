//! COMMAND, COMMAND INFO and COMMAND DOCS: declarations as clients want to read them.

use cairn_resp::Reply;
use cairn_store::Result;

use crate::command::keys::{KeySpec, Place};
use crate::command::{Args, Command, Flag, all, find, syntax};
use crate::session::Session;

pub fn everything(_: &mut Session, _: &Args) -> Result<Reply> {
    Ok(all().map(describe).collect())
}

pub fn info(session: &mut Session, args: &Args) -> Result<Reply> {
    if args.len() == 2 {
        return everything(session, args);
    }
    let names = args.rest(2).iter();
    Ok(names
        .map(|name| find_by_full_name(name).map_or(Reply::Null, describe))
        .collect())
}

pub fn docs(_: &mut Session, args: &Args) -> Result<Reply> {
    if args.len() == 2 {
        return Ok(document_all(all()));
    }
    let names = args.rest(2).iter();
    Ok(document_all(
        names.filter_map(|name| find_by_full_name(name)),
    ))
}

/// A subcommand is asked for with its container's name, a bar, and its own.
pub fn find_by_full_name(name: &[u8]) -> Option<&'static Command> {
    let Some(bar) = name.iter().position(|byte| *byte == b'|') else {
        return find(name);
    };
    let container = find(&name[..bar])?;
    let shown = container.shown_subcommands().iter();
    shown.into_iter().find(|subcommand| {
        subcommand
            .name
            .as_bytes()
            .eq_ignore_ascii_case(&name[bar + 1..])
    })
}

fn simple_set(names: impl Iterator<Item = String>) -> Reply {
    Reply::Set(names.map(|name| Reply::Status(name.into_bytes())).collect())
}

fn describe(command: &'static Command) -> Reply {
    let flags = command.all_flags();
    let categories = command.categories();
    let range = plain_range(command.keys.0);
    let specs = command.keys.0.iter();
    Reply::Array(vec![
        command.full_name.into(),
        Reply::Int(i64::from(command.arity)),
        simple_set(flags.names().map(str::to_string)),
        Reply::Int(range.first),
        Reply::Int(range.last),
        Reply::Int(range.step),
        simple_set(categories.iter().map(|name| format!("@{name}"))),
        Reply::Set(command.tips.iter().map(|tip| (*tip).into()).collect()),
        Reply::Set(
            specs
                .enumerate()
                .map(|(number, spec)| describe_spec(command, number, spec))
                .collect(),
        ),
        match command.shown_subcommands() {
            // An array, unlike its neighbours, unless it is empty: so says Redis.
            [] => Reply::Set(Vec::new()),
            subcommands => Reply::Array(subcommands.iter().map(describe).collect()),
        },
    ])
}

/// Where keys stand, for clients that know of one range only.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Range {
    first: i64,
    last: i64,
    step: i64,
}

/// The ranges taken together as far as they follow each other; none if there is no range at all.
fn plain_range(specs: &[KeySpec]) -> Range {
    let mut whole = Range::default();
    for spec in specs {
        let (first, last, step) = match spec.place {
            Place::Range { first, last, step } => (first, last, step),
            Place::Unless { position, .. } => (position, position as i32, 1),
            Place::Counted { .. }
            | Place::Behind { .. }
            | Place::HalfBehind { .. }
            | Place::AllBehind { .. }
            | Place::Option { .. }
            | Place::Elsewhere => continue,
        };
        let range = Range {
            first: first as i64,
            last: i64::from(last),
            step: step as i64,
        };
        if whole == Range::default() {
            whole = range;
        } else if range.step == 1 && whole.step == 1 {
            // Counted from the end is later than any position from the start.
            let is_later = range.last < 0 || (whole.last >= 0 && range.last > whole.last);
            whole.first = whole.first.min(range.first);
            whole.last = if is_later { range.last } else { whole.last };
        }
    }
    whole
}

fn describe_spec(command: &Command, number: usize, spec: &KeySpec) -> Reply {
    let mut flags: Vec<String> = spec
        .access
        .names()
        .into_iter()
        .map(str::to_string)
        .collect();
    if command.access.is_some() {
        flags.push("variable_flags".into());
    }
    let int = |number: usize| Reply::Int(number as i64);
    let range = |last, step, limit| {
        vec![
            ("lastkey".into(), Reply::Int(last)),
            ("keystep".into(), int(step)),
            ("limit".into(), int(limit)),
        ]
    };
    let found_by = |kind: &'static str, fields| {
        Reply::Map(vec![
            ("type".into(), kind.into()),
            ("spec".into(), Reply::Map(fields)),
        ])
    };
    let index = |at| found_by("index", vec![("index".into(), int(at))]);
    let behind = |word: &'static str, from| {
        let search = vec![
            ("keyword".into(), word.into()),
            ("startfrom".into(), Reply::Int(from)),
        ];
        found_by("keyword", search)
    };
    let (begin, kind, fields) = match spec.place {
        Place::Range { first, last, step } => {
            let from_first = if last < 0 {
                i64::from(last)
            } else {
                i64::from(last) - first as i64
            };
            (index(first), "range", range(from_first, step, 0))
        }
        Place::Counted { count_at } => {
            let fields = vec![
                ("keynumidx".into(), int(0)),
                ("firstkey".into(), int(1)),
                ("keystep".into(), int(1)),
            ];
            (index(count_at), "keynum", fields)
        }
        Place::Option { .. } | Place::Elsewhere => {
            (found_by("unknown", Vec::new()), "unknown", Vec::new())
        }
        Place::Behind { word, from } => (behind(word, from as i64), "range", range(0, 1, 0)),
        Place::HalfBehind { option, from } => {
            let begin = behind(option.word, from as i64);
            (begin, "range", range(-1, 1, 2))
        }
        Place::Unless { position, .. } => (index(position), "range", range(0, 1, 0)),
        Place::AllBehind(option) => {
            // Clients that look for the word from the end miss it where it is a key, too.
            flags.push("incomplete".into());
            (behind(option.word, -2), "range", range(-1, 1, 0))
        }
    };
    let mut fields = vec![
        ("flags".into(), simple_set(flags.into_iter())),
        ("begin_search".into(), begin),
        ("find_keys".into(), found_by(kind, fields)),
    ];
    if let Some(note) = command.notes.get(number).filter(|note| !note.is_empty()) {
        fields.insert(0, ("notes".into(), (*note).into()));
    }
    Reply::Map(fields)
}

fn document_all(commands: impl Iterator<Item = &'static Command>) -> Reply {
    let documented = commands.map(|command| (command.full_name.into(), document(command)));
    Reply::Map(documented.collect())
}

fn document(command: &'static Command) -> Reply {
    let about = &command.about;
    let mut fields = vec![
        ("summary".into(), about.summary.into()),
        ("since".into(), about.since.into()),
        ("group".into(), about.group.into()),
        ("complexity".into(), about.complexity.into()),
    ];
    let is_internal = command.has(Flag::Debugging) || command.has(Flag::Asking);
    if is_internal && command.about.group == "server" {
        fields.push((
            "doc_flags".into(),
            simple_set(["syscmd".into()].into_iter()),
        ));
    }
    if let Some((since, replaced_by)) = about.deprecated {
        fields.push((
            "doc_flags".into(),
            simple_set(["deprecated".into()].into_iter()),
        ));
        fields.push(("deprecated_since".into(), since.into()));
        fields.push(("replaced_by".into(), replaced_by.into()));
    }
    let arguments = syntax::arguments(command.syntax, command.keys.0.len()).unwrap_or_default();
    if !arguments.is_empty() {
        fields.push(("arguments".into(), Reply::Array(arguments)));
    }
    let subcommands = command.shown_subcommands();
    if !subcommands.is_empty() {
        fields.push(("subcommands".into(), document_all(subcommands.iter())));
    }
    Reply::Map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::keys::Access;

    fn range(first: usize, last: i32, step: usize) -> KeySpec {
        KeySpec {
            access: Access::READ,
            place: Place::Range { first, last, step },
        }
    }

    #[test]
    fn ranges_that_follow_each_other_are_one() {
        let counted = KeySpec {
            access: Access::READ,
            place: Place::Counted { count_at: 2 },
        };
        let check = |specs: &[KeySpec], first, last, step| {
            assert_eq!(plain_range(specs), Range { first, last, step });
        };
        check(&[], 0, 0, 0);
        check(&[range(1, 1, 1)], 1, 1, 1);
        check(&[range(1, -1, 2)], 1, -1, 2);
        check(&[range(1, 1, 1), range(2, 2, 1)], 1, 2, 1);
        check(&[range(1, 1, 1), range(2, -1, 1)], 1, -1, 1);
        check(&[range(1, 1, 1), counted], 1, 1, 1);
    }

    #[test]
    fn subcommands_are_found_by_their_full_names() {
        let name = |text: &[u8]| find_by_full_name(text).map(|command| command.full_name);
        assert_eq!(name(b"Config|GET"), Some("config|get"));
        assert_eq!(name(b"get"), Some("get"));
        assert_eq!(name(b"config|bogus"), None);
        assert_eq!(name(b"get|x"), None);
        assert_eq!(name(b"debug|sleep"), None);
    }
}
