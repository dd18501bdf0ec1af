//! The bounds of ranges as clients write them: `(1.5`, `+inf`, `[member`, `-`.

use cairn_resp::number;
use cairn_store::zset::{LexBound, LexRange, ScoreBound, ScoreRange};
use cairn_store::{Error, Result};

pub fn score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange> {
    Ok(ScoreRange {
        min: score_bound(min)?,
        max: score_bound(max)?,
    })
}

fn score_bound(text: &[u8]) -> Result<ScoreBound> {
    let (is_open, number) = match text {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    number::parse_score_bound(number)
        .map(|score| ScoreBound { score, is_open })
        .ok_or(Error::fixed("ERR min or max is not a float"))
}

pub fn lex_range<'a>(min: &'a [u8], max: &'a [u8]) -> Result<LexRange<'a>> {
    Ok(LexRange {
        min: lex_bound(min)?,
        max: lex_bound(max)?,
    })
}

fn lex_bound(text: &[u8]) -> Result<LexBound<'_>> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Included(member)),
        [b'(', member @ ..] => Ok(LexBound::Excluded(member)),
        _ => Err(Error::fixed("ERR min or max not valid string range item")),
    }
}

/// The first rank and the number of ranks that `start` and `stop`, which count from the end if negative,
/// leave of a set of `len` members.
pub fn ranks(start: i64, stop: i64, len: u64) -> (u64, u64) {
    let from_front = |index: i64| match u64::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => len.checked_sub(index.unsigned_abs()),
    };
    let first = from_front(start).unwrap_or(0);
    let end = from_front(stop).map_or(0, |last| last.saturating_add(1).min(len));
    (first, end.saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_from_either_end_and_stay_inside() {
        let cases = [
            ((0, -1), (0, 5)),
            ((0, 0), (0, 1)),
            ((1, 3), (1, 3)),
            ((-2, -1), (3, 2)),
            ((-100, 1), (0, 2)),
            ((3, 100), (3, 2)),
            ((i64::MIN, i64::MAX), (0, 5)),
        ];
        for ((start, stop), expected) in cases {
            assert_eq!(ranks(start, stop, 5), expected, "{start} {stop}");
        }
        for (start, stop) in [(3, 2), (5, 9), (0, -6), (-1, -2), (i64::MAX, i64::MAX)] {
            assert_eq!(ranks(start, stop, 5).1, 0, "{start} {stop}");
        }
        assert_eq!(ranks(0, -1, 0).1, 0);
    }
}
