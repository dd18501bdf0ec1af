//! How a connection has commands run on another node, if it serves clients that know nothing of clusters: `cluster-proxy`.

use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, Instant};

use cairn_engine::Moment;
use cairn_resp::{Protocol, Reply, Writer};
use cairn_store::{Error, Result as StoreResult};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Gone, error_reply};
use crate::cluster::proxy::{
    Errand, Forwarded, MOST_REQUESTS, SLICE, Target, reply_of_exec, reply_of_script,
};
use crate::command::{Args, Blocking, Command, Handler};
use crate::guest::Guest;
use crate::route;

/// What a client is told that would have to be told of changes elsewhere.
const NO_WATCH: Error = Error::fixed(
    "ERR keys that another node leads are not watched through this one: connect to that node",
);
const NO_MOMENT: Error = Error::fixed(
    "ERR to wait from $ on is not forwarded to the node that leads the key: name an ID, or connect to that node",
);
const TOO_LONG: Error = Error::fixed(
    "ERR a command of more than 128 MB is not forwarded: connect to the node that leads the key",
);
const NOT_ABOUT_KEYS: Error = Error::fixed(
    "EXECABORT a transaction for another node cannot be about this connection or server",
);
const ABORTED: Error = Error::fixed("EXECABORT Transaction discarded because of previous errors.");

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Whether commands of this client are run where their slots are led. What a client keeps copies of it has to read
    /// where changes are told.
    pub(super) fn forwards(&self) -> bool {
        let session = &self.session;
        let node = session.server.cluster.get();
        node.is_some_and(|node| node.settings().proxies)
            && session.guest_patience.is_none()
            && session.tracker.is_none()
    }

    /// Who leads what a command is for, if it is another node, and it is to be forwarded; none if it runs, or is refused,
    /// here.
    pub(super) fn elsewhere(&self, command: &Command, args: &Args<'_>) -> Option<Target> {
        let server = &self.session.server;
        // There is one set of functions for all nodes.
        let changes_functions = match &self.session.queue {
            None => command.changes_functions(),
            Some(queue) => command.full_name == "exec" && queue.is_about_functions(),
        };
        if changes_functions {
            let is_guest = self.session.guest_patience.is_some();
            let is_here = is_guest || server.store.home().is_led();
            return (!is_here).then_some(Target::Map);
        }
        if !self.forwards() {
            return None;
        }
        let slot = match (&self.session.queue, command.handler) {
            (_, Handler::Session(_) | Handler::Admin(_) | Handler::Container) => return None,
            (Some(queue), _) if command.full_name == "exec" && !queue.is_aborted => queue.slot(),
            (Some(_), _) => return None,
            (None, _) => route::slot_of(command, args),
        };
        let slot = slot.get().ok().flatten()?;
        let is_here = route::is_led_here(server, slot)
            || self.may_read_replica(command) && route::of_read(server, command, args).is_some();
        (!is_here).then_some(Target::Slot(slot))
    }

    /// Has a command, or the transaction that ends, run by another node; false if that is this one by now.
    pub(super) async fn forward(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        target: Target,
    ) -> Result<bool, Gone> {
        let wait = match self.wait_elsewhere(command, args) {
            Ok(wait) => wait,
            Err(error) => return self.write_reply(error_reply(error)).map(|()| true),
        };
        let requests = match self.requests(command, args) {
            Ok(requests) => requests,
            Err(error) => return self.write_reply(error_reply(error)).map(|()| true),
        };
        if requests.len() > MOST_REQUESTS {
            self.end_transaction();
            return self.write_reply(error_reply(TOO_LONG)).map(|()| true);
        }
        // What was done before is there before.
        self.leave_turn().await;
        let server = self.session.server.clone();
        let Some(node) = server.cluster.get() else {
            return Ok(false);
        };
        let client = self.session.client.clone();
        let _busy = client.work();
        let errand = Errand::begin(node, target);
        let guest = Guest {
            visit: errand.visit,
            user: self.session.user().name.to_vec(),
            protocol: self.session.protocol,
            patience: Duration::ZERO,
            requests,
        };
        let forwarded = match wait {
            None => {
                let asked = node.forward(&server, target, guest, command.reads_at_once());
                tokio::select! {
                    forwarded = asked => forwarded,
                    gone = poll_fn(|context| self.poll_gone(context)) => return Err(gone),
                }
            }
            Some(wait) => self.wait_there(&errand, target, guest, wait).await?,
        };
        errand.end();
        self.resumed = Moment::now();
        let commands = match forwarded {
            Forwarded::Here => return Ok(false),
            _ => self.end_transaction(),
        };
        match (forwarded, commands) {
            (Forwarded::Replied(replies), None) if is_script(command) => {
                match reply_of_script(&replies) {
                    Some(reply) => self.output.extend_from_slice(reply),
                    None => self.write_reply(error_reply(ABORTED))?,
                }
            }
            (Forwarded::Replied(reply), None) => self.output.extend_from_slice(&reply),
            (Forwarded::Replied(replies), Some(commands)) => {
                match reply_of_exec(&replies, commands) {
                    Some(reply) => self.output.extend_from_slice(reply),
                    None => self.write_reply(error_reply(ABORTED))?,
                }
            }
            (Forwarded::Failed(error), _) => self.write_reply(error_reply(error))?,
            (Forwarded::CameBack, _) => self.write_reply(Reply::NullArray)?,
            (Forwarded::Here, _) => {}
        }
        Ok(true)
    }

    /// Has a guest wait where the key is led, for so long, and again if another node comes to lead it.
    async fn wait_there(
        &mut self,
        errand: &Errand,
        target: Target,
        guest: Guest,
        wait: Option<Duration>,
    ) -> Result<Forwarded, Gone> {
        let server = self.session.server.clone();
        let Some(node) = server.cluster.get() else {
            return Ok(Forwarded::Here);
        };
        self.flush().await?;
        let client = self.session.client.clone();
        let _blocked = client.block();
        let mut absent = server.blocked.enter_elsewhere(client.id);
        let mut unblocked = None;
        let until = wait.map(|wait| Instant::now() + wait);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let guest = Guest {
                // None at all would be for ever.
                patience: left.unwrap_or(SLICE).clamp(Duration::from_millis(1), SLICE),
                ..guest.clone()
            };
            let mut asked = pin!(node.forward(&server, target, guest, false));
            let forwarded = loop {
                tokio::select! {
                    forwarded = &mut asked => break forwarded,
                    gone = poll_fn(|context| self.poll_gone(context)) => return Err(gone),
                    unblock = &mut absent.unblocked, if unblocked.is_none() => {
                        unblocked = unblock.ok();
                        // It may have something at this very moment, which is not to be lost.
                        errand.call_back();
                    }
                }
            };
            let is_in_vain = match &forwarded {
                Forwarded::CameBack => true,
                Forwarded::Replied(reply) => is_nothing(reply),
                _ => false,
            };
            let is_undone = is_in_vain || matches!(forwarded, Forwarded::Here);
            match unblocked {
                Some(unblock) if is_undone => {
                    let mut reply = Vec::new();
                    let mut writer = Writer::new(&mut reply, self.session.protocol);
                    unblock.reply().write(&mut writer).map_err(|_| Gone)?;
                    return Ok(Forwarded::Replied(reply));
                }
                None if is_in_vain && left.is_none_or(|left| left > SLICE) => {}
                _ => return Ok(forwarded),
            }
        }
    }

    /// If it is a transaction that has been run: of how many commands.
    fn end_transaction(&mut self) -> Option<usize> {
        let queue = self.session.queue.take()?;
        self.session.watch = None;
        Some(queue.len())
    }

    /// For how long a command may wait elsewhere, where none is for ever; none if it does not wait at all.
    fn wait_elsewhere(
        &self,
        command: &Command,
        args: &Args<'_>,
    ) -> StoreResult<Option<Option<Duration>>> {
        let waits = |blocking: &Blocking| blocking.may_wait(args);
        match command.handler {
            Handler::Blocking(blocking) if waits(&blocking) => {
                if blocking.fixed.is_some() && args.iter().any(|word| *word == b"$") {
                    return Err(NO_MOMENT);
                }
                blocking.timeout(args).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What a client would send to the other node.
    fn requests(&mut self, command: &Command, args: &Args<'_>) -> StoreResult<Vec<u8>> {
        let mut out = Vec::new();
        let session = &mut self.session;
        if command.full_name == "watch" {
            return Err(NO_WATCH);
        }
        if let Some(queue) = &session.queue {
            let refused = match (&session.watch, queue.is_about_keys()) {
                (Some(_), _) => Some(NO_WATCH),
                (None, false) => Some(NOT_ABOUT_KEYS),
                (None, true) => None,
            };
            if let Some(error) = refused {
                session.queue = None;
                session.watch = None;
                return Err(error);
            }
            queue.write_requests(&session.server.scripts, &mut out);
            return Ok(out);
        }
        let mut writer = Writer::new(&mut out, Protocol::Resp2);
        if is_script(command) {
            writer.request(&["MULTI"]);
        }
        session
            .server
            .scripts
            .write_call(&mut writer, command, args);
        if is_script(command) {
            writer.request(&["EXEC"]);
        }
        Ok(out)
    }
}

/// Whether it calls a script or function, which answers what it likes.
fn is_script(command: &Command) -> bool {
    matches!(command.handler, Handler::Unit(_)) && !command.keys.0.is_empty()
}

/// What a command answers that has waited in vain.
fn is_nothing(reply: &[u8]) -> bool {
    [&b"*-1\r\n"[..], b"$-1\r\n", b"_\r\n"].contains(&reply)
}
