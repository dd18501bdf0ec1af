//! MULTI, EXEC, and what EXEC depends on: the queue of commands, and WATCH.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_resp::{Protocol, Reply, Writer};
use cairn_store::{Error, Mode, Reading, Request, Result};

use crate::acl::{Context, Denial, User};
use crate::client::Client;
use crate::command::{Args, Command, Flag, Handler, OwnedArgs};
use crate::observe::Ran;
use crate::route::SlotOfKeys;
use crate::script::Scripts;
use crate::session::{Replies, Session};
use crate::shortage::Shortages;
use crate::turn::{Call, error_text};
use crate::unit::{Scope, Unit};
use crate::watches::Watch;

/// The commands since MULTI.
pub struct Queue {
    client: Arc<Client>,
    calls: Vec<(&'static Command, OwnedArgs)>,
    /// One of them was refused: the others will not run either.
    pub is_aborted: bool,
}

impl Queue {
    pub fn begin(client: &Arc<Client>) -> Queue {
        client.queued.store(0, Ordering::Relaxed);
        Queue {
            client: client.clone(),
            calls: Vec::new(),
            is_aborted: false,
        }
    }

    pub fn push(&mut self, command: &'static Command, args: &Args<'_>) {
        self.calls.push((command, OwnedArgs::new(args)));
        let queued = self.calls.len() as i64;
        self.client.queued.store(queued, Ordering::Relaxed);
    }

    /// Whether one of them writes.
    pub fn writes(&self, scripts: &Scripts) -> bool {
        self.calls.iter().any(|(command, args)| {
            command.writes_besides_scripts() || args.with(|args| scripts.may_write(command, args))
        })
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// What its commands say of the slot that they are about.
    pub fn slot(&self) -> SlotOfKeys {
        let mut slot = SlotOfKeys::default();
        for (command, args) in &self.calls {
            args.with(|args| command.keys.visit_slots(args, |name| slot.add(name)));
        }
        slot
    }

    /// Whether none of its commands is about this session, or this server.
    pub fn is_about_keys(&self) -> bool {
        self.calls.iter().all(|(command, _)| {
            !matches!(
                command.handler,
                Handler::Session(_) | Handler::Admin(_) | Handler::Exclusive(_)
            )
        })
    }

    /// Whether it changes functions, and names no keys.
    pub fn is_about_functions(&self) -> bool {
        let mut calls = self.calls.iter();
        let changes = calls.any(|(command, _)| command.changes_functions());
        changes && !self.is_aborted && matches!(self.slot().get(), Ok(None))
    }

    /// What a client would send to have all of it run.
    pub fn write_requests(&self, scripts: &Scripts, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, Protocol::Resp2);
        writer.request(&["MULTI"]);
        for (command, args) in &self.calls {
            args.with(|args| scripts.write_call(&mut writer, command, args));
        }
        writer.request(&["EXEC"]);
    }

    /// Whether its commands may run for all that the server is short of.
    fn check(&self, shortages: &Shortages) -> Result<()> {
        if !shortages.are_any() {
            return Ok(());
        }
        if self.has(Flag::DenyOom) {
            shortages.check_room()?;
        }
        if self.has(Flag::Write) {
            shortages.check_replicas()?;
            shortages.check_read_only()?;
        }
        match self
            .calls
            .iter()
            .all(|(command, _)| command.has(Flag::Stale))
        {
            true => Ok(()),
            false => shortages.check_stale(),
        }
    }

    fn has(&self, flag: Flag) -> bool {
        self.calls.iter().any(|(command, _)| command.has(flag))
    }

    /// Whether it must not be started again from some point on.
    fn is_irrevocable(&self) -> bool {
        self.calls
            .iter()
            .any(|(command, _)| command.is_irrevocable())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.client.queued.store(-1, Ordering::Relaxed);
    }
}

/// What a client is told whose transaction is over because EXEC itself was refused.
pub fn aborted(error: &Error) -> Error {
    let reason = error_text(error);
    let reason = reason.strip_prefix(b"ERR ").unwrap_or(&reason);
    Error::reply([b"EXECABORT Transaction discarded because of: ", reason].concat())
}

/// EXEC.
pub struct Exec {
    queue: Queue,
    watch: Option<Watch>,
    request: Request,
    /// The slot that it has turned out to be about, if its commands name no keys.
    found: Option<u16>,
}

impl Exec {
    /// Takes what the session has queued.
    pub fn take(session: &mut Session) -> Result<Exec> {
        let queue = session.queue.take();
        let queue = queue.ok_or(Error::fixed("ERR EXEC without MULTI"))?;
        let watch = session.watch.take();
        if queue.is_aborted {
            return Err(Error::fixed(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        if !session.is_master {
            let checked = queue.check(&session.server.shortages);
            checked.map_err(|error| aborted(&error))?;
        }
        let mut request = Request::default();
        for (command, args) in &queue.calls {
            args.with(|args| {
                let call = Call {
                    command,
                    args: *args,
                    database: session.database,
                    protocol: session.protocol,
                    client: session.client.id,
                    by_tls: session.client.is_encrypted,
                    by_master: session.is_master,
                    reading: Reading::Use,
                    from_replica: None,
                };
                request.join(call.request());
            });
        }
        if let Some(watch) = &watch {
            watch
                .names()
                .for_each(|name| request.add(name, Mode::Shared));
        }
        if queue.is_irrevocable() {
            request = Request::everything();
        }
        Ok(Exec {
            queue,
            watch,
            request: request.sorted(),
            found: None,
        })
    }
}

impl Unit for Exec {
    fn request(&self) -> Request {
        self.request.clone()
    }

    fn slot(&self) -> SlotOfKeys {
        let mut slot = self.queue.slot();
        self.found.iter().for_each(|found| slot.add_slot(*found));
        slot
    }

    fn is_about(&mut self, slot: u16) {
        self.found = Some(slot);
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        // It would turn out later: nothing is begun in vain.
        if !scope.is_patient() && self.queue.is_irrevocable() {
            return Err(Error::TooLong);
        }
        if let Some(watch) = &self.watch
            && watch.has_changed(scope.txn)?
        {
            Writer::new(out, scope.session.protocol).null_array();
            return Ok(());
        }
        let mut left_out = LeftOut::new(scope.session);
        let start = out.len();
        Writer::new(out, scope.session.protocol).array(self.queue.len());
        left_out.note(scope.session, None, start..out.len());
        let mut results = Vec::with_capacity(self.queue.len());
        for (command, args) in &self.queue.calls {
            let started = Instant::now();
            let start = out.len();
            scope.session.error_is_counted = false;
            // The rules may have changed since it was queued.
            let permitted = match scope.session.is_master {
                true => Ok(()),
                false => args.with(|args| scope.session.user().check(command, args)),
            };
            match permitted {
                Ok(()) => args.with(|args| scope.call_and_write(command, args, out))?,
                Err(denial) => {
                    let error = args.with(|args| denial.error_at_exec(command, args));
                    Writer::new(out, scope.session.protocol).error(error_text(&error));
                }
            }
            left_out.note(scope.session, Some(command), start..out.len());
            let session = &scope.session;
            results.push(Done {
                denial: permitted
                    .err()
                    .map(|denial| (denial, session.user().clone())),
                reply_at: start,
                took: started.elapsed(),
                database: session.database,
                error_is_counted: session.error_is_counted,
            });
        }
        // It has come to its end, and will not be started again: now it counts.
        let session = &*scope.session;
        for ((command, args), done) in self.queue.calls.iter().zip(results) {
            let error = out[done.reply_at..].strip_prefix(b"-");
            let stats = &session.server.stats;
            if let Some((denial, user)) = done.denial {
                stats.error(error.unwrap_or_default());
                args.with(|args| {
                    let object = denial.object(command, args);
                    let acl = &session.server.acl;
                    let (reason, context) = (denial.reason, Context::Multi);
                    acl.note(&session.client, &user.name, reason, context, object);
                });
                continue;
            }
            let took = done.took.as_nanos() as u64;
            match done.error_is_counted {
                true => stats.ran(command, took, error.is_some(), true),
                false => stats.counted(command, done.took, error),
            }
            args.with(|args| {
                let ran = Ran {
                    client: &session.client,
                    database: done.database,
                    command,
                    args,
                };
                ran.time(&session.server, took);
                ran.show(&session.server);
            });
        }
        left_out.take_from(out);
        scope.session.has_left_out = true;
        Ok(())
    }
}

/// The parts of a reply that are not sent: CLIENT REPLY may be one of the commands, and concerns what comes behind it.
struct LeftOut {
    skips: bool,
    parts: Vec<Range<usize>>,
}

impl LeftOut {
    fn new(session: &Session) -> LeftOut {
        LeftOut {
            skips: session.replies == Replies::SkipNext,
            parts: Vec::new(),
        }
    }

    /// A part has been written, by a command or none.
    fn note(&mut self, session: &Session, by: Option<&Command>, part: Range<usize>) {
        self.skips &= session.replies != Replies::On;
        let is_silent = match session.replies {
            Replies::On => false,
            Replies::Off => true,
            // It is the reply to what follows EXEC that is skipped then, beside that of CLIENT REPLY itself.
            Replies::SkipThis | Replies::SkipNext => {
                self.skips || by.is_some_and(|command| command.full_name == "client|reply")
            }
        };
        if is_silent {
            self.parts.push(part);
        }
    }

    fn take_from(self, out: &mut Vec<u8>) {
        for part in self.parts.into_iter().rev() {
            out.drain(part);
        }
    }
}

/// A command of a transaction that has run.
struct Done {
    /// It has not run, because this user may not run it any more.
    denial: Option<(Denial, Arc<User>)>,
    /// Where its reply begins.
    reply_at: usize,
    took: Duration,
    /// The one selected afterwards.
    database: u32,
    error_is_counted: bool,
}

/// WATCH.
pub struct AddWatches(pub OwnedArgs);

impl Unit for AddWatches {
    fn request(&self) -> Request {
        let mut request = Request::default();
        self.0.with(|args| {
            let names = args.rest(1).iter();
            names.for_each(|name| request.add(name, Mode::Shared));
        });
        request
    }

    fn slot(&self) -> SlotOfKeys {
        let mut slot = SlotOfKeys::default();
        let names = |args: &Args<'_>| args.rest(1).iter().for_each(|name| slot.add(name));
        self.0.with(names);
        slot
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        let session = &mut *scope.session;
        let watches = &session.server.watches;
        let watch = session.watch.get_or_insert_with(|| watches.begin());
        self.0.with(|args| {
            let mut names = args.rest(1).iter();
            names.try_for_each(|name| watch.add(scope.txn, name))
        })?;
        scope.write(Reply::Ok, scope.session.protocol, out)
    }
}
