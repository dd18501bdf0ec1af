//! SUBSCRIBE, PUBLISH and their like, and PUBSUB, which tells who listens.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Effect, Result, WriteTxn, slot};

use super::flags::Flag::{Fast, Loading, MayReplicate, NoScript, PubSub, Stale};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Args, Channels, Command, Flag, Handler, command, help};
use crate::propagation::Propagate;
use crate::pubsub::Kind;
use crate::route::is_led_here;
use crate::server::Server;
use crate::session::Session;

const GROUP: &str = "pubsub";
const SUBSCRIBES: &[Flag] = &[PubSub, NoScript, Loading, Stale];
const PUBLISHES: &[Flag] = &[PubSub, Loading, Stale, Fast, MayReplicate];
const ASKS: &[Flag] = &[PubSub, Loading, Stale];

/// To a cluster these channels lie where keys of the same name do.
const SHARD_CHANNELS: Keys = Keys(&[KeySpec {
    access: Access::NotKey,
    place: Place::Range {
        first: 1,
        last: -1,
        step: 1,
    },
}]);

pub const COMMANDS: &[Command] = &[
    command("subscribe", -2, Handler::Session(subscribe))
        .irrevocable()
        .channels(Channels::Rest)
        .flags(SUBSCRIBES)
        .syntax("channel+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N channels",
            "Listens to channels.",
        ),
    command("unsubscribe", -1, Handler::Session(unsubscribe))
        .irrevocable()
        .flags(SUBSCRIBES)
        .syntax("channel?+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N channels",
            "Stops listening to channels, or to all.",
        ),
    command("psubscribe", -2, Handler::Session(psubscribe))
        .irrevocable()
        .channels(Channels::RestArePatterns)
        .flags(SUBSCRIBES)
        .syntax("pattern{pattern:p}+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N patterns",
            "Listens to all channels whose names match.",
        ),
    command("punsubscribe", -1, Handler::Session(punsubscribe))
        .irrevocable()
        .flags(SUBSCRIBES)
        .syntax("pattern:p?+")
        .about(
            GROUP,
            "2.0.0",
            "O(N) for N patterns",
            "Stops listening to patterns, or to all.",
        ),
    command("publish", 3, Handler::Effect(publish))
        .channels(Channels::First)
        .flags(PUBLISHES)
        .syntax("channel message")
        .about(
            GROUP,
            "2.0.0",
            "O(N+M) for N who listen and M patterns",
            "Sends a message to all who listen to a channel.",
        ),
    command("ssubscribe", -2, Handler::Session(ssubscribe))
        .irrevocable()
        .channels(Channels::Rest)
        .keys(SHARD_CHANNELS)
        .flags(SUBSCRIBES)
        .syntax("shardchannel+")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N channels",
            "Listens to channels of a part of a cluster.",
        ),
    command("sunsubscribe", -1, Handler::Session(sunsubscribe))
        .irrevocable()
        .keys(SHARD_CHANNELS)
        .flags(SUBSCRIBES)
        .syntax("shardchannel?+")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N channels",
            "Stops listening to channels of a part of a cluster, or to all.",
        ),
    command("spublish", 3, Handler::Effect(spublish))
        .channels(Channels::First)
        .keys(Keys(&[KeySpec::at(1, Access::NotKey)]))
        .flags(PUBLISHES)
        .syntax("shardchannel message")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N who listen",
            "Sends a message to all who listen to a channel of a part of a cluster.",
        ),
    command("pubsub", -2, Handler::Container)
        .subcommands(SUBCOMMANDS)
        .about(
            GROUP,
            "2.8.0",
            "Depends on the subcommand",
            "Tells who listens to what.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    command("channels", -2, Handler::Session(channels))
        .flags(ASKS)
        .usage("[<pattern>]")
        .syntax("pattern:p?")
        .about(
            GROUP,
            "2.8.0",
            "O(N) for N channels",
            "Lists the channels that somebody listens to.",
        ),
    command("numpat", 2, Handler::Session(numpat))
        .flags(ASKS)
        .about(
            GROUP,
            "2.8.0",
            "O(1)",
            "Returns the number of different patterns.",
        ),
    command("numsub", -2, Handler::Session(numsub))
        .flags(ASKS)
        .usage("[<channel> ...]")
        .syntax("channel?+")
        .about(
            GROUP,
            "2.8.0",
            "O(N) for N channels",
            "Returns how many listen to each channel, patterns aside.",
        ),
    command("shardchannels", -2, Handler::Session(shardchannels))
        .flags(ASKS)
        .usage("[<pattern>]")
        .syntax("pattern:p?")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N channels",
            "Lists the channels of a part of a cluster that somebody listens to.",
        ),
    command("shardnumsub", -2, Handler::Session(shardnumsub))
        .flags(ASKS)
        .usage("[<shardchannel> ...]")
        .syntax("shardchannel?+")
        .about(
            GROUP,
            "7.0.0",
            "O(N) for N channels",
            "Returns how many listen to each channel of a part of a cluster.",
        ),
    command("help", 2, Handler::Session(help))
        .flags(&[Loading, Stale])
        .about(GROUP, "6.2.0", "O(1)", "Prints this help."),
];

/// For commands that are answered through the outbox, or not at all.
struct Nothing;

impl ReplyStream for Nothing {
    fn write(&mut self, _: &mut Writer<'_>, _: usize) -> Result<Progress, StreamError> {
        Ok(Progress::Done)
    }
}

/// No reply.
pub fn unanswered() -> Reply {
    Reply::Stream(Box::new(Nothing))
}

fn answered_by_outbox(session: &mut Session) -> Result<Reply> {
    session.listens = true;
    Ok(unanswered())
}

fn add(session: &mut Session, kind: Kind, names: &[&[u8]]) -> Result<Reply> {
    let subscriptions = session.subscriptions();
    names.iter().for_each(|name| subscriptions.add(kind, name));
    // Whoever loses the permission just now may have been overlooked when its listeners were closed.
    let user = session.user().clone();
    let may_listen = |name: &&[u8]| user.may_listen_to(name, kind == Kind::Pattern);
    if !names.iter().all(may_listen) {
        session.closes = true;
    }
    answered_by_outbox(session)
}

fn remove(session: &mut Session, kind: Kind, names: &[&[u8]]) -> Result<Reply> {
    let subscriptions = session.subscriptions();
    if names.is_empty() {
        subscriptions.remove_all(kind);
    }
    names
        .iter()
        .for_each(|name| subscriptions.remove(kind, name));
    answered_by_outbox(session)
}

fn subscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    add(session, Kind::Channel, args.rest(1))
}

fn unsubscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    remove(session, Kind::Channel, args.rest(1))
}

fn psubscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    add(session, Kind::Pattern, args.rest(1))
}

fn punsubscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    remove(session, Kind::Pattern, args.rest(1))
}

fn ssubscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    let names = args.rest(1);
    let reply = add(session, Kind::Shard, names);
    // If the slot goes to another node just now, nobody may have been found to be told.
    let server = session.server.clone();
    if server.store.is_replicated() && !names.iter().all(|name| is_led_here(&server, slot(name))) {
        let subscriptions = session.subscriptions();
        names
            .iter()
            .for_each(|name| subscriptions.remove(Kind::Shard, name));
    }
    reply
}

fn sunsubscribe(session: &mut Session, args: &Args) -> Result<Reply> {
    remove(session, Kind::Shard, args.rest(1))
}

fn publish(server: &Server, txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    send(server, txn, args, false)
}

fn spublish(server: &Server, txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    send(server, txn, args, true)
}

/// A message that nobody would get now is sent to nobody. Who listens on other nodes is not known, nor counted.
fn send(server: &Server, txn: &mut WriteTxn, args: &Args, is_sharded: bool) -> Result<Reply> {
    // Somebody may listen there.
    txn.propagate_with(args, &[]);
    let receivers = server.pubsub.receivers(args[1], is_sharded);
    if receivers > 0 || !is_sharded && server.cluster.get().is_some() {
        txn.add_effect(Effect::Message {
            channel: args[1].into(),
            text: args[2].into(),
            is_sharded,
            except: None,
        });
    }
    Ok(receivers.into())
}

fn names(session: &Session, kind: Kind, args: &Args) -> Result<Reply> {
    let pattern = match *args.rest(2) {
        [] => None,
        [pattern] => Some(pattern),
        _ => return Err(super::wrong_subcommand(args)),
    };
    let names = session.server.pubsub.names(kind, pattern).into_iter();
    Ok(Reply::Array(names.map(Reply::bulk).collect()))
}

fn channels(session: &mut Session, args: &Args) -> Result<Reply> {
    names(session, Kind::Channel, args)
}

fn shardchannels(session: &mut Session, args: &Args) -> Result<Reply> {
    names(session, Kind::Shard, args)
}

fn counts(session: &Session, kind: Kind, args: &Args) -> Result<Reply> {
    let count = |name: &[u8]| session.server.pubsub.subscribers(kind, name);
    let names = args.rest(2).iter();
    let counts = names.flat_map(|name| [Reply::bulk(*name), count(name).into()]);
    Ok(Reply::Array(counts.collect()))
}

fn numsub(session: &mut Session, args: &Args) -> Result<Reply> {
    counts(session, Kind::Channel, args)
}

fn shardnumsub(session: &mut Session, args: &Args) -> Result<Reply> {
    counts(session, Kind::Shard, args)
}

fn numpat(session: &mut Session, _: &Args) -> Result<Reply> {
    Ok(session.server.pubsub.count(Kind::Pattern).into())
}
