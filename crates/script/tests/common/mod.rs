//! What the tests of this crate share.
#![allow(dead_code, clippy::unwrap_used)]

pub mod notation;
pub mod redis;
pub mod table;
