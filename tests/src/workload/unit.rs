//! Several commands as one: all of them are there when the server comes back, or none.

use fastrand::Rng;

use super::model::Argv;
use crate::client::Client;

/// How the commands of a step are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// There is one.
    Alone,
    Transaction,
}

impl Form {
    /// Any that takes several commands.
    pub fn of_several(_: &mut Rng) -> Form {
        Form::Transaction
    }

    /// Queues the commands. Before the reply that counts come some that do not: returns how many.
    pub fn send(self, client: &mut Client, commands: &[Argv]) -> usize {
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
        }
    }
}
