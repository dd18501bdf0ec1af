//! A blocking RESP client: one socket, one command at a time or many in flight.
//!
//! [`Client::command`] is for tests that expect an answer and panics without one. Tests that kill
//! servers use the `try_` forms, and learn from the error that the connection is gone.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

pub use crate::value::{DecodeError, Value, decode};

/// Longer than any reply may take, short enough that a hung test is noticed.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Client {
    socket: TcpStream,
    /// Requests not sent yet.
    unsent: Vec<u8>,
    /// Bytes received; those before `start` have been decoded.
    received: Vec<u8>,
    start: usize,
}

impl Client {
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Client> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        socket.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Client {
            socket,
            unsent: Vec::new(),
            received: Vec::new(),
            start: 0,
        })
    }

    pub fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Sends one command and waits for its reply.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.send(args);
        self.try_receive()
    }

    /// Sends one command and waits for its reply; panics when the connection fails.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        match self.try_command(args) {
            Ok(value) => value,
            Err(error) => panic!("no reply to {}: {error}", describe(args)),
        }
    }

    /// The same for a command without spaces in its arguments: `client.line("SET key value")`.
    pub fn line(&mut self, command: &str) -> Value {
        self.command(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Why such a command is refused; panics if it is not.
    #[track_caller]
    pub fn error_of(&mut self, command: &str) -> String {
        let reply = self.line(command);
        assert!(reply.is_error(), "{command}: {reply:?}");
        reply.text()
    }

    /// Switches the connection to RESP3.
    pub fn resp3(&mut self) -> Value {
        self.command(&["HELLO", "3"])
    }

    /// Queues a command. It leaves with the next [`flush`](Client::flush) or receive.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        encode(args, &mut self.unsent);
    }

    /// Queues bytes as they are, well-formed or not.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    pub fn flush(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.socket.write_all(&self.unsent)?;
            self.unsent.clear();
        }
        Ok(())
    }

    /// Waits for the next reply. A pipeline calls it as often as it called `send`.
    pub fn try_receive(&mut self) -> io::Result<Value> {
        self.flush()?;
        loop {
            match decode(&self.received[self.start..]) {
                Ok(Some((value, consumed))) => {
                    self.start += consumed;
                    return Ok(value);
                }
                Ok(None) => self.read_more()?,
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    pub fn receive(&mut self) -> Value {
        match self.try_receive() {
            Ok(value) => value,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Sends all commands at once, then collects their replies.
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<Vec<Value>> {
        for command in commands {
            self.send(command);
        }
        commands.iter().map(|_| self.try_receive()).collect()
    }

    /// The bytes that arrive next, whole replies or not: none when the server has closed the
    /// connection, an error when nothing comes within `patience`.
    pub fn receive_raw(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        self.flush()?;
        if self.start == self.received.len() {
            let usual = self.socket.read_timeout()?;
            self.socket.set_read_timeout(Some(patience))?;
            let read = self.read_more();
            self.socket.set_read_timeout(usual)?;
            match read {
                Err(error) if is_closed(&error) => return Ok(Vec::new()),
                other => other?,
            }
        }
        Ok(self.received.split_off(self.start))
    }

    /// Everything the server sends until it closes the connection.
    pub fn receive_until_closed(&mut self) -> io::Result<Vec<u8>> {
        self.flush()?;
        let mut rest = self.received.split_off(self.start);
        self.socket.read_to_end(&mut rest)?;
        Ok(rest)
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.received.drain(..self.start);
        self.start = 0;
        // Growing with what is there keeps the repeated decoding of one huge reply cheap.
        let filled = self.received.len();
        self.received.resize(filled + filled.max(16 * 1024), 0);
        let read = self.socket.read(&mut self.received[filled..]);
        let got = *read.as_ref().unwrap_or(&0);
        self.received.truncate(filled + got);
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether the error says that the server ended the connection. A server that closes with unread
/// bytes in its socket resets the connection instead of ending it.
pub fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// A request as every client library spells it: an array of bulk strings.
pub fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// The command as it may stand in a message: long arguments cut.
pub fn describe<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().map(|arg| match arg.as_ref() {
        arg if arg.len() > 64 => format!("{}…({} bytes)", arg[..48].escape_ascii(), arg.len()),
        arg => arg.escape_ascii().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}
