//! Commands on ranges: of ranks, of scores, of members.
//!
//! ZRANGE takes any range by its options; the older commands are ZRANGE with one kind of range and one
//! direction fixed, and refuse the options that would change them.

use cairn_resp::Reply;
use cairn_store::zset::{LexRange, ScoreRange};
use cairn_store::{Builder, Direction, Error, EventClass, ReadTxn, Result, Rows, WriteTxn, Zset};

use super::bound::{lex_range, ranks, score_range};
use super::{Args, reply};
use crate::command::args::{self, is};
use crate::command::events;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ranks,
    Scores,
    Members,
}

enum Range<'a> {
    Ranks { start: i64, stop: i64 },
    Scores(ScoreRange),
    Members(LexRange<'a>),
}

/// What a command fixes; options may say the rest.
#[derive(Clone, Copy)]
struct Form {
    /// Where the key stands that is read; the bounds follow it.
    key_at: usize,
    kind: Option<Kind>,
    direction: Option<Direction>,
    may_have_scores: bool,
}

const ZRANGE: Form = Form {
    key_at: 1,
    kind: None,
    direction: None,
    may_have_scores: true,
};

const fn fixed(kind: Kind, direction: Direction) -> Form {
    Form {
        kind: Some(kind),
        direction: Some(direction),
        ..ZRANGE
    }
}

/// A range as it was asked for.
struct Query<'a> {
    range: Range<'a>,
    direction: Direction,
    offset: i64,
    /// Negative: no limit.
    limit: i64,
    has_scores: bool,
}

impl<'a> Query<'a> {
    fn parse(args: &Args<'a>, form: Form) -> Result<Query<'a>> {
        let Form {
            mut kind,
            mut direction,
            key_at,
            may_have_scores,
        } = form;
        let (mut offset, mut limit, mut has_scores) = (0, -1, false);
        let mut options = args.options(key_at + 3);
        while let Some(option) = options.next() {
            if may_have_scores && is(option, "withscores") {
                has_scores = true;
            } else if is(option, "limit") && options.len() >= 2 {
                offset = args::int(options.value()?)?;
                limit = args::int(options.value()?)?;
            } else if direction.is_none() && is(option, "rev") {
                direction = Some(Direction::Backward);
            } else if kind.is_none() && is(option, "bylex") {
                kind = Some(Kind::Members);
            } else if kind.is_none() && is(option, "byscore") {
                kind = Some(Kind::Scores);
            } else {
                return Err(Error::SYNTAX);
            }
        }
        let kind = kind.unwrap_or(Kind::Ranks);
        let direction = direction.unwrap_or(Direction::Forward);
        if limit != -1 && kind == Kind::Ranks {
            return Err(Error::fixed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if has_scores && kind == Kind::Members {
            return Err(Error::fixed(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(Query {
            range: Range::parse(kind, direction, args[key_at + 1], args[key_at + 2])?,
            direction,
            offset,
            limit,
            has_scores,
        })
    }

    /// The rows asked for, and how many they are.
    fn run(&self, txn: &ReadTxn, zset: &Zset) -> Result<(Rows, u64)> {
        // A negative offset is never reached, a negative limit neither.
        let offset = u64::try_from(self.offset).unwrap_or(u64::MAX);
        let limit = u64::try_from(self.limit).unwrap_or(u64::MAX);
        match &self.range {
            Range::Ranks { start, stop } => {
                let (first, count) = ranks(*start, *stop, zset.len());
                let first = if count == 0 { 0 } else { first };
                Ok((zset.rows_from(txn, first, self.direction)?, count))
            }
            Range::Scores(range) => {
                let span = zset.span_of_scores(range);
                zset.window(txn, &span, self.direction, offset, limit)
            }
            Range::Members(range) => {
                zset.window_of_members(txn, range, self.direction, offset, limit)
            }
        }
    }
}

impl<'a> Range<'a> {
    /// Walking backward, ranges of scores and members are given from their upper end.
    fn parse(
        kind: Kind,
        direction: Direction,
        first: &'a [u8],
        last: &'a [u8],
    ) -> Result<Range<'a>> {
        let (min, max) = match direction {
            Direction::Forward => (first, last),
            Direction::Backward => (last, first),
        };
        Ok(match kind {
            Kind::Ranks => Range::Ranks {
                start: args::int(first)?,
                stop: args::int(last)?,
            },
            Kind::Scores => Range::Scores(score_range(min, max)?),
            Kind::Members => Range::Members(lex_range(min, max)?),
        })
    }
}

pub fn zrange(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, ZRANGE)
}

pub fn zrevrange(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, fixed(Kind::Ranks, Direction::Backward))
}

pub fn zrangebyscore(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, fixed(Kind::Scores, Direction::Forward))
}

pub fn zrevrangebyscore(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, fixed(Kind::Scores, Direction::Backward))
}

pub fn zrangebylex(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, fixed(Kind::Members, Direction::Forward))
}

pub fn zrevrangebylex(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    read(txn, args, fixed(Kind::Members, Direction::Backward))
}

fn read(txn: &ReadTxn, args: &Args, form: Form) -> Result<Reply> {
    let query = Query::parse(args, form)?;
    let zset = Zset::open(txn, args[form.key_at])?;
    if zset.is_empty() {
        return Ok(Reply::Array(Vec::new()));
    }
    let (rows, count) = query.run(txn, &zset)?;
    let shape = reply::shape(query.has_scores);
    Ok(reply::of_rows(shape, count, rows, zset.score_rows()))
}

pub fn zrangestore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let form = Form {
        key_at: 2,
        may_have_scores: false,
        ..ZRANGE
    };
    let query = Query::parse(args, form)?;
    events::missing(txn, &args[form.key_at..=form.key_at])?;
    let zset = Zset::open(txn, args[form.key_at])?;
    let (mut rows, count) = query.run(txn, &zset)?;
    let keys = zset.score_rows();
    let mut result = Builder::new(txn, args[1]);
    for _ in 0..count {
        txn.step()?;
        if let Some((key, _)) = rows.next()? {
            result.scored(txn, keys.member(key), keys.score(key))?;
        }
    }
    let size = result.finish_zset(txn, 0)?;
    events::stored(txn, EventClass::Zset, "zrangestore", args[1], size);
    Ok(size.into())
}

pub fn zcount(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let range = score_range(args[2], args[3])?;
    let zset = Zset::open(txn, args[1])?;
    Ok(zset.count(txn, &zset.span_of_scores(&range))?.into())
}

pub fn zlexcount(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let range = lex_range(args[2], args[3])?;
    let zset = Zset::open(txn, args[1])?;
    let span = zset.span_of_members(txn, &range)?;
    Ok(zset.count(txn, &span)?.into())
}

pub fn zremrangebyrank(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    remove(txn, args, Kind::Ranks, "zremrangebyrank")
}

pub fn zremrangebyscore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    remove(txn, args, Kind::Scores, "zremrangebyscore")
}

pub fn zremrangebylex(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    remove(txn, args, Kind::Members, "zremrangebylex")
}

fn remove(txn: &mut WriteTxn, args: &Args, kind: Kind, event: &'static str) -> Result<Reply> {
    let range = Range::parse(kind, Direction::Forward, args[2], args[3])?;
    let zset = Zset::open(txn, args[1])?;
    let (span, count) = match range {
        Range::Ranks { start, stop } => {
            let (first, count) = ranks(start, stop, zset.len());
            (zset.span_of_ranks(txn, first, count)?, count)
        }
        Range::Scores(range) => {
            let span = zset.span_of_scores(&range);
            let count = zset.count(txn, &span)?;
            (span, count)
        }
        Range::Members(range) => {
            let span = zset.span_of_members(txn, &range)?;
            let count = zset.count(txn, &span)?;
            (span, count)
        }
    };
    let is_emptied = count == zset.len();
    zset.remove_span(txn, &span, count)?;
    if count > 0 {
        events::taken(txn, EventClass::Zset, event, args[1], is_emptied);
    }
    Ok(count.into())
}
