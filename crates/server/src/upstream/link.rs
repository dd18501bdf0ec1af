//! One connection to the server that this one follows, until it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use cairn_rdb::file::{Progress, Reader};
use cairn_store::{Patience, Request, WriteTxn, databases};

use super::{Master, Stage};
use crate::client::Client;
use crate::interest;
use crate::propagation::request;
use crate::rdb_load::Loading;
use crate::server::Server;
use crate::shortage;

/// How long it may take to notice that nobody wants this any more.
const NOTICE: Duration = Duration::from_millis(100);
/// How long one attempt may take to reach it; a server that stops waits for no longer.
const CONNECTING: Duration = Duration::from_secs(5);
/// The longest line that is an answer.
const LONGEST_LINE: usize = 64 * 1024;
/// The length of the mark at the end of a snapshot.
const MARK: usize = 40;

/// The length of the beginning of a snapshot that says what it is.
const HEAD: usize = 9;
const UNWANTED: &str = "it is not to be followed any more";

/// Why it has ended.
type Reason = String;

/// A connection on its way to the thread that runs what comes from there.
pub struct Handover {
    pub stream: TcpStream,
    /// What has come already.
    pub input: Vec<u8>,
    pub database: u32,
    pub link: Link,
}

/// Exists for as long as that connection.
pub struct Link {
    server: Arc<Server>,
    number: u64,
    _ends: Sender<()>,
}

impl Link {
    /// The connection is this client; false if it is not wanted any more.
    pub fn begin(&self, client: &Arc<Client>) -> bool {
        let mut state = self.server.upstream.state.lock();
        let is_wanted = state.number == self.number;
        if is_wanted {
            state.client = Some(client.clone());
        }
        is_wanted
    }
}

pub(super) fn follow_once(
    server: &Arc<Server>,
    master: &Master,
    number: u64,
) -> Result<(), Reason> {
    server.upstream.enter(number, Stage::Connecting);
    let mut wire = Wire::open(server, master, number)?;
    introduce(&mut wire)?;
    let database = match synchronize(&mut wire)? {
        Begun::Again => server.upstream.database.load(Ordering::Relaxed),
        Begun::Anew { id, offset } => {
            server.upstream.enter(number, Stage::Loading);
            // A part of a snapshot is nothing to go on from.
            server.upstream.state.lock().id = None;
            shortage::look(server);
            let loaded = load(&mut wire);
            // Those who have come meanwhile were not told of it.
            server.replication.cut();
            let database = loaded?;
            let mut state = server.upstream.state.lock();
            if state.number != number {
                return Ok(());
            }
            state.id = Some(id);
            server.upstream.applied.store(offset, Ordering::Relaxed);
            database
        }
    };
    wire.send(&server.upstream.acknowledgement())?;
    let ends = hand_over(wire, database)?;
    server.upstream.enter(number, Stage::Connected);
    shortage::look(server);
    tracing::info!("this server follows {}:{}", master.host, master.port);
    while server.upstream.is_wanted(number) && !server.is_stopping() {
        if let Err(RecvTimeoutError::Disconnected) = ends.recv_timeout(NOTICE) {
            break;
        }
    }
    Ok(())
}

fn hand_over(wire: Wire<'_>, database: u32) -> Result<Receiver<()>, Reason> {
    let (ends, ended) = channel();
    let handover = Handover {
        input: wire.input[wire.read..].to_vec(),
        stream: wire.stream,
        database,
        link: Link {
            server: wire.server.clone(),
            number: wire.number,
            _ends: ends,
        },
    };
    let door = wire
        .server
        .door
        .get()
        .ok_or("this server does not serve yet")?;
    door(handover);
    Ok(ended)
}

/// Says who is there.
fn introduce(wire: &mut Wire<'_>) -> Result<(), Reason> {
    let server = wire.server.clone();
    let pong = wire.ask(&[b"PING"])?;
    let is_let_in = pong.starts_with('+')
        || ["-NOAUTH", "-NOPERM", "-ERR operation not permitted"]
            .iter()
            .any(|refusal| pong.starts_with(refusal));
    if !is_let_in {
        return Err(pong);
    }
    let (user, password) = (
        server.config.text("masteruser"),
        server.config.text("masterauth"),
    );
    if !password.is_empty() {
        let words: &[&[u8]] = match user.is_empty() {
            true => &[b"AUTH", password.as_bytes()],
            false => &[b"AUTH", user.as_bytes(), password.as_bytes()],
        };
        accepted(wire.ask(words)?)?;
    }
    let port = server.config.address().port.to_string();
    // What it does not understand it need not.
    wire.ask(&[b"REPLCONF", b"listening-port", port.as_bytes()])?;
    wire.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    Ok(())
}

fn accepted(answer: String) -> Result<(), Reason> {
    match answer.starts_with('+') {
        true => Ok(()),
        false => Err(answer),
    }
}

enum Begun {
    /// Where it was.
    Again,
    /// A snapshot follows.
    Anew { id: String, offset: u64 },
}

fn synchronize(wire: &mut Wire<'_>) -> Result<Begun, Reason> {
    let upstream = &wire.server.upstream;
    let known = upstream.state.lock().id.clone();
    let next = upstream.applied.load(Ordering::Relaxed) + 1;
    let (id, next) = match &known {
        Some(id) => (id.clone(), next.to_string()),
        None => ("?".into(), "-1".into()),
    };
    let answer = wire.ask(&[b"PSYNC", id.as_bytes(), next.as_bytes()])?;
    let words: Vec<&str> = answer.split_whitespace().collect();
    match words[..] {
        ["+CONTINUE"] => Ok(Begun::Again),
        ["+CONTINUE", id] => {
            let mut state = wire.server.upstream.state.lock();
            if state.number != wire.number {
                return Err(UNWANTED.into());
            }
            state.id = Some(id.to_string());
            Ok(Begun::Again)
        }
        ["+FULLRESYNC", id, offset] => Ok(Begun::Anew {
            id: id.to_string(),
            offset: offset.parse().map_err(|_| answer.clone())?,
        }),
        _ => Err(answer),
    }
}

/// Makes the databases what the snapshot says; returns the one that the stream is about at first.
fn load(wire: &mut Wire<'_>) -> Result<u32, Reason> {
    let server = wire.server.clone();
    let answer = wire.line()?;
    let length = answer.strip_prefix('$').ok_or_else(|| answer.clone())?;
    let mark = length.strip_prefix("EOF:").map(str::to_string);
    let mut left: u64 = match &mark {
        Some(_) => u64::MAX,
        None => length.parse().map_err(|_| answer.clone())?,
    };
    // What there is goes when it is known that there is something that can be read.
    while wire.input.len() - wire.read < HEAD {
        wire.receive()?;
    }
    let head = &wire.input[wire.read..wire.read + HEAD];
    Reader::check_head(head).map_err(|damaged| damaged.to_string())?;
    let number = wire.number;
    let shared = server.clone();
    let is_wanted = move || shared.upstream.is_wanted(number);
    flush(&server, &is_wanted).map_err(|error| error.to_string())?;
    let loading = Loading::new(&server).map_err(|error| error.to_string())?;
    let mut loading = loading.from_master(Box::new(is_wanted));
    loop {
        let piece = wire.some(left)?;
        left = left.saturating_sub(piece.len() as u64);
        let progress = loading.push(&server, &piece);
        let progress = progress.map_err(|failure| failure.to_string())?;
        if progress == Progress::Done {
            break;
        }
        if left == 0 {
            return Err(loading.cut().to_string());
        }
    }
    // What came behind the end belongs to what follows.
    wire.put_back(loading.rest());
    if mark.is_some() && mark != Some(wire.text(MARK)?) {
        return Err("the snapshot does not end with its mark".into());
    }
    tracing::info!("{} keys were loaded", loading.keys());
    Ok(loading.stream_database())
}

/// Unless it has been decided otherwise while the latch was waited for: then others write already.
fn flush(server: &Server, is_wanted: &dyn Fn() -> bool) -> cairn_store::Result<()> {
    let store = &server.store;
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Long);
    let held = store.latches().acquire_blocking(Request::everything());
    if !is_wanted() {
        return Err(cairn_store::Error::fixed(UNWANTED));
    }
    txn.begin(0);
    databases::flush(&mut txn, 0..store.database_count());
    interest::note_changes(server, &mut txn, None, None);
    let flushed = store.commit_blocking(&mut txn);
    drop(held);
    flushed
}

/// The connection, on a thread that may wait.
struct Wire<'s> {
    server: &'s Arc<Server>,
    number: u64,
    stream: TcpStream,
    patience: Duration,
    input: Vec<u8>,
    /// How much of it has been read.
    read: usize,
}

impl<'s> Wire<'s> {
    fn open(server: &'s Arc<Server>, master: &Master, number: u64) -> Result<Wire<'s>, Reason> {
        let patience = server.config.text("repl-timeout").parse().unwrap_or(60);
        let patience = Duration::from_secs(patience);
        let addresses = (master.host.as_str(), master.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| error.to_string())?;
        let mut reason = String::from("it has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, patience.min(CONNECTING)) {
                Ok(stream) => {
                    let prepared = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_read_timeout(Some(NOTICE)))
                        .and_then(|()| stream.set_write_timeout(Some(patience)));
                    prepared.map_err(|error| error.to_string())?;
                    return Ok(Wire {
                        server,
                        number,
                        stream,
                        patience,
                        input: Vec::new(),
                        read: 0,
                    });
                }
                Err(error) => reason = error.to_string(),
            }
        }
        Err(reason)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        self.stream
            .write_all(bytes)
            .map_err(|error| error.to_string())
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<String, Reason> {
        self.send(&request(words))?;
        self.line()
    }

    /// Waits until more has come.
    fn receive(&mut self) -> Result<(), Reason> {
        let until = Instant::now() + self.patience;
        self.input.drain(..self.read);
        self.read = 0;
        let mut piece = [0; 64 * 1024];
        loop {
            if !self.server.upstream.is_wanted(self.number) || self.server.is_stopping() {
                return Err(UNWANTED.into());
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("it has closed the connection".into()),
                Ok(count) => {
                    self.input.extend_from_slice(&piece[..count]);
                    return Ok(());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if Instant::now() > until {
                        return Err("it is silent".into());
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The next line that says something.
    fn line(&mut self) -> Result<String, Reason> {
        loop {
            let unread = &self.input[self.read..];
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&unread[..end])
                    .trim_end()
                    .to_string();
                self.read += end + 1;
                if !line.is_empty() {
                    return Ok(line);
                }
                continue;
            }
            if unread.len() > LONGEST_LINE {
                return Err("it does not speak this protocol".into());
            }
            self.receive()?;
        }
    }

    /// What comes next, no more than this.
    fn some(&mut self, most: u64) -> Result<Vec<u8>, Reason> {
        if self.read == self.input.len() {
            self.receive()?;
        }
        let unread = &self.input[self.read..];
        let count = unread
            .len()
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        let some = unread[..count].to_vec();
        self.read += count;
        Ok(some)
    }

    fn put_back(&mut self, bytes: &[u8]) {
        self.input.drain(..self.read);
        self.read = 0;
        self.input.splice(0..0, bytes.iter().copied());
    }

    fn text(&mut self, length: usize) -> Result<String, Reason> {
        while self.input.len() - self.read < length {
            self.receive()?;
        }
        let text = &self.input[self.read..self.read + length];
        let text = String::from_utf8_lossy(text).into_owned();
        self.read += length;
        Ok(text)
    }
}
