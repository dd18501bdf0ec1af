//! One connection: bytes in, commands run, bytes out.
//!
//! What one read brings in is a gulp. Its commands run one after the other over the thread's current
//! turn (see `turn`); their replies gather in one buffer, and are sent in one write once the turn is
//! committed. A client that takes its replies slowly is held back: little more is read from it, so its
//! buffers stay bounded.

mod following;
mod forwarding;
mod running;

use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cairn_engine::Moment;
use cairn_resp::{
    Args as Words, Limits, Parsed, Parser, Progress, ProtocolError, Reply, ReplyStream, Writer,
};
use cairn_store::{Error, Region};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::acl::Reason;
use crate::client::Entered;
use crate::cluster::gate::{self, Patience};
use crate::command::{self, Args, Command, Flag, Handler};
use crate::guest::Guest;
use crate::observe::Ran;
use crate::room;
use crate::route::{self, Detour};
use crate::session::{Replies, Session};
use crate::transaction;
use crate::turn::{self, Outcome, Worker, let_others_run};
use crate::upstream;

/// Room made for each read.
const READ_SIZE: usize = 16 * 1024;
/// The same if there was more to read than that.
const MORE_SIZE: usize = 48 * 1024;
/// What an idle connection may keep of its buffers.
const KEPT_BUFFER: usize = 64 * 1024;
/// The same of its lists of replies that wait, and of what they wait for.
const KEPT_REPLIES: usize = 256;
/// The most commands that one gulp runs before their replies are sent.
const GULP_COMMANDS: usize = 1024;
/// The most changes that a turn gathers before it is committed, and replies before they are sent.
const GULP_BYTES: usize = 1024 * 1024;
/// Replies of a gulp that are no longer than this may wait a little. Longer ones would have left the processor's caches by then.
const SENT_LATER: usize = 8 * 1024;
/// How many requests are parsed before the first of them runs.
const LOOK_AHEAD: usize = 16;
/// How many commits of its thread a command waits for before it queues up for its latches.
const MOST_WAITS_FOR_COMMITS: usize = 8;
/// And how many times it waits behind another of its thread.
const MOST_WAITS_BEHIND: usize = 4;
/// How much may wait of what a client sends while it takes its replies slowly.
const READ_AHEAD: usize = 1024 * 1024;
/// A client that takes nothing at all for so long may be waiting for us to take the rest of its
/// commands: from then on twice as much may wait, and so on up to `client-query-buffer-limit`.
const STALL: Duration = Duration::from_millis(250);
/// How long a connection that ends may take to say so.
const GOODBYE_TIME: Duration = Duration::from_millis(100);
/// How much of a streamed reply is handed to the socket at once.
const STREAM_PIECE: usize = 64 * 1024;
/// How much of a streamed reply a client must take in a second: a stream pins memtables and files of the
/// database, which could otherwise be held for next to nothing.
const STREAM_RATE: usize = 64 * 1024;
/// How far a client may fall behind that rate, at the beginning or at any time.
const STREAM_PATIENCE: Duration = Duration::from_secs(20);
/// How long a streamed reply may take as a whole.
const STREAM_TIME: Duration = Duration::from_secs(3600);

/// The connection is over; nobody is left to be told why.
struct Gone;

impl From<std::io::Error> for Gone {
    fn from(_: std::io::Error) -> Self {
        Gone
    }
}

pub struct Connection<S> {
    stream: S,
    worker: Rc<Worker>,
    session: Session,
    /// What was read; a request under way starts at `start`.
    input: Vec<u8>,
    start: usize,
    /// How much of the input is not parsed; it counts even while the input is lent to a command.
    unparsed: usize,
    /// The last read took all that there was room for.
    may_have_more: bool,
    /// What was read while replies were being sent: it comes behind the input.
    ahead: Vec<u8>,
    parser: Parser,
    output: Vec<u8>,
    /// Where in the output the reply of the command that runs now begins.
    reply_start: usize,
    gulp: Gulp,
    /// When the command that runs now began, or the last one ended.
    resumed: Moment,
    /// How many times output was sent.
    sends: u64,
    /// Takes the connection off the list when it ends.
    _entered: Entered,
}

/// The commands that wait to be committed and answered together.
#[derive(Default)]
struct Gulp {
    commands: usize,
    /// The turns that must be committed before its replies are sent.
    turns: Vec<AwaitedTurn>,
    /// The replies that hold only then, in order; none where the client does not want it.
    replies: Vec<Option<AwaitedReply>>,
}

struct AwaitedReply {
    /// Where in the output it is.
    place: Range<usize>,
    /// What the command was about, in a cluster.
    slot: Option<u16>,
}

/// Requests that are parsed and have yet to run.
#[derive(Default)]
struct Requests {
    words: Vec<Words>,
    /// Where in the input they lie.
    parsed: Vec<Range<usize>>,
    /// How many of them have run.
    done: usize,
}

impl Requests {
    /// To be called when all have run. One that is not complete comes first from now on.
    fn begin(&mut self) {
        if self.parsed.len() < self.words.len() {
            self.words.swap(0, self.parsed.len());
        }
        self.parsed.clear();
        self.done = 0;
    }

    /// Where the words of the request behind those that are parsed belong.
    fn room(&mut self) -> &mut Words {
        if self.words.len() == self.parsed.len() {
            self.words.push(Words::new());
        }
        &mut self.words[self.parsed.len()]
    }

    fn next_length(&self) -> Option<usize> {
        self.parsed.get(self.done).map(Range::len)
    }

    fn next(&mut self) -> &Words {
        self.done += 1;
        &self.words[self.done - 1]
    }

    /// The arguments that are a key in most commands, and what is asked for in it.
    fn likely_keys<'a>(
        &'a self,
        input: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let requests = self.words.iter().zip(&self.parsed);
        requests.filter_map(|(words, place)| {
            let mut words = words.iter(&input[place.clone()]).skip(1);
            Some((words.next()?, words.next().unwrap_or_default()))
        })
    }
}

/// A turn, and how many replies hold only if it is committed. Those of one gulp mostly have one in common.
struct AwaitedTurn {
    outcome: Rc<Outcome>,
    replies: usize,
}

impl Gulp {
    /// The reply, behind all others, holds only if the turn is committed.
    fn add(&mut self, reply: AwaitedReply, outcome: Rc<Outcome>) {
        self.replies.push(Some(reply));
        match self.turns.last_mut() {
            Some(last) if Rc::ptr_eq(&last.outcome, &outcome) => last.replies += 1,
            _ => self.turns.push(AwaitedTurn {
                outcome,
                replies: 1,
            }),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub fn new(stream: S, worker: Rc<Worker>, entered: Entered) -> Self {
        Connection {
            stream,
            session: Session::new(worker.server.clone(), entered.client.clone()),
            worker,
            input: Vec::new(),
            start: 0,
            unparsed: 0,
            may_have_more: false,
            ahead: Vec::new(),
            parser: Parser::new(),
            output: Vec::new(),
            reply_start: 0,
            gulp: Gulp::default(),
            resumed: Moment::now(),
            sends: 0,
            _entered: entered,
        }
    }

    /// One whose input is what a guest has brought; it ends with that.
    pub fn of_guest(mut self, guest: Guest) -> Self {
        self.session.serve_guest(guest.protocol, guest.patience);
        self.input = guest.requests;
        self
    }

    /// One by which the server speaks that this one follows; a part of what it says is here.
    pub fn of_master(mut self, input: Vec<u8>, database: u32) -> Self {
        self.session.serve_master(database);
        self.input = input;
        self
    }

    pub async fn serve(mut self) {
        // Gone is how most connections end.
        if self.serve_until_gone().await.is_ok() {
            // One that is encrypted says so. It need not be heard.
            let _ = tokio::time::timeout(GOODBYE_TIME, self.stream.shutdown()).await;
        }
    }

    async fn serve_until_gone(&mut self) -> Result<(), Gone> {
        let mut requests = Requests::default();
        loop {
            self.unparsed = self.input.len() - self.start;
            match self.look_ahead(&mut requests) {
                Ok(Parsed::Complete { consumed }) => {
                    let words = requests.next();
                    if self.session.is_master && self.session.client.is_killed() {
                        // It is followed no more, and what comes from it is not to be done.
                        return Err(Gone);
                    }
                    if !words.is_empty() {
                        // The input is lent to the command while it runs.
                        let input = std::mem::take(&mut self.input);
                        self.run(words, &input[self.start..]).await?;
                        self.input = input;
                    }
                    self.start += consumed;
                    if self.session.is_master {
                        self.session.note_applied(consumed);
                    }
                    if self.session.closes {
                        self.flush().await?;
                        return Ok(());
                    }
                    let is_full = self.gulp.commands >= GULP_COMMANDS
                        || self.output.len() >= GULP_BYTES
                        || self.worker.pending_bytes() >= GULP_BYTES;
                    if is_full {
                        self.flush().await?;
                        self.resumed = Moment::now();
                    }
                }
                Ok(Parsed::Incomplete { need }) => {
                    if self.may_have_more && self.read_at_once(need).await? {
                        continue;
                    }
                    if self.is_sent_later() {
                        let_others_run().await;
                    }
                    self.flush().await?;
                    if self.session.guest_patience.is_some() {
                        return Ok(());
                    }
                    self.read(need).await?;
                }
                Err(error) => {
                    let reply = Reply::from(error);
                    self.write_reply(reply)?;
                    self.flush().await?;
                    return Ok(());
                }
            }
        }
    }

    /// Tells how long the next request is. If none is parsed yet, all are parsed that have arrived, up to a
    /// number; so that what they will ask for is on its way from memory before the first of them runs.
    fn look_ahead(&mut self, requests: &mut Requests) -> Result<Parsed, ProtocolError> {
        if let Some(consumed) = requests.next_length() {
            return Ok(Parsed::Complete { consumed });
        }
        let limits = self.limits();
        // What a client may send changes when it has said who it is.
        let most = if limits.authenticated { LOOK_AHEAD } else { 1 };
        let mut at = self.start;
        requests.begin();
        while requests.parsed.len() < most {
            let buffer = &self.input[at..];
            match self.parser.parse(buffer, &limits, requests.room()) {
                Ok(Parsed::Complete { consumed }) => {
                    requests.parsed.push(at..at + consumed);
                    at += consumed;
                }
                stopped if requests.parsed.is_empty() => return stopped,
                // It is met again when its turn has come.
                _ => break,
            }
        }
        if requests.parsed.len() > 1 {
            let database = self.session.database;
            let names = requests.likely_keys(&self.input);
            self.worker.expect(database, names);
        }
        self.look_ahead(requests)
    }

    fn limits(&self) -> Limits {
        let limits = Limits {
            max_bulk_len: self
                .session
                .server
                .live
                .max_bulk_len
                .load(Ordering::Relaxed),
            ..Limits::default()
        };
        if self.session.must_authenticate() {
            limits.unauthenticated()
        } else {
            limits
        }
    }

    async fn read(&mut self, need: usize) -> Result<(), Gone> {
        self.drop_parsed();
        if self.input.is_empty() && self.input.capacity() > KEPT_BUFFER {
            self.input = Vec::new();
        }
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            if self.input.is_empty() {
                self.input = ahead;
            } else {
                self.input.extend_from_slice(&ahead);
            }
            self.resumed = Moment::now();
            return Ok(());
        }
        self.reserve_input(need, READ_SIZE);
        let count = if self.session.listens {
            match self.read_or_hear().await? {
                Some(count) => count,
                // It is sent before the next read.
                None => return Ok(()),
            }
        } else {
            self.stream.read_buf(&mut self.input).await?
        };
        self.has_read(count)
    }

    /// Reads on in the middle of a gulp if there is more, which then becomes a part of it: many commands of a client that sends
    /// much at once are committed, and answered, together. False if there is nothing.
    async fn read_at_once(&mut self, need: usize) -> Result<bool, Gone> {
        self.may_have_more = false;
        if self.session.listens || !self.ahead.is_empty() {
            return Ok(false);
        }
        self.drop_parsed();
        self.reserve_input(need, MORE_SIZE);
        let mut read = std::pin::pin!(self.stream.read_buf(&mut self.input));
        let now = std::future::poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await;
        match now {
            // Whoever has nothing more to say may still want its replies.
            Poll::Ready(Ok(0)) | Poll::Pending => Ok(false),
            Poll::Ready(count) => self.has_read(count?).map(|()| true),
        }
    }

    fn drop_parsed(&mut self) {
        self.input.drain(..self.start);
        self.start = 0;
    }

    /// Makes room for a read. A large argument is read in large pieces, but memory is taken only as its bytes arrive.
    fn reserve_input(&mut self, need: usize, least: usize) {
        let room = need.clamp(least, self.input.len().max(least));
        self.input.reserve(room);
    }

    fn has_read(&mut self, count: usize) -> Result<(), Gone> {
        if count == 0 {
            return Err(Gone);
        }
        self.resumed = Moment::now();
        self.worker.vigil.note(self.resumed);
        self.count_read(count);
        self.may_have_more = self.input.len() == self.input.capacity();
        self.unparsed = self.input.len();
        self.session.client.touch(self.resumed);
        self.check_input()
    }

    /// Reads; none if there is something to send before.
    async fn read_or_hear(&mut self) -> Result<Option<usize>, Gone> {
        let client = self.session.client.clone();
        let read = self.stream.read_buf(&mut self.input);
        tokio::select! {
            biased;
            () = std::future::poll_fn(|context| client.outbox.poll_some(context)) => Ok(None),
            count = read => Ok(Some(count?)),
        }
    }

    fn count_read(&self, count: usize) {
        let stats = &self.session.server.stats;
        stats.bytes_in.add(count as u64);
        stats.reads.add(1);
    }

    /// How much the client has sent that has not run yet.
    fn waiting_input(&self) -> usize {
        self.unparsed + self.ahead.len()
    }

    /// Gives up on a client that has sent more than may wait.
    fn check_input(&self) -> Result<(), Gone> {
        let client = &self.session.client;
        let waiting = self.waiting_input();
        client
            .input
            .note(waiting, self.input.capacity() + self.ahead.capacity());
        let live = &self.session.server.live;
        if waiting <= live.query_buffer_limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut line = Vec::new();
        client.describe(&mut line);
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        let unparsed = self.input.get(self.start..).unwrap_or_default();
        let beginning = unparsed[..unparsed.len().min(64)].escape_ascii();
        tracing::warn!(
            "Closing client that reached max query buffer length: {line} (qbuf initial bytes: \"{beginning}\")"
        );
        Err(Gone)
    }

    /// Whether replies had better be sent when the other connections that are ready have run their commands. Sockets are the
    /// kernel's, and its code drives ours out of the caches: so commands come after commands, and then replies after
    /// replies. Where all wait for a commit it is so anyway. One that has ended itself would not come back.
    fn is_sent_later(&self) -> bool {
        self.gulp.commands > 1
            && self.gulp.turns.is_empty()
            && self.output.len() <= SENT_LATER
            && !self.session.client.is_killed()
    }

    /// Commits what the gulp changed and sends its replies.
    async fn flush(&mut self) -> Result<(), Gone> {
        self.settle().await;
        if self.session.listens {
            self.session.client.outbox.take_into(&mut self.output);
        }
        if self.output.is_empty() {
            return Ok(());
        }
        let limits = &self.session.server.live.output_limits;
        if limits.limit_replies() {
            self.session.client.check_output(limits, self.output.len());
        }
        self.send().await
    }

    /// Sends the output. A client may send many commands before it reads the first reply, and then
    /// waits for us to read while we wait for it: so what it sends is taken meanwhile, up to a limit
    /// that rises for as long as it takes nothing.
    async fn send(&mut self) -> Result<(), Gone> {
        let mut sent = match self.write_at_once().await {
            Poll::Ready(count) => count?,
            Poll::Pending => 0,
        };
        let mut allowed = READ_AHEAD;
        // What is encrypted may have been taken and not have left.
        while sent < self.output.len() || !self.is_flushed().await? {
            let left = self.output.len() - sent;
            let client = &self.session.client;
            client.output.note(left, self.output.capacity());
            let write = std::future::poll_fn(|context| self.poll_send(context, sent, allowed));
            match tokio::time::timeout(STALL, write).await {
                Ok(count) => {
                    sent += count?;
                    allowed = READ_AHEAD;
                }
                // Strangers are not waited for with much in hand.
                Err(_) if self.session.must_authenticate() => return Err(Gone),
                Err(_) => allowed = allowed.saturating_mul(2),
            }
            self.check_input()?;
        }
        let stats = &self.session.server.stats;
        stats.bytes_out.add(sent as u64);
        stats.writes.add(1);
        self.sends += 1;
        self.output.clear();
        self.reply_start = 0;
        if self.output.capacity() > KEPT_BUFFER {
            self.output = Vec::new();
        }
        self.session.client.output.note(0, self.output.capacity());
        Ok(())
    }

    /// As much of the output as the socket takes without waiting: mostly all, and no timer is needed.
    async fn write_at_once(&mut self) -> Poll<std::io::Result<usize>> {
        std::future::poll_fn(|context| {
            Poll::Ready(Pin::new(&mut self.stream).poll_write(context, &self.output))
        })
        .await
    }

    /// Whether nothing is left that has to be sent before all that was written has gone.
    async fn is_flushed(&mut self) -> std::io::Result<bool> {
        std::future::poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(flushed) => flushed.map(|()| true),
                Poll::Pending => Ok(false),
            })
        })
        .await
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        sent: usize,
        allowed: usize,
    ) -> Poll<std::io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let written = match &self.output[sent..] {
            [] => stream.poll_flush(context).map_ok(|()| 0),
            rest => stream.poll_write(context, rest),
        };
        if written.is_pending() {
            self.read_ahead(context, allowed);
        }
        written
    }

    /// Takes what the client has sent, up to the limit. What is read is always kept. True if there will be no more;
    /// that will be met again by the next read.
    fn read_ahead(&mut self, context: &mut Context<'_>, allowed: usize) -> bool {
        let mut piece = [0; READ_SIZE];
        while self.waiting_input() < allowed {
            let mut buffer = ReadBuf::new(&mut piece);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            let read_bytes = buffer.filled();
            if read.is_pending() {
                return false;
            }
            if read_bytes.is_empty() {
                return true;
            }
            self.ahead.extend_from_slice(read_bytes);
            self.count_read(read_bytes.len());
        }
        false
    }

    /// Whether the client has gone, while it waits for something else.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<Gone> {
        let limit = &self.session.server.live.query_buffer_limit;
        let limit = limit.load(Ordering::Relaxed).saturating_add(1);
        let has_ended = self.read_ahead(context, limit);
        if has_ended || self.check_input().is_err() {
            return Poll::Ready(Gone);
        }
        Poll::Pending
    }

    /// Waits until everything that the gulp depends on is committed. Where that failed, the replies that
    /// rested on it are replaced by the reason.
    async fn settle(&mut self) {
        self.gulp.commands = 0;
        let mut failures = Vec::new();
        let mut done = 0;
        let mut patience = Patience::default();
        for AwaitedTurn { outcome, replies } in &self.gulp.turns {
            let replies = &self.gulp.replies[done..done + replies];
            done += replies.len();
            let Err(reason) = outcome.wait().await else {
                continue;
            };
            if self.session.is_master {
                upstream::lose(&self.session.server, &reason);
            }
            for untrue in replies.iter().flatten() {
                let moved = match untrue.slot {
                    Some(slot) if turn::says_undone(&reason) => {
                        gate::moved(&self.session, slot, &mut patience).await
                    }
                    _ => None,
                };
                let reason = moved.unwrap_or_else(|| reason.clone());
                failures.push((untrue.place.clone(), reason));
            }
        }
        self.gulp.turns.clear();
        self.gulp.turns.shrink_to(KEPT_REPLIES);
        self.gulp.replies.clear();
        self.gulp.replies.shrink_to(KEPT_REPLIES);
        if failures.is_empty() {
            return;
        }
        let written = std::mem::take(&mut self.output);
        let mut kept = 0;
        for (place, reason) in failures {
            self.output.extend_from_slice(&written[kept..place.start]);
            let mut writer = Writer::new(&mut self.output, self.session.protocol);
            writer.error(reason);
            kept = place.end;
        }
        self.output.extend_from_slice(&written[kept..]);
        self.reply_start = self.output.len();
    }

    fn write_reply(&mut self, reply: Reply) -> Result<(), Gone> {
        reply
            .write(&mut Writer::new(&mut self.output, self.session.protocol))
            .map_err(|_| Gone)
    }

    async fn run(&mut self, words: &Words, input: &[u8]) -> Result<(), Gone> {
        let words: SmallVec<[&[u8]; 24]> = words.iter(input).collect();
        let args = Args::new(&words);
        self.reply_start = self.output.len();
        self.session.error_is_counted = false;
        self.session.has_left_out = false;
        let mut admitted = self.admit(&args);
        if let Ok(command) = admitted
            && self.session.server.pause.is_on()
            && !self.session.is_master
        {
            let scripts = &self.session.server.scripts;
            let queued = self.session.queue.as_ref();
            let writes = queued.is_some_and(|queue| queue.writes(scripts))
                || scripts.may_write(command, &args);
            if self.session.server.pause.holds(command, writes) {
                self.wait_for_pause(command, writes).await?;
                // What it may do may have changed meanwhile.
                admitted = self.admit(&args);
            }
        }
        if let Ok(command) = admitted
            && self.session.server.shortages.is_making_room()
            && !self.session.is_master
        {
            self.wait_for_room(command).await?;
            admitted = self.admit(&args);
        }
        match admitted {
            // None of our commands has such a name.
            Err(_) if command::is_web_request(&args) => {
                let peer = &self.session.client.peer;
                tracing::warn!("{peer}: closed, it sent a web request");
                return Err(Gone);
            }
            Err(error) => {
                if self.session.is_master {
                    let name = String::from_utf8_lossy(args[0]);
                    tracing::error!(
                        "{name}, from the server that is followed, was not run: {error}"
                    );
                }
                let teller = command::who_tells(&args, &error);
                let error = self.refuse_in_transaction(&args, error);
                self.write_reply(error_reply(error))?;
                self.count_error();
                if let Some(command) = teller {
                    self.count_call(command, &args, true);
                } else if let Some(command) = command::lookup(&args) {
                    self.session.server.stats.rejected(command);
                }
            }
            Ok(command) => {
                if let Some(queue) = &mut self.session.queue
                    && !command.runs_at_once()
                {
                    queue.push(command, &args);
                    self.write_reply(Reply::Simple("QUEUED"))?;
                } else {
                    let sends = self.sends;
                    let is_replicated = self.session.server.store.is_replicated();
                    if is_replicated {
                        self.note_write(command, &args);
                    }
                    if command.is_plain() && !is_replicated && self.session.tracker.is_none() {
                        // Nearly always there is nothing to wait for, and nothing to be kept meanwhile.
                        self.session.client.runs(command);
                        let call = self.call(command, args);
                        if let Some(attempt) =
                            self.attempt(&call, &Patience::default(), self.resumed)
                        {
                            self.go_on(&call, attempt).await?;
                        }
                    } else {
                        self.execute(command, args).await?;
                    }
                    let has_failed = self.sends == sends && self.count_error();
                    self.count_call(command, &args, has_failed);
                    if let Some(tracker) = &mut self.session.tracker {
                        tracker.has_run(command);
                        self.session.server.shrink_tracking();
                    }
                }
            }
        }
        self.gulp.commands += 1;
        match self.session.replies {
            Replies::On => {}
            Replies::Off => self.drop_reply(),
            Replies::SkipThis => {
                self.drop_reply();
                self.session.replies = Replies::SkipNext;
            }
            Replies::SkipNext => {
                self.drop_reply();
                self.session.replies = Replies::On;
            }
        }
        Ok(())
    }

    /// Remembers which region the command may write to; if it does not say, all that this node leads.
    fn note_write(&mut self, command: &Command, args: &Args<'_>) {
        if !command.is_write() && !matches!(command.handler, Handler::Unit(_)) {
            return;
        }
        let slot = match &self.session.queue {
            Some(queue) => queue.slot(),
            None => route::slot_of(command, args),
        };
        let server = self.session.server.clone();
        match slot.get() {
            Ok(Some(slot)) => {
                let region = route::number_of(&server, slot);
                region
                    .into_iter()
                    .for_each(|region| self.session.note_write(region));
            }
            Ok(None) => {
                let regions = server.store.regions();
                regions
                    .led()
                    .for_each(|region| self.session.note_write(region.id()));
            }
            Err(_) => {}
        }
    }

    /// A command was refused: if it is among those after MULTI, there will be no transaction.
    fn refuse_in_transaction(&mut self, args: &Args<'_>, error: Error) -> Error {
        if command::named(args).is_some_and(|command| command.full_name == "exec") {
            self.session.queue = None;
            self.session.watch = None;
            return transaction::aborted(&error);
        }
        if let Some(queue) = &mut self.session.queue {
            queue.is_aborted = true;
        }
        error
    }

    /// The client does not want the reply of the command that has just run.
    fn drop_reply(&mut self) {
        if self.session.has_left_out {
            return;
        }
        self.output.truncate(self.reply_start);
        // A command leaves one that waits at most.
        if let Some(last) = self.gulp.replies.last_mut() {
            last.take_if(|reply| reply.place.start >= self.reply_start);
        }
    }

    /// Takes the replies so far off the client's mind, and waits.
    async fn wait_for_pause(
        &mut self,
        command: &'static Command,
        writes: bool,
    ) -> Result<(), Gone> {
        self.flush().await?;
        let (server, client) = (self.session.server.clone(), self.session.client.clone());
        client.runs(command);
        let _blocked = client.block();
        tokio::select! {
            () = server.pause.wait(command, writes) => {}
            gone = std::future::poll_fn(|context| self.poll_gone(context)) => return Err(gone),
        }
        self.resumed = Moment::now();
        Ok(())
    }

    /// Waits for keys to be evicted. What has gone the client is told before the reply.
    #[cold]
    async fn wait_for_room(&mut self, command: &'static Command) -> Result<(), Gone> {
        self.flush().await?;
        let (server, client) = (self.session.server.clone(), self.session.client.clone());
        client.runs(command);
        let _busy = client.work();
        // There is no end to what may be queued, and what units do is up to them.
        let is_unit = matches!(command.handler, Handler::Unit(_));
        let needs_room = command.has(Flag::DenyOom) || is_unit || self.is_queued(command);
        tokio::select! {
            () = server.room.wait(&server, needs_room) => {}
            gone = std::future::poll_fn(|context| self.poll_gone(context)) => return Err(gone),
        }
        if self.session.listens {
            self.hear();
        }
        self.resumed = Moment::now();
        Ok(())
    }

    /// Counts the reply of the command that has just run if it is an error, and tells whether it is.
    fn count_error(&self) -> bool {
        match self.output.get(self.reply_start..) {
            Some([b'-', text @ ..]) => {
                if !self.session.error_is_counted {
                    self.session.server.stats.error(text);
                }
                true
            }
            _ => false,
        }
    }

    /// One look at the clock per command: a command begins when the one before it ends.
    fn count_call(&mut self, command: &'static Command, args: &Args<'_>, has_failed: bool) {
        let now = Moment::now();
        let took = now.nanoseconds_since(std::mem::replace(&mut self.resumed, now));
        let server = &self.session.server;
        let tracks_latency = server.live.tracks_latency.load(Ordering::Relaxed);
        server.stats.ran(command, took, has_failed, tracks_latency);
        let ran = Ran {
            client: &self.session.client,
            database: self.session.database,
            command,
            args,
        };
        ran.time(server, took);
        // Of those who wait it is told when they begin.
        if !command.has(Flag::Blocking) {
            ran.show(server);
        }
    }

    /// Finds the command and decides whether it may run.
    fn admit(&self, args: &Args<'_>) -> Result<&'static Command, Error> {
        let command = match command::resolve(args) {
            Ok(command) => command,
            Err(error) => {
                // To clients the subcommands of some are mere arguments, which come after all guards.
                if let Some(command) = command::hiding_subcommands(args) {
                    self.guard(command, args)?;
                }
                if self.session.server.store.is_replicated()
                    && let Some(complaint) = command::complaint_in_cluster(args[0])
                {
                    return Err(Error::fixed(complaint));
                }
                return Err(error);
            }
        };
        self.guard(command, args)?;
        if self.session.only_listens() && !command.is_for_listeners() {
            if self.session.server.store.is_replicated()
                && !self.forwards()
                && let Err(Detour::Refused(error)) = self.route(command, args)
            {
                return Err(error);
            }
            return Err(Error::reply(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                command.full_name
            )));
        }
        if self.session.server.shortages.are_any()
            && !self.session.is_master
            && !self.is_for_another(command, args)
        {
            self.check_shortages(command)?;
        }
        if self.session.server.store.is_replicated() {
            self.check_route(command, args)?;
        }
        let running = &self.session.server.scripts.running;
        // What the server says that is followed is not to be left out: latches keep it apart from the script.
        if running.is_busy() && !command.has(Flag::AllowBusy) && !self.session.is_master {
            running.check_busy()?;
        }
        Ok(command)
    }

    /// Whether another node is to run a command, or nobody: what this one is short of is not its affair.
    #[cold]
    fn is_for_another(&self, command: &Command, args: &Args<'_>) -> bool {
        self.session.server.store.is_replicated()
            && !self.is_queued(command)
            && matches!(self.route(command, args), Err(Detour::Refused(_)))
    }

    /// Whether a command may run, or be queued, for all that the server is short of. EXEC answers for what was queued.
    #[cold]
    fn check_shortages(&self, command: &Command) -> Result<(), Error> {
        let shortages = &self.session.server.shortages;
        room::look_again(&self.session.server);
        if !command.has(Flag::Loading) {
            shortages.check_loading()?;
        }
        if command.has(Flag::DenyOom) {
            shortages.check_room()?;
        }
        // There is no end to what may be queued.
        if self.is_queued(command) {
            shortages.check_memory()?;
        }
        if command.has(Flag::Write) {
            shortages.check_replicas()?;
            shortages.check_read_only()?;
        }
        match command.has(Flag::Stale) {
            true => Ok(()),
            false => shortages.check_stale(),
        }
    }

    /// Whether a command that does not run over a turn now is about a slot of this node; others are asked when they do.
    fn check_route(&self, command: &Command, args: &Args<'_>) -> Result<(), Error> {
        let is_queued = self.is_queued(command);
        // A script has to be known where it runs, and not here.
        let is_unit = matches!(command.handler, Handler::Unit(_));
        if (is_queued || is_unit) && self.forwards() {
            return route::slot_of(command, args).get().map(drop);
        }
        if !is_queued && !is_unit && !matches!(command.handler, Handler::Session(_)) {
            return Ok(());
        }
        match self.route(command, args) {
            // It may be known when it runs.
            Err(Detour::Wait(_)) if is_queued || is_unit => Ok(()),
            region => Ok(region.map(drop)?),
        }
    }

    fn route(&self, command: &Command, args: &Args<'_>) -> Result<Arc<Region>, Detour> {
        let by_tls = self.session.client.is_encrypted;
        route::of_call(&self.session.server, command, args, by_tls)
    }

    /// Whether the command is one of those between MULTI and EXEC.
    fn is_queued(&self, command: &Command) -> bool {
        self.session.queue.is_some() && !command.runs_at_once()
    }

    /// Whether this client may use the command at all.
    fn guard(&self, command: &Command, args: &Args<'_>) -> Result<(), Error> {
        if command.has(Flag::Debugging) && !self.session.may_debug() {
            return Err(Error::fixed(
                "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                 \"local\", you can run it from a local connection, otherwise you need to set this \
                 option in the configuration file, and then restart the server.",
            ));
        }
        if self.session.must_authenticate() && !command.has(Flag::NoAuth) {
            return Err(Error::fixed("NOAUTH Authentication required."));
        }
        if self.session.queue.is_some() && command.has(Flag::NoMulti) {
            return Err(Error::fixed("ERR Command not allowed inside a transaction"));
        }
        if self.session.user().may_do_everything() || self.session.is_master {
            return Ok(());
        }
        self.check_permission(command, args)
    }

    /// Whether a command that has waited may not run any more.
    fn denied_meanwhile(&self, command: &Command, args: &Args<'_>) -> Option<Error> {
        if self.session.is_master {
            return None;
        }
        let shortages = &self.session.server.shortages;
        if shortages.are_any()
            && command.has(Flag::Write)
            && let Err(error) = shortages.check_read_only()
        {
            return Some(error);
        }
        if self.session.user().may_do_everything() {
            return None;
        }
        self.check_permission(command, args).err()
    }

    #[cold]
    fn check_permission(&self, command: &Command, args: &Args<'_>) -> Result<(), Error> {
        let session = &self.session;
        match session.user().check(command, args) {
            Ok(()) => Ok(()),
            Err(denial) if denial.reason == Reason::Unnamed && self.is_queued(command) => Ok(()),
            Err(denial) => {
                session.client.runs(command);
                session.note_denial(&denial, command, args, session.context());
                Err(denial.error(command, args))
            }
        }
    }

    /// Sends a long reply piece by piece, as fast as the client takes it.
    async fn stream_rest(&mut self, mut stream: Box<dyn ReplyStream>) -> Result<(), Gone> {
        if self.session.replies != Replies::On {
            return Ok(());
        }
        let client = self.session.client.clone();
        let _busy = client.work();
        let end = Instant::now() + STREAM_TIME;
        let mut deadline = Instant::now() + STREAM_PATIENCE;
        loop {
            let piece = self.output.len();
            let sent = tokio::time::timeout_at(deadline.min(end).into(), self.send()).await;
            if sent.is_err() {
                let peer = &self.session.client.peer;
                tracing::warn!("{peer}: closed, it takes a long reply too slowly");
            }
            sent.map_err(|_| Gone)??;
            let earned = Duration::from_secs_f64(piece as f64 / STREAM_RATE as f64);
            deadline = (deadline + earned).min(Instant::now() + STREAM_PATIENCE);
            let mut writer = Writer::new(&mut self.output, self.session.protocol);
            let progress = stream.write(&mut writer, STREAM_PIECE).map_err(|error| {
                tracing::error!("{error}");
                Gone
            })?;
            if progress == Progress::Done {
                return Ok(());
            }
            // A client that reads fast would otherwise have the thread to itself.
            tokio::task::yield_now().await;
        }
    }
}

fn error_reply(error: Error) -> Reply {
    Reply::error(turn::error_text(&error))
}

/// A client from elsewhere is told this while there is no password: Redis' words, which tools look for.
pub const DENIED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
    enabled and no password is set for the default user. In this mode connections are only accepted from \
    the loopback interface. If you want to connect from external computers to Redis you may adopt one of \
    the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET \
    protected-mode no' from the loopback interface by connecting to Redis from the same host the server \
    is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG \
    REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by \
    editing the Redis configuration file, and setting the protected mode option to 'no', and then \
    restarting the server. 3) If you started the server manually just for testing, restart it with the \
    '--protected-mode no' option. 4) Setup a an authentication password for the default user. NOTE: You \
    only need to do one of the above things in order for the server to start accepting connections from \
    the outside.\r\n";
/// A client is told this when there is no room for it.
pub const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
