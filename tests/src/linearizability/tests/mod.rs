//! The checker, checked: histories known to be good and bad, and random ones beside a checker that tries everything.

mod brute;
mod draw;
mod known;
mod random;
mod speed;
