//! Registers as runs of equal values, for sketches that have seen little.
//!
//! ```text
//!   00llllll            l + 1 registers of 0
//!   01llllll llllllll   l + 1 registers of 0
//!   1vvvvvll            l + 1 registers of v + 1
//! ```
//!
//! The runs cover all registers, in their order. How a run is cut when one of its registers changes, and which
//! neighbours are joined afterwards, is laid down by what Redis does: the same elements in the same order
//! make the same bytes.

use super::estimate::REGISTERS;
use super::sketch::Corrupt;

const LONG_ZEROS: u8 = 0x40;
const VALUE: u8 = 0x80;
/// The most that one run can say.
const LONGEST_SHORT_ZEROS: usize = 64;
const LONGEST_VALUE: usize = 4;
const HIGHEST_VALUE: u8 = 32;
/// So many runs are looked at when neighbours are joined.
const JOINED: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub value: u8,
    pub len: usize,
}

impl Run {
    pub fn zeros(len: usize) -> Run {
        Run { value: 0, len }
    }

    /// The run that begins here, and how many bytes it takes.
    fn read(bytes: &[u8]) -> Option<(Run, usize)> {
        let first = *bytes.first()?;
        if first & VALUE != 0 {
            let value = (first >> 2 & 0x1f) + 1;
            let len = usize::from(first & 3) + 1;
            return Some((Run { value, len }, 1));
        }
        let short = usize::from(first & 0x3f);
        if first & LONG_ZEROS == 0 {
            return Some((Run::zeros(short + 1), 1));
        }
        let second = usize::from(*bytes.get(1)?);
        Some((Run::zeros((short << 8 | second) + 1), 2))
    }

    /// Writes a run that is not too long to be one.
    pub fn append_to(self, out: &mut Vec<u8>) {
        let less = self.len - 1;
        if self.value > 0 {
            out.push(VALUE | (self.value - 1) << 2 | less as u8);
        } else if self.len > LONGEST_SHORT_ZEROS {
            out.extend_from_slice(&[LONG_ZEROS | (less >> 8) as u8, less as u8]);
        } else {
            out.push(less as u8);
        }
    }
}

/// The runs one after the other. The last is followed by an error unless they cover all registers.
pub struct Runs<'b> {
    bytes: &'b [u8],
    covered: usize,
    has_ended: bool,
}

impl<'b> Runs<'b> {
    pub fn new(bytes: &'b [u8]) -> Runs<'b> {
        Runs {
            bytes,
            covered: 0,
            has_ended: false,
        }
    }

    fn end(&mut self, is_corrupt: bool) -> Option<Result<Run, Corrupt>> {
        self.has_ended = true;
        is_corrupt.then_some(Err(Corrupt))
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        if self.bytes.is_empty() {
            return self.end(self.covered != REGISTERS);
        }
        match Run::read(self.bytes) {
            Some((run, bytes)) if self.covered + run.len <= REGISTERS => {
                self.bytes = &self.bytes[bytes..];
                self.covered += run.len;
                Some(Ok(run))
            }
            _ => self.end(true),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    Yes,
    /// It was as high before.
    No,
    /// The value cannot be said in runs, or not in so many bytes.
    NoRoom,
}

/// A run among the bytes of others.
#[derive(Clone, Copy)]
struct Spot {
    at: usize,
    bytes: usize,
    /// Its first register.
    first: usize,
    run: Run,
}

/// Raises a register of the runs that begin at `start`. They may come to take `room` bytes more.
pub fn raise(
    bytes: &mut Vec<u8>,
    start: usize,
    register: usize,
    value: u8,
    room: usize,
) -> Result<Raised, Corrupt> {
    if value > HIGHEST_VALUE {
        return Ok(Raised::NoRoom);
    }
    let (spot, before) = find(bytes, start, register)?;
    let Spot {
        at,
        bytes: old_len,
        first,
        run,
    } = spot;
    if run.value >= value {
        return Ok(Raised::No);
    }
    let (left, right) = (register - first, first + run.len - 1 - register);
    let mut parts = Vec::with_capacity(5);
    for part in [
        Run { len: left, ..run },
        Run { value, len: 1 },
        Run { len: right, ..run },
    ] {
        if part.len > 0 {
            part.append_to(&mut parts);
        }
    }
    if parts.len() > old_len && parts.len() - old_len > room {
        return Ok(Raised::NoRoom);
    }
    bytes.splice(at..at + old_len, parts);
    join(bytes, before.unwrap_or(start));
    Ok(Raised::Yes)
}

/// The run of a register, and where the run before it begins.
fn find(bytes: &[u8], start: usize, register: usize) -> Result<(Spot, Option<usize>), Corrupt> {
    let (mut at, mut first, mut before) = (start, 0, None);
    loop {
        let (run, len) = Run::read(&bytes[at..]).ok_or(Corrupt)?;
        if register < first + run.len {
            let spot = Spot {
                at,
                bytes: len,
                first,
                run,
            };
            return Ok((spot, before));
        }
        before = Some(at);
        at += len;
        first += run.len;
    }
}

/// Makes one run of neighbours that have the same value, as far as a run can be that long.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED {
        let Some((run, len)) = Run::read(&bytes[at.min(bytes.len())..]) else {
            return;
        };
        if run.value > 0
            && let Some((next, _)) = Run::read(&bytes[at + 1..])
            && next.value == run.value
            && run.len + next.len <= LONGEST_VALUE
        {
            // The joined one may be joined with what comes next.
            let joined = Run {
                len: run.len + next.len,
                ..run
            };
            let mut byte = Vec::with_capacity(1);
            joined.append_to(&mut byte);
            bytes.splice(at..at + 2, byte);
            continue;
        }
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(runs: &[u8], register: usize, value: u8) -> Vec<u8> {
        let mut bytes = runs.to_vec();
        assert_eq!(
            raise(&mut bytes, 0, register, value, 10),
            Ok(Raised::Yes),
            "{runs:?}"
        );
        bytes
    }

    #[test]
    fn a_run_is_cut_where_a_register_changes() {
        // 16,384 zeros; then one more on either side of what is set.
        assert_eq!(raised(&[0x7f, 0xff], 0, 1), [0x80, 0x7f, 0xfe]);
        assert_eq!(raised(&[0x7f, 0xff], 16_383, 1), [0x7f, 0xfe, 0x80]);
        assert_eq!(raised(&[0x7f, 0xff], 100, 3), [0x40, 99, 0x88, 0x7f, 0x9a]);
        assert_eq!(raised(&[0x3f], 10, 1), [9, 0x80, 52]);
        // Four registers of 1.
        assert_eq!(raised(&[0x83], 1, 2), [0x80, 0x84, 0x81]);
    }

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(raised(&[0x80, 0x00, 0x80], 1, 1), [0x82]);
        assert_eq!(raised(&[0x82, 0x00, 0x80], 1 + 2, 1), [0x83, 0x80]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut bytes = vec![0x7f, 0xff];
        assert_eq!(raise(&mut bytes, 0, 5, 33, 10), Ok(Raised::NoRoom));
        assert_eq!(raise(&mut bytes, 0, 500, 3, 2), Ok(Raised::NoRoom));
        assert_eq!(raise(&mut bytes, 0, 500, 3, 3), Ok(Raised::Yes));
        assert_eq!(raise(&mut bytes, 0, 500, 3, 0), Ok(Raised::No));
        assert_eq!(raise(&mut bytes, 0, 500, 4, 0), Ok(Raised::Yes));
    }

    #[test]
    fn runs_must_cover_all_registers() {
        let check = |bytes: &[u8]| Runs::new(bytes).collect::<Result<Vec<_>, _>>();
        assert_eq!(check(&[0x7f, 0xff]), Ok(vec![Run::zeros(REGISTERS)]));
        for bytes in [
            [].as_slice(),
            &[0x7f],
            &[0x7f, 0xfe],
            &[0x7f, 0xff, 0x00],
            &[0x7f, 0xfe, 0x81],
        ] {
            assert_eq!(check(bytes), Err(Corrupt), "{bytes:?}");
        }
        assert_eq!(raise(&mut vec![0x00], 0, 5, 1, 10), Err(Corrupt));
        assert_eq!(raise(&mut vec![0x7f], 0, 5, 1, 10), Err(Corrupt));
    }
}
