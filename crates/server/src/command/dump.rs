//! DUMP and RESTORE: values in the bytes of Redis' own.

pub mod building;
pub mod payload;
mod restore;

use std::sync::atomic::Ordering;

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::{ReadTxn, Result};

use super::args::Args;
use super::flags::Flag::{Asking, Dangerous, DenyOom, Keyspace};
use super::keys::{Access, KeySpec, Keys};
use super::{Command, Handler, command};

const RESTORED: &str =
    "key ttl:i serialized-value REPLACE!? ABSTTL!? IDLETIME/seconds:i? FREQ/frequency:i?";

pub const COMMANDS: &[Command] = &[
    command("dump", 2, Handler::Read(dump))
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Keyspace])
        .tips(&["nondeterministic_output"])
        .syntax("key")
        .about(
            "generic",
            "2.6.0",
            "O(N) for N elements",
            "Returns the value of a key in Redis' own bytes.",
        ),
    command("restore", -4, Handler::Write(restore::restore))
        .keys(Keys(&[KeySpec::at(1, Access::OVERWRITE)]))
        .flags(&[DenyOom, Keyspace, Dangerous])
        .syntax(RESTORED)
        .about(
            "generic",
            "2.6.0",
            "O(N) for N elements",
            "Makes a key of what DUMP has returned.",
        ),
    // By this MIGRATE brings keys from a node of a Redis Cluster, which sends no ASKING before it.
    command("restore-asking", -4, Handler::Write(restore::restore))
        .keys(Keys(&[KeySpec::at(1, Access::OVERWRITE)]))
        .flags(&[DenyOom, Keyspace, Dangerous, Asking])
        .syntax(RESTORED)
        .about(
            "server",
            "3.0.0",
            "O(N) for N elements",
            "The same as RESTORE, for nodes of a cluster.",
        ),
];

fn dump(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let most = txn.store().max_value_len().load(Ordering::Relaxed);
    Ok(match payload::of_key(txn, args[1], most)? {
        None => Reply::Null,
        Some(payload) if payload.len() <= ONE_PIECE => Reply::Bulk(payload),
        Some(payload) => Reply::Stream(Box::new(Large { payload, sent: 0 })),
    })
}

/// A payload of no more than this is copied into the connection's buffer.
const ONE_PIECE: usize = 64 * 1024;

/// One that is sent piece by piece, so that it stands in memory once.
struct Large {
    payload: Vec<u8>,
    sent: usize,
}

impl ReplyStream for Large {
    fn write(
        &mut self,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> std::result::Result<Progress, StreamError> {
        if self.sent == 0 {
            out.bulk_header(self.payload.len());
        }
        let left = &self.payload[self.sent..];
        let piece = &left[..left.len().min(limit.saturating_sub(out.len()))];
        out.bytes().extend_from_slice(piece);
        self.sent += piece.len();
        if self.sent < self.payload.len() {
            return Ok(Progress::More);
        }
        out.bytes().extend_from_slice(b"\r\n");
        Ok(Progress::Done)
    }
}
