//! Plays a script to a server and collects where the replies differ from the expected ones.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::check::Check;
use super::notation::{self, CLOSED};
use super::{Action, Script, Section, words};
use crate::client::{Client, is_closed};
use crate::value::Value;

/// How many commands of a `times` are under way at once.
const PIPELINE: usize = 256;

/// When an expected raw reply is given up.
const RAW_LIMIT: Duration = Duration::from_secs(5);

/// How long the server has to stay silent until that is believed.
const SILENCE: Duration = Duration::from_millis(30);

/// The same when replies are recorded, and nothing says how much is still to come.
const RECORDING_SILENCE: Duration = Duration::from_millis(300);

pub struct Runner {
    addr: String,
    recording: bool,
}

/// What a run found: the reply to each step, in the form that scripts hold, and the differences.
#[derive(Debug, Default)]
pub struct Outcome {
    pub replies: Vec<Vec<String>>,
    pub failures: Vec<Failure>,
    pub commands: usize,
    /// False when the server stopped answering on the way.
    pub is_complete: bool,
}

#[derive(Debug)]
pub struct Failure {
    pub line: usize,
    pub section: String,
    pub command: String,
    pub expected: Vec<String>,
    pub actual: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}, in '{}'", self.line, self.section)?;
        writeln!(f, "    {}", self.command)?;
        for line in &self.expected {
            writeln!(f, "  - {line}")?;
        }
        for line in &self.actual {
            writeln!(f, "  + {line}")?;
        }
        Ok(())
    }
}

impl Runner {
    pub fn new(addr: impl Into<String>) -> Runner {
        Runner {
            addr: addr.into(),
            recording: false,
        }
    }

    /// Takes replies down, to be written into the script.
    pub fn recording(mut self) -> Runner {
        self.recording = true;
        self
    }

    /// Plays the script to its end, or until the server stops answering.
    pub fn run(&self, script: &Script) -> Outcome {
        let mut outcome = Outcome::default();
        // Every script begins with a section, and a section sets the scene.
        let mut scene = Scene::default();
        for step in &script.steps {
            let expected = &script.lines[step.reply.clone()];
            let played = self.play(&mut scene, &step.action, expected);
            let broke_off = played.is_err();
            let (actual, agrees) =
                played.unwrap_or_else(|error| (vec![format!("(no reply: {error})")], false));
            if !agrees {
                outcome.failures.push(Failure {
                    line: step.line + 1,
                    section: scene.section.title.clone(),
                    command: script.lines[step.line].clone(),
                    expected: expected.to_vec(),
                    actual: actual.clone(),
                });
            }
            if broke_off {
                return outcome;
            }
            outcome.commands += step.action.commands();
            // A pattern that still matches stays as its author wrote it.
            let reply = if agrees { expected.to_vec() } else { actual };
            outcome.replies.push(reply);
        }
        outcome.is_complete = true;
        outcome
    }

    /// The lines of the reply, if the action has one, and whether they are the expected ones.
    fn play(
        &self,
        scene: &mut Scene,
        action: &Action,
        expected: &[String],
    ) -> io::Result<(Vec<String>, bool)> {
        match action {
            Action::Section(section) => {
                *scene = self.open(section)?;
                Ok((Vec::new(), true))
            }
            Action::Wait(duration) => {
                thread::sleep(*duration);
                Ok((Vec::new(), true))
            }
            Action::Command {
                connection,
                text,
                check,
                times,
            } => scene.command(connection, text, check, *times, expected),
            Action::Raw { connection, bytes } => {
                let client = scene.connection(connection)?;
                client.send_raw(bytes);
                let actual = self.raw_reply(client, expected)?;
                let agrees = actual == expected;
                Ok((actual, agrees))
            }
        }
    }

    /// An empty server, and no connection yet.
    fn open(&self, section: &Section) -> io::Result<Scene> {
        match Client::connect(&self.addr)?.try_command(&["FLUSHALL"])? {
            reply if reply == Value::ok() => Ok(Scene {
                addr: self.addr.clone(),
                section: section.clone(),
                connections: HashMap::new(),
            }),
            reply => Err(io::Error::other(format!("FLUSHALL: {reply:?}"))),
        }
    }

    /// What the server sends, as raw lines. Nothing marks the end of it: it is over when it is what
    /// the script expects, when the connection is closed, or after a silence.
    fn raw_reply(&self, client: &mut Client, expected: &[String]) -> io::Result<Vec<String>> {
        let deadline = Instant::now() + RAW_LIMIT;
        let mut received = Vec::new();
        loop {
            let mut lines = notation::raw_lines(&received);
            let patience = if self.recording {
                RECORDING_SILENCE
            } else if lines != expected {
                deadline.saturating_duration_since(Instant::now())
            } else if expected.is_empty() {
                SILENCE
            } else {
                return Ok(lines);
            };
            // A timeout of zero would mean none at all.
            match client.receive_raw(patience.max(Duration::from_millis(1))) {
                Ok(more) if !more.is_empty() => received.extend(more),
                Err(error) if is_silence(&error) => return Ok(lines),
                Err(error) if !is_closed(&error) => return Err(error),
                Ok(_) | Err(_) => {
                    lines.push(CLOSED.into());
                    return Ok(lines);
                }
            }
        }
    }
}

impl Action {
    fn commands(&self) -> usize {
        match self {
            Action::Section(_) | Action::Wait(_) => 0,
            Action::Command { times, .. } => *times,
            Action::Raw { .. } => 1,
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// The connections of a section, opened when first used.
#[derive(Default)]
struct Scene {
    addr: String,
    section: Section,
    connections: HashMap<String, Client>,
}

impl Scene {
    fn connection(&mut self, name: &str) -> io::Result<&mut Client> {
        if !self.connections.contains_key(name) {
            let mut client = Client::connect(&self.addr)?;
            if self.section.resp3 {
                client.try_command(&["HELLO", "3"])?;
            }
            self.connections.insert(name.into(), client);
        }
        Ok(self.connections.get_mut(name).expect("just inserted"))
    }

    /// The reply's lines, and whether they are the expected ones.
    fn command(
        &mut self,
        connection: &str,
        text: &str,
        check: &Check,
        times: usize,
        expected: &[String],
    ) -> io::Result<(Vec<String>, bool)> {
        let client = self.connection(connection)?;
        match repeat(client, text, times) {
            Ok(reply) => {
                let actual = check.lines(&reply);
                let agrees = check.accepts(expected, &actual, &reply);
                Ok((actual, agrees))
            }
            Err(error) if is_closed(&error) => {
                let actual = vec![CLOSED.to_owned()];
                let agrees = expected == actual;
                Ok((actual, agrees))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{text}: {error}"))),
        }
    }
}

/// Sends the command `times` times and returns the last reply.
fn repeat(client: &mut Client, text: &str, times: usize) -> io::Result<Value> {
    let mut last = Value::Null;
    let mut sent = 0;
    while sent < times {
        let batch = PIPELINE.min(times - sent);
        for i in sent + 1..=sent + batch {
            let text = match times {
                1 => text.to_owned(),
                _ => text.replace("{i}", &i.to_string()),
            };
            client.send(&words::split(&text).map_err(io::Error::other)?);
        }
        for _ in 0..batch {
            last = client.try_receive()?;
        }
        sent += batch;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::server::Server;

    const RIGHT: &str = "\
== first
> SET k v
OK
bob> GET k
\"v\"
> RPUSH l {i} ;; times 600
(integer) 600
> LINDEX l -1
\"600\"
>> \"PI\"
>> \"NG\\r\\n\" \"PING\\r\\n\"
\"+PONG\\r\\n\"
\"+PONG\\r\\n\"
== fresh (RESP3)
> HGETALL k
(empty map)
> QUIT
OK
> PING
(closed)
";

    #[test]
    fn a_right_script_passes_and_a_wrong_one_fails_where_it_is_wrong() {
        let redis = Server::redis(&[]);
        let runner = Runner::new(redis.addr());
        let outcome = runner.run(&Script::parse(RIGHT).unwrap());
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);

        let wrong = RIGHT
            .replace("\"600\"", "\"599\"")
            .replace("(empty map)", "(nil)");
        let outcome = runner.run(&Script::parse(&wrong).unwrap());
        let lines: Vec<_> = outcome
            .failures
            .iter()
            .map(|failure| failure.line)
            .collect();
        assert_eq!(lines, [8, 15]);
    }

    #[test]
    fn a_server_that_ends_ends_the_run() {
        let mut redis = Server::redis(&[]);
        let runner = Runner::new(redis.addr());
        redis.kill9();
        let outcome = runner.run(&Script::parse(RIGHT).unwrap());
        assert_eq!(outcome.failures.len(), 1);
        assert!(!outcome.is_complete);
    }

    #[test]
    fn recording_fills_in_replies() {
        let redis = Server::redis(&[]);
        let runner = Runner::new(redis.addr()).recording();
        let replies = |line: &&str| !line.contains("> ") && !line.starts_with("==");
        let bare: String = RIGHT
            .lines()
            .filter(|l| !replies(l))
            .map(|l| format!("{l}\n"))
            .collect();
        let script = Script::parse(&bare).unwrap();
        let outcome = runner.run(&script);
        assert_eq!(script.rewritten(&outcome), RIGHT);
    }
}
