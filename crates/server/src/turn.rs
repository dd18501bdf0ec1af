//! A turn: what the connections of one thread do together.
//!
//! All commands that are ready in one turn of a thread's loop run over one transaction, whichever
//! connection they come from, and are committed at once: as Redis writes its log once per loop. Replies
//! are written into the connections' buffers right away and sent after the commit.
//!
//! A command that needs a latch held elsewhere does not wait while others hold still for it: the turn is
//! committed as far as it got, its latches are let go, and only then the command waits, and joins the
//! turn that runs when it is granted. Those of the thread who wait for the same follow it in that turn. While a commit of
//! this thread waits for the disk, that is most likely who holds it: all who wait for that go on together, in one turn.
//!
//! In a cluster a turn has a part for each region that its commands are about, with a transaction, latches and a commit of
//! its own: one that fails takes the replies of its own commands with it, and no others. A batch that is too long cannot be
//! replicated, so a command that changes much is in none with others.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cairn_encoding::slot::slot;
use cairn_engine::{EngineError, Moment};
use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{
    Begun, Error, Held, Mode, Patience, Point, ReadTxn, Reading, Region, Request, Result, Still,
    Store, Time, WriteTxn,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::blocked::Served;
use crate::cluster::gate::{CaughtUp, Patience as Waited, Unready};
use crate::command::{Args, Blocking, Command, Handler, OwnedArgs};
use crate::interest;
use crate::latch_wait::LatchWaits;
use crate::propagation;
use crate::route::{self, Detour};
use crate::script::functions::View;
use crate::server::Server;
use crate::session::Session;
use crate::unit::{Scope, Unit};
use crate::vigil::Vigil;

/// How many bytes of one reply may gather in the output buffer before the rest is streamed.
const STREAM_AFTER: usize = 256 * 1024;

/// A command of a cluster that changes more than this shares its batch with none, and a batch of so much takes no more: what
/// one client writes must not be too much for those who come with it.
const MUCH: usize = 16 * 1024 * 1024;

/// How an error begins after which a client may send the same again.
const TRY_AGAIN: &str = "TRYAGAIN";

/// The part of a thread that runs commands.
pub struct Worker {
    pub server: Arc<Server>,
    turns: RefCell<Turns>,
    /// The end of the turns is scheduled.
    is_open: Cell<bool>,
    ender: Ender,
    /// Connections that waited for latches which the turn has now go on in it.
    is_followed: Cell<bool>,
    /// Some of them are ready only behind the scheduled end, which lets them come first.
    is_extended: Cell<bool>,
    /// How many turns have ended.
    ended: Cell<u64>,
    /// Who waits for latches that others of this thread wait for.
    pub latch_waits: LatchWaits,
    is_replicated: bool,
    /// Commits that wait for the disk; their latches must not be let go before.
    unfinished: Cell<usize>,
    /// One of them is done.
    finished: Notify,
    /// Keeps the thread from falling asleep between requests.
    pub vigil: Vigil,
}

/// The task that ends the turns of a thread: it comes behind the connections that are ready when it is woken. One for all turns,
/// since a task for each would be memory to allocate for each.
#[derive(Default)]
struct Ender {
    task: RefCell<Option<JoinHandle<()>>>,
    /// Of the task, while it has nothing to do.
    asleep: RefCell<Option<Waker>>,
    /// The number of the turn for which it was woken.
    woken_for: Cell<u64>,
}

/// The parts of the turn of a thread.
struct Turns {
    /// About no key in particular; on a single machine about all.
    home: Turn,
    /// Those about keys of other regions, in a cluster: made anew in each turn.
    others: Vec<Turn>,
    /// Among the others, the one that the last command was for; none if that was at home.
    current: Option<usize>,
    /// The slot that the last command was about, in a cluster.
    slot: Option<u16>,
}

impl Turns {
    fn current(&self) -> &Turn {
        let other = self.current.and_then(|at| self.others.get(at));
        other.unwrap_or(&self.home)
    }

    /// The part about a region, which is the current one from now on.
    fn enter(&mut self, store: &Arc<Store>, region: &Arc<Region>) -> &mut Turn {
        if Arc::ptr_eq(region, store.home()) {
            self.current = None;
            return &mut self.home;
        }
        // One that only reads may be older than the term. What was gathered in another term is refused when the turn ends.
        let is_it = |turn: &Turn| {
            let is_open = turn.txn.is_of_this_term() && turn.changed() <= MUCH;
            Arc::ptr_eq(turn.txn.region(), region) && is_open
        };
        let at = self.others.iter().position(is_it).unwrap_or_else(|| {
            self.others.push(Turn::new(store, region));
            self.others.len() - 1
        });
        self.current = Some(at);
        &mut self.others[at]
    }
}

struct Turn {
    txn: WriteTxn,
    held: Held,
    /// Clients that waited for what was changed, and get their replies with the commit.
    served: Vec<Served>,
    outcome: Rc<Outcome>,
    /// That of the turn before.
    settled: Option<Rc<Outcome>>,
}

impl Turn {
    fn new(store: &Arc<Store>, region: &Arc<Region>) -> Turn {
        Turn {
            txn: WriteTxn::new(store.clone(), region.clone(), Patience::Short),
            held: store.latches().none(),
            served: Vec::new(),
            outcome: Rc::default(),
            settled: None,
        }
    }

    /// The outcome of the turn, which ends. The next one has that of the last, if nobody looks at it any more.
    fn take_outcome(&mut self) -> Rc<Outcome> {
        let mut next = self.settled.take().unwrap_or_default();
        match Rc::get_mut(&mut next) {
            Some(next) => *next.result.get_mut() = None,
            None => next = Rc::default(),
        }
        std::mem::replace(&mut self.outcome, next)
    }

    /// Bytes of changes that wait for its end.
    fn changed(&self) -> usize {
        self.txn.pending().bytes()
    }

    fn outcome(&self) -> Option<Rc<Outcome>> {
        (!self.txn.is_clean()).then(|| self.outcome.clone())
    }
}

/// How a turn ended, once it has: an error is the text that clients are told.
#[derive(Default)]
pub struct Outcome {
    result: RefCell<Option<Result<(), String>>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Outcome {
    /// Waits for the end of the turn.
    pub async fn wait(&self) -> Result<(), String> {
        poll_fn(|context| match &*self.result.borrow() {
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
        let mut waiting = self.waiting.take();
        waiting.drain(..).for_each(Waker::wake);
        self.waiting.replace(waiting);
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
    /// It has not run, and may when this node knows who leads.
    Unready(Unready),
    /// The reply broke off: the connection cannot go on.
    Broken(StreamError),
}

impl Step {
    /// Whether it has run, and answers from what it has read.
    fn has_read(&self) -> bool {
        matches!(self, Step::Done | Step::Streaming(_))
    }
}

/// Everything a handler needs to know about its caller.
pub struct Call<'a> {
    pub command: &'static Command,
    pub args: Args<'a>,
    pub database: u32,
    pub protocol: Protocol,
    pub client: u64,
    /// Whether the client came by an encrypted connection.
    pub by_tls: bool,
    /// It comes from the server that this one follows.
    pub by_master: bool,
    /// Whether what it reads counts as used.
    pub reading: Reading,
    /// It reads, and this replica will do, which another node leads and which has caught up.
    pub from_replica: Option<CaughtUp>,
}

impl Call<'_> {
    /// The latches the command needs.
    pub fn request(&self) -> Request {
        if let Handler::Exclusive(_) = self.command.handler {
            return Request::everything();
        }
        let mut request = Request::default();
        let (weakest, strongest) = self.modes();
        self.command.keys.visit(&self.args, |key, access| {
            request.add(key, access.mode().clamp(weakest, strongest));
        });
        request
    }

    /// How weakly, and how strongly, it holds its latches at most.
    #[inline]
    fn modes(&self) -> (Mode, Mode) {
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
        (weakest, strongest)
    }

    /// Has the latches that the command needs held, if that needs no waiting.
    #[inline]
    pub fn take_latches(&self, held: &mut Held) -> bool {
        if let Some((key, access)) = self.command.keys.only(&self.args)
            && !matches!(self.command.handler, Handler::Exclusive(_))
        {
            let (weakest, strongest) = self.modes();
            return held.try_extend_by(key, access.mode().clamp(weakest, strongest));
        }
        held.try_extend(&self.request())
    }
}

impl Worker {
    pub fn new(server: Arc<Server>) -> Rc<Worker> {
        let store = &server.store;
        let turns = Turns {
            home: Turn::new(store, store.home()),
            others: Vec::new(),
            current: None,
            slot: None,
        };
        Rc::new(Worker {
            turns: RefCell::new(turns),
            is_open: Cell::new(false),
            ender: Ender::default(),
            is_followed: Cell::new(false),
            is_extended: Cell::new(false),
            ended: Cell::new(0),
            latch_waits: LatchWaits::default(),
            is_replicated: store.is_replicated(),
            server,
            unfinished: Cell::new(0),
            finished: Notify::new(),
            vigil: Vigil::new(),
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
        let turns = self.turns.borrow();
        let home = &turns.home.txn;
        if !self.is_replicated {
            return home.expect_calls(home.index_of(database), named);
        }
        // In a cluster, databases have other indexes in each region; those of its regions are mostly alike.
        let Some((first, _)) = named.clone().next() else {
            return;
        };
        if let Some(region) = self.store().regions().with_slot(slot(first)) {
            home.expect_calls(region.databases().index_of(database), named);
        }
    }

    /// The arguments to wait with, where they speak of this moment.
    pub fn fix(
        &self,
        blocking: &Blocking,
        call: &Call<'_>,
        waited: &Waited,
    ) -> Result<Option<OwnedArgs>, Unready> {
        let Some(fixed) = blocking.fixed else {
            return Ok(None);
        };
        let mut turns = self.turns.borrow_mut();
        let turn = match self.turn_of(&mut turns, call, waited) {
            Ok(turn) => turn,
            Err(Detour::Wait(unready)) => return Err(unready),
            // What cannot be run here is refused when it is to run.
            Err(Detour::Refused(_)) => return Ok(None),
        };
        turn.txn.mark(call.database);
        turn.txn.sample_time();
        // What cannot be understood is refused when the command runs.
        let fixed = turn.txn.uncounted(|txn| fixed(txn, &call.args));
        Ok(fixed.ok().flatten())
    }

    /// Runs a command over the current turn, and appends its reply to `out`. A handler that panics has
    /// done nothing. It is `now`, or was just so.
    pub fn run(
        self: &Rc<Self>,
        call: &Call<'_>,
        waited: &Waited,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut turns = self.turns.borrow_mut();
        let turn = match self.turn_of(&mut turns, call, waited) {
            Ok(turn) => turn,
            Err(Detour::Wait(unready)) => return Step::Unready(unready),
            Err(Detour::Refused(error)) => return finish(call, Err(error), out),
        };
        let region = call
            .from_replica
            .is_some()
            .then(|| turn.txn.region().clone());
        let still = match region.as_ref().map(|region| self.hold_still(region, call)) {
            None => None,
            Some(Ok(still)) => still,
            Some(Err(error)) => return finish(call, Err(error), out),
        };
        let time = match (&still, &call.from_replica) {
            (Some(still), Some(replica)) => replica.at.map(|at| still.time(at)),
            _ => None,
        };
        let time = match time {
            Some(ms) => Time::Leaders(ms),
            None if call.by_master => Time::BeforeExpiry,
            None => Time::At(now),
        };
        let before = out.len();
        turn.txn.mark(call.database);
        turn.txn.set_reading(call.reading);
        let attempt = AssertUnwindSafe(|| self.attempt(turn, call, time, out));
        let Ok(step) = catch_unwind(attempt) else {
            let name = call.command.name;
            tracing::error!("the handler of {name} panicked, and was undone");
            turn.txn.undo();
            out.truncate(before);
            Writer::new(out, call.protocol).error("ERR internal error: see the server's log");
            return Step::Done;
        };
        if self.is_replicated && is_outdated(&turn.txn) && step.has_read() {
            // What others have changed may show in a part of what it has read.
            turn.txn.undo();
            out.truncate(before);
            return Step::Unready(Unready::Unconfirmed(turn.txn.region().id()));
        }
        step
    }

    /// Keeps a replica as it is while a command reads it; where this node leads, latches do.
    fn hold_still<'r>(
        &self,
        region: &'r Arc<Region>,
        call: &Call<'_>,
    ) -> Result<Option<Still<'r>>> {
        if region.is_led() || Arc::ptr_eq(region, self.store().home()) {
            return Ok(None);
        }
        let still = self.store().read_replica(region)?;
        match still {
            Some(still) => Ok(Some(still)),
            // It has gone just now.
            None => match route::of_call(&self.server, call.command, &call.args, call.by_tls) {
                Ok(_) => Err(EngineError::NotLeading.into()),
                Err(detour) => Err(detour.into()),
            },
        }
    }

    /// The part of the turn that a command is for.
    #[inline]
    fn turn_of<'t>(
        &self,
        turns: &'t mut Turns,
        call: &Call<'_>,
        waited: &Waited,
    ) -> Result<&'t mut Turn, Detour> {
        if !self.is_replicated {
            return Ok(&mut turns.home);
        }
        // What is refused depends on nothing that is still to be committed.
        turns.current = None;
        turns.slot = None;
        // If it is another by now, after a split, that one may be of the past.
        if let Some(replica) = &call.from_replica
            && let Some(region) = route::of_read(&self.server, call.command, &call.args)
            && Arc::ptr_eq(&region, &replica.region)
            && !region.is_led()
        {
            return Ok(turns.enter(self.store(), &region));
        }
        let slot = route::slot_of(call.command, &call.args).get()?;
        let region = route::of_slot(&self.server, slot, call.by_tls)?;
        turns.slot = slot;
        let turn = turns.enter(self.store(), &region);
        // The lead was taken before: if it has ended meanwhile, that shows when the command has run.
        route::confirmed(&self.server, &region, waited)?;
        Ok(turn)
    }

    fn attempt(
        self: &Rc<Self>,
        turn: &mut Turn,
        call: &Call<'_>,
        time: Time,
        out: &mut Vec<u8>,
    ) -> Step {
        if self.is_replicated {
            if let Err(error) = call.command.check_in_cluster() {
                return finish(call, Err(error), out);
            }
            if let Handler::Exclusive(_) = call.command.handler {
                // Region by region, which takes several commits.
                return Step::TooLong;
            }
        }
        let moves = turn.txn.region().databases().moves();
        if let Handler::Point(handler) = call.command.handler
            && moves.is_some()
        {
            turn.txn.set_time(time);
            match handler(Point::unlatched(&turn.txn), &call.args) {
                Err(Error::Unlatched) => {}
                _ if turn.txn.region().databases().moves() != moves => {}
                result => {
                    if looked_up(&self.server, call.command, &mut turn.txn, &result) {
                        self.open();
                    }
                    return finish(call, result, out);
                }
            }
        }
        if !call.take_latches(&mut turn.held) {
            return Step::NeedsLatches(call.request());
        }
        turn.txn.set_time(time);
        self.open();
        if let Some(find) = call.command.finds_keys {
            match turn.txn.unasked(|txn| find(txn, &call.args)) {
                Ok(more) if turn.held.try_extend(&more) => {}
                Ok(more) => {
                    let mut request = call.request();
                    request.join(more);
                    return Step::NeedsLatches(request.sorted());
                }
                Err(error) => return finish(call, Err(error), out),
            }
        }
        let before = turn.changed();
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
                let result = result.and_then(|reply| fits(&turn.txn, before).map(|()| reply));
                if result.is_err() {
                    turn.txn.undo();
                }
                count_lookups(&self.server, call.command, &turn.txn, &result);
                let step = finish(call, result, out);
                self.attend(turn, call.client, Some(call));
                step
            }
            Handler::Blocking(blocking) => {
                let result = try_blocking(&mut turn.txn, call, blocking, None);
                let result = result.and_then(|reply| fits(&turn.txn, before).map(|()| reply));
                if result.is_err() {
                    turn.txn.undo();
                }
                let Some(result) = result.transpose() else {
                    if turn.txn.is_followed() {
                        turn.txn.propagate_together();
                    }
                    return Step::Waits(blocking);
                };
                let step = finish(call, result, out);
                self.attend(turn, call.client, Some(call));
                step
            }
            Handler::Effect(handler) => {
                let result = handler(&self.server, &mut turn.txn, &call.args);
                let step = finish(call, result, out);
                if turn.txn.is_followed() {
                    turn.txn.propagate_together();
                }
                step
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
        waited: &Waited,
        out: &mut Vec<u8>,
    ) -> Step {
        let mut turns = self.turns.borrow_mut();
        let turn = match self.is_replicated {
            false => &mut turns.home,
            true => match self.turn_of_unit(&mut turns, unit, session, waited) {
                Ok(turn) => turn,
                Err(Detour::Wait(unready)) => return Step::Unready(unready),
                Err(Detour::Refused(error)) => {
                    Writer::new(out, session.protocol).error(error_text(&error));
                    return Step::Done;
                }
            },
        };
        if !turn.held.try_extend(request) {
            return Step::NeedsLatches(request.clone());
        }
        turn.txn.mark_unit(session.database);
        turn.txn.sample_time();
        if session.is_master {
            turn.txn.set_time(Time::BeforeExpiry);
        }
        self.open();
        let (txn, held) = (&mut turn.txn, &mut turn.held);
        let before = out.len();
        match start_unit(unit, session, txn, held, out) {
            Ok(_) if self.is_replicated && is_outdated(&turn.txn) => {
                turn.txn.undo_unit();
                out.truncate(before);
                let error = Error::Engine(EngineError::Outdated);
                Writer::new(out, session.protocol).error(error_text(&error));
                Step::Done
            }
            Ok(_) => {
                self.attend(turn, session.client.id, None);
                Step::Done
            }
            Err(Error::TooLong) => Step::TooLong,
            Err(Error::Unlatched) if self.is_elsewhere(unit, turn.txn.region()) => {
                drop(turns);
                self.run_unit(unit, session, request, waited, out)
            }
            Err(Error::Unlatched) => Step::Alone,
            Err(error) => {
                Writer::new(out, session.protocol).error(error_text(&error));
                Step::Done
            }
        }
    }

    /// Whether a unit turned out to be about keys of another region than this.
    fn is_elsewhere(&self, unit: &dyn Unit, region: &Arc<Region>) -> bool {
        let found = || route::of_slot(&self.server, unit.slot().get()?, false);
        self.is_replicated && found().is_ok_and(|found| !Arc::ptr_eq(&found, region))
    }

    fn turn_of_unit<'t>(
        &self,
        turns: &'t mut Turns,
        unit: &dyn Unit,
        session: &Session,
        waited: &Waited,
    ) -> Result<&'t mut Turn, Detour> {
        turns.current = None;
        turns.slot = None;
        let slot = unit.slot().get()?;
        let region = route::of_slot(&self.server, slot, session.client.is_encrypted)?;
        turns.slot = slot;
        let turn = turns.enter(self.store(), &region);
        route::confirmed(&self.server, &region, waited)?;
        Ok(turn)
    }

    /// Tells those whom it concerns what has been changed.
    #[inline]
    fn attend(&self, turn: &mut Turn, client: u64, call: Option<&Call<'_>>) {
        if self.server.interest.is_any() {
            let (txn, held, served) = (&mut turn.txn, &mut turn.held, &mut turn.served);
            interest::attend(&self.server, txn, held, (client, call), served);
        }
    }

    /// Makes sure that the turn ends when the connections that are ready now have had their part.
    fn open(self: &Rc<Self>) {
        if self.is_open.replace(true) {
            return;
        }
        let mut task = self.ender.task.borrow_mut();
        // It ends with the tasks that it was started among; there may be others afterwards.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let worker = Rc::downgrade(self);
            let ends = poll_fn(move |context| Self::end_if_due(&worker, context));
            *task = Some(tokio::task::spawn_local(ends));
            self.ender.woken_for.set(self.number());
        } else if let Some(asleep) = self.ender.asleep.take() {
            self.ender.woken_for.set(self.number());
            asleep.wake();
        }
    }

    /// Ends the turn if all connections that were ready have had their part of it.
    fn end_if_due(worker: &Weak<Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(worker) = worker.upgrade() else {
            return Poll::Ready(());
        };
        let ender = &worker.ender;
        if worker.is_open.get() {
            // If another turn has begun since it was woken, some may have become ready for that.
            let is_new = ender.woken_for.replace(worker.number()) != worker.number();
            if is_new || worker.is_extended.take() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            worker.end_turn();
        }
        ender.asleep.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    /// The outcome to wait for before the reply of the last command may be sent; none if nothing that it depends on is
    /// uncommitted.
    pub fn outcome(&self) -> Option<Rc<Outcome>> {
        let turns = self.turns.borrow();
        match self.is_replicated {
            false => turns.home.outcome(),
            true => turns.current().outcome(),
        }
    }

    /// The slot that the last command was about, in a cluster.
    pub fn slot(&self) -> Option<u16> {
        self.turns.borrow().slot
    }

    /// Bytes of changes that wait for the end of the turn.
    pub fn pending_bytes(&self) -> usize {
        let turns = self.turns.borrow();
        let others = turns.others.iter().map(Turn::changed);
        turns.home.changed() + others.sum::<usize>()
    }

    /// The region of the last command.
    pub fn region(&self) -> Arc<Region> {
        self.turns.borrow().current().txn.region().clone()
    }

    /// Brings latches that were waited for into the current turn, for a command of that region. It may be followed by others
    /// who have waited for the same, and are ready now: they have their part of the turn.
    pub fn adopt(self: &Rc<Self>, region: &Arc<Region>, held: Held, is_followed: bool) {
        let mut turns = self.turns.borrow_mut();
        turns.enter(self.store(), region).held.adopt(held);
        if is_followed {
            self.is_followed.set(true);
            // An end that is scheduled only now comes after them by itself.
            self.is_extended.set(self.is_open.get());
        }
        self.open();
    }

    /// Whether there are others who may have yet to have their part of the turn.
    pub fn is_followed(&self) -> bool {
        self.is_followed.get()
    }

    /// Of the current turn.
    pub fn number(&self) -> u64 {
        self.ended.get()
    }

    /// Ends this turn, unless it has ended: another may have begun since.
    pub fn end_turn_if(self: &Rc<Self>, number: u64) {
        if self.number() == number {
            self.end_turn();
        }
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
        let mut turns = self.turns.borrow_mut();
        self.is_open.set(false);
        self.is_followed.set(false);
        self.is_extended.set(false);
        self.ended.set(self.ended.get() + 1);
        self.end(&mut turns.home);
        turns.current = None;
        for mut other in turns.others.drain(..) {
            self.end(&mut other);
        }
    }

    fn end(self: &Rc<Self>, turn: &mut Turn) {
        let outcome = turn.take_outcome();
        let served = std::mem::take(&mut turn.served);
        if turn.txn.is_clean() {
            turn.held.let_go();
            outcome.settle(Ok(()));
            turn.settled = Some(outcome);
            return;
        }
        self.server.stats.commits.add(1);
        match self.store().begin_commit(&mut turn.txn) {
            Begun::Done(result) => {
                turn.held.let_go();
                settle(&self.server, &outcome, served, result);
                turn.settled = Some(outcome);
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

/// Comes back when all tasks of the thread that are ready now have run. Unlike `yield_now` it does not look for others first,
/// which is a system call.
pub async fn let_others_run() {
    let mut is_first = true;
    poll_fn(|context| {
        if !std::mem::take(&mut is_first) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn settle(
    server: &Server,
    outcome: &Outcome,
    served: Vec<Served>,
    result: Result<(), EngineError>,
) {
    let result = result.map_err(|error| engine_error_text(&error));
    if result.is_err() {
        // Some may wait because of a pop that has not happened.
        server.blocked.retry_all();
    }
    served.into_iter().for_each(|served| served.settle(&result));
    outcome.settle(result);
}

/// What changes much, in a cluster, is to be run again on a thread of its own if there are changes of others in its batch, which had
/// so many bytes `before`.
#[inline]
pub fn fits(txn: &WriteTxn, before: usize) -> Result<()> {
    let is_too_much = before > 0 && txn.pending().bytes().saturating_sub(before) > MUCH;
    match is_too_much && txn.store().is_replicated() {
        true => Err(Error::TooLong),
        false => Ok(()),
    }
}

/// Whether the region of a transaction is not led any more as it was when it began, so that what it has read may be neither
/// what was then nor what is now. Nobody leads where there are no keys.
pub fn is_outdated(txn: &ReadTxn) -> bool {
    !txn.region().slots().is_empty() && !txn.is_of_this_term()
}

/// Starts a unit. If it breaks off, by a panic too, nothing of it is left. Returns what it makes of the functions.
pub fn start_unit(
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
    if let Some(slot) = scope.found {
        unit.is_about(slot);
    }
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

/// The same for a command that writes, which tells by itself what it missed.
#[inline]
pub fn count_lookups(server: &Server, command: &Command, txn: &ReadTxn, result: &Result<Reply>) {
    if command.counts_lookups && !matches!(result, Err(Error::TooLong)) {
        server.stats.looked_up(txn.lookups());
    }
}

/// If somebody wants to know of keys that expire, those that a command writes to and that have done so are deleted
/// before: it will leave no trace of them.
#[inline]
pub fn bury_expired(txn: &mut WriteTxn, command: &Command, args: &Args<'_>) -> Result<()> {
    match txn.store().listeners().hear_of_expired() {
        true => bury_all_expired(txn, command, args),
        false => Ok(()),
    }
}

#[cold]
fn bury_all_expired(txn: &mut WriteTxn, command: &Command, args: &Args<'_>) -> Result<()> {
    if txn.is_followed() {
        return propagation::begin(txn, command, args);
    }
    let mut names = Vec::new();
    command.keys.visit(args, |name, access| {
        if access.mode() == Mode::Exclusive {
            names.push(name);
        }
    });
    names.into_iter().try_for_each(|name| txn.bury(name))
}

/// Does the work of a command that may have to wait: on one key alone, if one is given; none if there is nothing to do it on.
pub fn try_blocking(
    txn: &mut WriteTxn,
    call: &Call<'_>,
    blocking: Blocking,
    only: Option<&[u8]>,
) -> Result<Option<Reply>> {
    if call.command.is_write() && txn.is_followed() {
        propagation::begin(txn, call.command, &call.args)?;
    }
    (blocking.attempt)(txn, &call.args, only)
}

pub fn finish(call: &Call<'_>, result: Result<Reply>, out: &mut Vec<u8>) -> Step {
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

/// Whether a client is told by this text that certainly nothing was done.
pub fn says_undone(text: &str) -> bool {
    text.starts_with(TRY_AGAIN)
}

/// What a client is told of an error.
pub fn error_text(error: &Error) -> Vec<u8> {
    match error {
        Error::Reply(text) => text.to_vec(),
        Error::Engine(error) => engine_error_text(error).into_bytes(),
        other => format!("ERR {other}").into_bytes(),
    }
}

/// The same of one below the commit point. What is not known is told by a word of its own, on which no client tries
/// again by itself; what was certainly not done, by one on which clients do.
pub fn engine_error_text(error: &EngineError) -> String {
    match error {
        EngineError::NotLeading | EngineError::Outdated => format!("{TRY_AGAIN} {error}"),
        EngineError::InDoubt => format!("INDOUBT {error}"),
        other => format!("ERR {other}"),
    }
}
