//! Positions on the earth: sorted sets whose scores are positions.

mod hash;
mod results;
mod search;
mod shape;

use cairn_resp::{Reply, Writer};
use cairn_store::zset::Update;
use cairn_store::{Error, EventClass, ReadTxn, Result, WriteTxn, Zset};

use self::hash::Position;
use super::args::{self, Args, is};
use super::flags::Flag::{DenyOom, MovableKeys};
use super::keys::{Access, KeySpec, Keys, Place};
use super::{Command, Handler, command};
use crate::propagation::{Propagate, decimal};

const GROUP: &str = "geo";

const READS_KEY: Keys = Keys(&[KeySpec::at(1, Access::READ)]);

const fn stores_behind(word: &'static str, from: usize) -> KeySpec {
    KeySpec {
        access: Access::OVERWRITE,
        place: Place::Behind { word, from },
    }
}

pub const COMMANDS: &[Command] = &[
    command("geoadd", -5, Handler::Write(geoadd))
        .keys(Keys(&[KeySpec::at(1, Access::UPDATE)]))
        .flags(&[DenyOom])
        .syntax(
            "key condition(NX!|XX!)? CH/change!? \
             longitude_latitude_member{longitude:d latitude:d member}+",
        )
        .about(
            GROUP,
            "3.2.0",
            "O(log(N)) for each member",
            "Adds members at positions, or moves them.",
        ),
    command("geopos", -2, Handler::Read(geopos))
        .keys(READS_KEY)
        .syntax("key member+")
        .about(
            GROUP,
            "3.2.0",
            "O(1) for each member",
            "Returns the positions of members.",
        ),
    command("geodist", -4, Handler::Read(geodist))
        .keys(READS_KEY)
        .syntax("key member1 member2 unit(M!|KM!|FT!|MI!)?")
        .about(
            GROUP,
            "3.2.0",
            "O(1)",
            "Returns the distance between two members.",
        ),
    command("geohash", -2, Handler::Read(geohash))
        .keys(READS_KEY)
        .syntax("key member+")
        .about(
            GROUP,
            "3.2.0",
            "O(1) for each member",
            "Returns the positions of members as geohashes.",
        ),
    command("geosearch", -7, Handler::Read(search::geosearch))
        .keys(READS_KEY)
        .syntax(
            "key from(FROMMEMBER/member|FROMLONLAT/longitude_latitude{longitude:d latitude:d}) \
             by(circle{BYRADIUS/radius:d unit(M!|KM!|FT!|MI!)}|\
             box{BYBOX/width:d height:d unit(M!|KM!|FT!|MI!)}) \
             order(ASC!|DESC!)? count{COUNT/count:i ANY!?}? WITHCOORD!? WITHDIST!? WITHHASH!?",
        )
        .about(
            GROUP,
            "6.2.0",
            "O(N+log(M)) for N members near the shape and M in all",
            "Returns the members inside a circle or a box.",
        ),
    command("geosearchstore", -8, Handler::Write(search::geosearchstore))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(1, Access::OVERWRITE),
            KeySpec::at(2, Access::READ),
        ]))
        .flags(&[DenyOom])
        .syntax(
            "destination:k source:k \
             from(FROMMEMBER/member|FROMLONLAT/longitude_latitude{longitude:d latitude:d}) \
             by(circle{BYRADIUS/radius:d unit(M!|KM!|FT!|MI!)}|\
             box{BYBOX/width:d height:d unit(M!|KM!|FT!|MI!)}) \
             order(ASC!|DESC!)? count{COUNT/count:i ANY!?}? STOREDIST!?",
        )
        .about(
            GROUP,
            "6.2.0",
            "O(N+log(M)) for N members near the shape and M in all",
            "Stores the members inside a circle or a box.",
        ),
    command("georadius", -6, Handler::Write(search::georadius))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(1, Access::READ),
            stores_behind("STORE", 6),
            stores_behind("STOREDIST", 6),
        ]))
        .flags(&[DenyOom, MovableKeys])
        .syntax(
            "key longitude:d latitude:d radius:d unit(M!|KM!|FT!|MI!) \
             WITHCOORD!? WITHDIST!? WITHHASH!? count{COUNT/count:i ANY!?}? order(ASC!|DESC!)? \
             STORE/key? STOREDIST/key?",
        )
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
        )
        .about(
            GROUP,
            "3.2.0",
            "O(N+log(M)) for N members near the circle and M in all",
            "Returns or stores the members within a distance from a position.",
        ),
    command("georadius_ro", -6, Handler::Read(search::georadius_ro))
        .keys(READS_KEY)
        .syntax(
            "key longitude:d latitude:d radius:d unit(M!|KM!|FT!|MI!) \
             WITHCOORD!? WITHDIST!? WITHHASH!? count{COUNT/count:i ANY!?}? order(ASC!|DESC!)?",
        )
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
        .about(
            GROUP,
            "3.2.10",
            "O(N+log(M)) for N members near the circle and M in all",
            "Returns the members within a distance from a position.",
        ),
    command(
        "georadiusbymember",
        -5,
        Handler::Write(search::georadiusbymember),
    )
    .counts_lookups()
    .keys(Keys(&[
        KeySpec::at(1, Access::READ),
        stores_behind("STORE", 5),
        stores_behind("STOREDIST", 5),
    ]))
    .flags(&[DenyOom, MovableKeys])
    .syntax(
        "key member radius:d unit(M!|KM!|FT!|MI!) WITHCOORD!? WITHDIST!? WITHHASH!? \
         count{COUNT/count:i ANY!?}? order(ASC!|DESC!)? STORE/key? STOREDIST/key?",
    )
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    )
    .about(
        GROUP,
        "3.2.0",
        "O(N+log(M)) for N members near the circle and M in all",
        "Returns or stores the members within a distance from another.",
    ),
    command(
        "georadiusbymember_ro",
        -5,
        Handler::Read(search::georadiusbymember_ro),
    )
    .keys(READS_KEY)
    .syntax(
        "key member radius:d unit(M!|KM!|FT!|MI!) WITHCOORD!? WITHDIST!? WITHHASH!? \
         count{COUNT/count:i ANY!?}? order(ASC!|DESC!)?",
    )
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
    )
    .about(
        GROUP,
        "3.2.10",
        "O(N+log(M)) for N members near the circle and M in all",
        "Returns the members within a distance from another.",
    ),
];

const NO_MEMBER: Error = Error::fixed("ERR could not decode requested zset member");

fn parse_position(longitude: &[u8], latitude: &[u8]) -> Result<Position> {
    let position = Position {
        longitude: args::float(longitude)?,
        latitude: args::float(latitude)?,
    };
    if position.is_on_map() {
        return Ok(position);
    }
    let Position {
        longitude,
        latitude,
    } = position;
    Err(Error::reply(format!(
        "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
    )))
}

/// How many meters a unit has.
fn parse_unit(name: &[u8]) -> Result<f64> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = units.iter().find(|(unit, _)| is(name, unit));
    unit.map(|(_, meters)| *meters).ok_or(Error::fixed(
        "ERR unsupported unit provided. please use M, KM, FT, MI",
    ))
}

/// Four digits behind the point: a tenth of a millimeter, or of a meter where the unit is the kilometer.
fn write_distance(out: &mut Writer<'_>, distance: f64) {
    out.bulk(distance_text(distance));
}

fn distance_text(distance: f64) -> String {
    let scaled = (distance * 10_000.0).round_ties_even();
    if scaled.is_nan() {
        // So Redis prints what is not a number: between points that are farther apart than the earth is wide.
        return "-922337203685477.5808".into();
    }
    let scaled = scaled as u64;
    format!("{}.{:04}", scaled / 10_000, scaled % 10_000)
}

fn geoadd(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (mut only_new, mut only_existing, mut counts_changed) = (false, false, false);
    let mut words = args.options(2);
    loop {
        let option = if words.take("nx") {
            &mut only_new
        } else if words.take("xx") {
            &mut only_existing
        } else if words.take("ch") {
            &mut counts_changed
        } else {
            break;
        };
        *option = true;
    }
    let members = args.rest(args.len() - words.len());
    if members.is_empty() || !members.len().is_multiple_of(3) || (only_new && only_existing) {
        return Err(Error::SYNTAX);
    }
    let mut positions = Vec::with_capacity(members.len() / 3);
    for words in members.chunks_exact(3) {
        positions.push(parse_position(words[0], words[1])?);
    }
    let scores: Vec<f64> = positions.into_iter().map(Position::score).collect();
    let mut zset = Zset::open(txn, args[1])?;
    let (mut added, mut changed) = (0, 0);
    for (score, words) in scores.iter().zip(members.chunks_exact(3)) {
        let update = zset.update(txn, words[2], |before| {
            let is_refused = if before.is_some() {
                only_new
            } else {
                only_existing
            };
            Ok((!is_refused).then_some(*score))
        })?;
        added += i64::from(matches!(update, Update::Added(_)));
        changed += i64::from(matches!(update, Update::Changed(_)));
    }
    zset.save(txn);
    if added + changed > 0 {
        txn.notify(EventClass::Zset, "zadd", args[1]);
        propagate_scores(txn, args, members, &scores);
    }
    Ok(Reply::Int(if counts_changed {
        added + changed
    } else {
        added
    }))
}

/// Followers are told the scores, not how they come about.
fn propagate_scores(txn: &mut WriteTxn, args: &Args, members: &[&[u8]], scores: &[f64]) {
    if !txn.is_followed() {
        return;
    }
    let options = &args[1..args.len() - members.len()];
    let numbers: Vec<_> = scores.iter().map(|score| decimal(*score as u64)).collect();
    let mut words: Vec<&[u8]> = vec![b"zadd"];
    words.extend_from_slice(options);
    for (number, member) in numbers.iter().zip(members.chunks_exact(3)) {
        words.extend([&number[..], member[2]]);
    }
    txn.propagate_as(&words);
}

fn geopos(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let zset = Zset::open(txn, args[1])?;
    let mut positions = Vec::with_capacity(args.len() - 2);
    for member in args.rest(2) {
        positions.push(match zset.score(txn, member)? {
            Some(score) => {
                let position = Position::of_score(score);
                let numbers = [position.longitude, position.latitude];
                Reply::Array(numbers.map(Reply::HumanDouble).into())
            }
            None => Reply::NullArray,
        });
    }
    Ok(Reply::Array(positions))
}

fn geohash(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let zset = Zset::open(txn, args[1])?;
    let mut hashes = Vec::with_capacity(args.len() - 2);
    for member in args.rest(2) {
        hashes.push(match zset.score(txn, member)? {
            Some(score) => Reply::bulk(Position::of_score(score).geohash()),
            None => Reply::Null,
        });
    }
    Ok(Reply::Array(hashes))
}

fn geodist(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let unit = match args.rest(4) {
        [] => 1.0,
        [unit] => parse_unit(unit)?,
        _ => return Err(Error::SYNTAX),
    };
    let zset = Zset::open(txn, args[1])?;
    let scores = [zset.score(txn, args[2])?, zset.score(txn, args[3])?];
    let [Some(one), Some(other)] = scores.map(|score| score.map(Position::of_score)) else {
        return Ok(Reply::Null);
    };
    let distance = shape::distance(one, other) / unit;
    Ok(Reply::bulk(distance_text(distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_four_digits() {
        for (distance, text) in [
            (0.0, "0.0000"),
            (0.00004, "0.0000"),
            (0.00006, "0.0001"),
            (166_274.151_562_2, "166274.1516"),
            (f64::NAN, "-922337203685477.5808"),
        ] {
            assert_eq!(distance_text(distance), text);
        }
    }
}
