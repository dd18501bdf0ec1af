//! What one connection has agreed with the server: database, protocol, identity.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_resp::Protocol;

use crate::acl::{Context, Denial, Reason, User};
use crate::client::Client;
use crate::command::{Args, Command};
use crate::monitors::Monitor;
use crate::pubsub::Subscriptions;
use crate::replication::{Following, Introduction};
use crate::server::Server;
use crate::tracking::Tracker;
use crate::transaction::Queue;
use crate::watches::Watch;

/// Whether replies are sent: CLIENT REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    On,
    Off,
    /// Not for the command that asked for this.
    SkipThis,
    /// Not for the next command.
    SkipNext,
}

/// So many replicas are to have what the client wrote, by then.
pub struct Awaited {
    pub replicas: usize,
    pub until: Option<Instant>,
}

/// The client is to follow.
pub struct Sync {
    pub introduction: Introduction,
    /// Where it would go on, if it has been told before: the name of the stream, and the number of the next byte.
    pub place: Option<(Vec<u8>, u64)>,
}

pub struct Session {
    pub server: Arc<Server>,
    pub client: Arc<Client>,
    pub database: u32,
    pub protocol: Protocol,
    /// Who the client is; the same as in `client`, where others see it.
    user: Arc<User>,
    is_authenticated: bool,
    pub replies: Replies,
    /// The command that runs has left out of its reply by itself what is not sent.
    pub has_left_out: bool,
    /// Close the connection once the replies so far are sent.
    pub closes: bool,
    /// Let the connection wait before it goes on: DEBUG SLEEP.
    pub sleeps: Option<Duration>,
    /// Something may come into its outbox.
    pub listens: bool,
    /// The commands since MULTI.
    pub queue: Option<Queue>,
    pub watch: Option<Watch>,
    pub monitor: Option<Monitor>,
    /// What runs now is one of several commands, and may not wait or stay.
    pub is_in_unit: bool,
    /// Some if the client keeps copies of what it reads.
    pub tracker: Option<Box<Tracker>>,
    /// None until it is first asked for.
    subscriptions: Option<Box<Subscriptions>>,
    /// The error that the current command answers with has been counted, where it came about.
    pub error_is_counted: bool,
    /// The client reads from replicas, too: READONLY.
    pub reads_replicas: bool,
    /// The regions that the client has written to, in a cluster, as far as WAIT wants to know.
    wrote: Vec<u64>,
    /// What WAIT waits for.
    pub awaits: Option<Awaited>,
    /// What it has said of itself, for when it follows.
    pub introduction: Option<Box<Introduction>>,
    pub sync: Option<Box<Sync>>,
    pub following: Option<Following>,
    /// It follows, and has so much.
    pub acknowledges: Option<u64>,
    /// It is the server that this one follows.
    pub is_master: bool,
    /// How many bytes have been run of what it says, and are not counted yet.
    applied: u64,
    /// Some if it runs what another node has forwarded: none of that is forwarded again, nor waits for longer than this.
    pub guest_patience: Option<Duration>,
}

impl Session {
    pub fn new(server: Arc<Server>, client: Arc<Client>) -> Session {
        let is_authenticated = !server.acl.default_needs_password();
        Session {
            server,
            user: client.user.load_full(),
            client,
            database: 0,
            protocol: Protocol::Resp2,
            is_authenticated,
            replies: Replies::On,
            has_left_out: false,
            closes: false,
            sleeps: None,
            listens: false,
            queue: None,
            watch: None,
            monitor: None,
            is_in_unit: false,
            tracker: None,
            subscriptions: None,
            error_is_counted: false,
            reads_replicas: false,
            wrote: Vec::new(),
            awaits: None,
            introduction: None,
            sync: None,
            following: None,
            acknowledges: None,
            is_master: false,
            applied: 0,
            guest_patience: None,
        }
    }

    /// Whether the client has yet to say who it is. One that came while there was no password need not,
    /// nor does anyone once the password is gone.
    pub fn must_authenticate(&self) -> bool {
        !self.is_authenticated && self.server.acl.default_needs_password()
    }

    /// The server speaks that this one follows: it may do everything, and is answered by nothing.
    pub fn serve_master(&mut self, database: u32) {
        self.is_authenticated = true;
        self.is_master = true;
        self.replies = Replies::Off;
        self.listens = true;
        self.select(database);
    }

    /// So many bytes of what the master says have been run. Those of a transaction count when it has: until then nothing of it is
    /// done.
    pub fn note_applied(&mut self, bytes: usize) {
        self.applied += bytes as u64;
        if self.queue.is_none() {
            let applied = std::mem::take(&mut self.applied);
            self.server.upstream.note_applied(applied, self.database);
        }
    }

    /// Another node knows who the client is, and how it is spoken to.
    pub fn serve_guest(&mut self, protocol: Protocol, patience: Duration) {
        self.is_authenticated = true;
        self.speak(protocol);
        self.guest_patience = Some(patience);
    }

    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Tries a name and a password, by the command of this name; true if they are those of a user.
    pub fn authenticate(&mut self, name: &[u8], password: &[u8], command: &[u8]) -> bool {
        let acl = &self.server.acl;
        let Some(user) = acl.authenticate(name, password) else {
            acl.note(&self.client, name, Reason::Auth, self.context(), command);
            return false;
        };
        self.become_user(user);
        self.is_authenticated = true;
        true
    }

    fn become_user(&mut self, user: Arc<User>) {
        self.client.user.store(user.clone());
        self.user = user;
    }

    /// Where a command runs now.
    pub fn context(&self) -> Context {
        if self.queue.is_some() || self.is_in_unit {
            Context::Multi
        } else {
            Context::TopLevel
        }
    }

    /// Counts and logs that the client was not permitted to run a call.
    pub fn note_denial(
        &self,
        denial: &Denial,
        command: &Command,
        args: &Args<'_>,
        context: Context,
    ) {
        let object = denial.object(command, args);
        let (client, user) = (&self.client, &self.user.name);
        self.server
            .acl
            .note(client, user, denial.reason, context, object);
    }

    /// The client writes to a region.
    pub fn note_write(&mut self, region: u64) {
        if self.wrote.last() != Some(&region) && !self.wrote.contains(&region) {
            self.wrote.push(region);
        }
    }

    /// The regions that it has written to.
    pub fn wrote(&self) -> &[u64] {
        &self.wrote
    }

    /// Whether the client may look inside the server: `enable-debug-command`.
    pub fn may_debug(&self) -> bool {
        match self.server.settings.values.get("enable-debug-command") {
            b"no" => false,
            b"local" => self.client.peer.is_local(),
            _ => true,
        }
    }

    pub fn select(&mut self, database: u32) {
        self.database = database;
        self.client.database.store(database, Ordering::Relaxed);
    }

    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        let is_resp3 = protocol == Protocol::Resp3;
        self.client.resp3.store(is_resp3, Ordering::Relaxed);
        // Others may have it sent something at any time: CLIENT TRACKING can name it.
        self.listens |= is_resp3;
    }

    pub fn subscriptions(&mut self) -> &mut Subscriptions {
        let (all, client) = (&self.server.pubsub, &self.client);
        self.subscriptions
            .get_or_insert_with(|| Box::new(Subscriptions::new(all.clone(), client.clone())))
    }

    /// Whether the client hears messages, and, by the old protocol, can do little else: a reply could not be told
    /// from a message.
    pub fn only_listens(&self) -> bool {
        self.listens && self.protocol == Protocol::Resp2 && self.client.is_subscriber()
    }

    /// RESET: everything as it was when the connection was made.
    pub fn reset(&mut self) {
        self.select(0);
        self.speak(Protocol::Resp2);
        self.become_user(self.server.acl.default_user().clone());
        self.is_authenticated = !self.server.acl.default_needs_password();
        self.replies = Replies::On;
        self.client.name.lock().clear();
        self.queue = None;
        self.watch = None;
        self.monitor = None;
        self.subscriptions = None;
        self.tracker = None;
        self.reads_replicas = false;
        self.client.no_touch.store(false, Ordering::Relaxed);
    }
}
