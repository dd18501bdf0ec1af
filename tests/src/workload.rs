//! A load from many connections that knows, when the server comes back, what it must find.
//!
//! ```text
//!     generate ──▶ argv ──▶ model: the reply it must get ──▶ server ──▶ its reply, compared
//!                    └────▶ history: in order, with the moment of each reply
//!
//!     the server is killed, comes back:   check::dump ──▶ history::locate ──▶ the next round's start
//! ```
//!
//! Each connection owns keys that nobody else touches: [`model`] says what they hold, [`generate`]
//! picks what to do with them, [`history`] finds out which of its commands survived. In between it
//! works on keys that all connections share, and that keep invariants instead ([`shared`], [`counted`]).
//! Half of the connections pipeline, the others wait for each reply.
//!
//! A round runs until the server is killed under it. What was in flight then may have been applied or
//! not, but each command, or [`unit`] of several, whole and all of them in order.

mod counted;
mod explain;
pub mod generate;
pub mod history;
pub mod model;
mod sequences;
pub mod shared;
mod unit;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::check::Dump;
use crate::client::{Client, Value};
use explain::describe_all;
use generate::Generator;
pub use generate::unix_millis;
use history::{History, Keys, Step};
use model::{Argv, Expected, Model, picked};
use shared::{Shared, Survived, Tracked};
use unit::Form;

const LONGEST_PIPELINE: usize = 40;
const LONGEST_UNIT: usize = 6;

/// What a server owes its clients when it comes back.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// Whatever was answered is there.
    Everything,
    /// Whatever was answered that long before the end is there.
    AllBut(Duration),
}

/// What came of a round, or of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub acknowledged: usize,
    /// Of these, how many are gone. The promise allowed it.
    pub lost: usize,
    /// Sent and never answered, yet there.
    pub unanswered_but_kept: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.unanswered_but_kept += other.unanswered_but_kept;
    }
}

pub struct Workload {
    connections: Vec<Connection>,
    shared: Shared,
}

impl Workload {
    pub fn new(connections: usize, rng: &mut Rng) -> Workload {
        let connection = |id| Connection::new(id, rng.fork());
        Workload {
            connections: (0..connections).map(connection).collect(),
            shared: Shared::default(),
        }
    }

    /// Loads the server at `addr` until `end` has ended it. `end` tells at which moment it began to,
    /// and until then the server must have answered, and rightly.
    pub fn run(&mut self, addr: &str, end: impl FnOnce() -> Instant) -> Result<Instant, String> {
        let mut client = Client::connect(addr).map_err(|error| error.to_string())?;
        self.shared.prepare(&mut client);
        let shared = self.shared;
        let ended = thread::scope(|scope| {
            for connection in &mut self.connections {
                scope.spawn(move || connection.drive(addr, shared));
            }
            end()
        });
        let troubles = self.connections.iter_mut();
        let troubles: Vec<String> = troubles.filter_map(|one| one.trouble(ended)).collect();
        if troubles.is_empty() {
            Ok(ended)
        } else {
            Err(troubles.join("\n"))
        }
    }

    /// Compares what a restarted server holds with what the last round did until `ended`. From there
    /// the next round goes on.
    pub fn verify(
        &mut self,
        found: &Dump,
        promise: Promise,
        ended: Instant,
    ) -> Result<Tally, Vec<String>> {
        let mut tally = Tally::default();
        let mut violations = Vec::new();
        let mut survived = Survived::default();
        for connection in &mut self.connections {
            let history = &connection.history;
            let at_least = match promise {
                Promise::Everything => history.acknowledged(),
                Promise::AllBut(window) => history.acknowledged_before(ended - window),
            };
            match history.locate(at_least, found, &connection.prefix()) {
                Err(violation) => violations.push(format!("{}: {violation}", connection.id)),
                Ok(survival) => {
                    let bounds = |tracked| {
                        let done = |steps| history.count(steps, tracked);
                        done(survival.first)..=done(survival.last)
                    };
                    survived.counted.push(bounds(Tracked::Counted));
                    survived.journaled.push(bounds(Tracked::Journaled));
                    survived.seen = survived.seen.max(history.highest_seen(at_least));
                    tally += connection.tally(survival.last);
                    connection.go_on_from(survival.state);
                }
            }
        }
        // Without knowing what each connection has kept, the shared keys have no bounds.
        if violations.is_empty() {
            violations = self.shared.violations(found, &survived);
        }
        if violations.is_empty() {
            Ok(tally)
        } else {
            Err(violations)
        }
    }
}

struct Connection {
    id: usize,
    generator: Generator,
    history: History,
    /// What its keys hold once all that was sent is done.
    model: Model,
    journaled: usize,
    /// The first reply that was wrong.
    wrong: Option<String>,
    /// When and how the server was found gone.
    parted: Option<(Instant, io::Error)>,
}

impl Connection {
    fn new(id: usize, rng: Rng) -> Connection {
        Connection {
            id,
            generator: Generator::new(id, rng),
            history: History::default(),
            model: Model::default(),
            journaled: 0,
            wrong: None,
            parted: None,
        }
    }

    fn prefix(&self) -> Vec<u8> {
        format!("w{}:", self.id).into_bytes()
    }

    fn tally(&self, survived: usize) -> Tally {
        let acknowledged = self.history.acknowledged();
        Tally {
            acknowledged,
            lost: acknowledged.saturating_sub(survived),
            unanswered_but_kept: survived.saturating_sub(acknowledged),
        }
    }

    fn go_on_from(&mut self, state: Model) {
        self.generator.start_over();
        self.history = History::starting_from(state.clone());
        self.model = state;
        self.journaled = 0;
    }

    /// What went wrong in a round, given when the server was ended on purpose.
    fn trouble(&mut self, ended: Instant) -> Option<String> {
        let parted = self.parted.take();
        let early = parted.filter(|(when, _)| *when < ended);
        let early = early.map(|(_, error)| format!("connection {}: lost: {error}", self.id));
        self.wrong.take().or(early)
    }

    /// Sends commands until the server is gone, or has answered wrongly.
    fn drive(&mut self, addr: &str, shared: Shared) {
        let mut client = match Client::connect(addr) {
            Ok(client) => client,
            Err(error) => return self.parted = Some((Instant::now(), error)),
        };
        let longest = if self.id.is_multiple_of(2) {
            1
        } else {
            LONGEST_PIPELINE
        };
        while self.wrong.is_none() {
            let length = self.generator.rng().usize(1..=longest);
            let awaited = self.send_pipeline(&mut client, length, shared);
            for awaited in awaited {
                match awaited.receive(&mut client) {
                    Ok(reply) => self.take_reply(&awaited.expected, &reply),
                    Err(error) => return self.parted = Some((Instant::now(), error)),
                }
            }
        }
    }

    /// Queues up to `length` steps. An SPOP is the last one: what comes after it would depend on what it
    /// picks. So is a read: its reply may be large, and nobody takes it while we still send.
    fn send_pipeline(
        &mut self,
        client: &mut Client,
        length: usize,
        shared: Shared,
    ) -> Vec<Awaited> {
        let mut replies = Vec::with_capacity(length);
        while replies.len() < length {
            if self.generator.rng().u8(..20) == 0
                && let Some(argv) = self.generator.read_back(&self.model)
            {
                let expected = self.model.execute(&argv);
                replies.push(self.send(client, Form::Alone, vec![argv], Keys::Own, expected));
                break;
            }
            let awaited = self.send_change(client, shared);
            let picks = matches!(awaited.expected, Expected::Picks { .. });
            replies.push(awaited);
            if picks {
                break;
            }
        }
        replies
    }

    fn send_change(&mut self, client: &mut Client, shared: Shared) -> Awaited {
        match self.generator.rng().u8(..20) {
            0..2 => {
                let rng = self.generator.rng();
                let (argv, expected, tracked) = shared.command(rng, self.id, self.journaled);
                self.journaled += usize::from(tracked == Tracked::Journaled);
                let on = Keys::Shared(tracked);
                self.send(client, Form::Alone, vec![argv], on, expected)
            }
            2 => {
                let rng = self.generator.rng();
                let form = Form::of_several(rng);
                let (commands, expected) = shared.unit(rng);
                let on = Keys::Shared(Tracked::Nothing);
                self.send(client, form, commands, on, expected)
            }
            3..5 => {
                let argv = self.generator.brief();
                self.model.execute(&argv);
                self.send(
                    client,
                    Form::Alone,
                    vec![argv],
                    Keys::Own,
                    Expected::NoError,
                )
            }
            5..7 => {
                let form = Form::of_several(self.generator.rng());
                let (commands, expected) = self.own_unit();
                self.send(client, form, commands, Keys::Own, expected)
            }
            _ => {
                let argv = self.generator.lasting(&self.model);
                let expected = self.model.execute(&argv);
                self.send(client, Form::Alone, vec![argv], Keys::Own, expected)
            }
        }
    }

    /// Some commands on the connection's lasting keys. None of them is an SPOP: the next one would depend on
    /// what it picks.
    fn own_unit(&mut self) -> (Vec<Argv>, Expected) {
        let length = self.generator.rng().usize(2..=LONGEST_UNIT);
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        while commands.len() < length {
            let argv = self.generator.lasting(&self.model);
            if argv[0] != b"SPOP" {
                expected.push(self.model.execute(&argv));
                commands.push(argv);
            }
        }
        (commands, Expected::Each(expected))
    }

    fn send(
        &mut self,
        client: &mut Client,
        form: Form,
        commands: Vec<Argv>,
        on: Keys,
        expected: Expected,
    ) -> Awaited {
        let prefix = match on {
            Keys::Own => self.prefix(),
            Keys::Shared(_) => shared::PREFIX.into(),
        };
        let announcements = form.send(client, &commands, &prefix);
        self.history.steps.push(Step { commands, on });
        Awaited {
            announcements,
            expected,
        }
    }

    fn take_reply(&mut self, expected: &Expected, reply: &Value) {
        let index = self.history.acknowledged();
        if !expected.accepts(reply) {
            let commands = describe_all(&self.history.steps[index].commands);
            let wrong = format!("connection {}: {commands}\n  answered {reply:?}", self.id);
            self.wrong = Some(format!("{wrong}\n  expected {expected:?}"));
        }
        if let (Expected::Picks { .. }, Some(members)) = (expected, picked(reply)) {
            let removal = self.history.settle_pop(index, members);
            self.model.execute(removal);
        }
        if let Keys::Shared(Tracked::Counted | Tracked::Observed) = self.history.steps[index].on
            && let Some(count) = counted(reply)
        {
            self.history.saw_count(index, count);
        }
        self.history.acknowledge();
    }
}

/// What is to come for a step that was sent.
struct Awaited {
    /// Replies that say no more than that a command is queued.
    announcements: usize,
    expected: Expected,
}

impl Awaited {
    fn receive(&self, client: &mut Client) -> io::Result<Value> {
        for _ in 0..self.announcements {
            client.try_receive()?;
        }
        client.try_receive()
    }
}

/// A count in a reply to INCR or GET.
fn counted(reply: &Value) -> Option<usize> {
    match reply {
        Value::Int(count) => usize::try_from(*count).ok(),
        Value::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}
