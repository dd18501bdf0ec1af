//! Who follows a server as its replica, by SYNC, and reads what it is told.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::value::{Value, decode};

pub struct Follower {
    socket: TcpStream,
    received: Vec<u8>,
    /// The snapshot that it was sent first.
    pub snapshot: Vec<u8>,
}

impl Follower {
    /// Follows the server, whose snapshot has come when this returns.
    pub fn of(addr: &str) -> io::Result<Follower> {
        let mut socket = TcpStream::connect(addr)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        socket.write_all(b"SYNC\r\n")?;
        let mut follower = Follower {
            socket,
            received: Vec::new(),
            snapshot: Vec::new(),
        };
        let length = loop {
            let line = follower.line()?;
            match line.strip_prefix("$").map(str::parse) {
                Some(Ok(length)) => break length,
                // A server that is not ready yet says nothing by empty lines.
                None if line.is_empty() => {}
                _ => return Err(io::Error::other(format!("no snapshot but {line}"))),
            }
        };
        while follower.received.len() < length {
            follower.read()?;
        }
        let rest = follower.received.split_off(length);
        follower.snapshot = std::mem::replace(&mut follower.received, rest);
        Ok(follower)
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_string());
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 * 1024];
        match self.socket.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.received.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    /// The words of the next command that it is told; a ping is none.
    pub fn next_call(&mut self) -> io::Result<Vec<String>> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match decode(&self.received).map_err(io::Error::other)? {
                Some((value, consumed)) => {
                    self.received.drain(..consumed);
                    let words = words(&value);
                    if !words[0].eq_ignore_ascii_case("ping") {
                        return Ok(words);
                    }
                }
                None if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
                None => self.read()?,
            }
        }
    }

    /// What it is told before this message is published.
    pub fn until_published(&mut self, message: &str) -> io::Result<Vec<Vec<String>>> {
        let mut told = Vec::new();
        loop {
            let words = self.next_call()?;
            if words[0].eq_ignore_ascii_case("publish") && words[2] == message {
                return Ok(told);
            }
            told.push(words);
        }
    }
}

fn words(value: &Value) -> Vec<String> {
    let Value::Array(words) = value else {
        panic!("a stream is made of requests, not {value:?}");
    };
    let text = |word: &Value| {
        let bytes = word.as_bytes().unwrap_or_default();
        bytes.escape_ascii().to_string()
    };
    words.iter().map(text).collect()
}
