//! What must hold for all rows and values, not only for those that the golden tests spell out:
//!
//! - `roundtrip`: what is encoded decodes to itself, through every layout.
//! - `order`: byte order is the order of the values, which is all that scans rely on.
//! - `bounds`: rows never collide, and a prefix bounds its rows, all of them and no others.
//! - `hostile`: bytes that no encoder wrote are an error, or the very bytes an encoder would write.

#![allow(clippy::unwrap_used)]

mod bounds;
mod hostile;
mod order;
mod roundtrip;
mod strategies;
