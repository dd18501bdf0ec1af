//! Numbers drawn at random, in every spelling a client might send: small ones that hit something,
//! those at the edges of their types, and those that are none.
//!
//! Times are either far away or long past, so that it does not matter which server reads its clock
//! first.

use super::draw::{Draw, Mood, Slot};

/// Integers at which some arithmetic turns over, and what only looks like an integer.
const INTEGER_EDGES: [&str; 30] = [
    "9223372036854775807",
    "9223372036854775806",
    "-9223372036854775808",
    "-9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "99999999999999999999",
    "2147483647",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "4611686018427387904",
    "-4611686018427387904",
    "-0",
    "+5",
    "007",
    " 5",
    "5 ",
    "0x10",
    "1e3",
    "5.0",
    "--5",
    "-",
    "",
    "five",
    "\0",
    "5\0",
    "٣",
];

const FLOAT_EDGES: [&str; 44] = [
    "-0",
    "-0.0",
    "inf",
    "-inf",
    "+inf",
    "Infinity",
    "-INFINITY",
    "nan",
    "-nan",
    "0.1",
    "0.2",
    "0.3",
    "1e3",
    "1E3",
    "3.0e3",
    "1e17",
    "1e21",
    "123456789012345678",
    "0.30000000000000004",
    "1.7976931348623157e308",
    "-1.7976931348623157e308",
    "1e309",
    "2.2250738585072014e-308",
    "5e-324",
    "1e-400",
    "1e-7",
    "0.000001",
    "1.0000000000000002",
    "9007199254740993",
    "3.141592653589793238462643",
    "+1.5",
    ".5",
    "5.",
    "5e",
    "e5",
    " 1",
    "1 ",
    "1.5\0",
    "0x1p3",
    "0x10",
    "1,5",
    "",
    "ten",
    "--1",
];

/// Offsets that a string may grow to; those beyond 512 MB are refused.
const OFFSETS: [&str; 14] = [
    "16383",
    "16384",
    "16385",
    "32767",
    "32768",
    "49152",
    "100000",
    "1000000",
    "536870912",
    "536870913",
    "9223372036854775807",
    "-1",
    "-9223372036854775808",
    "x",
];

/// Far in the future (2096 and later, the same on both servers), or long past, in seconds.
const MOMENTS: [i64; 9] = [
    4_000_000_000,
    4_000_000_001,
    4_102_444_800,
    9_000_000_000,
    9_223_372_036_854_775,
    0,
    1,
    1_000_000_000,
    -1,
];

impl Draw<'_> {
    pub(super) fn number(&mut self, slot: Slot) -> Vec<u8> {
        match slot {
            Slot::Float => self.float(),
            Slot::Longitude => self.degree(180.0, 13.0..16.0),
            Slot::Latitude => self.degree(85.05112878, 37.0..39.0),
            Slot::Radius => self.radius(),
            Slot::Score => self.score(),
            Slot::ScoreBound => self.score_bound(),
            Slot::LexBound => self.lex_bound(),
            Slot::Index => self.index(),
            Slot::Offset => self.offset(),
            Slot::Count => self.count(),
            Slot::Pick => self.pick(),
            Slot::Ttl => self.time_left(1),
            Slot::Pttl => self.time_left(1000),
            Slot::At => self.moment(1),
            Slot::Pat => self.moment(1000),
            Slot::Cursor => self.cursor(),
            Slot::Db => self.database(),
            _ => self.integer(),
        }
    }

    fn edge(&mut self, edges: &[&'static str]) -> Vec<u8> {
        self.one_of(edges).into()
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 | 1 => self.edge(&INTEGER_EDGES),
            2 => self.rng.i64(..).to_string().into_bytes(),
            3 => self.rng.i64(-1_000_000..1_000_000).to_string().into_bytes(),
            _ => self.rng.i64(-6..12).to_string().into_bytes(),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0..=2 => self.edge(&FLOAT_EDGES),
            3 => self.integer(),
            4 => format!("{:e}", f64::from_bits(self.rng.u64(..))).into_bytes(),
            5 => (self.rng.f64() * 1000.0 - 500.0).to_string().into_bytes(),
            6 | 7 => format!("{:.2}", self.rng.f64() * 20.0 - 10.0).into_bytes(),
            _ => (f64::from(self.rng.i32(-20..20)) / 2.0)
                .to_string()
                .into_bytes(),
        }
    }

    /// Few distinct scores make ties, many make long runs of blocks.
    /// Anywhere, at the edge of the map, or near others.
    fn degree(&mut self, edge: f64, near: std::ops::Range<f64>) -> Vec<u8> {
        let degree = match self.rng.u32(..40) {
            0 => return self.float(),
            1 => edge,
            2 => -edge,
            3..=12 => edge * (2.0 * self.rng.f64() - 1.0),
            _ => near.start + (near.end - near.start) * self.rng.f64(),
        };
        degree.to_string().into_bytes()
    }

    fn radius(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.float(),
            1 => b"0".to_vec(),
            2..=10 => (300.0 * self.rng.f64()).to_string().into_bytes(),
            // From a millimeter to more than the whole earth.
            _ => 10_f64
                .powf(11.0 * self.rng.f64() - 3.0)
                .to_string()
                .into_bytes(),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => self.float(),
            1 => self.one_of(&["inf", "-inf", "0", "1e308"]).into(),
            2 if self.crowded => self.rng.i32(-1000..1000).to_string().into_bytes(),
            3 => (f64::from(self.rng.i32(-10..10)) / 4.0)
                .to_string()
                .into_bytes(),
            _ => self.rng.i32(-5..8).to_string().into_bytes(),
        }
    }

    fn score_bound(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => b"-inf".to_vec(),
            1 => b"+inf".to_vec(),
            2 => self
                .one_of(&["(", "((1", "(inf", "(-inf", "[1", "(nan", "1)"])
                .into(),
            3..=5 => {
                let mut exclusive = b"(".to_vec();
                exclusive.extend(self.score());
                exclusive
            }
            _ => self.score(),
        }
    }

    fn lex_bound(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 | 1 => b"-".to_vec(),
            2 | 3 => b"+".to_vec(),
            4 => self
                .one_of(&["", "a", "[", "(", "--", "-x", "+x", "]a"])
                .into(),
            _ => {
                let mut bound = vec![self.one_of(b"[(".each_ref().as_slice()).to_owned()];
                bound.extend(match self.rng.u32(..3) {
                    0 => format!("m{}", self.rng.u32(..2000)).into_bytes(),
                    _ => vec![self.rng.u8(b'a'..=b'h')],
                });
                bound
            }
        }
    }

    /// Into a list or a sorted set, or around the chunks of a large string.
    fn index(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.edge(&INTEGER_EDGES),
            rolled if rolled < 9 && self.mood == Mood::Large => self.around_a_chunk(-3),
            rolled if rolled < 9 && self.mood == Mood::Crowded => {
                self.rng.i64(-1200..1200).to_string().into_bytes()
            }
            1 | 2 => self.around_a_chunk(-3),
            3 | 4 => self.rng.i64(-1200..1200).to_string().into_bytes(),
            5..=7 => b"-1".to_vec(),
            8..=10 => b"0".to_vec(),
            _ => self.rng.i64(-8..12).to_string().into_bytes(),
        }
    }

    /// Near the boundary between two chunks of a string, the `first` one or a later one.
    fn around_a_chunk(&mut self, first: i64) -> Vec<u8> {
        let around = 16_384 * self.rng.i64(first..=4) + self.rng.i64(-3..=3);
        around.to_string().into_bytes()
    }

    fn offset(&mut self) -> Vec<u8> {
        match self.rng.u32(..100) {
            0..=9 => self.edge(&OFFSETS),
            10 => self.rng.u32(..1_000_000).to_string().into_bytes(),
            11..=14 => self.around_a_chunk(1),
            15..=60 if self.mood == Mood::Large => self.around_a_chunk(1),
            _ => self.rng.u32(..30).to_string().into_bytes(),
        }
    }

    fn count(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.edge(&INTEGER_EDGES),
            1 => self.rng.i32(-3..0).to_string().into_bytes(),
            2 => self.rng.u32(10..1000).to_string().into_bytes(),
            3 => b"0".to_vec(),
            _ => self.rng.u32(1..7).to_string().into_bytes(),
        }
    }

    fn pick(&mut self) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => b"9223372036854775807".to_vec(),
            1 => b"-9223372036854775808".to_vec(),
            2 => self.one_of(&["4611686018427387904", "x", "1.5", ""]).into(),
            3 => self.rng.i32(-300..300).to_string().into_bytes(),
            _ => self.rng.i32(-12..12).to_string().into_bytes(),
        }
    }

    /// A day to three years, spread so widely that no two relative times of one run are near each
    /// other; then GT and LT do not depend on a millisecond.
    fn time_left(&mut self, per_second: i64) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 => self.edge(&INTEGER_EDGES),
            1 => b"0".to_vec(),
            2 => self.rng.i64(-1_000_000..0).to_string().into_bytes(),
            _ => {
                let left = self.rng.i64(100_000 * per_second..100_000_000 * per_second);
                left.to_string().into_bytes()
            }
        }
    }

    /// Halves and quarters of a second try the rounding of TTL and EXPIRETIME.
    fn moment(&mut self, per_second: i64) -> Vec<u8> {
        if self.chance(1, 20) {
            return self.edge(&INTEGER_EDGES);
        }
        let seconds = match self.rng.u32(..3) {
            0 => MOMENTS[self.rng.usize(..MOMENTS.len())],
            _ => MOMENTS[self.rng.usize(..3)],
        };
        let fraction = match per_second {
            1 => 0,
            _ => [0, 1, 250, 499, 500, 501, 750, 999][self.rng.usize(..8)],
        };
        (seconds * per_second)
            .saturating_add(fraction)
            .to_string()
            .into_bytes()
    }

    fn cursor(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => self
                .one_of(&["x", "", "-1", "1.5", "18446744073709551616"])
                .into(),
            _ => b"0".to_vec(),
        }
    }

    fn database(&mut self) -> Vec<u8> {
        match self.rng.u32(..16) {
            0 => self.edge(&INTEGER_EDGES),
            1 => self.one_of(&["15", "16", "-1"]).into(),
            2 => b"2".to_vec(),
            3..=6 => b"1".to_vec(),
            _ => b"0".to_vec(),
        }
    }
}
