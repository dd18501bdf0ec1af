//! What followers are told, compared with what Redis tells its own: the same commands are sent to both.

use std::thread;
use std::time::Duration;

use cairn_tests::client::Client;
use cairn_tests::follower::Follower;
use cairn_tests::server::Server;

const COMMANDS: &str = include_str!("../replication-stream.txt");

/// Words, of which those in quotes may have spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').expect("an end of the quotes"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.replace("\\n", "\n"));
        rest = behind.trim_start();
    }
    words
}

struct Side {
    server: Server,
    client: Client,
    waiting: Vec<Client>,
    follower: Follower,
}

impl Side {
    fn new(server: Server) -> Side {
        let follower = Follower::of(&server.addr()).expect("a stream");
        Side {
            client: server.client(),
            waiting: Vec::new(),
            follower,
            server,
        }
    }

    /// Does a step, and returns what was told of it.
    fn told(&mut self, step: &str, mark: &str) -> Vec<Vec<String>> {
        if let Some(milliseconds) = step.strip_prefix("... ") {
            let milliseconds = milliseconds.parse().expect("a number");
            thread::sleep(Duration::from_millis(milliseconds));
        } else if let Some(command) = step.strip_prefix("2> ") {
            let mut client = self.server.client();
            client.send(&words(command));
            client.flush().expect("it is sent");
            self.waiting.push(client);
            thread::sleep(Duration::from_millis(30));
        } else {
            let lines = step.strip_prefix("~ ").unwrap_or(step).split(" | ");
            for line in lines {
                self.client.command(&words(line));
            }
        }
        self.client.command(&["PUBLISH", "mark", mark]);
        self.follower.until_published(mark).expect("the mark")
    }
}

/// Whether two words are the same, or times that are nearly so.
fn is_same(one: &str, other: &str) -> bool {
    let time = |word: &str| {
        let (ms, seq) = word.split_once('-').unwrap_or((word, ""));
        let ms: Option<u64> = ms.parse().ok().filter(|ms| *ms > 1_500_000_000_000);
        ms.map(|ms| (ms, seq.to_string()))
    };
    match (time(one), time(other)) {
        (Some((one, seq)), Some((other, other_seq))) => {
            one.abs_diff(other) < 5000 && seq == other_seq
        }
        _ => one == other,
    }
}

fn are_same(one: &[Vec<String>], other: &[Vec<String>], most: usize) -> bool {
    let is_same_call = |(one, other): (&Vec<String>, &Vec<String>)| {
        one.len() == other.len() && {
            let mut pairs = one.iter().zip(other).take(most);
            pairs.all(|(one, other)| is_same(one, other))
        }
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same_call)
}

#[test]
fn followers_are_told_what_redis_tells_its_own() {
    let mut redis = Side::new(Server::redis(&["--repl-diskless-sync", "no"]));
    let mut cairn = Side::new(Server::cairn(&["--enable-debug-command", "yes"]));
    let mut different = Vec::new();
    for (number, step) in COMMANDS.lines().enumerate() {
        if step.is_empty() || step.starts_with('#') {
            continue;
        }
        let mark = format!("step-{number}");
        let expected = redis.told(step, &mark);
        let told = cairn.told(step, &mark);
        let most = if step.starts_with('~') { 2 } else { usize::MAX };
        if !are_same(&expected, &told, most) {
            different.push(format!("{step}\n  redis {expected:?}\n  cairn {told:?}"));
        }
    }
    assert!(different.is_empty(), "\n{}", different.join("\n"));
}
