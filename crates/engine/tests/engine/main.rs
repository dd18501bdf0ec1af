//! The engine seen from outside: directories that are opened, damaged and opened again, batches that are
//! committed, walks over what they left, and the rows that compactions drop.

#![allow(clippy::unwrap_used)]

mod commits;
mod damage;
mod filters;
mod journal;
mod opening;
mod ranges;
mod reads;
mod regions;
mod replicas;
mod rows;
mod small_collections;
mod support;
mod versions;
mod writers;
