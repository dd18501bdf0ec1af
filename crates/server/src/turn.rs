//! A turn: what the connections of one thread do together.
//!
//! All commands that are ready in one turn of a thread's loop run over one transaction, whichever
//! connection they come from, and are committed at once: as Redis writes its log once per loop. Replies
//! are written into the connections' buffers right away and sent after the commit.
//!
//! A command that needs a latch held elsewhere does not wait while others hold still for it: the turn is
//! committed as far as it got, its latches are let go, and only then the command waits, and joins the
//! turn that runs when it is granted. While a commit of this thread waits for the disk, that is most likely
//! who holds it: all who wait for that go on together, in one turn.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use cairn_engine::{EngineError, Moment};
use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{
    Begun, Error, EventClass, Held, Mode, Patience, Point, Request, Result, Store, WriteTxn,
};
use tokio::sync::Notify;

use crate::blocked::{Place, Served};
use crate::command::{Args, Blocking, Command, Handler, OwnedArgs};
use crate::interest;
use crate::script::functions::View;
use crate::server::Server;
use crate::session::Session;
use crate::unit::{Scope, Unit};

/// How many bytes of one reply may gather in the output buffer before the rest is streamed.
const STREAM_AFTER: usize = 256 * 1024;

/// The part of a thread that runs commands.
pub struct Worker {
    pub server: Arc<Server>,
    turn: RefCell<Turn>,
    /// Commits that wait for the disk; their latches must not be let go before.
    unfinished: Cell<usize>,
    /// One of them is done.
    finished: Notify,
}

struct Turn {
    txn: WriteTxn,
    held: Held,
    /// Clients that waited for what was changed, and get their replies with the commit.
    served: Vec<Served>,
    outcome: Rc<Outcome>,
    /// Its end is scheduled.
    is_open: bool,
}

/// How a turn ended, once it has.
#[derive(Default)]
pub struct Outcome {
    result: RefCell<Option<Result<(), String>>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Outcome {
    /// Waits for the end of the turn.
    pub async fn wait(&self) -> Result<(), String> {
        std::future::poll_fn(|context| match &*self.result.borrow() {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                self.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn settle(&self, result: Result<(), String>) {
        *self.result.borrow_mut() = Some(result);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }
}

/// What became of a command.
pub enum Step {
    /// Its reply is in the buffer, to be sent after the turn's commit if there is an outcome to wait for.
    Done,
    /// The reply's first part is in the buffer; the rest follows. Either may show changes of this turn, and
    /// is not to be sent before the turn is committed.
    Streaming(Box<dyn ReplyStream>),
    /// It needs these latches and has not run.
    NeedsLatches(Request),
    /// It has been undone and needs a thread of its own: there is much to do.
    TooLong,
    /// A unit met a latch that it did not ask for and cannot have. It has been undone, and is to run alone.
    Alone,
    /// There is nothing for it yet, and the latches of its keys are held until the turn ends.
    Waits(Blocking),
    /// The reply broke off: the connection cannot go on.
    Broken(StreamError),
}

/// Everything a handler needs to know about its caller.
pub struct Call<'a> {
    pub command: &'static Command,
    pub args: Args<'a>,
    pub database: u32,
    pub protocol: Protocol,
    pub client: u64,
}

impl Call<'_> {
    /// The latches the command needs.
    pub fn request(&self) -> Request {
        if let Handler::Exclusive(_) = self.command.handler {
            return Request::everything();
        }
        let mut request = Request::default();
        // What units do to their keys is up to them.
        let is_unit = matches!(self.command.handler, Handler::Unit(_));
        let strongest = if self.command.is_write() || is_unit {
            Mode::Exclusive
        } else {
            Mode::Shared
        };
        // XREADGROUP says that it reads its keys, because it does not change what others see of them.
        let weakest = match self.command.handler {
            Handler::Blocking(_) => strongest,
            _ => Mode::Shared,
        };
        self.command.keys.visit(&self.args, |key, access| {
            request.add(key, access.mode().clamp(weakest, strongest));
        });
        request
    }
}

impl Worker {
    pub fn new(server: Arc<Server>) -> Rc<Worker> {
        let turn = Turn {
            txn: WriteTxn::new(
                server.store.clone(),
                server.store.home().clone(),
                Patience::Short,
            ),
            held: server.store.latches().none(),
            served: Vec::new(),
            outcome: Rc::default(),
            is_open: false,
        };
        Rc::new(Worker {
            server,
            turn: RefCell::new(turn),
            unfinished: Cell::new(0),
            finished: Notify::new(),
        })
    }

    fn store(&self) -> &Arc<Store> {
        &self.server.store
    }

    /// Has the processor bring near what commands will ask for first: see [`cairn_store::ReadTxn::expect_calls`].
    pub fn expect<'n>(
        &self,
        database: u32,
        named: impl Iterator<Item = (&'n [u8], &'n [u8])> + Clone,
    ) {
        self.turn.borrow().txn.expect_calls(database, named);
    }

    /// The arguments to wait with, where they speak of this moment.
    pub fn fix(&self, blocking: &Blocking, call: &Call<'_>) -> Option<OwnedArgs> {
        let fixed = blocking.fixed?;
        let mut turn = self.turn.borrow_mut();
        turn.txn.mark(call.database);
        turn.txn.sample_time();
        // What cannot be understood is refused when the command runs.
        turn.txn.uncounted(|txn| fixed(txn, &call.args)).ok()?
    }

    /// Runs a command over the current turn, and appends its reply to `out`. A handler that panics has
    /// done nothing. It is `now`, or was just so.
    pub fn run(self: &Rc<Self>, call: &Call<'_>, now: Moment, out: &mut Vec<u8>) -> Step {
        let mut turn = self.turn.borrow_mut();
        let turn = &mut *turn;
        let before = out.len();
        turn.txn.mark(call.database);
        let attempt = AssertUnwindSafe(|| self.attempt(turn, call, now, out));
        let Ok(step) = catch_unwind(attempt) else {
            let name = call.command.name;
            tracing::error!("the handler of {name} panicked, and was undone");
            turn.txn.undo();
            out.truncate(before);
            Writer::new(out, call.protocol).error("ERR internal error: see the server's log");
            return Step::Done;
        };
        step
    }

    fn attempt(
        self: &Rc<Self>,
        turn: &mut Turn,
        call: &Call<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Step {
        let databases = self.store().home().databases();
        let moves = databases.moves();
        if let Handler::Point(handler) = call.command.handler
            && moves.is_some()
        {
            turn.txn.set_time(now);
            match handler(Point::unlatched(&turn.txn), &call.args) {
                Err(Error::Unlatched) => {}
                _ if databases.moves() != moves => {}
                result => {
                    if looked_up(&self.server, call.command, &mut turn.txn, &result) {
                        self.open(turn);
                    }
                    return finish(call, result, out);
                }
            }
        }
        let request = call.request();
        if !turn.held.try_extend(&request) {
            return Step::NeedsLatches(request);
        }
        turn.txn.set_time(now);
        self.open(turn);
        if let Some(find) = call.command.finds_keys {
            match find(&turn.txn, &call.args) {
                Ok(more) if turn.held.try_extend(&more) => {}
                Ok(more) => {
                    let mut request = request;
                    request.join(more);
                    return Step::NeedsLatches(request.sorted());
                }
                Err(error) => return finish(call, Err(error), out),
            }
        }
        match call.command.handler {
            Handler::Point(handler) => {
                let result = handler(Point::latched(&turn.txn), &call.args);
                looked_up(&self.server, call.command, &mut turn.txn, &result);
                finish(call, result, out)
            }
            Handler::Read(handler) => {
                let result = handler(&turn.txn, &call.args);
                looked_up(&self.server, call.command, &mut turn.txn, &result);
                finish(call, result, out)
            }
            Handler::Write(handler) | Handler::Exclusive(handler) => {
                let buried = bury_expired(&mut turn.txn, call.command, &call.args);
                let result = buried.and_then(|()| handler(&mut turn.txn, &call.args));
                if result.is_err() {
                    turn.txn.undo();
                }
                let step = finish(call, result, out);
                self.attend(turn, call.client);
                step
            }
            Handler::Blocking(blocking) => {
                let result = (blocking.attempt)(&mut turn.txn, &call.args, None);
                if result.is_err() {
                    turn.txn.undo();
                }
                let Some(result) = result.transpose() else {
                    return Step::Waits(blocking);
                };
                let step = finish(call, result, out);
                self.attend(turn, call.client);
                step
            }
            Handler::Effect(handler) => {
                let result = handler(&self.server, &mut turn.txn, &call.args);
                finish(call, result, out)
            }
            Handler::Unit(_) | Handler::Session(_) | Handler::Admin(_) | Handler::Container => {
                Step::Done
            }
        }
    }

    /// Runs a unit over the current turn, and appends its reply to `out`. The latches it needs are these.
    pub fn run_unit(
        self: &Rc<Self>,
        unit: &mut dyn Unit,
        session: &mut Session,
        request: &Request,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut turn = self.turn.borrow_mut();
        let turn = &mut *turn;
        if !turn.held.try_extend(request) {
            return Step::NeedsLatches(request.clone());
        }
        turn.txn.mark_unit(session.database);
        turn.txn.sample_time();
        self.open(turn);
        let (txn, held) = (&mut turn.txn, &mut turn.held);
        match start_unit(unit, session, txn, held, out) {
            Ok(_) => {
                self.attend(turn, session.client.id);
                Step::Done
            }
            Err(Error::TooLong) => Step::TooLong,
            Err(Error::Unlatched) => Step::Alone,
            Err(error) => {
                Writer::new(out, session.protocol).error(error_text(&error));
                Step::Done
            }
        }
    }

    /// Tells those whom it concerns what has been changed.
    #[inline]
    fn attend(&self, turn: &mut Turn, client: u64) {
        if self.server.interest.is_any() {
            let (txn, held, served) = (&mut turn.txn, &mut turn.held, &mut turn.served);
            interest::attend(&self.server, txn, held, Some(client), served);
        }
    }

    /// Makes sure that the turn ends when the connections that are ready now have had their part.
    fn open(self: &Rc<Self>, turn: &mut Turn) {
        if !std::mem::replace(&mut turn.is_open, true) {
            let worker = self.clone();
            tokio::task::spawn_local(async move { worker.end_turn() });
        }
    }

    /// The outcome to wait for before replies so far may be sent; none if nothing is uncommitted.
    pub fn outcome(&self) -> Option<Rc<Outcome>> {
        let turn = self.turn.borrow();
        (!turn.txn.is_clean()).then(|| turn.outcome.clone())
    }

    /// Bytes of changes that wait for the end of the turn.
    pub fn pending_bytes(&self) -> usize {
        self.turn.borrow().txn.pending().bytes()
    }

    /// Brings latches that were waited for into the current turn.
    pub fn adopt(self: &Rc<Self>, held: Held) {
        let mut turn = self.turn.borrow_mut();
        turn.held.adopt(held);
        self.open(&mut turn);
    }

    /// Whether a commit of this thread waits for the disk.
    pub fn has_unfinished(&self) -> bool {
        self.unfinished.get() > 0
    }

    /// Waits until the next of them is done.
    pub async fn commit_finished(&self) {
        if self.has_unfinished() {
            self.finished.notified().await;
        }
    }

    /// Ends the last turn, and waits for all commits.
    pub async fn finish(self: &Rc<Self>) {
        self.end_turn();
        while self.has_unfinished() {
            self.commit_finished().await;
        }
    }

    /// Commits what the turn has gathered, and lets go of its latches.
    pub fn end_turn(self: &Rc<Self>) {
        let mut turn = self.turn.borrow_mut();
        turn.is_open = false;
        let outcome = std::mem::take(&mut turn.outcome);
        let served = std::mem::take(&mut turn.served);
        if turn.txn.is_clean() {
            turn.held.let_go();
            outcome.settle(Ok(()));
            return;
        }
        self.server.stats.commits.add(1);
        match self.store().begin_commit(&mut turn.txn) {
            Begun::Done(result) => {
                turn.held.let_go();
                settle(&self.server, &outcome, served, result);
            }
            Begun::Pending(commit) => {
                let none = self.store().latches().none();
                let held = std::mem::replace(&mut turn.held, none);
                let worker = self.clone();
                self.unfinished.set(self.unfinished.get() + 1);
                tokio::task::spawn_local(async move {
                    let result = commit.finish(worker.store()).await;
                    drop(held);
                    settle(&worker.server, &outcome, served, result);
                    worker.unfinished.set(worker.unfinished.get() - 1);
                    worker.finished.notify_waiters();
                });
            }
        }
    }
}

fn settle(
    server: &Server,
    outcome: &Outcome,
    served: Vec<Served>,
    result: Result<(), EngineError>,
) {
    let result = result.map_err(|error| error.to_string());
    if result.is_err() {
        // Some may wait because of a pop that has not happened.
        server.blocked.retry_all();
    }
    served.into_iter().for_each(|served| served.settle(&result));
    outcome.settle(result);
}

/// Starts a unit. If it breaks off, by a panic too, nothing of it is left. Returns what it makes of the functions.
fn start_unit(
    unit: &mut dyn Unit,
    session: &mut Session,
    txn: &mut WriteTxn,
    held: &mut Held,
    out: &mut Vec<u8>,
) -> Result<Option<Arc<View>>> {
    let (before, database) = (out.len(), session.database);
    session.is_in_unit = true;
    let mut scope = Scope::new(session, txn, held);
    let result = catch_unwind(AssertUnwindSafe(|| unit.run(&mut scope, out)));
    let functions = scope.functions.take();
    session.is_in_unit = false;
    let result = result.unwrap_or_else(|_| {
        tracing::error!("a transaction or script panicked, and was undone");
        Err(Error::fixed("ERR internal error: see the server's log"))
    });
    if result.is_err() {
        txn.undo_unit();
        out.truncate(before);
        session.select(database);
    }
    result.map(|()| functions)
}

/// Counts what a command that reads has asked for, and has those told who want to know what it missed; true if
/// somebody does.
#[inline]
pub fn looked_up(
    server: &Server,
    command: &Command,
    txn: &mut WriteTxn,
    result: &Result<Reply>,
) -> bool {
    if let Err(Error::TooLong) = result {
        // It will be run again.
        return false;
    }
    let lookups = txn.lookups();
    server.stats.looked_up(lookups);
    lookups.misses > 0 && command.tells_of_misses() && txn.notify_of_misses()
}

/// If somebody wants to know of keys that expire, those that a command writes to and that have done so are deleted
/// before: it will leave no trace of them.
#[inline]
pub fn bury_expired(txn: &mut WriteTxn, command: &Command, args: &Args<'_>) -> Result<()> {
    if !txn.store().listeners().hear(EventClass::Expired) {
        return Ok(());
    }
    let mut names = Vec::new();
    command.keys.visit(args, |name, access| {
        if access.mode() == Mode::Exclusive {
            names.push(name);
        }
    });
    names.into_iter().try_for_each(|name| txn.bury(name))
}

fn finish(call: &Call<'_>, result: Result<Reply>, out: &mut Vec<u8>) -> Step {
    let mut writer = Writer::new(out, call.protocol);
    match result {
        Ok(Reply::Stream(stream)) => write_stream(stream, &mut writer),
        Ok(reply) => match reply.write(&mut writer) {
            Ok(()) => Step::Done,
            Err(error) => Step::Broken(error),
        },
        Err(Error::TooLong) => Step::TooLong,
        Err(error) => {
            writer.error(error_text(&error));
            Step::Done
        }
    }
}

fn write_stream(mut stream: Box<dyn ReplyStream>, writer: &mut Writer<'_>) -> Step {
    let limit = writer.len() + STREAM_AFTER;
    match stream.write(writer, limit) {
        Ok(Progress::Done) => Step::Done,
        Ok(Progress::More) => Step::Streaming(stream),
        Err(error) => Step::Broken(error),
    }
}

/// What a client is told of an error.
pub fn error_text(error: &Error) -> Vec<u8> {
    match error {
        Error::Reply(text) => text.to_vec(),
        other => format!("ERR {other}").into_bytes(),
    }
}

/// What a long command answers.
pub enum LongReply {
    Whole(Vec<u8>),
    /// The reply's head; the rest follows.
    Streaming(Vec<u8>, Box<dyn ReplyStream>),
    /// It has found nothing, and waits.
    Waits(Place),
    /// It is to be run again.
    Nothing,
}

/// Runs a command that walks over the keys of a database on a thread of its own. It shows one moment by itself,
/// that at which its walk was opened, so it needs no latch; unless the databases are moved in just that moment.
pub fn run_walk(server: &Server, call: &Call<'_>) -> Result<LongReply, StreamError> {
    let (databases, latches) = (server.store.home().databases(), server.store.latches());
    if let moves @ Some(_) = databases.moves() {
        let reply = run_long(server, call, latches.none(), None);
        if databases.moves() == moves {
            return reply;
        }
    }
    let held = latches.acquire_blocking(Request::default());
    run_long(server, call, held, None)
}

/// Runs a long command to its end on the thread of its own it needs: latches are held, nothing else is
/// under way. `order` is that of its place among those who wait, if it has had one.
pub fn run_long(
    server: &Server,
    call: &Call<'_>,
    mut held: Held,
    order: Option<u64>,
) -> Result<LongReply, StreamError> {
    let mut txn = WriteTxn::new(
        server.store.clone(),
        server.store.home().clone(),
        Patience::Long,
    );
    txn.begin(call.database);
    // Nobody waits while holding: what is missing is asked for together with the rest, and looked for anew.
    while let Some(find) = call.command.finds_keys
        && let Ok(more) = find(&txn, &call.args)
        && !held.try_extend(&more)
    {
        let mut request = call.request();
        request.join(more);
        held.let_go();
        held = server.store.latches().acquire_blocking(request);
        txn.begin(call.database);
    }
    let mut out = Vec::new();
    let step = match call.command.handler {
        Handler::Point(handler) => {
            let result = handler(Point::latched(&txn), &call.args);
            show_misses(server, call.command, &mut txn, &result);
            finish(call, result, &mut out)
        }
        Handler::Read(handler) => {
            let result = handler(&txn, &call.args);
            show_misses(server, call.command, &mut txn, &result);
            finish(call, result, &mut out)
        }
        Handler::Write(handler) | Handler::Exclusive(handler) => {
            let buried = bury_expired(&mut txn, call.command, &call.args);
            let mut result = buried.and_then(|()| handler(&mut txn, &call.args));
            if result.is_ok()
                && let Err(error) = commit_long(server, &mut txn, &mut held, call.client, None)
            {
                result = Err(error);
            }
            finish(call, result, &mut out)
        }
        Handler::Blocking(blocking) => match (blocking.attempt)(&mut txn, &call.args, None) {
            Ok(None) => {
                let Some(client) = server.clients.get(call.client) else {
                    return Ok(LongReply::Nothing);
                };
                // The latches are still held: nothing has come between.
                let place = server.blocked.enter(&client, call, blocking, order);
                return Ok(LongReply::Waits(place));
            }
            Ok(Some(reply)) => {
                let committed = commit_long(server, &mut txn, &mut held, call.client, None);
                finish(call, committed.map(|()| reply), &mut out)
            }
            Err(error) => finish(call, Err(error), &mut out),
        },
        // None of these does much.
        Handler::Effect(_)
        | Handler::Unit(_)
        | Handler::Session(_)
        | Handler::Admin(_)
        | Handler::Container => Step::Done,
    };
    match step {
        Step::Streaming(rest) => Ok(LongReply::Streaming(out, rest)),
        Step::Broken(error) => Err(error),
        _ => Ok(LongReply::Whole(out)),
    }
}

/// A command that reads changes nothing, but what it missed may be news.
fn show_misses(server: &Server, command: &Command, txn: &mut WriteTxn, result: &Result<Reply>) {
    if looked_up(server, command, txn, result) {
        // Nothing but news, which cannot fail to be shown.
        let _ = server.store.commit_blocking(txn);
    }
}

/// The same for a unit, which may turn out to need more than it holds: then it has been undone, there is no reply, and
/// it is to run alone.
pub fn run_long_unit(unit: &mut dyn Unit, session: &mut Session, held: Held) -> Option<Vec<u8>> {
    let server = session.server.clone();
    let mut txn = WriteTxn::new(
        server.store.clone(),
        server.store.home().clone(),
        Patience::Long,
    );
    let mut out = Vec::new();
    let mut held = held;
    txn.mark_unit(session.database);
    txn.sample_time();
    let result = start_unit(unit, session, &mut txn, &mut held, &mut out);
    if let Err(Error::Unlatched) = result {
        return None;
    }
    let result = result.and_then(|functions| {
        commit_long(&server, &mut txn, &mut held, session.client.id, functions)
    });
    if let Err(error) = result {
        out.clear();
        Writer::new(&mut out, session.protocol).error(error_text(&error));
    }
    Some(out)
}

/// Commits what has been done on a thread that may block.
fn commit_long(
    server: &Server,
    txn: &mut WriteTxn,
    held: &mut Held,
    client: u64,
    functions: Option<Arc<View>>,
) -> Result<()> {
    let mut served = Vec::new();
    if server.interest.is_any() {
        interest::attend(server, txn, held, Some(client), &mut served);
    }
    let result = server.store.commit_blocking(txn);
    if let (Ok(()), Some(functions)) = (&result, functions) {
        server.scripts.functions.install(functions);
    }
    held.let_go();
    let told = match &result {
        Ok(()) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    served.into_iter().for_each(|served| served.settle(&told));
    result
}
