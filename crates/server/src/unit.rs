//! Several commands as one: EXEC, a script. They run over one transaction, become one batch, and nobody sees one
//! without the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_resp::{Progress, Protocol, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Effect, Error, Held, Point, Request, Result, WriteTxn, slot};

use crate::cluster::gate::{self, Patience};
use crate::command::{Args, Command, Flag, Handler};
use crate::propagation;
use crate::pubsub::Published;
use crate::route::{SlotOfKeys, is_led_here};
use crate::script::functions::View;
use crate::script::reply::write_reply;
use crate::session::Session;
use crate::tracking::Tracker;
use crate::turn::{Call, bury_expired, count_lookups, fits, looked_up, try_blocking};

/// What runs as one. It may be started more than once: whatever an attempt did that broke off has been undone,
/// and was seen by nobody.
pub trait Unit: Send {
    /// The latches it needs, as far as it knows beforehand.
    fn request(&self) -> Request;

    /// The keys it names, which say in a cluster where it runs.
    fn slot(&self) -> SlotOfKeys {
        SlotOfKeys::default()
    }

    /// It has named no keys, and turns out to be about this slot: it is started again where that is.
    fn is_about(&mut self, _: u16) {}

    /// Runs, and appends its reply. It stops, and is started again elsewhere, when it meets [`Error::TooLong`] (then
    /// on a thread of its own) or [`Error::Unlatched`] (then alone). With any other error nothing has happened,
    /// and the client is told.
    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()>;
}

/// Where a unit's commands run.
pub struct Scope<'a> {
    pub session: &'a mut Session,
    pub txn: &'a mut WriteTxn,
    pub held: &'a mut Held,
    /// The functions as the unit has changed them, if it has; for everybody when it is committed.
    pub functions: Option<Arc<View>>,
    /// The slot that the unit has turned out to be about, if it runs where no keys are.
    pub found: Option<u16>,
    /// Whether what it does is told to followers: a script may decide otherwise.
    pub propagates: bool,
    /// How many bytes others have changed in its batch.
    before: usize,
    /// Until when it may run, where it must not take its time; set when somebody asks.
    deadline: Option<Instant>,
}

/// How long a unit may take on a connection's thread, besides reading rows, which are counted.
const SHORT_TIME: Duration = Duration::from_millis(3);

impl<'a> Scope<'a> {
    pub fn new(session: &'a mut Session, txn: &'a mut WriteTxn, held: &'a mut Held) -> Scope<'a> {
        Scope {
            before: txn.pending().bytes(),
            session,
            txn,
            held,
            functions: None,
            found: None,
            propagates: true,
            deadline: None,
        }
    }

    /// Until when the unit may run; none if it may take its time.
    pub fn deadline(&mut self) -> Option<Instant> {
        if self.is_patient() {
            return None;
        }
        Some(
            *self
                .deadline
                .get_or_insert_with(|| Instant::now() + SHORT_TIME),
        )
    }

    /// Whether the unit has a thread of its own, where it may take its time.
    pub fn is_patient(&self) -> bool {
        self.txn.is_patient()
    }

    /// Runs one command; an error that the client is to be told is a reply. A command whose latch is held
    /// by someone else cannot wait for it here.
    pub fn call(&mut self, command: &'static Command, args: &Args<'_>) -> Result<Reply> {
        self.call_tracked(command, args, |tracker| tracker.read(command, args))
    }

    /// The same for a script that was called with these keys.
    pub fn call_in_script(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        declared: &[Vec<u8>],
    ) -> Result<Reply> {
        self.call_tracked(command, args, |tracker| {
            tracker.read_in_script(command, declared);
        })
    }

    fn call_tracked(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        track: impl FnOnce(&Tracker),
    ) -> Result<Reply> {
        let call = Call {
            command,
            args: *args,
            database: self.session.database,
            protocol: self.session.protocol,
            client: self.session.client.id,
            by_tls: self.session.client.is_encrypted,
            by_master: self.session.is_master,
            reading: command.reading(self.session.client.is_quiet()),
            from_replica: None,
        };
        if command.is_irrevocable() {
            self.make_final()?;
        }
        if self.txn.store().is_replicated() {
            let checked = command.check_in_cluster();
            if let Err(error) = checked.and_then(|()| self.check_region(command, args)) {
                return or_error(Err(error));
            }
        }
        if command.walks_keys
            && gate::all_confirmed(&self.session.server, &Patience::default()).is_err()
        {
            if !self.is_patient() {
                return Err(Error::TooLong);
            }
            if let Err(error) = gate::confirm_all(&self.session.server) {
                return or_error(Err(error));
            }
        }
        match command.handler {
            Handler::Session(handler) if command.has(Flag::PubSub) => {
                return self.subscribe(command, handler, args);
            }
            Handler::Session(handler) => {
                let reply = or_error(handler(self.session, args));
                if self.session.awaits.take().is_some() {
                    return Ok(self.count_replicas());
                }
                if let Some(pause) = self.session.sleeps.take() {
                    std::thread::sleep(pause);
                }
                return reply;
            }
            Handler::Admin(_) if !self.is_patient() => return Err(Error::TooLong),
            Handler::Admin(handler) => return or_error(handler(&self.session.server, args)),
            // What would have to wait for itself.
            Handler::Unit(_) | Handler::Container => {
                let name = command.full_name;
                return Ok(Reply::error(format!(
                    "ERR {name} is not possible inside a transaction"
                )));
            }
            _ => {}
        }
        if !call.take_latches(self.held) {
            return Err(Error::Unlatched);
        }
        if let Some(tracker) = &self.session.tracker {
            track(tracker);
        }
        self.txn.mark_in_unit(call.database);
        self.txn.set_reading(call.reading);
        if let Some(find) = command.finds_keys {
            match self.txn.unasked(|txn| find(txn, args)) {
                Ok(more) if self.held.try_extend(&more) => {}
                Ok(_) => return Err(Error::Unlatched),
                Err(error) => return or_error(Err(error)),
            }
        }
        let (txn, before) = (&mut *self.txn, self.before);
        let result = match command.handler {
            Handler::Point(handler) => handler(Point::latched(txn), args),
            Handler::Read(handler) => handler(txn, args),
            Handler::Write(handler) | Handler::Exclusive(handler) => {
                let buried = bury_expired(txn, command, args);
                let result = buried.and_then(|()| handler(txn, args));
                result.and_then(|reply| fits(txn, before).map(|()| reply))
            }
            Handler::Effect(handler) => handler(&self.session.server, txn, args),
            Handler::Blocking(blocking) => {
                let reply = try_blocking(txn, &call, blocking, None);
                let reply = reply.and_then(|reply| fits(txn, before).map(|()| reply));
                reply.map(|reply| reply.unwrap_or(blocking.nothing()))
            }
            Handler::Session(_) | Handler::Admin(_) | Handler::Container | Handler::Unit(_) => {
                Ok(Reply::Null)
            }
        };
        if command.is_write() {
            if result.is_err() {
                self.txn.undo();
            }
            count_lookups(&self.session.server, command, self.txn, &result);
            if self.txn.is_followed() {
                propagation::end(self.txn, command, args);
            }
        } else {
            looked_up(&self.session.server, command, self.txn, &result);
        }
        if !self.propagates && self.txn.is_followed() {
            self.txn.take_back_propagated();
        }
        or_error(result)
    }

    /// What WAIT answers where it cannot wait.
    fn count_replicas(&self) -> Reply {
        let node = self.session.server.cluster.get();
        match node {
            Some(node) => node.acknowledged_now(self.session.wrote()).into(),
            None => self.session.server.replication.count_online().into(),
        }
    }

    /// In a cluster all that a unit does is about keys of its region: it becomes one batch there.
    fn check_region(&mut self, command: &Command, args: &Args<'_>) -> Result<()> {
        if let Handler::Exclusive(_) = command.handler {
            return self.check_only_region(command);
        }
        let slots = self.txn.region().slots();
        let mut elsewhere = None;
        command.keys.visit_slots(args, |name| {
            let slot = slot(name);
            if !slots.contains(&slot) {
                elsewhere = Some(slot);
            }
        });
        match elsewhere {
            None => Ok(()),
            Some(slot) if slots.is_empty() && is_led_here(&self.session.server, slot) => {
                self.found = Some(slot);
                Err(Error::Unlatched)
            }
            Some(_) => Err(Error::fixed(
                "ERR Script attempted to access a non local key in a cluster node",
            )),
        }
    }

    /// What concerns all keys of the node can be done by a unit if they lie in one region.
    fn check_only_region(&mut self, command: &Command) -> Result<()> {
        let regions = self.session.server.store.regions();
        let led: Vec<_> = regions.led().collect();
        let own = self.txn.region();
        match led.as_slice() {
            [only] if only.id() == own.id() => Ok(()),
            [only] if own.slots().is_empty() => {
                self.found = Some(only.slots().start);
                Err(Error::Unlatched)
            }
            led => Err(Error::reply(format!(
                "ERR {} inside a transaction or script empties the slots of one region, and this node leads {}: \
                 send it by itself",
                command.full_name.to_ascii_uppercase(),
                led.len()
            ))),
        }
    }

    /// Makes sure that the unit is not started again: it may take its time, and has every latch.
    fn make_final(&mut self) -> Result<()> {
        if !self.is_patient() {
            return Err(Error::TooLong);
        }
        if !self.held.try_extend(&Request::everything()) {
            return Err(Error::Unlatched);
        }
        Ok(())
    }

    /// The confirmations of subscriptions stand in the reply, as they do in Redis.
    fn subscribe(
        &mut self,
        command: &Command,
        handler: fn(&mut Session, &Args) -> Result<Reply>,
        args: &Args<'_>,
    ) -> Result<Reply> {
        if command.name == "ssubscribe" {
            let text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
            return Ok(Reply::error(text));
        }
        match handler(self.session, args) {
            Ok(Reply::Stream(_)) => {
                let mut confirmed = Vec::new();
                self.session.client.outbox.take_into(&mut confirmed);
                Ok(Reply::Stream(Box::new(Written(confirmed))))
            }
            result => or_error(result),
        }
    }

    /// A client that listens to what it publishes reads the message before the reply, as it does in Redis; it may have
    /// ceased to listen when others are told.
    fn publish(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Reply> {
        let reply = self.call(command, args)?;
        let client = self.session.client.id;
        if let Some(Effect::Message {
            channel,
            text,
            is_sharded,
            except,
        }) = self.txn.last_effect()
        {
            let published = Published {
                channel,
                text,
                is_sharded: *is_sharded,
            };
            if self.session.subscriptions().write(published, out) {
                *except = Some(client);
            }
        }
        Ok(reply)
    }

    /// The same for a command that may be a unit itself; its reply is appended.
    pub fn call_and_write(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let reply = match command.handler {
            Handler::Unit(make) => match make(self.session, args) {
                Ok(mut unit) => {
                    if !self.held.try_extend(&unit.request()) {
                        return Err(Error::Unlatched);
                    }
                    return unit.run(self, out);
                }
                Err(error) => or_error(Err(error))?,
            },
            Handler::Effect(_) if self.session.listens => self.publish(command, args, out)?,
            _ => self.call(command, args)?,
        };
        // The one that it has chosen itself, if it has: HELLO.
        self.write(reply, self.session.protocol, out)
    }

    /// Appends a reply. One that is long needs a thread of its own, which it may occupy until it is complete.
    pub fn write(&self, reply: Reply, protocol: Protocol, out: &mut Vec<u8>) -> Result<()> {
        write_reply(reply, &mut Writer::new(out, protocol), self.is_patient())
    }
}

/// What is encoded already.
struct Written(Vec<u8>);

impl ReplyStream for Written {
    fn write(&mut self, out: &mut Writer<'_>, _: usize) -> Result<Progress, StreamError> {
        out.bytes().append(&mut self.0);
        Ok(Progress::Done)
    }
}

/// What the client is to be told, good or bad; an error that is none of its business stays one.
fn or_error(result: Result<Reply>) -> Result<Reply> {
    match result {
        Err(error @ (Error::TooLong | Error::Unlatched)) => Err(error),
        Err(error) => Ok(Reply::error(crate::turn::error_text(&error))),
        Ok(reply) => Ok(reply),
    }
}
