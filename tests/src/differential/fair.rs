//! Which commands it is fair to compare.
//!
//! A command is unfair if its reply depends on when it is run, or if Redis itself would answer it
//! with gigabytes. The generator asks before it sends anything, so a command spoiled into an unfair
//! one is never seen.

use super::dumps::HAND_OVER;

/// Seconds from which a relative time is far, and beyond which its end might pass for an absolute one.
const FAR: std::ops::RangeInclusive<i64> = 100_000..=100_000_000;
/// Absolute seconds near which the clocks of the two servers might stand.
const NEAR_NOW: std::ops::Range<i64> = 1_700_000_000..3_000_000_000;
/// From here on a relative number of milliseconds overflows when it is added to any clock.
const OVERFLOWS: i64 = i64::MAX - 1_000_000_000_000;
/// How far SETRANGE may stretch a string, and from where on it is refused.
const STRETCH: std::ops::RangeInclusive<i64> = 1_000_001..=536_870_911;
/// The same for those who count in bits.
const STRETCH_IN_BITS: std::ops::RangeInclusive<i64> = 8_000_008..=4_294_967_295;
/// How many picks with repetition are too many to ask for.
const PICKS: i64 = 1_000;

/// Nothing has been pending for so many milliseconds.
const PENDING_FOR_LONG: i64 = 10_000_000;

pub fn is_fair(argv: &[Vec<u8>]) -> bool {
    let number = |place: usize| argv.get(place).and_then(|word| parsed(word));
    match name_of(argv).as_str() {
        "EXPIRE" | "SETEX" => number(2).is_none_or(|left| relative(left, 1)),
        "PEXPIRE" | "PSETEX" => number(2).is_none_or(|left| relative(left, 1000)),
        "EXPIREAT" => number(2).is_none_or(|at| absolute(at, 1)),
        "PEXPIREAT" => number(2).is_none_or(|at| absolute(at, 1000)),
        "SET" | "GETEX" => argv.windows(2).all(|pair| option(&pair[0], &pair[1])),
        "RESTORE" => {
            let is_absolute = argv.iter().any(|word| word.eq_ignore_ascii_case(b"ABSTTL"));
            number(2).is_none_or(|ttl| match is_absolute {
                true => absolute(ttl, 1000),
                false => relative(ttl, 1000),
            })
        }
        // Scripts have tests of their own: this one is for what it calls.
        "EVAL" => {
            let [_, script, keys, _, _, ttl] = argv else {
                return false;
            };
            let is_known = HAND_OVER.iter().any(|known| script == known.as_bytes());
            is_known && keys == b"2" && parsed(ttl).is_some_and(|ttl| relative(ttl, 1000))
        }
        "SETRANGE" => number(2).is_none_or(|offset| !STRETCH.contains(&offset)),
        "SETBIT" => number(2).is_none_or(|offset| !STRETCH_IN_BITS.contains(&offset)),
        // Any of its numbers may be an offset, some in units of up to 64 bits.
        "BITFIELD" => argv.iter().all(|word| {
            let units = word.strip_prefix(b"#");
            let stretches =
                |word| parsed(word).is_some_and(|number| STRETCH_IN_BITS.contains(&number));
            let is_far = units.and_then(parsed).is_some_and(|units| units > 100_000);
            !stretches(word) && !is_far
        }),
        "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER" => {
            number(2).is_none_or(|count| count == i64::MIN || count > -PICKS)
        }
        "XADD" => !argv.iter().any(|word| word == b"*"),
        "XCLAIM" | "XAUTOCLAIM" => {
            number(4).is_none_or(|idle| idle <= 0 || idle >= PENDING_FOR_LONG)
        }
        // Anything else asks for the table of all commands, which is another test's business.
        "COMMAND" => argv.get(1).is_some_and(|sub| {
            let asks = [b"GETKEYS".as_slice(), b"GETKEYSANDFLAGS"];
            // What would be the value of one STORE is another to GETKEYS, and to no one else.
            let stores = argv
                .iter()
                .filter(|word| word.eq_ignore_ascii_case(b"STORE"));
            asks.iter().any(|word| sub.eq_ignore_ascii_case(word)) && stores.count() < 2
        }),
        _ => true,
    }
}

/// The command's name in the case that the rules are written in.
pub fn name_of(argv: &[Vec<u8>]) -> String {
    let name = argv.first().map(Vec::as_slice).unwrap_or_default();
    String::from_utf8_lossy(name).to_ascii_uppercase()
}

pub fn parsed(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn option(word: &[u8], value: &[u8]) -> bool {
    let Some(value) = parsed(value) else {
        return true;
    };
    match word.to_ascii_uppercase().as_slice() {
        b"EX" => relative(value, 1),
        b"PX" => relative(value, 1000),
        b"EXAT" => absolute(value, 1),
        b"PXAT" => absolute(value, 1000),
        _ => true,
    }
}

fn relative(left: i64, per_second: i64) -> bool {
    left <= 0 || FAR.contains(&(left / per_second)) || left >= OVERFLOWS / (1000 / per_second)
}

fn absolute(at: i64, per_second: i64) -> bool {
    !NEAR_NOW.contains(&(at / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fair(line: &str) -> bool {
        let argv: Vec<_> = line
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        is_fair(&argv)
    }

    #[test]
    fn what_depends_on_the_clock_is_unfair() {
        for line in [
            "EXPIRE k 5",
            "pexpire k 5000",
            "EXPIRE k 9007199254740993",
            "EXPIREAT k 1790000000",
            "SET k v NX px 100",
            "GETEX k EXAT 1790000000",
            "SETEX k 1 v",
        ] {
            assert!(!fair(line), "{line}");
        }
    }

    #[test]
    fn what_would_fill_the_memory_is_unfair() {
        for line in [
            "SETRANGE k 400000000 x",
            "SETBIT k 4294967295 1",
            "BITFIELD k GET u8 0 SET u8 4000000000 1",
            "BITFIELD k SET u8 #60000000 1",
            "SRANDMEMBER k -9223372036854775807",
            "COMMAND",
        ] {
            assert!(!fair(line), "{line}");
        }
    }

    #[test]
    fn everything_else_is_fair() {
        for line in [
            "GET k",
            "EXPIRE k 100000",
            "EXPIRE k -1",
            "EXPIRE k 9223372036854775807",
            "PEXPIRE k soon",
            "EXPIREAT k 4102444800",
            "SET k v EX",
            "SETRANGE k 536870912 x",
            "SETBIT k 4294967296 1",
            "SRANDMEMBER k -9223372036854775808",
            "COMMAND GETKEYS EXPIRE k 5",
        ] {
            assert!(fair(line), "{line}");
        }
    }
}
