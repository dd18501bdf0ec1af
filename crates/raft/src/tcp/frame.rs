//! Messages on a connection.
//!
//! ```text
//!   frame   length u32 | crc u32 | kind u8 | id u64 | part
//! ```
//!
//! `length` counts what follows the `crc`, and `crc` (CRC-32) covers it. `id` is chosen by the one who asks, and comes
//! back with the answer. A long message is cut into parts, so that others can pass it: a heartbeat must not wait
//! for a batch of many megabytes.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;

/// The longest part.
pub(super) const PART: usize = 64 * 1024;
/// The longest message: a row of a snapshot, whose key, field and value may have 512 MB each. It may come from times when this was
/// a single machine, so it can be longer than any batch.
const MAX_MESSAGE: usize = 2 << 30;
/// What the unfinished messages of a connection may take, and how many they may be. Of the longest, four are on their way at
/// once (`link.rs`).
const MAX_UNFINISHED: usize = 4 * MAX_MESSAGE;
const MAX_UNFINISHED_COUNT: usize = 16 * 1024;
pub(super) const HEAD: usize = 8;
const FIXED: usize = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Request,
    Response,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub kind: Kind,
    pub id: u64,
    pub bytes: Bytes,
}

/// Appends a part of a message.
pub(super) fn encode(out: &mut Vec<u8>, kind: Kind, id: u64, part: &[u8], ends: bool) {
    let start = out.len();
    let kind = match kind {
        Kind::Request => 1,
        Kind::Response => 3,
    } + u8::from(ends);
    out.extend_from_slice(&((FIXED + part.len()) as u32).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(part);
    let crc = crc32fast::hash(&out[start + HEAD..]);
    out[start + 4..start + HEAD].copy_from_slice(&crc.to_be_bytes());
}

/// How many bytes follow the head, and their checksum.
pub(super) fn decode_head(head: [u8; HEAD]) -> io::Result<(usize, u32)> {
    let [a, b, c, d, rest @ ..] = head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(FIXED..=FIXED + PART).contains(&length) {
        return Err(invalid("a frame of an impossible length"));
    }
    Ok((length, u32::from_be_bytes(rest)))
}

/// Puts messages together from their parts.
#[derive(Default)]
pub(super) struct Assembler {
    unfinished: BTreeMap<(Kind, u64), Vec<u8>>,
    bytes: usize,
}

impl Assembler {
    /// Takes in what follows a head; returns the message that it ends.
    pub(super) fn push(&mut self, body: &[u8], crc: u32) -> io::Result<Option<Message>> {
        if crc32fast::hash(body) != crc {
            return Err(invalid("a frame was damaged on its way"));
        }
        let Some((kind, rest)) = body.split_first() else {
            return Err(invalid("an empty frame"));
        };
        let Some((id, part)) = rest.split_first_chunk() else {
            return Err(invalid("a frame without an id"));
        };
        let (kind, ends) = match kind {
            1 => (Kind::Request, false),
            2 => (Kind::Request, true),
            3 => (Kind::Response, false),
            4 => (Kind::Response, true),
            _ => return Err(invalid("a frame of an unknown kind")),
        };
        let id = u64::from_be_bytes(*id);
        if !ends {
            let message = self.unfinished.entry((kind, id)).or_default();
            message.extend_from_slice(part);
            self.bytes += part.len();
            let too_long = message.len() > MAX_MESSAGE || self.bytes > MAX_UNFINISHED;
            if too_long || self.unfinished.len() > MAX_UNFINISHED_COUNT {
                return Err(invalid("messages that are too long, or too many"));
            }
            return Ok(None);
        }
        let bytes = match self.unfinished.remove(&(kind, id)) {
            None => Bytes::copy_from_slice(part),
            Some(mut message) => {
                self.bytes -= message.len();
                message.extend_from_slice(part);
                Bytes::from(message)
            }
        };
        Ok(Some(Message { kind, id, bytes }))
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(assembler: &mut Assembler, frame: &[u8]) -> io::Result<Option<Message>> {
        let (head, body) = frame.split_first_chunk().unwrap();
        let (length, crc) = decode_head(*head)?;
        assert_eq!(length, body.len());
        assembler.push(body, crc)
    }

    #[test]
    fn bytes_on_the_wire() {
        let mut out = Vec::new();
        encode(&mut out, Kind::Request, 7, b"ab", true);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0000000be9fe443a0200000000000000076162");
    }

    #[test]
    fn parts_of_several_messages_may_alternate() {
        let mut assembler = Assembler::default();
        let mut frame = |kind, id, part: &[u8], ends| {
            let mut out = Vec::new();
            encode(&mut out, kind, id, part, ends);
            pass(&mut assembler, &out).unwrap()
        };
        assert_eq!(frame(Kind::Request, 1, b"a", false), None);
        assert_eq!(frame(Kind::Response, 1, b"x", false), None);
        let small = frame(Kind::Request, 2, b"small", true).unwrap();
        assert_eq!(small.bytes, "small");
        assert_eq!(frame(Kind::Request, 1, b"b", true).unwrap().bytes, "ab");
        let response = frame(Kind::Response, 1, b"y", true).unwrap();
        assert_eq!(
            (response.kind, response.bytes),
            (Kind::Response, Bytes::from("xy"))
        );
        assert_eq!(assembler.bytes, 0);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let mut out = Vec::new();
        encode(&mut out, Kind::Request, 7, b"ab", true);
        for at in HEAD..out.len() {
            let mut damaged = out.clone();
            damaged[at] ^= 1;
            assert!(pass(&mut Assembler::default(), &damaged).is_err());
        }
        assert!(decode_head([0, 0, 0, 8, 0, 0, 0, 0]).is_err());
        assert!(decode_head([255; 8]).is_err());
    }
}
