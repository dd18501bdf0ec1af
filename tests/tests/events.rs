//! Keyspace events: the same commands make the same events in Cairn and in Redis, in the same order.
//!
//! `CAIRN_TEST_SEED` names other rounds of commands.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, describe};
use cairn_tests::differential::fair::name_of;
use cairn_tests::differential::grammar;
use cairn_tests::differential::round::round;
use cairn_tests::server::Server;
use cairn_tests::value::Value;

const TIME_LIMIT: Duration = Duration::from_secs(12);
const ROUND: usize = 500;
const ROUNDS: usize = 60;
/// Fewer in that time would be no test.
const AT_LEAST: usize = 3_000;
/// Commands sent before their events are read.
const AT_ONCE: usize = 50;

/// Those whose choice is random, those that concern the connection, and one that comes across keys that are due,
/// which nobody has to have deleted by then.
const LEFT_OUT: [&str; 7] = [
    "SPOP", "HELLO", "AUTH", "RESET", "CLIENT", "COMMAND", "SCAN",
];

/// A server, someone who sends it commands, and someone who listens.
struct Side {
    speaker: Client,
    listener: Client,
}

impl Side {
    fn new(server: &Server) -> Side {
        let (mut speaker, mut listener) = (server.client(), server.client());
        let classes = ["CONFIG", "SET", "notify-keyspace-events", "KEAnm"];
        assert_eq!(speaker.command(&classes), Value::ok());
        listener.command(&["PSUBSCRIBE", "__key*__:*"]);
        Side { speaker, listener }
    }

    fn send(&mut self, argv: &[Vec<u8>]) {
        self.speaker.send(argv);
        self.speaker.send(&["PUBLISH", "__keymark__:", "mark"]);
    }

    /// What was heard after each of so many commands. What a command misses that writes is not told if it fails:
    /// then it has not been.
    fn hear(&mut self, commands: usize) -> Vec<Vec<String>> {
        let mut failed = Vec::new();
        for _ in 0..commands {
            failed.push(self.speaker.receive().is_error());
            self.speaker.receive();
        }
        let mut heard = Vec::new();
        for has_failed in failed {
            let mut events = self.hear_one();
            events.retain(|event| !(has_failed && event.contains("keymiss")));
            heard.push(events);
        }
        heard
    }

    fn hear_one(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let message = self.listener.receive();
            let items = message.items().expect("a message");
            let word = |at: usize| items[at].as_bytes().expect("a word").escape_ascii();
            let event = format!("{} {}", word(2), word(3));
            if event == "__keymark__: mark" {
                return heard;
            }
            // When a key that is due goes is for the server to decide.
            if !event.contains("expired") {
                heard.push(event);
            }
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("CAIRN_TEST_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("CAIRN_TEST_SEED is a number"))
}

fn is_played(argv: &[Vec<u8>]) -> bool {
    let name = name_of(argv);
    // A bit that is far off makes a string that takes long to read.
    let is_far = name == "SETBIT" && argv.get(2).is_some_and(|offset| offset.len() > 6);
    !LEFT_OUT.contains(&name.as_str()) && !is_far
}

#[test]
fn cairn_tells_what_redis_tells() {
    let (cairn, redis) = (Server::cairn(&[]), Server::redis(&[]));
    let mut sides = [Side::new(&cairn), Side::new(&redis)];
    let grammar = grammar();
    let started = Instant::now();
    let (mut played, mut told) = (0, BTreeSet::new());
    let mut differences = Vec::new();
    'rounds: for seed in (seed()..).take(ROUNDS) {
        if started.elapsed() > TIME_LIMIT {
            break;
        }
        let mut commands = vec![
            vec![b"FLUSHALL".to_vec()],
            vec![b"SELECT".to_vec(), b"0".to_vec()],
        ];
        let drawn = round(&grammar, seed, ROUND)
            .into_iter()
            .map(|step| step.argv);
        commands.extend(drawn.filter(|argv| is_played(argv)));
        for commands in commands.chunks(AT_ONCE) {
            if differences.len() > 20 {
                break 'rounds;
            }
            for side in &mut sides {
                commands.iter().for_each(|argv| side.send(argv));
            }
            let [ours, theirs] = sides.each_mut().map(|side| side.hear(commands.len()));
            for ((argv, mut ours), mut theirs) in commands.iter().zip(ours).zip(theirs) {
                // Redis leaves open in which order it meets the elements.
                if name_of(argv).starts_with("SORT") {
                    ours.sort();
                    theirs.sort();
                }
                if ours != theirs {
                    let command = describe(argv);
                    differences.push(format!("{command}\n  ours   {ours:?}\n  theirs {theirs:?}"));
                }
                let names = theirs.iter().filter_map(|event| event.split_once("__:"));
                told.extend(
                    names.map(|(_, event)| event.split(' ').next_back().map(str::to_owned)),
                );
            }
            played += commands.len();
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(played >= AT_LEAST, "{played} commands");
    assert!(told.len() >= 40, "{told:?}");
}
