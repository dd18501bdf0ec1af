//! How a connection has its commands run: over the turn of its thread, as a unit, after a wait, or on a thread of
//! their own.

use std::task::Poll;
use std::time::{Duration, Instant};

use cairn_engine::Moment;
use cairn_resp::Reply;
use cairn_store::{Error, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    AwaitedReply, Connection, GULP_BYTES, Gone, MOST_WAITS_BEHIND, MOST_WAITS_FOR_COMMITS,
    error_reply,
};
use crate::blocked::{Ending, Place};
use crate::cluster::gate::{self, CaughtUp, Patience, Unready};
use crate::command::{Args, Blocking, Command, Flag, Handler, OwnedArgs};
use crate::latch_wait::{self, First};
use crate::long::{self, LongReply};
use crate::observe::Ran;
use crate::route::{self, DOWN};
use crate::session::{Awaited, Session};
use crate::turn::{Call, Step, let_others_run};
use crate::unit::Unit;

/// What has become of a command so far.
pub(super) struct Attempt {
    /// Where in the output its reply begins.
    before: usize,
    step: Step,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) async fn execute(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Gone> {
        self.session.client.runs(command);
        if self.session.server.cluster.get().is_some()
            && let Some(target) = self.elsewhere(command, &args)
            && self.forward(command, &args, target).await?
        {
            return Ok(());
        }
        if command.walks_keys && !self.confirm_all().await? {
            return Ok(());
        }
        match command.handler {
            Handler::Session(handler) => {
                let reply = handler(&mut self.session, &args).unwrap_or_else(error_reply);
                if let Some(pause) = self.session.sleeps.take() {
                    self.settle().await;
                    let client = self.session.client.clone();
                    let _busy = client.work();
                    tokio::time::sleep(pause).await;
                }
                if let Some(sync) = self.session.sync.take() {
                    return self.synchronize(*sync).await;
                }
                if self.session.acknowledges.is_some() {
                    self.note_acknowledged();
                }
                let reply = match self.session.awaits.take() {
                    Some(awaited) => self.wait_for_replicas(awaited).await?,
                    None => reply,
                };
                if self.session.listens {
                    self.hear();
                }
                self.write_reply(reply)
            }
            Handler::Admin(handler) => {
                self.settle().await;
                let (server, client) = (self.session.server.clone(), self.session.client.clone());
                let _busy = client.work();
                let owned = OwnedArgs::new(&args);
                let reply = blocking(move || {
                    owned.with(|args| handler(&server, args).unwrap_or_else(error_reply))
                })
                .await?;
                self.write_reply(reply)
            }
            Handler::Container => self.write_reply(Reply::Null),
            Handler::Unit(make) => {
                if command.has(Flag::SkipMonitor) {
                    self.show_start(command, &args);
                }
                match make(&mut self.session, &args) {
                    Ok(unit) => self.run_unit(unit).await,
                    Err(error) => self.write_reply(error_reply(error)),
                }
            }
            _ => {
                if let Handler::Blocking(_) = command.handler {
                    self.show_start(command, &args);
                }
                if self.session.tracker.is_some() && self.session.client.outbox.has_some() {
                    self.hear();
                }
                if let Some(tracker) = &self.session.tracker {
                    tracker.read(command, &args);
                }
                let from_replica = match self.may_read_replica(command) {
                    true => match self.catch_up(command, &args).await? {
                        Replica::Ready(region) => region,
                        Replica::Refused => return Ok(()),
                    },
                    false => None,
                };
                let call = Call {
                    from_replica,
                    ..self.call(command, args)
                };
                match command.handler {
                    Handler::Blocking(blocking) => self.run_blocking(&blocking, call).await,
                    _ => self.run_in_turn(&call).await,
                }
            }
        }
    }

    /// Runs a command that waits if there is nothing for it. A client is sent nothing between what it reads and the reply,
    /// unless it waits: then it may be told that its copy is outdated before it has one.
    async fn run_blocking(&mut self, blocking: &Blocking, call: Call<'_>) -> Result<(), Gone> {
        let mut patience = Patience::default();
        let fixed = loop {
            match self.worker.fix(blocking, &call, &patience) {
                Ok(fixed) => break fixed,
                Err(unready) => {
                    if !self.wait_until_ready(unready, &mut patience).await? {
                        return Ok(());
                    }
                }
            }
        };
        let words = fixed.as_ref().map(|fixed| fixed.words());
        let args = words.as_ref().map_or(call.args, |words| Args::new(words));
        let call = Call { args, ..call };
        self.run_in_turn(&call).await?;
        if let Some(tracker) = &self.session.tracker {
            tracker.has_waited(&self.session.server, call.command, &call.args);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn call<'a>(&self, command: &'static Command, args: Args<'a>) -> Call<'a> {
        Call {
            command,
            args,
            database: self.session.database,
            protocol: self.session.protocol,
            client: self.session.client.id,
            by_tls: self.session.client.is_encrypted,
            by_master: self.session.is_master,
            reading: command.reading(self.session.client.is_quiet()),
            from_replica: None,
        }
    }

    /// Whether a replica will do that another node leads. Not for a client that keeps copies: what others change there is
    /// told to nobody here.
    pub(super) fn may_read_replica(&self, command: &Command) -> bool {
        let session = &self.session;
        session.reads_replicas && session.tracker.is_none() && command.reads_at_once()
    }

    /// Tells how many replicas have what the client has written, once there are enough, or its time is up.
    async fn wait_for_replicas(&mut self, awaited: Awaited) -> Result<Reply, Gone> {
        let server = self.session.server.clone();
        self.leave_turn().await;
        let Some(node) = server.cluster.get() else {
            return self.wait_for_followers(awaited).await;
        };
        let mut regions = self.session.wrote().to_vec();
        if regions.is_empty() {
            // Whoever has written nothing asks how many there are.
            regions = server.store.regions().led().map(|led| led.id()).collect();
        }
        let client = self.session.client.clone();
        let _blocked = client.block();
        let known = node.acknowledged(&regions, awaited.replicas, awaited.until);
        let known = tokio::select! {
            known = known => known,
            gone = std::future::poll_fn(|context| self.poll_gone(context)) => return Err(gone),
        };
        self.resumed = Moment::now();
        Ok(known.into())
    }

    /// The same of servers that follow this one.
    async fn wait_for_followers(&mut self, awaited: Awaited) -> Result<Reply, Gone> {
        let (server, client) = (self.session.server.clone(), self.session.client.clone());
        let _blocked = client.block();
        let Awaited { replicas, until } = awaited;
        let limits = &server.live.output_limits;
        let known = server
            .replication
            .wait_acknowledged(replicas, until, limits);
        let known = tokio::select! {
            known = known => known,
            gone = std::future::poll_fn(|context| self.poll_gone(context)) => return Err(gone),
        };
        self.resumed = Moment::now();
        Ok(known.into())
    }

    /// The replica to read from, once it is not of the past any more.
    async fn catch_up(&mut self, command: &Command, args: &Args<'_>) -> Result<Replica, Gone> {
        let server = self.session.server.clone();
        let region = match route::of_read(&server, command, args) {
            Some(region) if !region.is_led() => region,
            // The rest finds out.
            _ => return Ok(Replica::Ready(None)),
        };
        self.leave_turn().await;
        let client = self.session.client.clone();
        let _busy = client.work();
        let caught_up = gate::catch_up(&server, region.clone()).await;
        self.resumed = Moment::now();
        if caught_up.is_some() || region.is_led() {
            return Ok(Replica::Ready(caught_up));
        }
        let elsewhere = route::of_call(&server, command, args, client.is_encrypted).err();
        let error = elsewhere.map_or(Error::fixed(DOWN), Error::from);
        self.write_reply(error_reply(error))?;
        Ok(Replica::Refused)
    }

    /// Shows a command to those who monitor the server before it runs: it may take its time.
    fn show_start(&self, command: &'static Command, args: &Args<'_>) {
        let ran = Ran {
            client: &self.session.client,
            database: self.session.database,
            command,
            args,
        };
        ran.announce(&self.session.server);
    }

    /// Whatever else the client is sent comes before the reply that begins now.
    pub(super) fn hear(&mut self) {
        self.session.client.outbox.take_into(&mut self.output);
        self.reply_start = self.output.len();
    }

    /// Waits until it is known who leads the region of a command; false if that was answered, since it takes too long.
    async fn wait_until_ready(
        &mut self,
        unready: Unready,
        patience: &mut Patience,
    ) -> Result<bool, Gone> {
        self.leave_turn().await;
        let (server, client) = (self.session.server.clone(), self.session.client.clone());
        let _busy = client.work();
        let waited = gate::wait(&server, unready, patience).await;
        self.resumed = Moment::now();
        match waited {
            Ok(()) => Ok(true),
            Err(error) => self.write_reply(error_reply(error)).map(|()| false),
        }
    }

    /// Makes sure that nobody else leads what this node believes to lead; false if that was answered, since it cannot be
    /// told in time.
    async fn confirm_all(&mut self) -> Result<bool, Gone> {
        let server = self.session.server.clone();
        let mut patience = Patience::default();
        while let Err(unready) = gate::all_confirmed(&server, &patience) {
            if !self.wait_until_ready(unready, &mut patience).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn run_in_turn(&mut self, call: &Call<'_>) -> Result<(), Gone> {
        match self.attempt(call, &Patience::default(), self.resumed) {
            None => Ok(()),
            Some(attempt) => self.go_on(call, attempt).await,
        }
    }

    /// Runs a command as far as it gets without waiting: none if it is done, as most are.
    #[inline]
    pub(super) fn attempt(
        &mut self,
        call: &Call<'_>,
        patience: &Patience,
        now: Moment,
    ) -> Option<Attempt> {
        let before = self.output.len();
        match self.worker.run(call, patience, now, &mut self.output) {
            Step::Done => {
                self.await_outcome(before);
                None
            }
            step => Some(Attempt { before, step }),
        }
    }

    /// Has a command run to its end that was not done at once.
    pub(super) async fn go_on(&mut self, call: &Call<'_>, attempt: Attempt) -> Result<(), Gone> {
        let mut patience = Patience::default();
        let mut waited = Waited::default();
        let mut wait: Option<Wait> = None;
        let mut next = Some(attempt);
        while let Some(Attempt { before, step }) = next {
            match step {
                // It would not be here; and only units run alone.
                Step::Done | Step::Alone => return Ok(()),
                Step::Broken(error) => {
                    tracing::error!("{error}");
                    return Err(Gone);
                }
                Step::NeedsLatches(request) => self.wait_for_latches(request, &mut waited).await,
                Step::Unready(unready) => {
                    if !self.wait_until_ready(unready, &mut patience).await? {
                        return Ok(());
                    }
                }
                Step::Streaming(rest) => {
                    let outcome = self.worker.outcome();
                    let head = self.output.split_off(before);
                    self.leave_turn().await;
                    if let Some(outcome) = outcome
                        && let Err(reason) = outcome.wait().await
                    {
                        return self.write_reply(Reply::error(reason));
                    }
                    self.output.extend_from_slice(&head);
                    return self.stream_rest(rest).await;
                }
                Step::TooLong => {
                    self.leave_turn().await;
                    if self.run_long(call, &mut wait).await? {
                        return Ok(());
                    }
                }
                Step::Waits(blocking) => {
                    let longest = self.session.guest_patience;
                    let begun =
                        wait.get_or_insert_with(|| Wait::begin(&blocking, &call.args, longest));
                    let client = self.session.client.clone();
                    let all = &self.session.server.blocked;
                    // The latches are still held: nothing has come between.
                    let place = all.enter(&client, call, blocking, begun.order);
                    begun.order = Some(place.order);
                    let deadline = begun.deadline;
                    if self.wait_for_element(place, deadline).await? {
                        return Ok(());
                    }
                    if self.session.server.pause.holds(call.command, false) {
                        self.wait_for_pause(call.command, false).await?;
                    }
                }
            }
            let now = Moment::now();
            if let Some(error) = self.denied_meanwhile(call.command, &call.args) {
                return self.write_reply(error_reply(error));
            }
            next = self.attempt(call, &patience, now);
        }
        Ok(())
    }

    /// The reply that begins here is to be sent when the turn is committed.
    fn await_outcome(&mut self, start: usize) {
        if let Some(outcome) = self.worker.outcome() {
            let reply = AwaitedReply {
                place: start..self.output.len(),
                slot: self.worker.slot(),
            };
            self.gulp.add(reply, outcome);
        }
    }

    /// Waits for latches that somebody else holds. While a commit of this thread waits for the disk, that is
    /// most likely who, and all who wait for it go on together.
    async fn wait_for_latches(&mut self, request: Request, waited: &mut Waited) {
        let region = self.worker.region();
        if self.worker.has_unfinished() && waited.for_commits < MOST_WAITS_FOR_COMMITS {
            waited.for_commits += 1;
            self.settle().await;
            self.worker.commit_finished().await;
            return;
        }
        // What this connection wrote must be there when it is read without a latch.
        self.leave_turn().await;
        let latches = self.session.server.store.latches().clone();
        let (worker, client) = (self.worker.clone(), self.session.client.clone());
        let _busy = client.work();
        let request = request.sorted();
        let first = match worker.latch_waits.enter(region.id(), &request) {
            latch_wait::Place::First(first) => Some(first),
            latch_wait::Place::Behind(first) if waited.behind < MOST_WAITS_BEHIND => {
                waited.behind += 1;
                first.notified().await;
                // What many clients write must not become one batch without bounds.
                if worker.pending_bytes() >= GULP_BYTES {
                    worker.end_turn();
                }
                return;
            }
            // That was in vain: the turns that went on then ended too early.
            latch_wait::Place::Behind(_) => None,
        };
        let held = latches.acquire(request).await;
        let is_followed = first.is_some_and(First::lead);
        worker.adopt(&region, held, is_followed);
    }

    /// Ends the turn once those have had their part who waited for the same latches, and waits for its commit.
    pub(super) async fn leave_turn(&mut self) {
        let number = self.worker.number();
        if self.worker.is_followed() {
            let_others_run().await;
        }
        self.worker.end_turn_if(number);
        self.settle().await;
    }

    async fn run_unit(&mut self, mut unit: Box<dyn Unit>) -> Result<(), Gone> {
        let mut patience = Patience::default();
        let mut waited = Waited::default();
        let mut request = unit.request();
        loop {
            let before = self.output.len();
            let (session, output) = (&mut self.session, &mut self.output);
            match self
                .worker
                .run_unit(&mut *unit, session, &request, &patience, output)
            {
                Step::NeedsLatches(request) => self.wait_for_latches(request, &mut waited).await,
                Step::Alone => request = Request::everything(),
                Step::Unready(unready) => {
                    if !self.wait_until_ready(unready, &mut patience).await? {
                        return Ok(());
                    }
                }
                Step::TooLong => {
                    self.leave_turn().await;
                    return self.run_long_unit(unit, request).await;
                }
                _ => {
                    self.await_outcome(before);
                    return Ok(());
                }
            }
        }
    }

    async fn run_long_unit(
        &mut self,
        mut unit: Box<dyn Unit>,
        request: Request,
    ) -> Result<(), Gone> {
        let (server, client) = (self.session.server.clone(), self.session.client.clone());
        let _busy = client.work();
        let mut request = request;
        loop {
            let held = server.store.latches().acquire(request).await;
            // The unit may change the session, so it goes along.
            let stand_in = Session::new(server.clone(), client.clone());
            let mut session = std::mem::replace(&mut self.session, stand_in);
            let (back, session, reply) = blocking(move || {
                let reply = long::run_long_unit(&mut *unit, &mut session, held);
                (unit, session, reply)
            })
            .await?;
            self.session = session;
            if let Some(reply) = reply {
                self.output.extend_from_slice(&reply);
                return Ok(());
            }
            (unit, request) = (back, Request::everything());
        }
    }

    /// True if it was answered.
    async fn run_long(&mut self, call: &Call<'_>, wait: &mut Option<Wait>) -> Result<bool, Gone> {
        let client = self.session.client.clone();
        let busy = client.work();
        let order = wait.as_ref().and_then(|wait| wait.order);
        let server = self.session.server.clone();
        let is_walk = call.command.keys.0.is_empty() && !call.command.is_write();
        let latches = server.store.latches();
        let _room = match call.command.waits_for_others() {
            true => Some(server.migrations.acquire().await.map_err(|_| Gone)?),
            false => None,
        };
        let held = match is_walk {
            true => latches.none(),
            false => latches.acquire(call.request()).await,
        };
        if let Some(error) = self.denied_meanwhile(call.command, &call.args) {
            self.write_reply(error_reply(error))?;
            return Ok(true);
        }
        let owned = OwnedArgs::new(&call.args);
        let shared = server.clone();
        let &Call {
            command,
            database,
            protocol,
            client,
            by_tls,
            by_master,
            reading,
            ..
        } = call;
        let result = blocking(move || {
            owned.with(|args| {
                let call = Call {
                    command,
                    args: *args,
                    database,
                    protocol,
                    client,
                    by_tls,
                    by_master,
                    reading,
                    // It would keep the replica from following for too long.
                    from_replica: None,
                };
                match is_walk {
                    true => long::run_walk(&shared, &call),
                    false => long::run_long(&shared, &call, held, order),
                }
            })
        })
        .await?;
        match result.map_err(|_| Gone)? {
            LongReply::Nothing => return Ok(false),
            LongReply::Waits(place) => {
                drop(busy);
                let Handler::Blocking(blocking) = command.handler else {
                    return Ok(false);
                };
                let longest = self.session.guest_patience;
                let begun = wait.get_or_insert_with(|| Wait::begin(&blocking, &call.args, longest));
                begun.order = Some(place.order);
                let deadline = begun.deadline;
                return self.wait_for_element(place, deadline).await;
            }
            LongReply::Whole(reply) => self.output.extend_from_slice(&reply),
            LongReply::Streaming(head, rest) => {
                self.output.extend_from_slice(&head);
                self.stream_rest(rest).await?;
            }
        }
        Ok(true)
    }

    /// Waits until somebody has an element for this client, its time is up, or it goes; true if that was answered.
    async fn wait_for_element(
        &mut self,
        place: Place,
        deadline: Option<Instant>,
    ) -> Result<bool, Gone> {
        self.leave_turn().await;
        self.flush().await?;
        let client = self.session.client.clone();
        let _blocked = client.block();
        let mut deadline = deadline;
        let mut is_late = false;
        let ending = loop {
            let ended = std::future::poll_fn(|context| {
                if let Poll::Ready(ending) = place.waiter.poll(context) {
                    return Poll::Ready(Ok(Some(ending)));
                }
                if is_late && place.give_up() {
                    return Poll::Ready(Ok(Some(Ending::Left)));
                }
                // What it sends meanwhile runs later; that it has gone is to be known now. Who was served at the last moment
                // is still told so.
                if let Poll::Ready(gone) = self.poll_gone(context)
                    && place.give_up()
                {
                    return Poll::Ready(Err(gone));
                }
                // What comes with its own element comes behind that.
                let may_hear = self.session.listens && place.waiter.is_waiting();
                if may_hear && client.outbox.poll_some(context).is_ready() {
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending
            });
            let ended = match deadline {
                None => ended.await?,
                Some(at) => match tokio::time::timeout_at(at.into(), ended).await {
                    Ok(ended) => ended?,
                    Err(_) if place.give_up() => break Ending::Left,
                    // Served at the last moment: the reply comes with the commit, unless there was nothing for it after all.
                    Err(_) => {
                        (deadline, is_late) = (None, true);
                        continue;
                    }
                },
            };
            match ended {
                Some(ending) => break ending,
                None => self.flush().await?,
            }
        };
        self.resumed = Moment::now();
        client.touch(self.resumed);
        match ending {
            Ending::Served(reply) => self.output.extend_from_slice(&reply),
            Ending::Left => self.write_reply(Reply::NullArray)?,
            Ending::Unblocked(unblock) => self.write_reply(unblock.reply())?,
            Ending::Retry => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a command may read from a replica.
enum Replica {
    /// From this one; none if this node leads, or does not have any.
    Ready(Option<CaughtUp>),
    /// That was answered: it cannot be told whether it is of the past.
    Refused,
}

/// How a command has waited for latches so far.
#[derive(Default)]
struct Waited {
    /// How many times for a commit of its thread.
    for_commits: usize,
    /// How many times behind another connection of its thread. Only who has a place in the queue for the latches is sure to come
    /// to them.
    behind: usize,
}

/// How long, and since when, a client waits.
struct Wait {
    deadline: Option<Instant>,
    /// Its place in the queue, once it has one.
    order: Option<u64>,
}

impl Wait {
    fn begin(blocking: &Blocking, args: &Args<'_>, longest: Option<Duration>) -> Wait {
        // It was understood before the command was tried.
        let timeout = blocking.timeout(args).ok().flatten();
        let timeout = match (timeout, longest) {
            (Some(timeout), Some(longest)) => Some(timeout.min(longest)),
            (timeout, longest) => timeout.or(longest),
        };
        Wait {
            // What is too far away never comes.
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            order: None,
        }
    }
}

/// Runs on a thread that may take its time.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Gone> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Gone)
}
