//! Several commands as one: all of them are there when the server comes back, or none.

use fastrand::Rng;

use super::model::{Argv, Bytes};
use crate::client::Client;

/// How the commands of a step are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// There is one.
    Alone,
    Transaction,
    /// A script that names its keys.
    Script,
    /// A script that does not.
    BlindScript,
}

/// Runs the commands in its arguments, each behind the number of its words.
const SCRIPT: &str = "
    local replies, at = {}, 1
    while at <= #ARGV do
        local last = at + ARGV[at]
        table.insert(replies, redis.call(unpack(ARGV, at + 1, last)))
        at = last + 1
    end
    return replies";

impl Form {
    /// Any that takes several commands.
    pub fn of_several(rng: &mut Rng) -> Form {
        let forms = [Form::Transaction, Form::Script, Form::BlindScript];
        forms[rng.usize(..forms.len())]
    }

    /// Queues the commands, whose keys begin with `prefix` and nothing else does. Before the reply that counts
    /// come some that do not: returns how many.
    pub fn send(self, client: &mut Client, commands: &[Argv], prefix: &[u8]) -> usize {
        match self {
            Form::Alone => {
                client.send(&commands[0]);
                0
            }
            Form::Transaction => {
                client.send(&["MULTI"]);
                commands.iter().for_each(|command| client.send(command));
                client.send(&["EXEC"]);
                1 + commands.len()
            }
            Form::Script => {
                let words = commands.iter().flatten();
                let keys = words.filter(|word| word.starts_with(prefix)).cloned();
                client.send(&script(keys.collect(), commands));
                0
            }
            Form::BlindScript => {
                client.send(&script(Vec::new(), commands));
                0
            }
        }
    }
}

fn script(keys: Vec<Bytes>, commands: &[Argv]) -> Argv {
    let mut argv = vec![b"EVAL".to_vec(), SCRIPT.into()];
    argv.push(keys.len().to_string().into_bytes());
    argv.extend(keys);
    for command in commands {
        argv.push(command.len().to_string().into_bytes());
        argv.extend_from_slice(command);
    }
    argv
}
