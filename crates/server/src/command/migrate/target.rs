//! The server that keys move to, as a client sees it.
//!
//! This is on a thread that may wait, so it does, but never longer than the caller has said: for the connection, for
//! each piece that is sent, and for each line that is received; and not while the server stops.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cairn_resp::{Protocol, Writer};
use cairn_store::Store;

/// How much is sent within one timeout.
const PIECE: usize = 64 * 1024;
/// How long it may take to notice that the server stops.
const NOTICE: Duration = Duration::from_millis(100);
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
    store: Arc<Store>,
    /// What was received, and how much of it has been read.
    input: Vec<u8>,
    read: usize,
}

impl Target {
    pub fn connect(
        host: &[u8],
        port: &[u8],
        timeout: Duration,
        store: &Arc<Store>,
    ) -> Result<Target, Lost> {
        let deadline = Deadline::after(timeout, store);
        let stream = open(host, port, timeout, &deadline).map_err(|error| match error.kind() {
            // Redis notices this when it writes.
            ErrorKind::ConnectionRefused => Lost::Writing,
            _ => Lost::Connecting,
        })?;
        Ok(Target {
            stream,
            timeout,
            store: store.clone(),
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
        let deadline = Deadline::after(self.timeout, &self.store);
        while !piece.is_empty() {
            self.stream
                .set_write_timeout(Some(deadline.while_left()?))?;
            match self.stream.write(piece) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => piece = &piece[written..],
                Err(error) if is_for_now(&error) => {}
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
        let deadline = Deadline::after(self.timeout, &self.store);
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
            self.stream.set_read_timeout(Some(deadline.while_left()?))?;
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(received) => self.input.extend_from_slice(&piece[..received]),
                Err(error) if is_for_now(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// It may be tried again, if there is time left.
fn is_for_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
    )
}

/// Opens a connection on a thread of its own: neither looking for a name nor connecting can be broken off, but they can
/// be left alone.
fn open(
    host: &[u8],
    port: &[u8],
    timeout: Duration,
    deadline: &Deadline<'_>,
) -> io::Result<TcpStream> {
    let text = |bytes| str::from_utf8(bytes).map_err(|_| ErrorKind::InvalidInput);
    // What is no port is none to Redis, too, and nobody listens there.
    let port: u16 = text(port)?.parse().unwrap_or(0);
    let host = text(host)?.to_owned();
    let (opened, result) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        // Nobody may be there any more to take it.
        let _ = opened.send(first_to_answer(&host, port, timeout));
    })?;
    loop {
        match result.recv_timeout(deadline.while_left()?) {
            Ok(opened) => return opened,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ErrorKind::Other.into()),
        }
    }
}

/// The first of the host's addresses that answers in time.
fn first_to_answer(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let began = Instant::now();
    let mut failure = ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

struct Deadline<'s> {
    began: Instant,
    timeout: Duration,
    store: &'s Store,
}

impl Deadline<'_> {
    fn after(timeout: Duration, store: &Store) -> Deadline<'_> {
        Deadline {
            began: Instant::now(),
            timeout,
            store,
        }
    }

    /// For how long to wait before this is asked again, if there is any time left.
    fn while_left(&self) -> io::Result<Duration> {
        let left = self.timeout.saturating_sub(self.began.elapsed());
        if left.is_zero() || self.store.is_stopping() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(left.min(NOTICE))
    }
}
