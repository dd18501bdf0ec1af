//! The server that keys move to, as a client sees it.
//!
//! This is on a thread that may wait, so it does, but never longer than the caller has said: for the connection, for
//! each piece that is sent, and for each line that is received.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use cairn_resp::{Protocol, Writer};

/// How much is sent within one timeout.
const PIECE: usize = 64 * 1024;
/// The longest line that is an answer.
const LONGEST_LINE: usize = 64 * 1024;

/// The target cannot be reached any more, or not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Connecting,
    Writing,
    Reading,
}

impl Lost {
    /// What Redis tells the client.
    pub fn text(self) -> &'static str {
        match self {
            Lost::Connecting => "IOERR error or timeout connecting to the client",
            Lost::Writing => "IOERR error or timeout writing to target instance",
            Lost::Reading => "IOERR error or timeout reading to target instance",
        }
    }
}

pub struct Target {
    stream: TcpStream,
    timeout: Duration,
    /// What was received, and how much of it has been read.
    input: Vec<u8>,
    read: usize,
}

impl Target {
    pub fn connect(host: &[u8], port: &[u8], timeout: Duration) -> Result<Target, Lost> {
        let stream = open(host, port, timeout).map_err(|error| match error.kind() {
            // Redis notices this when it writes.
            ErrorKind::ConnectionRefused => Lost::Writing,
            _ => Lost::Connecting,
        })?;
        Ok(Target {
            stream,
            timeout,
            input: Vec::new(),
            read: 0,
        })
    }

    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), Lost> {
        let mut request = Vec::new();
        Writer::new(&mut request, Protocol::Resp2).request(words);
        self.send_bytes(&request)
    }

    /// The payload may be large, and is not copied.
    pub fn send_restore(
        &mut self,
        name: &[u8],
        ttl: u64,
        payload: &[u8],
        replaces: bool,
    ) -> Result<(), Lost> {
        let mut head = Vec::new();
        let mut writer = Writer::new(&mut head, Protocol::Resp2);
        writer.array(if replaces { 5 } else { 4 });
        writer.bulk("RESTORE");
        writer.bulk(name);
        writer.bulk(ttl.to_string());
        writer.bulk_header(payload.len());
        self.send_bytes(&head)?;
        self.send_bytes(payload)?;
        let mut tail = b"\r\n".to_vec();
        if replaces {
            Writer::new(&mut tail, Protocol::Resp2).bulk("REPLACE");
        }
        self.send_bytes(&tail)
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        let pieces = bytes.chunks(PIECE);
        let mut sent = pieces.map(|piece| self.send_piece(piece));
        sent.try_for_each(|sent| sent.map_err(|_| Lost::Writing))
    }

    fn send_piece(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let deadline = Deadline::after(self.timeout);
        while !piece.is_empty() {
            self.stream.set_write_timeout(Some(deadline.left()?))?;
            match self.stream.write(piece) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => piece = &piece[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What the next answer says if it is an error, without its sign.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        let line = self.receive_line().map_err(|_| Lost::Reading)?;
        Ok(line.strip_prefix(b"-").map(<[u8]>::to_vec))
    }

    fn receive_line(&mut self) -> io::Result<Vec<u8>> {
        let deadline = Deadline::after(self.timeout);
        loop {
            let unread = &self.input[self.read..];
            if let Some(length) = unread.iter().position(|byte| *byte == b'\n') {
                let line = unread[..length].trim_ascii_end().to_vec();
                self.read += length + 1;
                return Ok(line);
            }
            if unread.len() > LONGEST_LINE {
                return Err(ErrorKind::InvalidData.into());
            }
            self.input.drain(..self.read);
            self.read = 0;
            self.stream.set_read_timeout(Some(deadline.left()?))?;
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(received) => self.input.extend_from_slice(&piece[..received]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The first of the host's addresses that answers in time.
fn open(host: &[u8], port: &[u8], timeout: Duration) -> io::Result<TcpStream> {
    let text = |bytes| str::from_utf8(bytes).map_err(|_| ErrorKind::InvalidInput);
    // What is no port is none to Redis, too, and nobody listens there.
    let port: u16 = text(port)?.parse().unwrap_or(0);
    let deadline = Deadline::after(timeout);
    let mut failure = ErrorKind::NotFound.into();
    for address in (text(host)?, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, deadline.left()?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

struct Deadline {
    began: Instant,
    timeout: Duration,
}

impl Deadline {
    fn after(timeout: Duration) -> Deadline {
        Deadline {
            began: Instant::now(),
            timeout,
        }
    }

    /// The time that is left, if there is any.
    fn left(&self) -> io::Result<Duration> {
        let left = self.timeout.saturating_sub(self.began.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}
