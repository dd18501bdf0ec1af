//! LCS: the longest common subsequence of two strings, and where in them its pieces lie.
//!
//! The length for every pair of prefixes follows from those of the pairs one byte shorter. To find the
//! way back through that table takes one bit for each pair, which string to shorten where the last bytes
//! differ, and the lengths themselves are needed for one row only. So this takes a thirtieth of the
//! memory that Redis takes for its table; what it refuses for want of memory is refused all the same.

use cairn_resp::Reply;
use cairn_store::{Error, ReadTxn, Result, Str};

use super::{Args, max_length};
use crate::command::args::{int, is};

const NOT_STRINGS: Error = Error::fixed("ERR The specified keys must contain string values");
const LENGTH_AND_INDEXES: Error =
    Error::fixed("ERR If you want both the length and indexes, please just use IDX.");
const TOO_LARGE: Error =
    Error::fixed("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");

/// What Redis keeps for each pair of prefixes.
const REDIS_CELL: u64 = 4;
/// The most pairs that are looked at on a connection thread: a few milliseconds.
const SHORT_TABLE: u64 = 1 << 20;

pub fn lcs(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let a = find(txn, args[1])?;
    let b = find(txn, args[2])?;
    let options = Options::parse(args)?;
    let pairs = (length(&a) + 1) * (length(&b) + 1);
    if pairs * REDIS_CELL > max_length(txn) {
        return Err(TOO_LARGE);
    }
    if pairs > SHORT_TABLE && !txn.is_patient() {
        return Err(Error::TooLong);
    }
    let (a, b) = (load(txn, a)?, load(txn, b)?);
    if options.only_length {
        return Ok(Table::new(&a, &b).fill(|_, _| {}).into());
    }
    let runs = runs(&a, &b);
    if options.indexes {
        Ok(options.indexes_of(&runs))
    } else {
        let pieces: Vec<&[u8]> = runs.iter().rev().map(|run| run.of(&a)).collect();
        Ok(pieces.concat().into())
    }
}

/// Looks a key up; another type than a string has an error of its own here.
fn find<'t>(txn: &'t ReadTxn, name: &'t [u8]) -> Result<Option<Str<'t>>> {
    match Str::find(txn, name) {
        Err(Error::Reply(_)) => Err(NOT_STRINGS),
        found => found,
    }
}

fn length(string: &Option<Str<'_>>) -> u64 {
    string.as_ref().map_or(0, |string| string.len())
}

fn load(txn: &ReadTxn, string: Option<Str<'_>>) -> Result<Vec<u8>> {
    string.map_or(Ok(Vec::new()), |string| string.to_vec(txn))
}

#[derive(Default)]
struct Options {
    only_length: bool,
    indexes: bool,
    with_lengths: bool,
    min_length: i64,
}

impl Options {
    fn parse(args: &Args) -> Result<Options> {
        let mut parsed = Options::default();
        let mut options = args.options(3);
        while let Some(word) = options.next() {
            if is(word, "idx") {
                parsed.indexes = true;
            } else if is(word, "len") {
                parsed.only_length = true;
            } else if is(word, "withmatchlen") {
                parsed.with_lengths = true;
            } else if is(word, "minmatchlen") {
                parsed.min_length = int(options.value()?)?;
            } else {
                return Err(Error::SYNTAX);
            }
        }
        if parsed.indexes && parsed.only_length {
            return Err(LENGTH_AND_INDEXES);
        }
        Ok(parsed)
    }

    fn indexes_of(&self, runs: &[Run]) -> Reply {
        let total: usize = runs.iter().map(|run| run.length).sum();
        let long_enough = runs
            .iter()
            .filter(|run| run.length as i64 >= self.min_length);
        let matches = long_enough.map(|run| {
            let mut parts = vec![bounds(run.in_a, run.length), bounds(run.in_b, run.length)];
            if self.with_lengths {
                parts.push(run.length.into());
            }
            Reply::Array(parts)
        });
        Reply::Map(vec![
            (Reply::Static("matches"), matches.collect()),
            (Reply::Static("len"), total.into()),
        ])
    }
}

/// First and last position.
fn bounds(start: usize, length: usize) -> Reply {
    [start, start + length - 1].into_iter().collect()
}

/// Bytes of the subsequence that lie side by side in both strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    in_a: usize,
    in_b: usize,
    length: usize,
}

impl Run {
    fn of(self, a: &[u8]) -> &[u8] {
        &a[self.in_a..self.in_a + self.length]
    }
}

/// Two strings, the shorter of which makes the table's rows.
struct Table<'s> {
    long: &'s [u8],
    short: &'s [u8],
    /// `a` is the short one.
    is_swapped: bool,
}

impl<'s> Table<'s> {
    fn new(a: &'s [u8], b: &'s [u8]) -> Table<'s> {
        let is_swapped = a.len() < b.len();
        let (long, short) = if is_swapped { (b, a) } else { (a, b) };
        Table {
            long,
            short,
            is_swapped,
        }
    }

    /// Computes the length of the subsequence; `shorten_long` is told of each pair of positions with
    /// different bytes where the way back leaves the long string's out.
    fn fill(&self, mut shorten_long: impl FnMut(usize, usize)) -> usize {
        let mut lengths = vec![0u32; self.short.len() + 1];
        for (i, x) in self.long.iter().enumerate() {
            let mut with_neither = 0;
            for (j, y) in self.short.iter().enumerate() {
                let without_x = lengths[j + 1];
                let without_y = lengths[j];
                lengths[j + 1] = if x == y {
                    with_neither + 1
                } else {
                    // Where both ways are as good, Redis shortens `b`.
                    if without_x > without_y || without_x == without_y && self.is_swapped {
                        shorten_long(i, j);
                    }
                    without_x.max(without_y)
                };
                with_neither = without_x;
            }
        }
        lengths[self.short.len()] as usize
    }
}

/// The subsequence, run by run, from its end to its beginning.
fn runs(a: &[u8], b: &[u8]) -> Vec<Run> {
    let table = Table::new(a, b);
    let width = table.short.len();
    let mut ways = Bits::new(table.long.len() * width);
    table.fill(|i, j| ways.set(i * width + j));

    let mut runs: Vec<Run> = Vec::new();
    let mut goes_on = false;
    let (mut i, mut j) = (table.long.len(), width);
    while i > 0 && j > 0 {
        if table.long[i - 1] != table.short[j - 1] {
            goes_on = false;
            if ways.has((i - 1) * width + j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
            continue;
        }
        (i, j) = (i - 1, j - 1);
        let (in_a, in_b) = if table.is_swapped { (j, i) } else { (i, j) };
        match runs.last_mut() {
            Some(run) if goes_on => {
                *run = Run {
                    in_a,
                    in_b,
                    length: run.length + 1,
                };
            }
            _ => runs.push(Run {
                in_a,
                in_b,
                length: 1,
            }),
        }
        goes_on = true;
    }
    runs
}

struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs_of(a: &str, b: &str) -> Vec<(usize, usize, usize)> {
        let runs = runs(a.as_bytes(), b.as_bytes());
        runs.iter()
            .map(|run| (run.in_a, run.in_b, run.length))
            .collect()
    }

    // The answers of a Redis 7.0.15.
    #[test]
    fn ties_are_broken_as_redis_does() {
        assert_eq!(runs_of("limestone", "milestones"), [(3, 3, 6), (2, 0, 1)]);
        assert_eq!(runs_of("milestones", "limestone"), [(3, 3, 6), (2, 0, 1)]);
        assert_eq!(runs_of("ab", "ba"), [(1, 0, 1)]);
        assert_eq!(runs_of("abc", "cba"), [(2, 0, 1)]);
        assert_eq!(
            runs_of("abcabba", "cbabac"),
            [(5, 3, 2), (4, 1, 1), (2, 0, 1)]
        );
        assert_eq!(
            runs_of("cbabac", "abcabba"),
            [(3, 5, 2), (2, 3, 1), (1, 1, 1)]
        );
        assert_eq!(runs_of("", "x"), []);
        assert_eq!(runs_of("x", ""), []);
    }

    /// The definition, tried out.
    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    fn longest(a: &[u8], b: &[u8]) -> usize {
        (0..1u32 << a.len())
            .map(|chosen| -> Vec<u8> {
                let picks = a.iter().enumerate();
                picks
                    .filter(|(at, _)| chosen & (1 << at) != 0)
                    .map(|(_, byte)| *byte)
                    .collect()
            })
            .filter(|part| is_subsequence(part, b))
            .map(|part| part.len())
            .max()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn it_is_common_and_the_longest(a in "[abc]{0,8}", b in "[abc]{0,12}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            for (a, b) in [(a, b), (b, a)] {
                let runs = runs(a, b);
                let in_a: Vec<u8> = runs.iter().rev().flat_map(|run| run.of(a).to_vec()).collect();
                let swapped = runs.iter().rev().map(|run| Run { in_a: run.in_b, ..*run });
                let in_b: Vec<u8> = swapped.flat_map(|run| run.of(b).to_vec()).collect();
                prop_assert_eq!(&in_a, &in_b);
                prop_assert!(is_subsequence(&in_a, a) && is_subsequence(&in_a, b));
                prop_assert_eq!(Table::new(a, b).fill(|_, _| {}), in_a.len());
            }
            prop_assert_eq!(Table::new(a, b).fill(|_, _| {}), longest(a, b));
        }
    }
}
