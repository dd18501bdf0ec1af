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

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Begun, Error, Held, Mode, Patience, Point, Request, Result, Store, WriteTxn};
use tokio::sync::Notify;

use crate::command::{Args, Command, Handler};
use crate::server::Server;

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
    /// The reply broke off: the connection cannot go on.
    Broken(StreamError),
}

/// Everything a handler needs to know about its caller.
pub struct Call<'a> {
    pub command: &'static Command,
    pub args: Args<'a>,
    pub database: u32,
    pub protocol: Protocol,
}

impl Call<'_> {
    /// The latches the command needs.
    pub fn request(&self) -> Request {
        if let Handler::Exclusive(_) = self.command.handler {
            return Request::everything();
        }
        if self.command.keys.0.is_empty() && !self.command.is_write() {
            // It walks keys through one iterator, which shows one moment by itself.
            return Request::nothing();
        }
        let mut request = Request::default();
        let strongest = if self.command.is_write() {
            Mode::Exclusive
        } else {
            Mode::Shared
        };
        self.command.keys.visit(&self.args, |key, access| {
            request.add(key, access.mode().min(strongest));
        });
        request
    }
}

impl Worker {
    pub fn new(server: Arc<Server>) -> Rc<Worker> {
        let turn = Turn {
            txn: WriteTxn::new(server.store.clone(), Patience::Short),
            held: server.store.latches().none(),
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

    /// Runs a command over the current turn, and appends its reply to `out`. A handler that panics has
    /// done nothing.
    pub fn run(self: &Rc<Self>, call: &Call<'_>, out: &mut Vec<u8>) -> Step {
        let mut turn = self.turn.borrow_mut();
        let turn = &mut *turn;
        let before = out.len();
        turn.txn.mark(call.database);
        let attempt = AssertUnwindSafe(|| self.attempt(turn, call, out));
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

    fn attempt(self: &Rc<Self>, turn: &mut Turn, call: &Call<'_>, out: &mut Vec<u8>) -> Step {
        if let Handler::Point(handler) = call.command.handler {
            turn.txn.sample_time();
            match handler(Point::unlatched(&turn.txn), &call.args) {
                Err(Error::Unlatched) => {}
                result => {
                    self.server.stats.looked_up(turn.txn.lookups());
                    return finish(call, result, out);
                }
            }
        }
        let request = call.request();
        if !turn.held.try_extend(&request) {
            return Step::NeedsLatches(request);
        }
        turn.txn.sample_time();
        self.open(turn);
        match call.command.handler {
            Handler::Point(handler) => {
                let result = handler(Point::latched(&turn.txn), &call.args);
                self.server.stats.looked_up(turn.txn.lookups());
                finish(call, result, out)
            }
            Handler::Read(handler) => {
                let result = handler(&turn.txn, &call.args);
                self.server.stats.looked_up(turn.txn.lookups());
                finish(call, result, out)
            }
            Handler::Write(handler) | Handler::Exclusive(handler) => {
                let result = handler(&mut turn.txn, &call.args);
                if result.is_err() {
                    turn.txn.undo();
                }
                finish(call, result, out)
            }
            Handler::Session(_) | Handler::Admin(_) | Handler::Container => Step::Done,
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
        if turn.txn.is_clean() {
            turn.held.let_go();
            outcome.settle(Ok(()));
            return;
        }
        self.server.stats.commits.add(1);
        match self.store().begin_commit(&mut turn.txn) {
            Begun::Done(result) => {
                turn.held.let_go();
                outcome.settle(result.map_err(|error| error.to_string()));
            }
            Begun::Pending(commit) => {
                let none = self.store().latches().none();
                let held = std::mem::replace(&mut turn.held, none);
                let worker = self.clone();
                self.unfinished.set(self.unfinished.get() + 1);
                tokio::task::spawn_local(async move {
                    let result = commit.finish(worker.store()).await;
                    drop(held);
                    outcome.settle(result.map_err(|error| error.to_string()));
                    worker.unfinished.set(worker.unfinished.get() - 1);
                    worker.finished.notify_waiters();
                });
            }
        }
    }
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

/// The head of a reply, and what is left of it.
pub type LongReply = (Vec<u8>, Option<Box<dyn ReplyStream>>);

/// Runs a long command to its end on the thread of its own it needs: latches are held, nothing else is
/// under way. The reply's head is returned, and what is left of it as a stream.
pub fn run_long(
    store: &Arc<Store>,
    call: &Call<'_>,
    _held: Held,
) -> Result<LongReply, StreamError> {
    let mut txn = WriteTxn::new(store.clone(), Patience::Long);
    txn.begin(call.database);
    let mut out = Vec::new();
    let step = match call.command.handler {
        Handler::Point(handler) => {
            let result = handler(Point::latched(&txn), &call.args);
            finish(call, result, &mut out)
        }
        Handler::Read(handler) => finish(call, handler(&txn, &call.args), &mut out),
        Handler::Write(handler) | Handler::Exclusive(handler) => {
            let mut result = handler(&mut txn, &call.args);
            if result.is_ok()
                && let Err(error) = store.commit_blocking(&mut txn)
            {
                result = Err(error);
            }
            finish(call, result, &mut out)
        }
        Handler::Session(_) | Handler::Admin(_) | Handler::Container => Step::Done,
    };
    match step {
        Step::Streaming(rest) => Ok((out, Some(rest))),
        Step::Broken(error) => Err(error),
        _ => Ok((out, None)),
    }
}
