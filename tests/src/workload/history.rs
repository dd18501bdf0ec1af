//! What one connection did in a round, and which moment of it a server came back with.
//!
//! A server that was killed, or lost its power, must come back with a state that the connection has
//! been through: its commands up to some point, none of those after it, each whole or not at all. The
//! point may not lie before what was promised. So the history is replayed command by command, and the
//! server's state is looked for among the states on the way.

use std::collections::BTreeSet;
use std::time::Instant;

use super::explain::Closest;
use super::model::{Argv, Bytes, Expected, Model, Object};
use super::shared::Tracked;
use crate::check::Dump;

/// A server's clock may be read a little before ours.
const CLOCK_SLACK_MS: u64 = 50;

#[derive(Debug)]
pub struct Step {
    /// One, or several that are a unit.
    pub commands: Vec<Argv>,
    pub on: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Own,
    Shared(Tracked),
}

#[derive(Default)]
pub struct History {
    /// What the server held when the round began.
    base: Model,
    /// All that was sent, in order.
    pub steps: Vec<Step>,
    /// When each of the first of these was answered. The rest were in flight.
    acknowledged: Vec<Instant>,
    /// The shared count, as the replies to some of these showed it.
    seen: Vec<(usize, usize)>,
}

/// The moments of a history that a server's state may be.
#[derive(Debug)]
pub struct Survival {
    pub first: usize,
    pub last: usize,
    pub state: Model,
}

impl History {
    pub fn starting_from(base: Model) -> History {
        History {
            base,
            ..History::default()
        }
    }

    /// The oldest command that is still unanswered has been answered.
    pub fn acknowledge(&mut self) {
        self.acknowledged.push(Instant::now());
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    pub fn acknowledged_before(&self, moment: Instant) -> usize {
        self.acknowledged.partition_point(|&at| at < moment)
    }

    /// SPOP has been answered: from now on it is known what it took.
    pub fn settle_pop(&mut self, index: usize, members: Vec<Bytes>) -> &Argv {
        let argv = &mut self.steps[index].commands[0];
        *argv = removal(&argv[1], members);
        argv
    }

    pub fn saw_count(&mut self, step: usize, count: usize) {
        self.seen.push((step, count));
    }

    /// The highest count that the first `steps` showed.
    pub fn highest_seen(&self, steps: usize) -> usize {
        let early = self.seen.iter().filter(|(step, _)| *step < steps);
        early.map(|(_, count)| *count).max().unwrap_or(0)
    }

    pub fn count(&self, steps: usize, tracked: Tracked) -> usize {
        let steps = self.steps[..steps].iter();
        steps
            .filter(|step| step.on == Keys::Shared(tracked))
            .count()
    }

    /// Looks for the server's state among those after the first `at_least` commands or more.
    /// `prefix` is what all keys of this connection begin with.
    pub fn locate(&self, at_least: usize, found: &Dump, prefix: &[u8]) -> Result<Survival, String> {
        let mut state = self.base.clone();
        for step in &self.steps[..at_least] {
            advance(&mut state, step, found);
        }
        let mut differing = differing_keys(&state, found, prefix);
        let mut closest = Closest::at(at_least, &state, &differing, found);
        let mut survival: Option<Survival> = None;
        for done in at_least..=self.steps.len() {
            if done > at_least {
                let step = &self.steps[done - 1];
                advance(&mut state, step, found);
                for key in written_keys(step) {
                    if agrees(&state, found, key) {
                        differing.remove(key);
                    } else {
                        differing.insert(key.clone());
                    }
                }
            }
            if differing.is_empty() {
                // Moments that look the same differ at most in what has expired.
                let survival = survival.get_or_insert_with(|| Survival {
                    first: done,
                    last: done,
                    state: state.clone(),
                });
                survival.last = done;
            } else if differing.len() < closest.differing {
                closest = Closest::at(done, &state, &differing, found);
            }
        }
        survival.ok_or_else(|| closest.explain(self, at_least))
    }
}

fn removal(key: &[u8], members: Vec<Bytes>) -> Argv {
    let mut argv = vec![b"SREM".to_vec(), key.to_vec()];
    argv.extend(members);
    argv
}

/// Takes one step. An SPOP without an answer, always the last step, is taken to have picked what the
/// server's set now lacks.
fn advance(state: &mut Model, step: &Step, found: &Dump) {
    if step.on != Keys::Own {
        return;
    }
    for argv in &step.commands {
        advance_by(state, argv, found);
    }
}

fn advance_by(state: &mut Model, argv: &Argv, found: &Dump) {
    if let Expected::Picks { members, count } = state.execute(argv) {
        let key = &argv[1];
        let left = match found.entries.get(key).map(|entry| &entry.object) {
            Some(Object::Set(set)) => set.clone(),
            _ => BTreeSet::new(),
        };
        let mut taken: Vec<Bytes> = members.difference(&left).cloned().collect();
        if taken.len() != count {
            // It took nothing, or not what it should: then no pick leads to the server's set.
            taken = members.into_iter().take(count).collect();
        }
        state.execute(&removal(key, taken));
    }
}

fn written_keys(step: &Step) -> Vec<&Bytes> {
    match step.on {
        Keys::Shared(_) => Vec::new(),
        Keys::Own => step.commands.iter().flat_map(keys_written_by).collect(),
    }
}

fn keys_written_by(argv: &Argv) -> Vec<&Bytes> {
    let (name, args) = (argv[0].as_slice(), &argv[1..]);
    match name {
        b"MSET" => args.iter().step_by(2).collect(),
        b"DEL" | b"UNLINK" => args.iter().collect(),
        b"RENAME" | b"COPY" | b"LMOVE" | b"SMOVE" => args[..2].iter().collect(),
        _ => args[..1].iter().collect(),
    }
}

fn differing_keys(state: &Model, found: &Dump, prefix: &[u8]) -> BTreeSet<Bytes> {
    let on_server = found.entries.keys().filter(|key| key.starts_with(prefix));
    let keys = state.keys().chain(on_server);
    keys.filter(|key| !agrees(state, found, key))
        .cloned()
        .collect()
}

/// Whether the server shows this key as the model has it, or hides it because it has expired.
fn agrees(state: &Model, found: &Dump, key: &[u8]) -> bool {
    match (state.get(key), found.entries.get(key)) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(entry), None) => entry
            .expires_at
            .is_some_and(|due| due <= found.ended + CLOCK_SLACK_MS),
        (Some(entry), Some(there)) => {
            let hidden = |due: u64| due + CLOCK_SLACK_MS < found.began;
            entry == there && !entry.expires_at.is_some_and(hidden)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::workload::model::Entry;

    fn argv(line: &str) -> Argv {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    /// A history in which the first `acknowledged` of these steps have been answered. A semicolon stands
    /// between the commands of a unit.
    fn history(lines: &[&str], acknowledged: usize) -> History {
        let mut history = History::default();
        for line in lines {
            let (commands, on) = (line.split("; ").map(argv).collect(), Keys::Own);
            history.steps.push(Step { commands, on });
        }
        (0..acknowledged).for_each(|_| history.acknowledge());
        history
    }

    /// What a server holds after these commands.
    fn server(lines: &[&str]) -> Dump {
        let mut state = Model::default();
        for line in lines {
            state.execute(&argv(line));
        }
        let entry = |key: &Bytes| (key.clone(), state.get(key).unwrap().clone());
        Dump {
            entries: state.keys().map(entry).collect(),
            began: 1_000_000,
            ended: 1_000_100,
        }
    }

    const COMMANDS: [&str; 4] = [
        "SET w0:a 1",
        "RPUSH w0:l x y",
        "MSET w0:a 2 w0:b 2",
        "LPOP w0:l 1",
    ];

    fn located(acknowledged: usize, dump: &Dump) -> Option<(usize, usize)> {
        let history = history(&COMMANDS, acknowledged);
        let survival = history.locate(acknowledged, dump, b"w0:").ok()?;
        Some((survival.first, survival.last))
    }

    #[test]
    fn every_prefix_is_found() {
        for done in 0..=COMMANDS.len() {
            assert_eq!(located(0, &server(&COMMANDS[..done])), Some((done, done)));
        }
    }

    #[test]
    fn a_lost_acknowledged_command_is_noticed() {
        assert_eq!(located(3, &server(&COMMANDS[..3])), Some((3, 3)));
        assert_eq!(located(3, &server(&COMMANDS[..2])), None);
    }

    #[test]
    fn a_command_applied_by_half_is_noticed() {
        let half = ["SET w0:a 1", "RPUSH w0:l x y", "SET w0:a 2"];
        assert_eq!(located(0, &server(&half)), None);
    }

    #[test]
    fn a_unit_applied_by_half_is_noticed() {
        let unit = "SET w0:a 2; RPUSH w0:l z; DEL w0:b";
        let history = history(&["MSET w0:a 1 w0:b 1", unit, "SET w0:c 3"], 1);
        let locate = |lines: &[&str]| history.locate(1, &server(lines), b"w0:").ok();
        let begun = |rest: &[&'static str]| [&["MSET w0:a 1 w0:b 1"], rest].concat();
        let last = |survival: Option<Survival>| survival.map(|survival| survival.last);
        assert_eq!(last(locate(&begun(&[]))), Some(1));
        assert_eq!(last(locate(&begun(&["SET w0:a 2"]))), None);
        assert_eq!(last(locate(&begun(&["SET w0:a 2", "RPUSH w0:l z"]))), None);
        let whole = begun(&["SET w0:a 2", "RPUSH w0:l z", "DEL w0:b"]);
        assert_eq!(last(locate(&whole)), Some(2));
    }

    #[test]
    fn a_command_out_of_order_is_noticed() {
        assert_eq!(located(0, &server(&["MSET w0:a 2 w0:b 2"])), None);
    }

    #[test]
    fn a_key_from_nowhere_is_noticed() {
        let mut dump = server(&COMMANDS);
        let stray = Entry {
            object: Object::String(b"?".to_vec()),
            expires_at: None,
        };
        dump.entries.insert(b"w0:stray".to_vec(), stray);
        assert_eq!(located(0, &dump), None);
    }

    #[test]
    fn an_unanswered_pop_may_have_picked_anything() {
        let history = history(&["SADD w0:s a b c", "SPOP w0:s 2"], 1);
        for left in ["a", "b", "c"] {
            let dump = server(&[&format!("SADD w0:s {left}")]);
            assert_eq!(history.locate(1, &dump, b"w0:").unwrap().last, 2);
        }
        assert_eq!(
            history
                .locate(1, &server(&["SADD w0:s a b c"]), b"w0:")
                .unwrap()
                .last,
            1
        );
        assert!(
            history
                .locate(1, &server(&["SADD w0:s a b"]), b"w0:")
                .is_err()
        );
        assert!(
            history
                .locate(1, &server(&["SADD w0:s d"]), b"w0:")
                .is_err()
        );
    }

    #[test]
    fn an_expired_key_is_hidden_and_no_other() {
        let locate = |set: &str, dump: &Dump| history(&[set], 1).locate(1, dump, b"w0:").is_ok();
        let (past, future) = ("SET w0:k v PXAT 900000", "SET w0:k v PXAT 2000000");
        assert!(locate(past, &server(&[])));
        assert!(!locate(past, &server(&[past])));
        assert!(!locate(future, &server(&[])));
        assert!(locate(future, &server(&[future])));
        assert!(!locate(future, &server(&["SET w0:k v"])));
    }
}
