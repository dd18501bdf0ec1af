//! Commands and units that take their time, each on a thread of its own.

use std::sync::Arc;

use cairn_engine::EngineError;
use cairn_resp::{Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Error, Held, Patience, Point, ReadTxn, Region, Request, Result, Time, WriteTxn};

use crate::blocked::{Place, Served};
use crate::command::{Args, Command, Handler};
use crate::interest;
use crate::route::{self, DOWN};
use crate::script::functions::View;
use crate::server::Server;
use crate::session::Session;
use crate::turn::{
    Call, Step, bury_expired, count_lookups, error_text, finish, is_outdated, looked_up,
    start_unit, try_blocking,
};
use crate::unit::Unit;

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
    // In a cluster each region has its own, and they are not watched one by one.
    if let moves @ Some(_) = databases.moves()
        && !server.store.is_replicated()
    {
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
    let mut out = Vec::new();
    let region = match region_of(server, call) {
        Ok(region) => region,
        Err(error) => {
            finish(call, Err(error), &mut out);
            return Ok(LongReply::Whole(out));
        }
    };
    let mut txn = WriteTxn::new(server.store.clone(), region, Patience::Long);
    txn.begin(call.database);
    txn.set_reading(call.reading);
    if call.by_master {
        txn.set_time(Time::BeforeExpiry);
    }
    // Nobody waits while holding: what is missing is asked for together with the rest, and looked for anew.
    while let Some(find) = call.command.finds_keys
        && let Ok(more) = txn.unasked(|txn| find(txn, &call.args))
        && !held.try_extend(&more)
    {
        let mut request = call.request();
        request.join(more);
        held.let_go();
        held = server.store.latches().acquire_blocking(request);
        txn.begin(call.database);
        txn.set_reading(call.reading);
    }
    let step = match call.command.handler {
        Handler::Point(handler) => {
            let result = handler(Point::latched(&txn), &call.args);
            let result = unless_outdated(&txn, result);
            show_misses(server, call.command, &mut txn, &result);
            finish(call, result, &mut out)
        }
        Handler::Read(handler) => {
            let result = unless_outdated(&txn, handler(&txn, &call.args));
            show_misses(server, call.command, &mut txn, &result);
            finish(call, result, &mut out)
        }
        Handler::Exclusive(handler) if server.store.is_replicated() => {
            finish(call, run_everywhere(server, call, handler, held), &mut out)
        }
        Handler::Write(handler) | Handler::Exclusive(handler) => {
            let buried = bury_expired(&mut txn, call.command, &call.args);
            let mut result = buried.and_then(|()| handler(&mut txn, &call.args));
            count_lookups(server, call.command, &txn, &result);
            let by = (call.client, Some(call));
            if result.is_ok()
                && let Err(error) = commit_long(server, &mut txn, &mut held, by, None)
            {
                result = Err(error);
            }
            finish(call, result, &mut out)
        }
        Handler::Blocking(blocking) => match try_blocking(&mut txn, call, blocking, None) {
            Ok(None) => {
                let Some(client) = server.clients.get(call.client) else {
                    return Ok(LongReply::Nothing);
                };
                // The latches are still held: nothing has come between.
                let place = server.blocked.enter(&client, call, blocking, order);
                return Ok(LongReply::Waits(place));
            }
            Ok(Some(reply)) => {
                let by = (call.client, Some(call));
                let committed = commit_long(server, &mut txn, &mut held, by, None);
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

fn region_of(server: &Server, call: &Call<'_>) -> Result<Arc<Region>> {
    match server.store.is_replicated() {
        true => Ok(route::of_call(
            server,
            call.command,
            &call.args,
            call.by_tls,
        )?),
        false => Ok(server.store.home().clone()),
    }
}

/// Runs a command in each region that this node of a cluster leads. The latch of everything is held throughout, but
/// the commits are several: if one fails, those before it stand.
fn run_everywhere(
    server: &Server,
    call: &Call<'_>,
    handler: fn(&mut WriteTxn, &Args) -> Result<Reply>,
    mut held: Held,
) -> Result<Reply> {
    let (mut served, mut result) = (Vec::new(), Ok(Reply::Ok));
    for region in led_now(server)? {
        let mut txn = WriteTxn::new(server.store.clone(), region.clone(), Patience::Long);
        txn.begin(call.database);
        result = handler(&mut txn, &call.args);
        if result.is_ok()
            && let Err(error) = commit_part(
                server,
                &mut txn,
                &mut held,
                (call.client, None),
                &mut served,
            )
        {
            result = Err(error);
        }
        if result.is_err() {
            break;
        }
    }
    held.let_go();
    let done = served.iter().filter(|(_, told)| told.is_ok()).count();
    settle_served(served);
    match result {
        // To try again would empty them once more, with what has come meanwhile.
        Err(error) if done > 0 => Err(Error::reply(format!(
            "INDOUBT it was done for some slots and not for others: {error}"
        ))),
        result => result,
    }
}

/// What this node leads. Whoever may have led the rest until just now must not say that there is nothing of it: it was asked
/// for whatever it leads, and nobody else may know of a leader yet.
fn led_now(server: &Server) -> Result<Vec<Arc<Region>>> {
    let regions = server.store.regions();
    let mut led = Vec::new();
    for region in regions.all() {
        let slots = region.slots();
        if region.is_led() {
            led.push(region.clone());
        } else if !slots.is_empty() && route::is_unknown(server, slots.start) {
            return Err(Error::fixed(DOWN));
        }
    }
    Ok(led)
}

/// What was read, unless others may have changed it while it was read.
fn unless_outdated(txn: &ReadTxn, result: Result<Reply>) -> Result<Reply> {
    result.and_then(|reply| check_outdated(txn).map(|()| reply))
}

fn check_outdated(txn: &ReadTxn) -> Result<()> {
    match txn.store().is_replicated() && is_outdated(txn) {
        true => Err(EngineError::Outdated.into()),
        false => Ok(()),
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
///
/// The latches outlive the transaction, as a parameter outlives what is declared in its function: if this panics, nobody else
/// holds them before the transaction, as it is dropped, has cleared away what it leaves in memory.
pub fn run_long_unit(
    unit: &mut dyn Unit,
    session: &mut Session,
    mut held: Held,
) -> Option<Vec<u8>> {
    let server = session.server.clone();
    let region = match region_of_unit(&server, unit, session) {
        Ok(region) => region,
        Err(error) => return Some(error_reply(session, &error)),
    };
    let mut txn = WriteTxn::new(server.store.clone(), region, Patience::Long);
    let mut out = Vec::new();
    txn.mark_unit(session.database);
    txn.sample_time();
    if session.is_master {
        txn.set_time(Time::BeforeExpiry);
    }
    let result = start_unit(unit, session, &mut txn, &mut held, &mut out);
    if let Err(Error::Unlatched) = result {
        return None;
    }
    let result = result.and_then(|functions| {
        let by = (session.client.id, None);
        commit_long(&server, &mut txn, &mut held, by, functions)
    });
    Some(match result {
        Ok(()) => out,
        Err(error) => error_reply(session, &error),
    })
}

fn region_of_unit(server: &Server, unit: &dyn Unit, session: &Session) -> Result<Arc<Region>> {
    if !server.store.is_replicated() {
        return Ok(server.store.home().clone());
    }
    let by_tls = session.client.is_encrypted;
    Ok(route::of_slot(server, unit.slot().get()?, by_tls)?)
}

fn error_reply(session: &Session, error: &Error) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out, session.protocol).error(error_text(error));
    out
}

/// Commits what has been done on a thread that may block, and lets go of the latches.
fn commit_long(
    server: &Server,
    txn: &mut WriteTxn,
    held: &mut Held,
    by: By<'_>,
    functions: Option<Arc<View>>,
) -> Result<()> {
    let mut served = Vec::new();
    let result = commit_part(server, txn, held, by, &mut served);
    let mut changed_at = None;
    if let (Ok(()), Some(functions)) = (&result, functions) {
        server.scripts.functions.install(functions);
        // While nobody else can change them: at a later place they may be others.
        changed_at = server.cluster.get().map(|node| (node, node.place_of_map()));
    }
    held.let_go();
    settle_served(served);
    if let Some((node, place)) = changed_at {
        node.spread_functions(server, place);
    }
    result
}

/// The client whose doing it is, and by which command where that is one.
type By<'a> = (u64, Option<&'a Call<'a>>);

/// Those who waited for something that was committed, and what became of that.
type ServedPart = (Vec<Served>, Result<(), String>);

/// Commits what was done in one region. Who is served by that learns it when the latches are let go.
fn commit_part(
    server: &Server,
    txn: &mut WriteTxn,
    held: &mut Held,
    by: By<'_>,
    parts: &mut Vec<ServedPart>,
) -> Result<()> {
    let mut served = Vec::new();
    if server.interest.is_any() {
        interest::attend(server, txn, held, by, &mut served);
    }
    // What changes nothing has only read. What does is refused by whoever commits it, if it has to be.
    let result = match txn.pending().is_empty() {
        true => check_outdated(txn),
        false => Ok(()),
    };
    let result = result.and_then(|()| server.store.commit_blocking(txn));
    let told = match &result {
        Ok(()) => Ok(()),
        Err(error) => Err(String::from_utf8_lossy(&error_text(error)).into_owned()),
    };
    parts.push((served, told));
    result
}

fn settle_served(parts: Vec<ServedPart>) {
    for (served, told) in parts {
        served.into_iter().for_each(|served| served.settle(&told));
    }
}
