//! What Redis answers, byte for byte, to requests well-formed, odd and broken.
//!
//! The scripts are held against a little server made of this crate's parser and writer, with the input
//! in one piece and byte by byte. That the scripts tell the truth is checked against a real Redis 7.0 by
//! an ignored test: `cargo test -p cairn-resp --test conversation -- --ignored`.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cairn_resp::{Args, Limits, Parsed, Parser, Protocol, Reply, Writer};

const OPEN: &str = include_str!("conversation.txt");
const UNAUTHENTICATED: &str = include_str!("conversation_unauthenticated.txt");

/// Stands at the end of an answer after which the connection is closed.
const HANGS_UP: &[u8] = b"<hangs up>";

#[test]
fn the_parser_answers_as_the_scripts_say() {
    let limits = Limits::default();
    let strict = limits.unauthenticated();
    check(OPEN, |input| little_server(input, input.len(), limits));
    check(UNAUTHENTICATED, |input| {
        little_server(input, input.len(), strict)
    });
}

#[test]
fn byte_by_byte_it_answers_the_same() {
    let limits = Limits::default();
    let strict = limits.unauthenticated();
    check(OPEN, |input| little_server(input, 1, limits));
    check(UNAUTHENTICATED, |input| little_server(input, 1, strict));
}

#[test]
#[ignore = "needs a redis-server 7.0 on the PATH"]
fn redis_answers_as_the_scripts_say() {
    let open = Redis::start(&[]);
    check(OPEN, |input| open.talk(input));
    let locked = Redis::start(&["--requirepass", "secret"]);
    check(UNAUTHENTICATED, |input| locked.talk(input));
}

fn check(script: &str, answer: impl Fn(&[u8]) -> Vec<u8>) {
    let exchanges = exchanges(script);
    assert!(exchanges.len() > 5, "the script was not understood");
    for (sent, expected) in exchanges {
        let answered = answer(&unescape(sent)).escape_ascii().to_string();
        assert_eq!(answered, expected.escape_ascii().to_string(), "to {sent}");
    }
}

/// Each line that is sent, still escaped, with the whole of its answer.
fn exchanges(script: &str) -> Vec<(&str, Vec<u8>)> {
    let mut exchanges: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in script.lines() {
        let (mark, text) = line.split_at(line.len().min(1));
        let text = text.strip_prefix(' ').unwrap_or(text);
        match (mark, exchanges.last_mut()) {
            ("" | "#", _) => {}
            (">", _) => exchanges.push((text, Vec::new())),
            ("<", Some((_, answer))) => answer.extend(unescape(text)),
            ("!", Some((_, answer))) => {
                answer.extend(b"-ERR Protocol error: ");
                answer.extend(unescape(text));
                answer.extend(b"\r\n");
                answer.extend(HANGS_UP);
            }
            _ => panic!("not a line of a script: {line}"),
        }
    }
    exchanges
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => rest = unescape_one(rest, &mut bytes),
            '{' => {
                let (repeat, after) = rest.split_once('}').unwrap();
                let (times, what) = repeat.split_once('*').unwrap();
                bytes.extend(what.repeat(times.parse().unwrap()).bytes());
                rest = after;
            }
            plain => bytes.push(u8::try_from(plain).unwrap()),
        }
    }
    bytes
}

/// Appends what the escape after a backslash means, and returns what follows it.
fn unescape_one<'a>(rest: &'a str, bytes: &mut Vec<u8>) -> &'a str {
    let (escape, after) = rest.split_at(1);
    if escape == "x" {
        let (digits, after) = after.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        return after;
    }
    bytes.push(match escape {
        "r" => b'\r',
        "n" => b'\n',
        "t" => b'\t',
        "0" => 0,
        "\\" => b'\\',
        unknown => panic!("no such escape: {unknown}"),
    });
    after
}

/// Knows PING and ECHO, and takes its input in pieces of `piece` bytes.
fn little_server(input: &[u8], piece: usize, limits: Limits) -> Vec<u8> {
    let (mut parser, mut args) = (Parser::new(), Args::new());
    let (mut start, mut arrived) = (0, 0);
    let mut out = Vec::new();
    while arrived < input.len() {
        arrived = input.len().min(arrived + piece);
        loop {
            let buf = &input[start..arrived];
            let reply = match parser.parse(buf, &limits, &mut args) {
                Ok(Parsed::Incomplete { .. }) => break,
                Ok(Parsed::Complete { consumed }) => {
                    start += consumed;
                    respond(&args.iter(buf).collect::<Vec<_>>())
                }
                Err(error) => {
                    Reply::from(error)
                        .write(&mut Writer::new(&mut out, Protocol::Resp2))
                        .unwrap();
                    out.extend_from_slice(HANGS_UP);
                    return out;
                }
            };
            if let Some(reply) = reply {
                reply
                    .write(&mut Writer::new(&mut out, Protocol::Resp2))
                    .unwrap();
            }
        }
    }
    out
}

fn respond(request: &[&[u8]]) -> Option<Reply> {
    match request {
        [] => None,
        [b"PING"] => Some(Reply::Simple("PONG")),
        [b"ECHO", text] => Some(Reply::from(*text)),
        other => panic!("the scripts ask only for PING and ECHO, not {other:?}"),
    }
}

/// A real server on a port of its own, ended when dropped.
struct Redis {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    fn start(options: &[&str]) -> Redis {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let dir = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", ""])
            .arg("--dir")
            .arg(dir.path())
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Redis {
            process,
            port,
            _dir: dir,
        };
        for _ in 0..100 {
            if redis.connect().is_ok() {
                return redis;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("redis-server does not listen");
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port))
    }

    /// Sends `input` and collects the answer until nothing has come for a while.
    fn talk(&self, input: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        stream.write_all(input).unwrap();
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break answer.extend_from_slice(HANGS_UP),
                Ok(n) => answer.extend_from_slice(&chunk[..n]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        answer
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
