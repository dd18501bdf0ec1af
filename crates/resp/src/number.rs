//! Numbers as Redis writes and reads them.
//!
//! A client compares replies byte by byte, so "the same number" is not enough: it must be the same
//! text, and what is accepted as a number must be exactly what Redis accepts. Redis inherits both from
//! C, in three dialects:
//!
//! - [`parse_i64`], [`parse_u64`]: whole numbers, with a strict grammar of Redis' own and a lax one
//!   for stream IDs;
//! - [`format_double`], [`parse_f64`]: scores and coordinates, `%.17g` and `strtod`;
//! - [`LongDouble`]: INCRBYFLOAT and HINCRBYFLOAT, which compute in the 80-bit floats of the x87 and
//!   print `%.17Lf`. Doubles would give other digits, so these are done here in software.
//!
//! Both kinds of float are read in the same three steps, and only the last knows the format: a
//! `literal` says what the text means, `conversion` turns that into an unrounded binary number,
//! and `rounding` fits it to 53 or 64 bits.

mod conversion;
mod double;
mod integer;
mod literal;
mod long_double;
mod natural;
mod rounding;

#[cfg(test)]
mod golden;

pub use double::{format_double, format_human_double, parse_f64, parse_score_bound};
pub use integer::{parse_i64, parse_u64};
pub use long_double::LongDouble;
