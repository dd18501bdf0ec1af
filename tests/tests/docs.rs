//! COMMAND DOCS: what redis-cli and others make their hints of.

use cairn_tests::client::Client;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

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

/// Commands by name with their arguments, subcommands included.
fn documented(client: &mut Client) -> Vec<(String, String)> {
    fn add(docs: &Value, all: &mut Vec<(String, String)>) {
        for (name, doc) in fields(docs) {
            let arguments = field(doc, "arguments").map(arguments);
            all.push((name, arguments.unwrap_or_default()));
            if let Some(subcommands) = field(doc, "subcommands") {
                add(subcommands, all);
            }
        }
    }
    let mut all = Vec::new();
    add(&client.line("COMMAND DOCS"), &mut all);
    all
}

#[test]
fn arguments_are_those_of_redis() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let ours = documented(&mut cairn.client());
    let theirs = documented(&mut redis.client());
    assert!(ours.len() > 150);
    let differing: Vec<String> = ours
        .iter()
        .filter_map(|(name, arguments)| {
            let (_, expected) = theirs.iter().find(|(other, _)| other == name)?;
            (arguments != expected).then(|| format!("{name}:\n  {arguments}\n  {expected}"))
        })
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
