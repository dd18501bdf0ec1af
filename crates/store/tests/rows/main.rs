//! The tools that look at rows as rows: what they print, and what they find.

#![allow(clippy::unwrap_used)]

mod check;
mod inspect;
mod sample;
mod stream;
