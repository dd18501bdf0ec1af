//! The bytes of a HyperLogLog, which are those of Redis: clients copy them from one server to another.
//!
//! ```text
//!   "HYLL" | encoding | 0 0 0 | estimate (8, little endian; its highest bit: outdated) | registers
//!
//!   dense  (encoding 0)  16,384 registers of 6 bits, each beginning at the lowest free bit
//!   sparse (encoding 1)  runs of registers, see `sparse`
//! ```

use super::estimate::{Histogram, REGISTERS, place_of};
use super::sparse::{self, Run, Runs};

const MAGIC: &[u8] = b"HYLL";
pub const HEADER: usize = 16;
const ENCODING_AT: usize = 4;
const ESTIMATE: std::ops::Range<usize> = 8..16;
const OUTDATED: u8 = 0x80;

const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;
/// Every register has a run of its own, in the longest way to say so.
pub const LONGEST: usize = HEADER + 2 * REGISTERS;

/// The registers do not make sense.
#[derive(Debug, PartialEq, Eq)]
pub struct Corrupt;

/// Registers as they are counted together, a byte each.
pub struct Registers(Box<[u8]>);

impl Registers {
    pub fn new() -> Registers {
        Registers(vec![0; REGISTERS].into())
    }

    fn raise(&mut self, register: usize, value: u8) {
        let there = &mut self.0[register];
        *there = value.max(*there);
    }

    pub fn estimate(&self) -> i64 {
        let mut histogram = Histogram::new();
        self.0.iter().for_each(|value| histogram.add(*value, 1));
        histogram.estimate()
    }
}

pub struct Sketch(Vec<u8>);

impl Sketch {
    /// One that has seen nothing.
    pub fn new() -> Sketch {
        let mut bytes = vec![0; HEADER];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        Run::zeros(REGISTERS).append_to(&mut bytes);
        Sketch(bytes)
    }

    /// Whether a value that begins so, and is so long, is meant to be one.
    pub fn is_one(beginning: &[u8], len: u64) -> bool {
        beginning.len() >= HEADER
            && beginning.starts_with(MAGIC)
            && match beginning[ENCODING_AT] {
                DENSE => len == DENSE_LEN as u64,
                SPARSE => true,
                _ => false,
            }
    }

    /// Of a value that is meant to be one.
    pub fn from_bytes(bytes: Vec<u8>) -> Sketch {
        Sketch(bytes)
    }

    /// Puts back what lay behind the bytes that it was made of.
    pub fn append(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_dense(&self) -> bool {
        self.0[ENCODING_AT] == DENSE
    }

    /// The estimate that was kept, if nothing was added since.
    pub fn kept_estimate(&self) -> Option<i64> {
        let mut estimate = [0; 8];
        estimate.copy_from_slice(&self.0[ESTIMATE]);
        let estimate = i64::from_le_bytes(estimate);
        (estimate >= 0).then_some(estimate)
    }

    pub fn keep_estimate(&mut self, estimate: i64) {
        self.0[ESTIMATE].copy_from_slice(&estimate.to_le_bytes());
    }

    pub fn forget_estimate(&mut self) {
        self.0[ESTIMATE.end - 1] |= OUTDATED;
    }

    pub fn estimate(&self) -> Result<i64, Corrupt> {
        let mut histogram = Histogram::new();
        if self.is_dense() {
            (0..REGISTERS).for_each(|register| histogram.add(self.register(register), 1));
        } else {
            for run in self.runs() {
                let Run { value, len } = run?;
                histogram.add(value, len);
            }
        }
        Ok(histogram.estimate())
    }

    /// Raises the registers to what they are here.
    pub fn merge_into(&self, registers: &mut Registers) -> Result<(), Corrupt> {
        if self.is_dense() {
            for register in 0..REGISTERS {
                registers.raise(register, self.register(register));
            }
            return Ok(());
        }
        let mut first = 0;
        for run in self.runs() {
            let Run { value, len } = run?;
            for register in first..first + len {
                registers.raise(register, value);
            }
            first += len;
        }
        Ok(())
    }

    /// Shows it an element; true if it makes a difference.
    pub fn add(&mut self, element: &[u8], sparse_len: usize) -> Result<bool, Corrupt> {
        let (register, rank) = place_of(element);
        self.raise(register, rank, sparse_len)
    }

    /// Raises every register to what it is there.
    pub fn raise_all(&mut self, registers: &Registers, sparse_len: usize) -> Result<(), Corrupt> {
        for (register, value) in registers.0.iter().enumerate() {
            if *value > 0 {
                self.raise(register, *value, sparse_len)?;
            }
        }
        Ok(())
    }

    /// A sparse one becomes dense when it would be longer than `sparse_len`.
    fn raise(&mut self, register: usize, value: u8, sparse_len: usize) -> Result<bool, Corrupt> {
        if !self.is_dense() {
            let room = sparse_len.saturating_sub(self.0.len());
            match sparse::raise(&mut self.0, HEADER, register, value, room)? {
                sparse::Raised::No => return Ok(false),
                sparse::Raised::Yes => {
                    self.forget_estimate();
                    return Ok(true);
                }
                sparse::Raised::NoRoom => self.make_dense()?,
            }
        }
        let is_higher = value > self.register(register);
        if is_higher {
            self.set_register(register, value);
        }
        Ok(is_higher)
    }

    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_dense() {
            return Ok(());
        }
        let mut dense = Sketch(vec![0; DENSE_LEN]);
        dense.0[..HEADER].copy_from_slice(&self.0[..HEADER]);
        dense.0[ENCODING_AT] = DENSE;
        let mut first = 0;
        for run in self.runs() {
            let Run { value, len } = run?;
            if value > 0 {
                (first..first + len).for_each(|register| dense.set_register(register, value));
            }
            first += len;
        }
        *self = dense;
        Ok(())
    }

    fn runs(&self) -> Runs<'_> {
        Runs::new(&self.0[HEADER..])
    }

    /// A dense register: six bits that may lie in two bytes, of which the last has no second.
    fn register(&self, register: usize) -> u8 {
        let (byte, shift) = (HEADER + register * 6 / 8, register * 6 % 8);
        let high = self.0.get(byte + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([self.0[byte], high]) >> shift) as u8 & 0x3f
    }

    fn set_register(&mut self, register: usize, value: u8) {
        let (byte, shift) = (HEADER + register * 6 / 8, register * 6 % 8);
        let [low, high] = (u16::from(value) << shift).to_le_bytes();
        let [low_mask, high_mask] = (0x3f_u16 << shift).to_le_bytes();
        self.0[byte] = self.0[byte] & !low_mask | low;
        if let Some(next) = self.0.get_mut(byte + 1) {
            *next = *next & !high_mask | high;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that was shown some elements, as PFADD does it.
    fn shown(elements: impl Iterator<Item = String>) -> Sketch {
        let mut sketch = Sketch::new();
        for element in elements {
            sketch.add(element.as_bytes(), 3000).expect("it is sound");
        }
        sketch.forget_estimate();
        sketch
    }

    /// A number that two values hardly share: the hash of Fowler, Noll and Vo.
    fn digest(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    // What redis-server 7.0.15 made of the same elements.

    #[test]
    fn few_elements_make_the_bytes_of_redis() {
        let sketch = shown(["a", "b", "c"].map(String::from).into_iter());
        assert_eq!(
            sketch.bytes(),
            b"HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ"
        );
        assert_eq!(sketch.estimate(), Ok(3));
    }

    #[test]
    fn many_elements_make_the_bytes_of_redis() {
        let numbers = |count: u32| shown((0..count).map(|number| number.to_string()));
        let sparse = numbers(1000);
        assert!(!sparse.is_dense());
        assert_eq!(sparse.bytes().len(), 1923);
        assert_eq!(digest(sparse.bytes()), 7147739469588512294);
        let dense = numbers(100_000);
        assert_eq!(dense.bytes().len(), DENSE_LEN);
        assert_eq!(digest(dense.bytes()), 7980449083827261350);
        assert_eq!(dense.estimate(), Ok(99565));
    }

    #[test]
    fn a_sketch_becomes_dense_without_a_change() {
        let mut sketch = shown((0..500).map(|number| number.to_string()));
        let estimate = sketch.estimate();
        let runs: Vec<Run> = sketch.runs().map(|run| run.expect("it is sound")).collect();
        sketch.make_dense().expect("it is sound");
        let values = runs
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.value, run.len));
        for (register, value) in values.enumerate() {
            assert_eq!(sketch.register(register), value, "{register}");
        }
        assert_eq!(sketch.estimate(), estimate);
    }

    #[test]
    fn neighbours_stay_as_they_are() {
        let mut sketch = Sketch::new();
        sketch.make_dense().expect("it is sound");
        for register in (0..REGISTERS).rev() {
            sketch.set_register(register, (register % 63) as u8);
        }
        sketch.set_register(REGISTERS - 1, 63);
        for register in 0..REGISTERS - 1 {
            assert_eq!(sketch.register(register), (register % 63) as u8);
        }
        assert_eq!(sketch.register(REGISTERS - 1), 63);
    }
}
