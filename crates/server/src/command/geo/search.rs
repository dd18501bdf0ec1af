//! GEOSEARCH and the older GEORADIUS: the members in a circle or a box.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{Builder, Error, EventClass, ReadTxn, Result, WriteTxn, Zset};

use super::hash::Position;
use super::results::{Found, Next, Order, Results, Wanted};
use super::shape::{Extent, Shape};
use super::{NO_MEMBER, parse_position, parse_unit, write_distance};
use crate::command::args::{self, Args, Options, is};
use crate::command::events;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Search,
    SearchStore,
    /// GEORADIUS: the position and the radius stand before the options.
    AroundPosition {
        may_store: bool,
    },
    AroundMember {
        may_store: bool,
    },
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }

    fn may_store(self) -> bool {
        match self {
            Form::Search | Form::SearchStore => false,
            Form::AroundPosition { may_store } | Form::AroundMember { may_store } => may_store,
        }
    }

    fn source_at(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }
}

/// What is told of each member besides its name.
#[derive(Clone, Copy, Default)]
struct Details {
    distance: bool,
    score: bool,
    position: bool,
}

impl Details {
    fn count(self) -> usize {
        usize::from(self.distance) + usize::from(self.score) + usize::from(self.position)
    }
}

/// Where the result goes, if not to the client.
struct Target<'a> {
    name: &'a [u8],
    scores_are_distances: bool,
}

struct Query<'a> {
    /// Where there is nothing to search there is none either.
    shape: Option<Shape>,
    wanted: Wanted,
    details: Details,
    target: Option<Target<'a>>,
}

impl<'a> Query<'a> {
    fn parse(txn: &ReadTxn, zset: &Zset, args: &Args<'a>, form: Form) -> Result<Query<'a>> {
        let mut parser = Parser {
            txn,
            zset,
            center: None,
            extent: None,
            query: Query {
                shape: None,
                wanted: Wanted::default(),
                details: Details::default(),
                target: None,
            },
            form,
        };
        let options_at = parser.parse_head(args)?;
        let mut options = args.options(options_at);
        while let Some(option) = options.next() {
            parser.option(option, &mut options)?;
        }
        parser.finish(args)
    }
}

struct Parser<'a, 't> {
    txn: &'t ReadTxn,
    zset: &'t Zset,
    form: Form,
    /// Around what, and how far; each with whether it is known.
    center: Option<Center>,
    extent: Option<(Extent, f64)>,
    query: Query<'a>,
}

#[derive(Clone, Copy)]
enum Center {
    Position(Position),
    Member(Position),
}

impl<'a> Parser<'a, '_> {
    /// What stands before the options. The order of the checks is that of Redis.
    fn parse_head(&mut self, args: &Args<'a>) -> Result<usize> {
        match self.form {
            Form::Search => Ok(2),
            Form::SearchStore => {
                self.query.target = Some(Target {
                    name: args[1],
                    scores_are_distances: false,
                });
                Ok(3)
            }
            Form::AroundPosition { .. } => {
                self.center = Some(Center::Position(parse_position(args[2], args[3])?));
                self.extent = Some(parse_circle(args[4], args[5])?);
                Ok(6)
            }
            Form::AroundMember { .. } => {
                if self.zset.exists() {
                    self.center = Some(Center::Member(self.position_of(args[2])?));
                    self.extent = Some(parse_circle(args[3], args[4])?);
                }
                Ok(5)
            }
        }
    }

    fn position_of(&self, member: &[u8]) -> Result<Position> {
        if !self.zset.exists() {
            return Ok(Position::default());
        }
        let score = self.zset.score(self.txn, member)?.ok_or(NO_MEMBER)?;
        Ok(Position::of_score(score))
    }

    fn option(&mut self, option: &[u8], rest: &mut Options<'a>) -> Result<()> {
        let Query {
            wanted,
            details,
            target,
            ..
        } = &mut self.query;
        let may_store = self.form.may_store();
        if is(option, "withdist") {
            details.distance = true;
        } else if is(option, "withhash") {
            details.score = true;
        } else if is(option, "withcoord") {
            details.position = true;
        } else if is(option, "any") {
            wanted.is_any = true;
        } else if is(option, "asc") {
            wanted.order = Some(Order::Nearest);
        } else if is(option, "desc") {
            wanted.order = Some(Order::Farthest);
        } else if is(option, "count") && !rest.is_empty() {
            wanted.count = Some(parse_count(rest.value()?)?);
        } else if may_store && is(option, "store") && !rest.is_empty() {
            *target = Some(Target {
                name: rest.value()?,
                scores_are_distances: false,
            });
        } else if may_store && is(option, "storedist") && !rest.is_empty() {
            *target = Some(Target {
                name: rest.value()?,
                scores_are_distances: true,
            });
        } else if is(option, "storedist")
            && self.form == Form::SearchStore
            && let Some(target) = target
        {
            target.scores_are_distances = true;
        } else if self.form.is_search() {
            return self.search_option(option, rest);
        } else {
            return Err(Error::SYNTAX);
        }
        Ok(())
    }

    /// Options that may come again may not come in their other form.
    fn search_option(&mut self, option: &[u8], rest: &mut Options<'a>) -> Result<()> {
        let is_around_position = matches!(self.center, Some(Center::Position(_)));
        let is_around_member = matches!(self.center, Some(Center::Member(_)));
        let is_circle = matches!(self.extent, Some((Extent::Circle { .. }, _)));
        let is_box = matches!(self.extent, Some((Extent::Box { .. }, _)));
        if is(option, "frommember") && !rest.is_empty() && !is_around_position {
            self.center = Some(Center::Member(self.position_of(rest.value()?)?));
        } else if is(option, "fromlonlat") && rest.len() >= 2 && !is_around_member {
            let position = parse_position(rest.value()?, rest.value()?)?;
            self.center = Some(Center::Position(position));
        } else if is(option, "byradius") && rest.len() >= 2 && !is_box {
            self.extent = Some(parse_circle(rest.value()?, rest.value()?)?);
        } else if is(option, "bybox") && rest.len() >= 3 && !is_circle {
            self.extent = Some(parse_box(rest.value()?, rest.value()?, rest.value()?)?);
        } else {
            return Err(Error::SYNTAX);
        }
        Ok(())
    }

    fn finish(self, args: &Args<'_>) -> Result<Query<'a>> {
        let Parser {
            form,
            center,
            extent,
            mut query,
            ..
        } = self;
        if query.target.is_some() && query.details.count() > 0 {
            let who = match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Error::reply(format!(
                "ERR {who} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let name = String::from_utf8_lossy(args[0]);
        if form.is_search() && center.is_none() {
            return Err(Error::reply(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if form.is_search() && extent.is_none() {
            return Err(Error::reply(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        let wanted = &mut query.wanted;
        if wanted.is_any && wanted.count.is_none() {
            return Err(Error::fixed("ERR the ANY argument requires COUNT argument"));
        }
        if wanted.count.is_some() && !wanted.is_any {
            // Which ones, if not the nearest.
            wanted.order = wanted.order.or(Some(Order::Nearest));
        }
        if let (Some(Center::Position(center) | Center::Member(center)), Some((extent, unit))) =
            (center, extent)
        {
            query.shape = Some(Shape {
                center,
                extent,
                unit,
            });
        }
        Ok(query)
    }
}

fn parse_count(text: &[u8]) -> Result<u64> {
    u64::try_from(args::int(text)?)
        .ok()
        .filter(|count| *count > 0)
        .ok_or(Error::fixed("ERR COUNT must be > 0"))
}

fn parse_circle(radius: &[u8], unit: &[u8]) -> Result<(Extent, f64)> {
    let radius = parse_length(radius, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::fixed("ERR radius cannot be negative"));
    }
    Ok((Extent::Circle { radius }, parse_unit(unit)?))
}

fn parse_box(width: &[u8], height: &[u8], unit: &[u8]) -> Result<(Extent, f64)> {
    let width = parse_length(width, "ERR need numeric width")?;
    let height = parse_length(height, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::fixed("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box { width, height }, parse_unit(unit)?))
}

fn parse_length(text: &[u8], otherwise: &'static str) -> Result<f64> {
    args::float(text).map_err(|_| Error::fixed(otherwise))
}

pub fn geosearch(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, Form::Search)
}

pub fn geosearchstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    write(txn, args, Form::SearchStore)
}

pub fn georadius(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    write(txn, args, Form::AroundPosition { may_store: true })
}

pub fn georadius_ro(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, Form::AroundPosition { may_store: false })
}

pub fn georadiusbymember(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    write(txn, args, Form::AroundMember { may_store: true })
}

pub fn georadiusbymember_ro(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, Form::AroundMember { may_store: false })
}

fn read(txn: &ReadTxn, args: &Args, form: Form) -> Result<Reply> {
    let zset = Zset::open(txn, args[form.source_at()])?;
    let query = Query::parse(txn, &zset, args, form)?;
    reply(txn, &zset, &query)
}

fn write(txn: &mut WriteTxn, args: &Args, form: Form) -> Result<Reply> {
    let source_at = form.source_at();
    events::missing(txn, &args[source_at..=source_at])?;
    let zset = Zset::open(txn, args[source_at])?;
    let query = Query::parse(txn, &zset, args, form)?;
    let Some(target) = &query.target else {
        return reply(txn, &zset, &query);
    };
    let mut stored = Builder::new(txn, target.name);
    if let Some(shape) = query.shape {
        let mut results = Results::search(txn, &zset, shape, query.wanted)?;
        loop {
            txn.step()?;
            match results.next()? {
                Next::Found(found) => {
                    let score = match target.scores_are_distances {
                        true => found.distance / shape.unit,
                        false => found.score,
                    };
                    stored.scored(txn, &found.member, score)?;
                }
                Next::Onward => {}
                Next::End => break,
            }
        }
    }
    let size = stored.finish_zset(txn, 0)?;
    let event = if form.is_search() {
        "geosearchstore"
    } else {
        "georadiusstore"
    };
    events::stored(txn, EventClass::Zset, event, target.name, size);
    Ok(size.into())
}

fn reply(txn: &ReadTxn, zset: &Zset, query: &Query<'_>) -> Result<Reply> {
    let Some(shape) = query.shape.filter(|_| zset.exists()) else {
        return Ok(Reply::Array(Vec::new()));
    };
    let results = Results::search(txn, zset, shape, query.wanted)?;
    Ok(Reply::Stream(Box::new(Listing {
        header: Some(results.left()),
        results,
        details: query.details,
        unit: shape.unit,
    })))
}

struct Listing {
    header: Option<u64>,
    results: Results,
    details: Details,
    unit: f64,
}

impl Listing {
    fn write_found(&self, found: &Found, out: &mut Writer<'_>) {
        let details = self.details.count();
        if details > 0 {
            out.array(1 + details);
        }
        out.bulk(&found.member);
        if self.details.distance {
            write_distance(out, found.distance / self.unit);
        }
        if self.details.score {
            out.int(found.score as i64);
        }
        if self.details.position {
            let position = Position::of_score(found.score);
            out.array(2);
            out.human_double(position.longitude);
            out.human_double(position.latitude);
        }
    }
}

impl ReplyStream for Listing {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if let Some(count) = self.header.take() {
            out.array(count as usize);
        }
        while out.len() < limit {
            match self.results.next().map_err(StreamError::new)? {
                Next::Found(found) => self.write_found(&found, out),
                Next::Onward => return Ok(Progress::More),
                Next::End if self.results.left() > 0 => {
                    return Err(StreamError::new("members are missing"));
                }
                Next::End => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }
}
