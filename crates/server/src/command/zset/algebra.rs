//! ZUNION, ZINTER, ZDIFF, their *STORE forms, and ZINTERCARD.

use cairn_resp::{Reply, number};
use cairn_store::zset::{Aggregate, Algebra, Operation, Source};
use cairn_store::{Builder, Error, EventClass, ReadTxn, Result, WriteTxn};

use super::{Args, reply, sorted};
use crate::command::args::{self, Options};
use crate::command::events;

/// What becomes of the result, which decides the options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Reply,
    Key,
    Count,
}

struct Form {
    name: &'static str,
    operation: Operation,
    target: Target,
}

impl Form {
    fn new(name: &'static str, operation: Operation, target: Target) -> Form {
        Form {
            name,
            operation,
            target,
        }
    }

    /// Where the number of keys stands; the keys follow it.
    fn count_at(&self) -> usize {
        match self.target {
            Target::Key => 2,
            Target::Reply | Target::Count => 1,
        }
    }

    fn has_weights(&self) -> bool {
        self.operation != Operation::Difference && self.target != Target::Count
    }
}

/// What a command reads, and what it was told to make of it.
struct Query {
    sources: Vec<Source>,
    aggregate: Aggregate,
    has_scores: bool,
    limit: u64,
}

impl Query {
    /// Redis opens the keys before it looks at the options: a wrong type is told first.
    fn parse(txn: &ReadTxn, args: &Args, form: &Form) -> Result<Query> {
        let count_at = form.count_at();
        let key_count = args.int(count_at)?;
        if key_count < 1 {
            return Err(Error::reply(format!(
                "ERR at least 1 input key is needed for '{}' command",
                form.name
            )));
        }
        let rest = args.rest(count_at + 1);
        let keys = usize::try_from(key_count)
            .ok()
            .and_then(|count| rest.get(..count))
            .ok_or(Error::SYNTAX)?;
        let mut query = Query {
            sources: Vec::with_capacity(keys.len()),
            aggregate: Aggregate::Sum,
            has_scores: false,
            limit: u64::MAX,
        };
        for name in keys {
            query.sources.push(Source::open(txn, name)?);
        }
        let mut options = args.options(count_at + 1 + keys.len());
        while !options.is_empty() {
            query.parse_option(form, &mut options)?;
        }
        Ok(query)
    }

    fn parse_option(&mut self, form: &Form, options: &mut Options<'_>) -> Result<()> {
        let has_weights = form.has_weights() && options.len() > self.sources.len();
        if has_weights && options.take("weights") {
            for source in &mut self.sources {
                source.weight = number::parse_f64(options.value()?)
                    .ok_or(Error::fixed("ERR weight value is not a float"))?;
            }
        } else if form.has_weights() && options.take("aggregate") {
            self.aggregate = parse_aggregate(options.value()?)?;
        } else if form.target == Target::Reply && options.take("withscores") {
            self.has_scores = true;
        } else if form.target == Target::Count && options.take("limit") {
            self.limit = parse_limit(options.value()?)?;
        } else {
            return Err(Error::SYNTAX);
        }
        Ok(())
    }
}

fn parse_aggregate(word: &[u8]) -> Result<Aggregate> {
    if args::is(word, "sum") {
        Ok(Aggregate::Sum)
    } else if args::is(word, "min") {
        Ok(Aggregate::Min)
    } else if args::is(word, "max") {
        Ok(Aggregate::Max)
    } else {
        Err(Error::SYNTAX)
    }
}

/// Zero is no limit.
fn parse_limit(text: &[u8]) -> Result<u64> {
    match number::parse_i64(text) {
        Some(0) => Ok(u64::MAX),
        Some(limit @ 1..) => Ok(limit.unsigned_abs()),
        _ => Err(Error::fixed("ERR LIMIT can't be negative")),
    }
}

/// The result, in the order of the scores.
fn collect(txn: &ReadTxn, args: &Args, form: &Form) -> Result<Reply> {
    let query = Query::parse(txn, args, form)?;
    let result = Algebra::new(txn, form.operation, query.aggregate, query.sources)?;
    sorted::reply(txn, reply::shape(query.has_scores), result)
}

fn store(txn: &mut WriteTxn, args: &Args, form: &Form) -> Result<Reply> {
    let query = Query::parse(txn, args, form)?;
    let first = form.count_at() + 1;
    events::missing(txn, &args[first..first + query.sources.len()])?;
    let mut members = Algebra::new(txn, form.operation, query.aggregate, query.sources)?;
    let mut result = Builder::new(txn, args[1]);
    while let Some((member, score)) = members.next_member(txn)? {
        result.scored(txn, member, score)?;
    }
    drop(members);
    let size = result.finish_zset(txn, 0)?;
    events::stored(txn, EventClass::Zset, form.name, args[1], size);
    Ok(size.into())
}

pub fn zunion(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zunion", Operation::Union, Target::Reply);
    collect(txn, args, &form)
}

pub fn zinter(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zinter", Operation::Intersection, Target::Reply);
    collect(txn, args, &form)
}

pub fn zdiff(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zdiff", Operation::Difference, Target::Reply);
    collect(txn, args, &form)
}

pub fn zunionstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zunionstore", Operation::Union, Target::Key);
    store(txn, args, &form)
}

pub fn zinterstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zinterstore", Operation::Intersection, Target::Key);
    store(txn, args, &form)
}

pub fn zdiffstore(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zdiffstore", Operation::Difference, Target::Key);
    store(txn, args, &form)
}

pub fn zintercard(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let form = Form::new("zintercard", Operation::Intersection, Target::Count);
    let query = Query::parse(txn, args, &form)?;
    let mut members = Algebra::new(txn, form.operation, query.aggregate, query.sources)?;
    let mut count = 0;
    while count < query.limit && members.next_member(txn)?.is_some() {
        count += 1;
    }
    Ok(count.into())
}
