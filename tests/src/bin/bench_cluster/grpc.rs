//! Just enough of gRPC to put keys into etcd, many at a time over one connection.
//!
//! It speaks HTTP/2 (RFC 9113) as etcd's own clients do, and leaves out what this use does not need: all requests have the same
//! headers, which are spelt once without compression; answers are told apart by their frames alone; and what is under way
//! at a time is far less than any window of flow control.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::load::Writes;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PATH: &str = "/etcdserverpb.KV/Put";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// As much as a window may hold.
const WINDOW: u32 = (1 << 31) - 1;
const FIRST_WINDOW: u32 = 65_535;
const PATIENCE: Duration = Duration::from_secs(20);

impl AsRawFd for Puts {
    fn as_raw_fd(&self) -> RawFd {
        self.writer.as_raw_fd()
    }
}

pub struct Puts {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    headers: Vec<u8>,
    next_stream: u32,
    /// Streams on which an answer has come; they end with their trailers.
    answered: BTreeSet<u32>,
    unsent: Vec<u8>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Writes for Puts {
    fn begin(&mut self, key: &[u8], value: &[u8]) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let message = [field(1, key), field(2, value)].concat();
        let length = (message.len() as u32).to_be_bytes();
        let body = [&[0][..], &length, &message].concat();
        let headers = std::mem::take(&mut self.headers);
        self.frame(HEADERS, END_HEADERS, stream, &headers);
        self.headers = headers;
        self.frame(DATA, END_STREAM, stream, &body);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<usize> {
        let mut finished = 0;
        // All that has arrived is looked at, so that few calls carry much.
        while finished == 0 || !self.reader.buffer().is_empty() {
            finished += usize::from(self.receive()?);
        }
        Ok(finished)
    }
}

impl Puts {
    pub fn connect(address: &str) -> io::Result<Puts> {
        let writer = TcpStream::connect(address)?;
        writer.set_nodelay(true)?;
        writer.set_read_timeout(Some(PATIENCE))?;
        let mut puts = Puts {
            reader: BufReader::new(writer.try_clone()?),
            writer,
            headers: headers(address),
            next_stream: 1,
            answered: BTreeSet::new(),
            unsent: PREFACE.to_vec(),
        };
        // Whatever the answers hold together, it fits.
        puts.frame(
            SETTINGS,
            0,
            0,
            &[&[0, 4][..], &WINDOW.to_be_bytes()].concat(),
        );
        puts.frame(WINDOW_UPDATE, 0, 0, &(WINDOW - FIRST_WINDOW).to_be_bytes());
        Ok(puts)
    }

    /// Whether the next frame ends a request.
    fn receive(&mut self) -> io::Result<bool> {
        let frame = self.next_frame()?;
        let failed = |why: &str| Err(io::Error::other(format!("etcd {why}")));
        match (frame.kind, frame.flags) {
            (DATA, _) => {
                self.answered.insert(frame.stream);
            }
            (HEADERS, flags) if flags & END_STREAM != 0 => {
                return match self.answered.remove(&frame.stream) {
                    true => Ok(true),
                    false => failed("refuses"),
                };
            }
            // These leave with the next request.
            (SETTINGS, flags) if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]),
            (PING, flags) if flags & ACK == 0 => self.frame(PING, ACK, 0, &frame.payload),
            (RESET, _) => return failed("gives a request up"),
            (GO_AWAY, _) => return failed("ends the connection"),
            _ => {}
        }
        Ok(false)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.unsent.extend_from_slice(&length[1..]);
        self.unsent.extend_from_slice(&[kind, flags]);
        self.unsent.extend_from_slice(&stream.to_be_bytes());
        self.unsent.extend_from_slice(payload);
    }

    fn next_frame(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.reader.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let mut payload = vec![0; length];
        self.reader.read_exact(&mut payload)?;
        Ok(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & WINDOW,
            payload,
        })
    }
}

/// A field of bytes in protocol buffers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// Spelt as HPACK allows it, with names and pairs of its static table.
fn headers(address: &str) -> Vec<u8> {
    let mut out = vec![0x83, 0x86]; // :method POST, :scheme http
    let mut text = |start: &[u8], value: &str| {
        out.extend_from_slice(start);
        out.push(value.len() as u8);
        out.extend_from_slice(value.as_bytes());
    };
    text(&[0x04], PATH); // :path
    text(&[0x01], address); // :authority
    text(&[0x0f, 0x10], "application/grpc"); // content-type
    text(&[0x00, 2, b't', b'e'], "trailers");
    out
}
