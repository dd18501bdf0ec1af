//! What replicas say to each other.
//!
//! ```text
//!   request      kind u8 | region u64 | from u64 | to u64 | ...
//!     1 append        vote | option prev | option committed | now u64 | count u32 | entry*
//!     2 vote          vote | option last | transfer u8
//!     3 pre-vote      the same
//!     4 transfer      vote | to u64 | option last | now u64
//!     5 begin         vote | transfer u64 | applied
//!     6 piece         transfer u64 | number u64 | bytes
//!     7 end           transfer u64 | pieces u64
//!     8 read          (nothing)
//!   entry        term u64 | length u32 | body
//!
//!   response     0 | text (why not)  |  kind u8 | ...
//!     1 appended      0  |  1 | option log id  |  2 (conflict)  |  3 | vote (a higher one)
//!     2 voted         vote | granted u8 | option last | now u64
//!     3 done          (nothing)
//!     4 installed     vote
//!     5 read          log id | now u64
//! ```
//!
//! `from` and `to` are replicas: a message to one that is no longer there reaches none that came after it. Log ids,
//! votes, bodies and `applied` are those of `cairn_encoding::raft`; the index of an entry follows from `prev`. `now` is the time of a
//! region's leader in milliseconds (`time`).
//!
//! What stands behind the last field, where its length is not open, is of a newer node, and passed over.

use std::io;

use bytes::Bytes;
use cairn_encoding::DecodeError;
use cairn_encoding::raft::{Applied, Body, LogId, Vote, unknown};
use cairn_encoding::reader::Reader;

use crate::consensus::{RaftEntry, body, log_id, raft_entry, size};

/// The fixed fields of a request, nearly.
const FIXED: usize = 128;

#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub region: u64,
    pub from: u64,
    pub to: u64,
    pub call: Call,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Call {
    Append {
        vote: Vote,
        prev: Option<LogId>,
        committed: Option<LogId>,
        now: u64,
        entries: Vec<RaftEntry>,
    },
    Vote(Candidacy),
    PreVote(Candidacy),
    Transfer {
        vote: Vote,
        to: u64,
        last: Option<LogId>,
        now: u64,
    },
    Begin {
        vote: Vote,
        transfer: u64,
        applied: Applied,
    },
    Piece {
        transfer: u64,
        number: u64,
        bytes: Bytes,
    },
    End {
        transfer: u64,
        pieces: u64,
    },
    Read,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Candidacy {
    pub vote: Vote,
    pub last: Option<LogId>,
    pub transfer: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Response {
    /// Why nothing was done.
    Refused(String),
    Appended(Appended),
    Voted {
        vote: Vote,
        granted: bool,
        last: Option<LogId>,
        now: u64,
    },
    Done,
    Installed(Vote),
    Read {
        id: LogId,
        now: u64,
    },
}

#[derive(Debug, PartialEq)]
pub(crate) enum Appended {
    All,
    UpTo(Option<LogId>),
    Conflict,
    Higher(Vote),
}

fn u64_to(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

impl Request {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(FIXED + self.call.carried());
        let kind = match &self.call {
            Call::Append { .. } => 1,
            Call::Vote(_) => 2,
            Call::PreVote(_) => 3,
            Call::Transfer { .. } => 4,
            Call::Begin { .. } => 5,
            Call::Piece { .. } => 6,
            Call::End { .. } => 7,
            Call::Read => 8,
        };
        out.push(kind);
        u64_to(&mut out, self.region);
        u64_to(&mut out, self.from);
        u64_to(&mut out, self.to);
        self.call.encode(&mut out);
        Bytes::from(out)
    }

    pub(crate) fn decode(bytes: &Bytes) -> io::Result<Request> {
        let mut reader = Reader::new("raft request", bytes);
        let kind = reader.u8("kind").map_err(io::Error::other)?;
        let mut number = |field| reader.u64(field).map_err(io::Error::other);
        let (region, from, to) = (number("region")?, number("from")?, number("to")?);
        let call = Call::decode(kind, reader, bytes)?;
        Ok(Request {
            region,
            from,
            to,
            call,
        })
    }
}

impl Call {
    /// About how many bytes it has besides its fixed fields.
    fn carried(&self) -> usize {
        match self {
            Call::Append { entries, .. } => entries.iter().map(|entry| size(entry) as usize).sum(),
            Call::Piece { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Call::Append {
                vote,
                prev,
                committed,
                now,
                entries,
            } => {
                vote.encode(out);
                LogId::encode_option(*prev, out);
                LogId::encode_option(*committed, out);
                u64_to(out, *now);
                out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
                for entry in entries {
                    u64_to(out, entry.log_id.leader_id.term);
                    let length = out.len();
                    out.extend_from_slice(&[0; 4]);
                    body(entry).encode(out);
                    let written = (out.len() - length - 4) as u32;
                    out[length..length + 4].copy_from_slice(&written.to_be_bytes());
                }
            }
            Call::Vote(candidacy) | Call::PreVote(candidacy) => {
                candidacy.vote.encode(out);
                LogId::encode_option(candidacy.last, out);
                out.push(u8::from(candidacy.transfer));
            }
            Call::Transfer {
                vote,
                to,
                last,
                now,
            } => {
                vote.encode(out);
                u64_to(out, *to);
                LogId::encode_option(*last, out);
                u64_to(out, *now);
            }
            Call::Begin {
                vote,
                transfer,
                applied,
            } => {
                vote.encode(out);
                u64_to(out, *transfer);
                applied.encode(out);
            }
            Call::Piece {
                transfer,
                number,
                bytes,
            } => {
                u64_to(out, *transfer);
                u64_to(out, *number);
                out.extend_from_slice(bytes);
            }
            Call::End { transfer, pieces } => {
                u64_to(out, *transfer);
                u64_to(out, *pieces);
            }
            Call::Read => {}
        }
    }

    fn decode(kind: u8, mut reader: Reader<'_>, bytes: &Bytes) -> io::Result<Call> {
        if kind == 1 {
            return Call::decode_append(reader, bytes);
        }
        let call = (|| -> Result<Call, DecodeError> {
            Ok(match kind {
                2 => Call::Vote(Candidacy::read(&mut reader)?),
                3 => Call::PreVote(Candidacy::read(&mut reader)?),
                4 => Call::Transfer {
                    vote: Vote::read(&mut reader)?,
                    to: reader.u64("to")?,
                    last: LogId::read_option(&mut reader)?,
                    now: reader.u64("now")?,
                },
                5 => Call::Begin {
                    vote: Vote::read(&mut reader)?,
                    transfer: reader.u64("transfer")?,
                    applied: Applied::decode(reader.rest())?,
                },
                6 => Call::Piece {
                    transfer: reader.u64("transfer")?,
                    number: reader.u64("number")?,
                    bytes: bytes.slice_ref(reader.rest()),
                },
                7 => Call::End {
                    transfer: reader.u64("transfer")?,
                    pieces: reader.u64("pieces")?,
                },
                8 => Call::Read,
                tag => return Err(unknown("raft request", tag)),
            })
        })();
        call.map_err(io::Error::other)
    }

    fn decode_append(mut reader: Reader<'_>, bytes: &Bytes) -> io::Result<Call> {
        let error = io::Error::other::<DecodeError>;
        let vote = Vote::read(&mut reader).map_err(error)?;
        let prev = LogId::read_option(&mut reader).map_err(error)?;
        let committed = LogId::read_option(&mut reader).map_err(error)?;
        let now = reader.u64("now").map_err(error)?;
        let count = u64::from(reader.u32("count").map_err(error)?);
        let first = prev.map_or(0, |prev| prev.index + 1);
        let mut entries = Vec::new();
        for index in first..first.saturating_add(count) {
            let term = reader.u64("term").map_err(error)?;
            let length = reader.u32("length").map_err(error)?;
            let content = reader.bytes("body", length as usize).map_err(error)?;
            let decoded = Body::decode(content).map_err(error)?;
            entries.push(raft_entry(LogId { term, index }, decoded, bytes)?);
        }
        Ok(Call::Append {
            vote,
            prev,
            committed,
            now,
            entries,
        })
    }

    /// The indexes of entries are not said, so they must follow from where they begin.
    pub(crate) fn append(
        vote: Vote,
        prev: Option<LogId>,
        committed: Option<LogId>,
        now: u64,
        entries: Vec<RaftEntry>,
    ) -> Call {
        debug_assert!(
            (prev.map_or(0, |prev| prev.index + 1)..)
                .zip(&entries)
                .all(|(index, entry)| log_id(&entry.log_id).index == index)
        );
        Call::Append {
            vote,
            prev,
            committed,
            now,
            entries,
        }
    }
}

impl Candidacy {
    fn read(reader: &mut Reader<'_>) -> Result<Candidacy, DecodeError> {
        Ok(Candidacy {
            vote: Vote::read(reader)?,
            last: LogId::read_option(reader)?,
            transfer: reader.u8("transfer")? != 0,
        })
    }
}

impl Response {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Response::Refused(why) => {
                out.push(0);
                out.extend_from_slice(why.as_bytes());
            }
            Response::Appended(appended) => {
                out.push(1);
                match appended {
                    Appended::All => out.push(0),
                    Appended::UpTo(id) => {
                        out.push(1);
                        LogId::encode_option(*id, &mut out);
                    }
                    Appended::Conflict => out.push(2),
                    Appended::Higher(vote) => {
                        out.push(3);
                        vote.encode(&mut out);
                    }
                }
            }
            Response::Voted {
                vote,
                granted,
                last,
                now,
            } => {
                out.push(2);
                vote.encode(&mut out);
                out.push(u8::from(*granted));
                LogId::encode_option(*last, &mut out);
                u64_to(&mut out, *now);
            }
            Response::Done => out.push(3),
            Response::Installed(vote) => {
                out.push(4);
                vote.encode(&mut out);
            }
            Response::Read { id, now } => {
                out.push(5);
                id.encode(&mut out);
                u64_to(&mut out, *now);
            }
        }
        Bytes::from(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Response, DecodeError> {
        let mut reader = Reader::new("raft response", bytes);
        Ok(match reader.u8("kind")? {
            0 => Response::Refused(String::from_utf8_lossy(reader.rest()).into_owned()),
            1 => Response::Appended(match reader.u8("appended")? {
                0 => Appended::All,
                1 => Appended::UpTo(LogId::read_option(&mut reader)?),
                2 => Appended::Conflict,
                3 => Appended::Higher(Vote::read(&mut reader)?),
                tag => return Err(unknown("raft response", tag)),
            }),
            2 => Response::Voted {
                vote: Vote::read(&mut reader)?,
                granted: reader.u8("granted")? != 0,
                last: LogId::read_option(&mut reader)?,
                now: reader.u64("now")?,
            },
            3 => Response::Done,
            4 => Response::Installed(Vote::read(&mut reader)?),
            5 => Response::Read {
                id: LogId::read(&mut reader)?,
                now: reader.u64("now")?,
            },
            tag => return Err(unknown("raft response", tag)),
        })
    }
}

#[cfg(test)]
mod tests;
