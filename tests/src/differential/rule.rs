//! How the replies to a command are compared.
//!
//! Most must be equal to the byte. Some may come in any order, some are chosen at random, some tell
//! the time; and a few commands are sent only if their reply is defined in the state they meet. All
//! of that follows from the command's words, so a sequence replays from its commands alone.

use super::fair::name_of;
use super::grammar::Argv;

#[derive(Debug, PartialEq)]
pub enum Rule {
    Exact,
    /// Elements in any order, each made of `width` neighbours.
    Unordered {
        width: usize,
    },
    /// Of the same kind: what is inside is the server's own affair.
    Kind,
    /// Equal, but the reference may be wrong about numbers: an error of an earlier conversion, in whichever command,
    /// makes Redis 7.0 refuse to sort by numbers for a while.
    Weighed,
    /// A map in which some entries are the server's own affair.
    Hello,
    /// Tells of a stream, and how long ago things happened.
    Stream,
    /// Milliseconds or seconds until or since something: equal but for a few seconds. Moments from
    /// `absolute` on were set as such, and are equal.
    Clock {
        tolerance: i64,
        absolute: i64,
    },
    /// Picks among what `population` lists, its elements made of `width` neighbours.
    Pick {
        population: Argv,
        width: usize,
    },
    /// Picks that are also removed.
    Pop {
        population: Argv,
    },
    /// A cursor and elements in any order, some of them perhaps twice: iterated to the end.
    Scan {
        cursor: usize,
        width: usize,
    },
}

/// A condition on the reference's state, without which the command is not sent.
#[derive(Debug, PartialEq)]
pub enum Guard {
    /// LCS takes memory and time for the product of both lengths.
    ShortStrings(Argv, Argv),
    /// Redis does not define the order by name of members whose scores differ.
    OneScore(Argv),
    /// Elements that weigh the same are sorted as they come, which is up to the server for a set.
    HasOrder(Argv),
    /// Where PFADD comes upon damage after some of its elements, Redis says so and has added those; Cairn has changed
    /// nothing, as whenever it refuses something.
    IsSound(Argv),
}

/// A clock's tolerance in seconds. Times are drawn thousands of seconds apart.
const TOLERANCE: i64 = 15;
/// The year 2065, in seconds: beyond what relative times reach, before what absolute ones start with.
const ABSOLUTE: i64 = 3_000_000_000;

impl Rule {
    pub fn of(argv: &[Vec<u8>]) -> Rule {
        match name_of(argv).as_str() {
            "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS" | "KEYS" => {
                Rule::Unordered { width: 1 }
            }
            "HGETALL" => Rule::Unordered { width: 2 },
            "TTL" => clock(1, i64::MAX),
            "PTTL" => clock(1000, i64::MAX),
            "EXPIRETIME" => clock(1, ABSOLUTE),
            "PEXPIRETIME" => clock(1000, ABSOLUTE * 1000),
            "SCAN" => Rule::Scan {
                cursor: 1,
                width: 1,
            },
            "SSCAN" => Rule::Scan {
                cursor: 2,
                width: 1,
            },
            "HSCAN" | "ZSCAN" => Rule::Scan {
                cursor: 2,
                width: 2,
            },
            "HELLO" => Rule::Hello,
            "XINFO" | "XPENDING" => Rule::Stream,
            "SORT" | "SORT_RO" => Rule::Weighed,
            "OBJECT" if argv.len() == 3 => Rule::Kind,
            "DUMP" => Rule::Kind,
            "RANDOMKEY" => pick(words(&["KEYS", "*"]), 1),
            "SRANDMEMBER" => population("SMEMBERS", argv, &[]).map_or(Rule::Exact, |p| pick(p, 1)),
            "HRANDFIELD" => population("HGETALL", argv, &[]).map_or(Rule::Exact, |p| pick(p, 2)),
            "ZRANDMEMBER" => population("ZRANGE", argv, &["0", "-1", "WITHSCORES"])
                .map_or(Rule::Exact, |p| pick(p, 2)),
            "SPOP" => population("SMEMBERS", argv, &[])
                .map_or(Rule::Exact, |population| Rule::Pop { population }),
            _ => Rule::Exact,
        }
    }

    /// Whether the comparison needs more of both servers in the very state the command met.
    pub fn stops_the_pipeline(&self) -> bool {
        matches!(self, Rule::Pop { .. } | Rule::Scan { .. })
    }

    /// What to ask of the reference just before the command.
    pub fn population(&self) -> Option<&Argv> {
        match self {
            Rule::Pick { population, .. } | Rule::Pop { population } => Some(population),
            _ => None,
        }
    }
}

impl Guard {
    pub fn of(argv: &[Vec<u8>]) -> Option<Guard> {
        let by_name = || argv.iter().any(|word| word.eq_ignore_ascii_case(b"BYLEX"));
        let scores = |key: usize| {
            let mut question = words(&["ZRANGE"]);
            question.push(argv.get(key)?.clone());
            question.extend(words(&["0", "-1", "WITHSCORES"]));
            Some(Guard::OneScore(question))
        };
        let leaves_ties = |word: &Vec<u8>| {
            word.eq_ignore_ascii_case(b"BY") || word.eq_ignore_ascii_case(b"ALPHA")
        };
        let length = |key: usize| Some(vec![b"STRLEN".to_vec(), argv.get(key)?.clone()]);
        match name_of(argv).as_str() {
            "LCS" => Some(Guard::ShortStrings(length(1)?, length(2)?)),
            "ZLEXCOUNT" | "ZRANGEBYLEX" | "ZREVRANGEBYLEX" | "ZREMRANGEBYLEX" => scores(1),
            "ZRANGE" if by_name() => scores(1),
            // With a second key it looks at every register of the first.
            "PFADD" if argv.len() > 3 => Some(Guard::IsSound(vec![
                b"PFCOUNT".to_vec(),
                argv[1].clone(),
                b"no such key".to_vec(),
            ])),
            "SORT" | "SORT_RO" if argv.iter().any(leaves_ties) => Some(Guard::HasOrder(vec![
                b"TYPE".to_vec(),
                argv.get(1)?.clone(),
            ])),
            "ZRANGESTORE" if by_name() => scores(2),
            _ => None,
        }
    }
}

/// What makes a server forget a key that was born expired. Redis hides such a key, but counts it until
/// something looks at it.
pub fn settling(argv: &[Vec<u8>]) -> Option<Argv> {
    let dated =
        |word: &Vec<u8>| word.eq_ignore_ascii_case(b"EXAT") || word.eq_ignore_ascii_case(b"PXAT");
    match name_of(argv).as_str() {
        "SET" if argv.iter().any(dated) => Some(vec![b"EXISTS".to_vec(), argv[1].clone()]),
        _ => None,
    }
}

fn clock(per_second: i64, absolute: i64) -> Rule {
    Rule::Clock {
        tolerance: TOLERANCE * per_second,
        absolute,
    }
}

fn pick(population: Argv, width: usize) -> Rule {
    Rule::Pick { population, width }
}

/// The question that lists all of the collection which `argv` picks from.
fn population(question: &str, argv: &[Vec<u8>], rest: &[&str]) -> Option<Argv> {
    let mut population = words(&[question]);
    population.push(argv.get(1)?.clone());
    population.extend(words(rest));
    Some(population)
}

pub fn words(words: &[&str]) -> Argv {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
