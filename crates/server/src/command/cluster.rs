//! What clients of a cluster say to its members. A server stands alone, and says so as Redis does.

use cairn_resp::Reply;
use cairn_store::{Error, Result};

use super::flags::Flag::{Connection, Fast, Loading, Stale};
use super::{Args, Command, Handler, command};
use crate::session::Session;

const GROUP: &str = "cluster";

pub const DISABLED: &str = "ERR This instance has cluster support disabled";

pub const COMMANDS: &[Command] = &[
    command("asking", 1, Handler::Session(disabled))
        .flags(&[Fast, Connection])
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Has the next command run on a slot that is being imported.",
        ),
    command("readonly", 1, Handler::Session(disabled))
        .flags(&[Loading, Stale, Fast, Connection])
        .about(
            GROUP,
            "3.0.0",
            "O(1)",
            "Allows the connection to read from a replica.",
        ),
    command("readwrite", 1, Handler::Session(disabled))
        .flags(&[Loading, Stale, Fast, Connection])
        .about(GROUP, "3.0.0", "O(1)", "Takes READONLY back."),
];

fn disabled(_: &mut Session, _: &Args) -> Result<Reply> {
    Err(Error::fixed(DISABLED))
}
