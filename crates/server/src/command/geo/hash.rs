//! Positions as scores.
//!
//! ```text
//!   score = 52 bits: x25 y25 x24 y24 … x0 y0
//! ```
//!
//! Longitudes and latitudes are each cut into 2^26 parts; x and y are the numbers of the parts that a position lies
//! in. Interleaved, they make a number whose leading bits name a square of the map, and so all positions of a square
//! have scores that follow each other. A coarser grid, of 2^step parts, is the same with fewer bits.
//!
//! Every operation here is done in the order in which Redis does it: the last digits depend on it.

/// The parts of the finest grid: scores have two bits for each step.
const FINEST: u32 = 26;
const SCORE_BITS: u32 = 2 * FINEST;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub min: f64,
    pub max: f64,
}

impl Limits {
    fn hold(self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    fn middle(self) -> f64 {
        (self.min + self.max) / 2.0
    }

    /// The number of the part that a value lies in, of 2^step.
    fn part_of(self, value: f64, step: u32) -> u32 {
        let offset = (value - self.min) / (self.max - self.min);
        (offset * parts(step)) as u32
    }

    fn part(self, number: u32, step: u32) -> Limits {
        let scale = self.max - self.min;
        let edge = |number: u32| self.min + (f64::from(number) / parts(step)) * scale;
        Limits {
            min: edge(number),
            max: edge(number.wrapping_add(1)),
        }
    }
}

fn parts(step: u32) -> f64 {
    (1_u64 << step) as f64
}

pub const LONGITUDES: Limits = Limits {
    min: -180.0,
    max: 180.0,
};
/// Those of a square map of the world, which leaves out the poles.
pub const LATITUDES: Limits = Limits {
    min: -85.05112878,
    max: 85.05112878,
};
/// Those of the geohashes that the rest of the world uses.
const ALL_LATITUDES: Limits = Limits {
    min: -90.0,
    max: 90.0,
};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    pub fn is_on_map(self) -> bool {
        LONGITUDES.hold(self.longitude) && LATITUDES.hold(self.latitude)
    }

    pub fn score(self) -> f64 {
        Cell::around(self, FINEST).bits() as f64
    }

    /// The middle of what the score names. Any score names something.
    pub fn of_score(score: f64) -> Position {
        let bits = whole_number(score);
        let area = Cell {
            x: gather(bits >> 1),
            y: gather(bits),
            step: FINEST,
        }
        .area();
        let middle = |part: Limits, whole: Limits| part.middle().min(whole.max).max(whole.min);
        Position {
            longitude: middle(area.longitudes, LONGITUDES),
            latitude: middle(area.latitudes, LATITUDES),
        }
    }

    /// The eleven letters by which others know the place. The last would need three more bits than there are.
    pub fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = interleave(
            ALL_LATITUDES.part_of(self.latitude, FINEST),
            LONGITUDES.part_of(self.longitude, FINEST),
        );
        let mut letters = [LETTERS[0]; 11];
        for (at, letter) in letters.iter_mut().take(10).enumerate() {
            let shift = SCORE_BITS - 5 * (at as u32 + 1);
            *letter = LETTERS[(bits >> shift & 0x1f) as usize];
        }
        letters
    }
}

/// A square of the grid that has 2^step of them on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    x: u32,
    y: u32,
    step: u32,
}

/// The edges of a cell.
pub struct Area {
    pub longitudes: Limits,
    pub latitudes: Limits,
}

impl Cell {
    pub fn around(position: Position, step: u32) -> Cell {
        Cell {
            x: LONGITUDES.part_of(position.longitude, step),
            y: LATITUDES.part_of(position.latitude, step),
            step,
        }
    }

    pub fn area(self) -> Area {
        Area {
            longitudes: LONGITUDES.part(self.x, self.step),
            latitudes: LATITUDES.part(self.y, self.step),
        }
    }

    /// The cell so many to the east and to the north. Beyond an edge the map begins again at the other.
    pub fn neighbour(self, east: i32, north: i32) -> Cell {
        let moved = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & ((1 << self.step) - 1),
        };
        Cell {
            x: moved(self.x, east),
            y: moved(self.y, north),
            step: self.step,
        }
    }

    /// The scores of all positions in it: from the first on, and below the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = SCORE_BITS - 2 * self.step;
        let bits = self.bits();
        ((bits << shift) as f64, ((bits + 1) << shift) as f64)
    }

    fn bits(self) -> u64 {
        interleave(self.y, self.x)
    }
}

/// The bits of `even` at the even places, and those of `odd` between them.
fn interleave(even: u32, odd: u32) -> u64 {
    spread(even) | spread(odd) << 1
}

/// Masks of ever smaller groups of bits, and how far apart the halves of a group are moved.
const SPREADING: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

fn spread(number: u32) -> u64 {
    SPREADING
        .iter()
        .fold(u64::from(number), |bits, (distance, mask)| {
            (bits | bits << distance) & mask
        })
}

/// The bits at the even places, closed up.
fn gather(bits: u64) -> u32 {
    let (_, lone) = SPREADING[4];
    let mut bits = bits & lone;
    for at in (0..5).rev() {
        let (distance, _) = SPREADING[at];
        let mask = match at {
            0 => 0x0000_0000_ffff_ffff,
            at => SPREADING[at - 1].1,
        };
        bits = (bits | bits >> distance) & mask;
    }
    bits as u32
}

/// What C makes of a score on the processors that Redis mostly runs on. A score may be anything: nobody keeps a client
/// from ZADD.
fn whole_number(score: f64) -> u64 {
    const HALF: f64 = (1_u64 << 63) as f64;
    if score < HALF {
        score as i64 as u64
    } else if score < 2.0 * HALF {
        score as u64
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_gathered() {
        assert_eq!(interleave(0b11, 0), 0b0101);
        assert_eq!(interleave(0, 0b11), 0b1010);
        assert_eq!(interleave(u32::MAX, 0), 0x5555_5555_5555_5555);
        for number in [0, 1, 2, 0x1234_5678, 0xffff_ffff, 0x8000_0001] {
            assert_eq!(gather(spread(number)), number);
            assert_eq!(gather(interleave(number, !number)), number);
        }
    }

    #[test]
    fn a_position_is_the_score_that_redis_gives_it() {
        let palermo = Position {
            longitude: 13.361389,
            latitude: 38.115556,
        };
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let stored = Position::of_score(palermo.score());
        assert_eq!(stored.longitude, 13.361_389_338_970_184);
        assert_eq!(stored.latitude, 38.115_556_395_496_3);
        assert_eq!(&stored.geohash(), b"sqc8b49rny0");
        let corner = Position {
            longitude: 180.0,
            latitude: LATITUDES.max,
        };
        assert_eq!(corner.score(), (3_u64 << 52) as f64);
    }

    #[test]
    fn any_score_is_some_position() {
        let scores = [
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            1e18,
            1e19,
            1e20,
            0.5,
        ];
        for position in scores.map(Position::of_score) {
            assert!(position.is_on_map(), "{position:?}");
        }
    }

    #[test]
    fn a_cell_has_eight_neighbours_everywhere() {
        let corner = Cell {
            x: 3,
            y: 0,
            step: 2,
        };
        assert_eq!(
            corner.neighbour(1, -1),
            Cell {
                x: 0,
                y: 3,
                step: 2
            }
        );
        assert_eq!(
            corner.neighbour(-1, 1),
            Cell {
                x: 2,
                y: 1,
                step: 2
            }
        );
    }
}
