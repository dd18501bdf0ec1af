//! Starting, accepting connections, and stopping.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_engine::{EngineOptions, SystemTime};
use cairn_store::{Background, Pace, RankOptions, Store, StoreOptions};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::address::{Address, Move};
use crate::client::Place;
use crate::config::Settings;
use crate::connection::{Connection, DENIED, TOO_MANY_CLIENTS};
use crate::descriptors::Shares;
use crate::housekeeping;
use crate::script;
use crate::server::Server;
use crate::space;
use crate::turn::Worker;

/// Opens the database and serves until asked to stop.
pub fn serve(mut settings: Settings) -> Result<(), String> {
    let threads = settings.threads.unwrap_or_else(default_threads);
    let memory = settings.memory.unwrap_or_else(default_memory);
    let address = settings.values.address();
    let listener = address.listen()?;
    let files = Shares::take(settings.max_clients())?;
    settings.set_max_clients(files.clients)?;
    let options = StoreOptions {
        engine: EngineOptions {
            memory,
            background_threads: cores().max(2),
            open_tables: files.tables,
            ..EngineOptions::default()
        },
        sync: settings.sync,
        databases: settings.databases,
        time: Box::new(SystemTime),
        ranks: RankOptions {
            is_enabled: settings.rank_index,
            ..RankOptions::default()
        },
    };
    let store = Store::open(&settings.dir, options).map_err(|error| error.to_string())?;
    let background = Background::start(&store, pace(&settings))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let server = Server::new(store, settings);
    load_users(&server)?;
    script::functions::load(&server).map_err(|error| format!("cannot load functions: {error}"))?;
    let most_clients = &server.live.most_clients;
    most_clients.store(files.most_clients, Ordering::Relaxed);
    let workers: Vec<WorkerThread> = (0..threads)
        .map(|number| WorkerThread::start(number, server.clone()))
        .collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.spawn(housekeeping::run(server.clone()));
    runtime.spawn(space::watch(server.clone()));
    let result = runtime.block_on(accept(address, listener, &server, &workers));
    server.stop();
    for worker in workers {
        worker.join();
    }
    let store = server.store.clone();
    drop(background);
    drop(runtime);
    drop(server);
    store.close();
    result
}

fn load_users(server: &Server) -> Result<(), String> {
    let settings = &server.settings;
    if let Some(path) = settings.acl_file() {
        let loaded = server.acl.load(&path, &settings.values.text("aclfile"));
        loaded.map_err(|errors| format!("cannot load the users: {errors}"))?;
    }
    server.acl.configure(&settings.users)
}

fn pace(settings: &Settings) -> Pace {
    Pace {
        expire_interval: settings.expire_interval,
        expire_batch: settings.expire_batch,
        ..Pace::default()
    }
}

/// The other half of the cores is for moving rows into RocksDB, for its compactions, and for the kernel's part
/// of the network. Measured on two cores: a second thread takes from those more than it gives.
fn default_threads() -> usize {
    (cores() / 2).max(1)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A quarter of the machine's memory, and not less than 256 MiB.
fn default_memory() -> usize {
    // SAFETY: sysconf takes any name and only reads.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let total = usize::try_from(pages).unwrap_or(0) * usize::try_from(page).unwrap_or(0);
    (total / 4).max(256 << 20)
}

/// Where connections come in.
struct Listening {
    address: Address,
    /// None if it could not be opened again.
    listener: Option<TcpListener>,
}

impl Listening {
    fn new(address: Address, listener: std::net::TcpListener) -> std::io::Result<Listening> {
        let listener = TcpListener::from_std(listener)?;
        let local = listener.local_addr()?;
        tracing::info!("{local}: ready to accept connections");
        Ok(Listening {
            address,
            listener: Some(listener),
        })
    }

    async fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr)> {
        match &self.listener {
            Some(listener) => listener.accept().await,
            None => std::future::pending().await,
        }
    }

    /// Listens elsewhere, or as before if that fails. The new socket comes first, unless the old one is
    /// in its way.
    fn move_to(&mut self, to: Address) -> Result<(), String> {
        let listen = |address: &Address| {
            let listening = Listening::new(address.clone(), address.listen()?);
            listening.map_err(|error| error.to_string())
        };
        let mut moved = listen(&to);
        if moved.is_err() && to.port == self.address.port {
            self.listener = None;
            moved = listen(&to);
        }
        if moved.is_err() && self.listener.is_none() {
            *self = listen(&self.address)?;
        }
        *self = moved?;
        Ok(())
    }
}

async fn accept(
    address: Address,
    listener: std::net::TcpListener,
    server: &Arc<Server>,
    workers: &[WorkerThread],
) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |error: std::io::Error| format!("cannot start: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut stopping = server.stopping();
    let mut moves = server.moves.receiver().ok_or("cannot start twice")?;
    let mut listening = Listening::new(address, listener).map_err(cannot)?;
    let mut next = 0;
    loop {
        tokio::select! {
            accepted = listening.accept() => match accepted {
                Ok((stream, peer)) => {
                    server.stats.connections.add(1);
                    if server.live.denies(peer.ip()) {
                        server.stats.rejected_connections.add(1);
                        reject(stream, DENIED).await;
                        continue;
                    }
                    let limit = server.live.max_clients.load(Ordering::Relaxed);
                    let Some(place) = server.clients.reserve(limit) else {
                        server.stats.rejected_connections.add(1);
                        reject(stream, TOO_MANY_CLIENTS).await;
                        continue;
                    };
                    workers[next % workers.len()].hand_over(stream, place);
                    next += 1;
                }
                Err(error) => {
                    // Out of file descriptors, mostly: others must be closed first.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(Move { to, done }) = moves.recv() => {
                // Nobody is left to hear it, if the client has run out of patience.
                let _ = done.send(listening.move_to(to));
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    tracing::info!("stopping");
    Ok(())
}

async fn reject(mut stream: TcpStream, reason: &[u8]) {
    let write = stream.write_all(reason);
    // Best effort: the client may be gone, or not listening.
    let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
}

/// The stack of threads that run commands. A script takes up to a megabyte of it.
const STACK: usize = 4 << 20;

/// A connection on its way to the thread that serves it.
type Accepted = (std::net::TcpStream, Place);

/// A thread with a loop of its own; a connection stays with the one it was given to.
struct WorkerThread {
    connections: mpsc::UnboundedSender<Accepted>,
    thread: JoinHandle<()>,
}

impl WorkerThread {
    fn start(number: usize, server: Arc<Server>) -> Result<Self, String> {
        let (connections, accepted) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_stack_size(STACK)
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .stack_size(STACK)
            .spawn(move || {
                LocalSet::new().block_on(&runtime, work(server, accepted));
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(WorkerThread {
            connections,
            thread,
        })
    }

    fn hand_over(&self, stream: TcpStream, place: Place) {
        if let Ok(stream) = stream.into_std() {
            // A worker that has stopped lets the connection drop, as it drops the others.
            let _ = self.connections.send((stream, place));
        }
    }

    fn join(self) {
        drop(self.connections);
        if self.thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}

async fn work(server: Arc<Server>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    let worker = Worker::new(server.clone());
    let mut stopping = server.stopping();
    loop {
        tokio::select! {
            stream = accepted.recv() => match stream {
                Some(stream) => {
                    if let Err(error) = start_connection(&worker, stream) {
                        tracing::debug!("a connection failed at once: {error}");
                    }
                }
                None => break,
            },
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    worker.finish().await;
}

fn start_connection(worker: &Rc<Worker>, (stream, place): Accepted) -> std::io::Result<()> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let keepalive = worker.server.live.tcp_keepalive.load(Ordering::Relaxed);
    if keepalive > 0 {
        let settings = TcpKeepalive::new().with_time(Duration::from_secs(keepalive));
        SockRef::from(&stream).set_tcp_keepalive(&settings)?;
    }
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let user = worker.server.acl.default_user().clone();
    let entered = worker
        .server
        .clients
        .enter(place, peer, local, stream.as_raw_fd(), user);
    let client = entered.client.clone();
    let connection = Connection::new(stream, worker.clone(), entered);
    let task = tokio::task::spawn_local(connection.serve());
    client.set_task(task.abort_handle());
    Ok(())
}
