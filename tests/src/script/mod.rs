//! Golden scripts: commands as typed into redis-cli, each followed by the reply it must get.
//!
//! ```text
//! # A comment.
//!
//! == HSET counts only new fields
//!
//! > HSET hash a 1 b 2
//! (integer) 2
//! > HSET hash a 3
//! (integer) 0
//! > HKEYS hash  ;; unordered
//! 1) "a"
//! 2) "b"
//! ```
//!
//! - `== title` begins a section: an empty server and new connections. With `(RESP3)` at its end
//!   the connections begin with HELLO 3.
//! - `> command` is sent on the default connection, `alice> command` on one named alice. Quoting is
//!   that of redis-cli: `"\x00\r\n"`, `'single'`.
//! - `>> "bytes" "x"*1000` sends bytes as they are, and expects bytes: one quoted line per line of
//!   the reply, `(closed)` when the server ends the connection.
//! - `wait 20ms` waits.
//! - The lines after a command, up to a blank one, are its reply: see [`notation`].
//! - After ` ;; ` a command says how its reply compares: see [`Check`]. `times 1000` sends it as
//!   often, with `{i}` counting from 1, and looks at the last reply.
//!
//! With `UPDATE=1` replies are written into the scripts instead of compared. Redis 7.0 is the
//! specification, so that is done against a real redis-server, and the difference is reviewed.

mod check;
mod notation;
mod parse;
mod run;
mod words;

use std::ops::Range;
use std::time::Duration;

pub use check::Check;
pub use run::{Failure, Outcome, Runner};

/// A script, with the lines it came from, so that it can be written back with other replies.
#[derive(Debug)]
pub struct Script {
    lines: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    /// Index of the line it stands on.
    line: usize,
    /// The lines that hold the expected reply.
    reply: Range<usize>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Section(Section),
    Wait(Duration),
    Command {
        connection: String,
        /// What follows the prompt, before `{i}` is filled in.
        text: String,
        check: Check,
        times: usize,
    },
    Raw {
        connection: String,
        bytes: Vec<u8>,
    },
}

#[derive(Clone, Debug, Default)]
struct Section {
    title: String,
    resp3: bool,
}

impl Script {
    /// The script's text with the replies of `outcome` in place of those it had.
    pub fn rewritten(&self, outcome: &Outcome) -> String {
        let mut text = String::new();
        let mut next = 0;
        let copy = |text: &mut String, lines: &[String]| {
            for line in lines {
                text.push_str(line);
                text.push('\n');
            }
        };
        for (step, reply) in self.steps.iter().zip(&outcome.replies) {
            copy(&mut text, &self.lines[next..step.reply.start]);
            copy(&mut text, reply);
            next = step.reply.end;
        }
        copy(&mut text, &self.lines[next..]);
        text
    }
}
