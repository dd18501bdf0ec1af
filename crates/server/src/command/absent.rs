//! Commands of Redis that Cairn does not have, and why. They are in no table: a client that asks whether they exist is
//! told that they do not, and one that calls them, what it has to do with.

use super::args::is;
use super::printable;

const ALONE: &str =
    "no server takes the place of another by itself, but in a cluster, see `cairn cluster`";
const ABSENT: &[(&str, &str)] = &[
    ("failover", ALONE),
    ("module", "Cairn loads no modules"),
    ("pfdebug", "Redis tests its own code by it"),
    ("pfselftest", "Redis tests its own code by it"),
    ("sentinel", "this server watches no others"),
];

/// Whether a rule of a user names such a command, or a subcommand of one.
pub fn is_absent(name: &[u8]) -> bool {
    let end = name.iter().position(|byte| *byte == b'|');
    complaint(&name[..end.unwrap_or(name.len())]).is_some()
}

/// What a client is told that calls such a command.
pub fn complaint(name: &[u8]) -> Option<String> {
    let (_, why) = ABSENT.iter().find(|(command, _)| is(name, command))?;
    let name = printable(name, 128).to_ascii_uppercase();
    Some(format!("ERR {name} is not supported: {why}"))
}

/// The same of one that Redis refuses in a cluster.
pub fn complaint_in_cluster(name: &[u8]) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_slice() {
        b"failover" => {
            Some("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn what_is_absent_is_in_no_table() {
        for (name, _) in ABSENT {
            assert!(find(name.as_bytes()).is_none(), "{name}");
            assert!(complaint(name.as_bytes()).is_some());
        }
        assert_eq!(complaint(b"get"), None);
        assert_eq!(
            complaint(b"Module").as_deref(),
            Some("ERR MODULE is not supported: Cairn loads no modules")
        );
    }
}
