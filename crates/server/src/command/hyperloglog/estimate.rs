//! From elements to registers, and from registers to an estimate.
//!
//! An element's hash names one of 16,384 registers by its low bits; how many zeros the rest of it begins with, and
//! one, is its rank. A register keeps the highest rank that it was shown. High ranks are rare, so registers tell how
//! many different elements there were: how exactly, Otmar Ertl has shown in "New cardinality estimation algorithms for
//! HyperLogLog sketches" (2017).

pub const REGISTERS: usize = 1 << REGISTER_BITS;
const REGISTER_BITS: u32 = 14;
/// The highest rank that a hash can have.
const HIGHEST: usize = RANK_BITS as usize + 1;
const RANK_BITS: u32 = 64 - REGISTER_BITS;
/// More than any register of six bits can hold.
const RANKS: usize = 64;

/// The register that an element belongs to, and its rank there.
pub fn place_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let register = hash as usize & (REGISTERS - 1);
    let rest = hash >> REGISTER_BITS | 1 << RANK_BITS;
    (register, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash2 by Austin Appleby, in its form for 64 bits, with the seed of Redis.
fn murmur(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = 0xadc8_3b19 ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut part = little_endian(word).wrapping_mul(FACTOR);
        part ^= part >> SHIFT;
        hash = (hash ^ part.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// How many registers there are of each value.
pub struct Histogram([u32; RANKS]);

impl Histogram {
    pub fn new() -> Histogram {
        Histogram([0; RANKS])
    }

    pub fn add(&mut self, value: u8, times: usize) {
        self.0[usize::from(value) % RANKS] += times as u32;
    }

    /// How many different elements there were, probably. The arithmetic is that of Redis, to the last digit.
    pub fn estimate(&self) -> i64 {
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let count = |value: usize| f64::from(self.0[value]);
        let registers = REGISTERS as f64;
        let mut z = registers * tau((registers - count(HIGHEST)) / registers);
        for value in (1..HIGHEST).rev() {
            z += count(value);
            z *= 0.5;
        }
        z += registers * sigma(count(0) / registers);
        let estimate = (ALPHA * registers * registers / z).round();
        if estimate.is_finite() {
            estimate as i64
        } else {
            // Every register is at its highest: so says C.
            i64::MIN
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_redis() {
        // As the registers of values show it that redis-server made.
        let places = [
            (b"".as_slice(), (5938, 2)),
            (b"a".as_slice(), (12711, 2)),
            (b"hello world".as_slice(), (9399, 4)),
            (b"0123456789abcdef".as_slice(), (5949, 1)),
        ];
        for (element, place) in places {
            assert_eq!(place_of(element), place, "{element:?}");
        }
    }

    #[test]
    fn estimates_of_the_extremes() {
        let mut empty = Histogram::new();
        empty.add(0, REGISTERS);
        assert_eq!(empty.estimate(), 0);
        let mut full = Histogram::new();
        full.add(51, REGISTERS);
        assert_eq!(full.estimate(), i64::MIN);
        let mut one = Histogram::new();
        one.add(0, REGISTERS - 1);
        one.add(1, 1);
        assert_eq!(one.estimate(), 1);
    }
}
