//! The store seen from outside: transactions, time, expiry, garbage, scans and restarts, through the same
//! doors that the server uses, and with a look at the raw rows where it matters what is on the disk.

#![allow(clippy::unwrap_used)]

mod databases;
mod due_fields;
mod expiry;
mod field_expiry;
mod garbage;
mod image;
mod legacy;
mod ranks;
mod readers;
mod reclaiming;
mod regions;
mod restarts;
mod scanning;
mod staging;
mod support;
mod transactions;
mod visible_garbage;
