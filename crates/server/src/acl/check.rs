//! What a call is told that is not permitted.

use cairn_store::Error;

use crate::command::{Args, Command};

/// What is not permitted. The later in this list, the nearer the call came to be permitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    Command,
    Key,
    /// The client is not who it says it is.
    Auth,
    Channel,
    /// It would read keys that it does not name.
    Unnamed,
}

impl Reason {
    pub const COUNT: usize = 5;

    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
            Reason::Channel => "channel",
            Reason::Unnamed => "unnamed",
        }
    }
}

/// Where a call was made that is not permitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    TopLevel,
    Multi,
    Script,
}

impl Context {
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// A call is not permitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Denial {
    pub reason: Reason,
    /// Which argument is the key or the channel.
    pub at: usize,
}

impl Denial {
    /// The command, key or channel.
    pub fn object<'a>(&self, command: &Command, args: &Args<'a>) -> &'a [u8] {
        match self.reason {
            Reason::Command => command.full_name.as_bytes(),
            _ => args[self.at],
        }
    }

    /// What the client is told.
    pub fn error(&self, command: &Command, args: &Args<'_>) -> Error {
        match self.reason {
            Reason::Unnamed => {
                let option = String::from_utf8_lossy(args[self.at]).to_ascii_uppercase();
                Error::reply(format!(
                    "ERR {option} option of SORT denied due to insufficient ACL permissions."
                ))
            }
            Reason::Command => Error::reply(format!(
                "NOPERM this user has no permissions to run the '{}' command",
                command.full_name
            )),
            Reason::Channel => Error::fixed(
                "NOPERM this user has no permissions to access one of the channels used as arguments",
            ),
            Reason::Key | Reason::Auth => Error::fixed(
                "NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
        }
    }

    /// The same for a command that was permitted when it was queued.
    pub fn error_at_exec(&self, command: &Command, args: &Args<'_>) -> Error {
        let reason = match self.reason {
            Reason::Unnamed => return self.error(command, args),
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            Reason::Key | Reason::Auth => "no permission to touch the specified keys",
        };
        Error::reply(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {reason}"
        ))
    }

    /// The same for a script.
    pub fn error_in_script(&self, command: &Command, args: &Args<'_>) -> Error {
        Error::fixed(match self.reason {
            Reason::Unnamed => return self.error(command, args),
            Reason::Command => {
                "ERR The user executing the script can't run this command or subcommand"
            }
            Reason::Channel => {
                "ERR The user executing the script can't publish to the channel mentioned in the \
                 command"
            }
            Reason::Key | Reason::Auth => {
                "ERR The user executing the script can't access at least one of the keys mentioned \
                 in the command arguments"
            }
        })
    }
}
