//! Starting, accepting connections, and stopping.

use std::io::Result as IoResult;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_engine::{EngineOptions, Memory, SystemTime, let_finish};
use cairn_store::{Background, Pace, RankOptions, Store, StoreOptions};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::address::Endpoint;
use crate::client::{Ends, Place};
use crate::cluster::Entrance;
use crate::config::Settings;
use crate::connection::{Connection, DENIED, TOO_MANY_CLIENTS};
use crate::descriptors::Shares;
use crate::guest::{self, Visit};
use crate::housekeeping;
use crate::listening::{Arrival, Listening, Opened};
use crate::room;
use crate::script;
use crate::server::Server;
use crate::space;
use crate::turn::Worker;
use crate::upstream::{self, Handover};

/// Opens the database and serves until asked to stop.
pub fn serve(mut settings: Settings) -> Result<(), String> {
    let threads = settings.threads.unwrap_or_else(default_threads);
    let memory = settings.memory.unwrap_or_else(default_memory);
    Memory::keep_within(memory);
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
        time: Box::<SystemTime>::default(),
        ranks: RankOptions {
            is_enabled: settings.rank_index,
            ..RankOptions::default()
        },
    };
    let store = match settings.cluster_enabled {
        false => Store::open(&settings.dir, options),
        true => Store::open_replicated(&settings.dir, options),
    };
    let store = store.map_err(|error| error.to_string())?;
    // Whoever has the data may replace the socket that another has left behind.
    let opened = Opened::open(&settings)?;
    let entrance = match settings.cluster_enabled {
        false => None,
        true => Some(Entrance::open(&store, &settings)?),
    };
    let background = Background::start(&store, pace(&settings))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let server = Server::new(store, settings);
    load_users(&server)?;
    server.config.reload_tls(&server.live)?;
    script::functions::load(&server).map_err(|error| format!("cannot load functions: {error}"))?;
    if let Some(entrance) = entrance {
        server.entrance.get_or_init(|| entrance).resume(&server)?;
    }
    let most_clients = &server.live.most_clients;
    most_clients.store(files.most_clients, Ordering::Relaxed);
    let evictor =
        room::start(&server).map_err(|error| format!("cannot start a thread: {error}"))?;
    let workers: Vec<WorkerThread> = (0..threads)
        .map(|number| WorkerThread::start(number, server.clone()))
        .collect::<Result<_, _>>()?;
    receive_guests(&server, &workers);
    if let Some(master) = server.settings.master()? {
        let begun = upstream::follow(&server, master);
        begun.map_err(|error| format!("cannot start a thread: {error}"))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.spawn(housekeeping::run(server.clone()));
    runtime.spawn(space::watch(server.clone()));
    let result = runtime.block_on(accept(opened, &server, &workers));
    if let Some(entrance) = server.entrance.get() {
        entrance.leave(&server);
    }
    server.stop();
    server.upstream.join();
    evictor.thread().unpark();
    if evictor.join().is_err() {
        tracing::error!("the thread that evicts panicked");
    }
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

/// From now on guests find a thread: one after the other, as connections do.
fn receive_guests(server: &Arc<Server>, workers: &[WorkerThread]) {
    let doors: Vec<_> = workers.iter().map(|it| it.connections.clone()).collect();
    let (clients, next) = (server.clients.clone(), AtomicUsize::new(0));
    let receive = move |visit: Visit| {
        let door = &doors[next.fetch_add(1, Ordering::Relaxed) % doors.len()];
        if let Some(place) = clients.reserve(usize::MAX) {
            // A worker that has stopped lets it drop, which its node is told.
            let _ = door.send((StdArrival::Guest(visit), place));
        }
    };
    server.reception.set(Box::new(receive)).ok();
    let door = workers.first().map(|it| it.connections.clone());
    let clients = server.clients.clone();
    let receive = move |handover: Handover| {
        if let (Some(door), Some(place)) = (&door, clients.reserve(usize::MAX)) {
            // A worker that has stopped lets it drop, and with it the connection.
            let _ = door.send((StdArrival::Upstream(handover), place));
        }
    };
    server.door.set(Box::new(receive)).ok();
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

async fn accept(
    opened: Opened,
    server: &Arc<Server>,
    workers: &[WorkerThread],
) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |error: std::io::Error| format!("cannot start: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot)?;
    let mut stopping = server.stopping();
    let mut moves = server.moves.receiver().ok_or("cannot start twice")?;
    let mut listening = Listening::new(opened).map_err(cannot)?;
    let mut next = 0;
    loop {
        tokio::select! {
            accepted = listening.accept() => match accepted {
                Ok(mut arrival) => {
                    server.stats.connections.add(1);
                    if let Some(place) = admit(server, &mut arrival).await {
                        workers[next % workers.len()].hand_over(arrival, place);
                        next += 1;
                    }
                }
                Err(error) => {
                    // Out of file descriptors, mostly: others must be closed first.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(wish) = moves.recv() => wish.fulfil(|to| listening.move_to(to)),
            // Whoever changes the settings may be waiting for this loop.
            _ = hangup.recv() => {
                let server = server.clone();
                tokio::task::spawn_blocking(move || {
                    match reload_tls(&server) {
                        Ok(()) => tracing::info!("the files of TLS are read again"),
                        Err(reason) => tracing::warn!("all stays as it was: {reason}"),
                    }
                });
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    tracing::info!("stopping");
    Ok(())
}

/// Reads the files of TLS again, for clients and for other nodes.
fn reload_tls(server: &Server) -> Result<(), String> {
    server.config.reload_tls(&server.live)?;
    match server.cluster.get() {
        Some(node) => server.config.with_values(|values| node.renew_tls(values)),
        None => Ok(()),
    }
}

/// A place for a connection; none if it is turned away.
async fn admit(server: &Arc<Server>, arrival: &mut Arrival) -> Option<Place> {
    let reason = match &*arrival {
        Arrival::Tcp(_, peer) if server.live.denies(peer.ip()) => DENIED,
        _ => {
            let limit = server.live.max_clients.load(Ordering::Relaxed);
            match server.clients.reserve(limit) {
                Some(place) => return Some(place),
                None => TOO_MANY_CLIENTS,
            }
        }
    };
    server.stats.rejected_connections.add(1);
    let write = async {
        match arrival {
            Arrival::Tcp(stream, _) => stream.write_all(reason).await,
            // It would have to be encrypted first.
            Arrival::Tls(_) => Ok(()),
            Arrival::Unix(stream) => stream.write_all(reason).await,
        }
    };
    // Best effort: the client may be gone, or not listening.
    let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
    None
}

/// The stack of threads that run commands. A script takes up to a megabyte of it.
const STACK: usize = 4 << 20;

/// How many tasks run before the sockets are looked at again. Those that write run twice, before the commit and after it: who looks
/// in between finds little that is new.
const TASKS_PER_LOOK: u32 = 256;

/// A connection on its way to the thread that serves it.
type Accepted = (StdArrival, Place);

enum StdArrival {
    Tcp(std::net::TcpStream),
    Tls(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    Guest(Visit),
    Upstream(Handover),
}

/// The loop of the thread that makes it. Its tasks belong to that thread, so they are woken and run without a detour.
fn worker_runtime() -> IoResult<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .event_interval(TASKS_PER_LOOK)
        .build_local(LocalOptions::default())
}

/// A thread with a loop of its own; a connection stays with the one it was given to.
struct WorkerThread {
    connections: mpsc::UnboundedSender<Accepted>,
    thread: JoinHandle<()>,
}

impl WorkerThread {
    fn start(number: usize, server: Arc<Server>) -> Result<Self, String> {
        let (connections, accepted) = mpsc::unbounded_channel();
        let (started, has_started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .stack_size(STACK)
            .spawn(move || match worker_runtime() {
                Ok(runtime) => {
                    started.send(Ok(())).ok();
                    runtime.block_on(work(server, accepted));
                }
                Err(error) => drop(started.send(Err(error))),
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        match has_started.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("cannot start: {error}")),
            Err(_) => return Err("cannot start a thread".into()),
        }
        Ok(WorkerThread {
            connections,
            thread,
        })
    }

    fn hand_over(&self, arrival: Arrival, place: Place) {
        let stream = match arrival {
            Arrival::Tcp(stream, _) => stream.into_std().map(StdArrival::Tcp),
            Arrival::Tls(stream) => stream.into_std().map(StdArrival::Tls),
            Arrival::Unix(stream) => stream.into_std().map(StdArrival::Unix),
        };
        if let Ok(stream) = stream {
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
    match server.settings.cluster_enabled {
        false => {
            let awake = worker.clone();
            tokio::task::spawn_local(async move { awake.vigil.keep().await });
        }
        // What comes now waits for the proposal that is under way. If clients run on the same machine, or other nodes, more comes
        // while these go on: to be read and committed in one turn.
        true => let_finish(),
    }
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

fn start_connection(worker: &Rc<Worker>, (stream, place): Accepted) -> IoResult<()> {
    match stream {
        StdArrival::Tcp(stream) => {
            let stream = TcpStream::from_std(stream)?;
            prepare(&stream, &worker.server)?;
            let ends = ends_of(&stream, false)?;
            enter(worker, stream, place, ends);
        }
        StdArrival::Tls(stream) => {
            let stream = TcpStream::from_std(stream)?;
            prepare(&stream, &worker.server)?;
            let worker = worker.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = shake_hands(&worker, stream, place).await {
                    tracing::debug!("no encrypted connection: {error}");
                }
            });
        }
        StdArrival::Unix(stream) => {
            let stream = UnixStream::from_std(stream)?;
            // A client's own end has no name.
            let path = Endpoint::Unix(worker.server.settings.values.text("unixsocket").into());
            let ends = Ends {
                peer: path.clone(),
                local: path,
                is_encrypted: false,
            };
            enter(worker, stream, place, ends);
        }
        StdArrival::Guest(visit) => guest::enter(worker, visit, place),
        StdArrival::Upstream(handover) => follow(worker, handover, place)?,
    }
    Ok(())
}

/// Runs what comes from the server that this one follows.
fn follow(worker: &Rc<Worker>, handover: Handover, place: Place) -> IoResult<()> {
    let Handover {
        stream,
        input,
        database,
        link,
    } = handover;
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    let ends = ends_of(&stream, false)?;
    let server = &worker.server;
    let user = server.acl.default_user().clone();
    let entered = server.clients.enter(place, ends, stream.as_raw_fd(), user);
    let client = entered.client.clone();
    client.is_master.store(true, Ordering::Relaxed);
    let connection = Connection::new(stream, worker.clone(), entered).of_master(input, database);
    if link.begin(&client) {
        let task = tokio::task::spawn_local(async move {
            connection.serve().await;
            drop(link);
        });
        client.set_task(task.abort_handle());
    }
    Ok(())
}

fn ends_of(stream: &TcpStream, is_encrypted: bool) -> IoResult<Ends> {
    Ok(Ends {
        peer: Endpoint::Ip(stream.peer_addr()?),
        local: Endpoint::Ip(stream.local_addr()?),
        is_encrypted,
    })
}

/// How long a client may take to agree on how to encrypt.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Serves a connection once it is encrypted. Until then it takes a place, but is not listed.
async fn shake_hands(worker: &Rc<Worker>, stream: TcpStream, place: Place) -> IoResult<()> {
    let (server, ends) = (&worker.server, ends_of(&stream, true)?);
    let Some(config) = server.live.tls.load_full() else {
        return Ok(());
    };
    let accepted = TlsAcceptor::from(config).accept(stream);
    let mut stream = tokio::time::timeout(HANDSHAKE_TIME, accepted).await??;
    if let Endpoint::Ip(peer) = ends.peer
        && server.live.denies(peer.ip())
    {
        server.stats.rejected_connections.add(1);
        stream.write_all(DENIED).await?;
        return stream.shutdown().await;
    }
    enter(worker, stream, place, ends);
    Ok(())
}

fn prepare(stream: &TcpStream, server: &Server) -> IoResult<()> {
    stream.set_nodelay(true)?;
    let keepalive = server.live.tcp_keepalive.load(Ordering::Relaxed);
    if keepalive > 0 {
        let settings = TcpKeepalive::new().with_time(Duration::from_secs(keepalive));
        SockRef::from(stream).set_tcp_keepalive(&settings)?;
    }
    Ok(())
}

/// Serves a connection between these ends.
fn enter<S>(worker: &Rc<Worker>, stream: S, place: Place, ends: Ends)
where
    S: AsyncRead + AsyncWrite + AsRawFd + Unpin + 'static,
{
    let server = &worker.server;
    let user = server.acl.default_user().clone();
    let entered = server.clients.enter(place, ends, stream.as_raw_fd(), user);
    let client = entered.client.clone();
    let connection = Connection::new(stream, worker.clone(), entered);
    let task = tokio::task::spawn_local(connection.serve());
    client.set_task(task.abort_handle());
}
