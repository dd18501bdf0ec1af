//! COMMAND and COMMAND DOCS beside those of a real redis-server: names, arity, flags, keys, categories, tips, arguments.
//! What differs is listed with its reason in `tests/command-table.txt`, and what is listed does differ.

use std::collections::BTreeMap;

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

/// What is told about a command, by aspect.
type Description = BTreeMap<&'static str, String>;

const DIFFERENCES: &str = include_str!("../command-table.txt");

/// In the order of COMMAND INFO.
const ASPECTS: [&str; 9] = [
    "name",
    "arity",
    "flags",
    "first key",
    "last key",
    "key step",
    "categories",
    "tips",
    "key specifications",
];

const DOCUMENTED: [&str; 8] = [
    "summary",
    "since",
    "group",
    "complexity",
    "doc_flags",
    "deprecated_since",
    "replaced_by",
    "history",
];

fn fields(map: &Value) -> impl Iterator<Item = (String, &Value)> {
    let items = map.items().expect("a map");
    items.chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1]))
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().expect("a string")).into_owned()
}

fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    let found = fields(map).find(|(field, _)| field == name);
    found.map(|(_, value)| value)
}

/// An argument without its history.
fn argument(given: &Value) -> String {
    let kept = fields(given).filter(|(name, _)| name != "since" && name != "deprecated_since");
    let spelled = kept.map(|(name, value)| match name.as_str() {
        "arguments" => format!("arguments: ({})", arguments(value)),
        _ => format!("{name}: {value:?}"),
    });
    spelled.collect::<Vec<_>>().join(", ")
}

fn arguments(given: &Value) -> String {
    let items = given.items().expect("an array").iter().map(argument);
    items.collect::<Vec<_>>().join("; ")
}

/// Every command and subcommand of a server.
fn described(client: &mut Client) -> BTreeMap<String, Description> {
    fn add_info(info: &Value, all: &mut BTreeMap<String, Description>) {
        let parts = info.items().expect("a description");
        let description = all.entry(text(&parts[0])).or_default();
        for (aspect, value) in ASPECTS.into_iter().zip(parts) {
            description.insert(aspect, format!("{value:?}"));
        }
        for subcommand in parts[ASPECTS.len()].items().expect("subcommands") {
            add_info(subcommand, all);
        }
    }
    fn add_docs(docs: &Value, all: &mut BTreeMap<String, Description>) {
        for (name, doc) in fields(docs) {
            let description = all.entry(name).or_default();
            for aspect in DOCUMENTED {
                let told = field(doc, aspect).map(|value| format!("{value:?}"));
                description.insert(aspect, told.unwrap_or_default());
            }
            let spelled = field(doc, "arguments").map(arguments);
            description.insert("arguments", spelled.unwrap_or_default());
            if let Some(subcommands) = field(doc, "subcommands") {
                add_docs(subcommands, all);
            }
        }
    }
    let mut all = BTreeMap::new();
    for info in client.line("COMMAND").items().expect("commands") {
        add_info(info, &mut all);
    }
    add_docs(&client.line("COMMAND DOCS"), &mut all);
    all
}

/// A difference as the list spells it, and what it is.
struct Difference {
    spelled: String,
    detail: String,
}

fn differences(
    ours: &BTreeMap<String, Description>,
    theirs: &BTreeMap<String, Description>,
) -> Vec<Difference> {
    let lacks = |table: &BTreeMap<String, Description>, name: &str| {
        let container = name.split_once('|').map(|(container, _)| container);
        !table.contains_key(name) && container.is_none_or(|name| table.contains_key(name))
    };
    let one_sided = |word: &str, names: Vec<&String>| -> Vec<Difference> {
        let differing = names.into_iter().map(|name| Difference {
            spelled: format!("{word} {name}"),
            detail: String::new(),
        });
        differing.collect()
    };
    let missing = theirs.keys().filter(|name| lacks(ours, name)).collect();
    let extra = ours.keys().filter(|name| lacks(theirs, name)).collect();
    let mut found = one_sided("missing", missing);
    found.extend(one_sided("additional", extra));
    for (name, our) in ours {
        let Some(their) = theirs.get(name) else {
            continue;
        };
        for (aspect, told) in our {
            let expected = their.get(aspect).cloned().unwrap_or_default();
            if *told != expected {
                found.push(Difference {
                    spelled: format!("{name} {aspect}"),
                    detail: format!("{told}\n      {expected}"),
                });
            }
        }
    }
    found
}

/// The list has one star in a line, if any.
fn stands_for(listed: &str, spelled: &str) -> bool {
    match listed.split_once('*') {
        None => listed == spelled,
        Some((before, after)) => {
            spelled.len() >= before.len() + after.len()
                && spelled.starts_with(before)
                && spelled.ends_with(after)
        }
    }
}

#[test]
fn the_table_is_that_of_redis_but_for_what_is_listed() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let ours = described(&mut cairn.client());
    let theirs = described(&mut redis.client());
    assert!(ours.len() > 250 && theirs.len() > 350);
    let untold = |name: &&String| {
        let told = &ours[*name];
        ["summary", "complexity", "since", "group"]
            .iter()
            .any(|aspect| told[aspect].is_empty())
    };
    let untold: Vec<&String> = ours.keys().filter(untold).collect();
    assert!(untold.is_empty(), "not documented: {untold:?}");
    let listed: Vec<&str> = DIFFERENCES
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    let found = differences(&ours, &theirs);
    let is_listed = |difference: &&Difference| {
        let spelled = &difference.spelled;
        listed.iter().any(|listed| stands_for(listed, spelled))
    };
    let unlisted: Vec<String> = found
        .iter()
        .filter(|difference| !is_listed(difference))
        .map(|Difference { spelled, detail }| format!("  {spelled}\n      {detail}"))
        .collect();
    assert!(unlisted.is_empty(), "not listed:\n{}", unlisted.join("\n"));
    let is_stale = |line: &&&str| !found.iter().any(|found| stands_for(line, &found.spelled));
    let stale: Vec<_> = listed.iter().filter(is_stale).collect();
    assert!(stale.is_empty(), "listed, and no different: {stale:?}");
}
