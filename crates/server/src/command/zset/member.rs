//! Commands that name members: adding, scoring, ranking, removing.

use cairn_resp::Reply;
use cairn_store::zset::Update;
use cairn_store::{
    CollectionKind, Direction, EXPECTED, Error, EventClass, Point, ReadTxn, Result, WriteTxn, Zset,
    zset,
};

use super::Args;
use crate::command::args;
use crate::command::events;

/// What ZADD was told besides members and scores.
#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

impl AddOptions {
    /// Reads the options, and tells where the scores and members begin.
    fn parse(args: &Args) -> (AddOptions, usize) {
        let mut options = AddOptions::default();
        let mut words = args.options(2);
        loop {
            let option = if words.take("nx") {
                &mut options.only_new
            } else if words.take("xx") {
                &mut options.only_existing
            } else if words.take("gt") {
                &mut options.only_greater
            } else if words.take("lt") {
                &mut options.only_less
            } else if words.take("ch") {
                &mut options.counts_changed
            } else if words.take("incr") {
                &mut options.increments
            } else {
                return (options, args.len() - words.len());
            };
            *option = true;
        }
    }

    fn check(&self, pairs: &[&[u8]]) -> Result<()> {
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(Error::SYNTAX);
        }
        if self.only_new && self.only_existing {
            return Err(Error::fixed(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        let conditions = [self.only_new, self.only_greater, self.only_less];
        if conditions.into_iter().filter(|&given| given).count() > 1 {
            return Err(Error::fixed(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && pairs.len() > 2 {
            return Err(Error::fixed(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// The new score of a member; none leaves the member alone.
    fn decide(&self, before: Option<f64>, given: f64) -> Result<Option<f64>> {
        let Some(before) = before else {
            return Ok((!self.only_existing).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increments {
            before + given
        } else {
            given
        };
        if score.is_nan() {
            return Err(Error::fixed("ERR resulting score is not a number (NaN)"));
        }
        let is_refused =
            (self.only_greater && score <= before) || (self.only_less && score >= before);
        Ok((!is_refused).then_some(score))
    }
}

pub fn zadd(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (options, pairs_at) = AddOptions::parse(args);
    add(txn, args, &options, pairs_at)
}

/// Redis looks for ZADD's options here too, and then for a pair behind them: `ZINCRBY key nx member` is
/// a syntax error, not a wrong number.
pub fn zincrby(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let (mut options, pairs_at) = AddOptions::parse(args);
    options.increments = true;
    add(txn, args, &options, pairs_at)
}

fn add(txn: &mut WriteTxn, args: &Args, options: &AddOptions, pairs_at: usize) -> Result<Reply> {
    let pairs = args.rest(pairs_at);
    options.check(pairs)?;
    for pair in pairs.chunks_exact(2) {
        args::float(pair[0])?;
    }
    let mut zset = Zset::open(txn, args[1])?;
    let (mut added, mut changed) = (0, 0);
    let mut last = Update::Skipped;
    for pair in pairs.chunks_exact(2) {
        let given = args::float(pair[0])?;
        last = zset.update(txn, pair[1], |before| options.decide(before, given))?;
        added += i64::from(matches!(last, Update::Added(_)));
        changed += i64::from(matches!(last, Update::Changed(_)));
    }
    zset.save(txn);
    if added + changed > 0 {
        let event = if options.increments { "zincr" } else { "zadd" };
        txn.notify(EventClass::Zset, event, args[1]);
    }
    Ok(match last {
        Update::Skipped if options.increments => Reply::Null,
        Update::Added(score) | Update::Changed(score) | Update::Kept(score)
            if options.increments =>
        {
            Reply::Double(score)
        }
        _ if options.counts_changed => Reply::Int(added + changed),
        _ => Reply::Int(added),
    })
}

pub fn zrem(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let mut zset = Zset::open(txn, args[1])?;
    let mut removed = 0;
    for member in args.rest(2) {
        removed += i64::from(zset.remove(txn, member)?);
    }
    let is_emptied = zset.is_empty();
    zset.save(txn);
    if removed > 0 {
        events::taken(txn, EventClass::Zset, "zrem", args[1], is_emptied);
    }
    Ok(Reply::Int(removed))
}

pub fn zscore(point: Point<'_>, args: &Args) -> Result<Reply> {
    match point.element(args[1], CollectionKind::ZSet, args[2])? {
        Some(row) => Ok(Reply::Double(zset::score_of(&row)?)),
        None => Ok(Reply::Null),
    }
}

pub fn zmscore(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let zset = Zset::open(txn, args[1])?;
    let mut scores = Vec::with_capacity(args.len() - 2);
    for some in args.rest(2).chunks(EXPECTED) {
        zset.collection().expect(txn, some)?;
        for member in some {
            scores.push(zset.score(txn, member)?.into());
        }
    }
    Ok(Reply::Array(scores))
}

pub fn zcard(point: Point<'_>, args: &Args) -> Result<Reply> {
    Ok(point.len(args[1], CollectionKind::ZSet)?.into())
}

pub fn zrank(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    rank(txn, args, Direction::Forward)
}

pub fn zrevrank(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    rank(txn, args, Direction::Backward)
}

fn rank(txn: &ReadTxn, args: &Args, direction: Direction) -> Result<Reply> {
    let zset = Zset::open(txn, args[1])?;
    Ok(zset.rank_of(txn, args[2], direction)?.into())
}
