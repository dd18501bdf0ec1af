//! One connection: frames in, frames out, in turn.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::frame::{Assembler, HEAD, Message, PART, decode_head, encode};

/// Sends messages until there are no more. The parts of several that are long take turns.
pub(super) async fn send_all(
    mut stream: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Message>,
) -> io::Result<()> {
    let mut sending: VecDeque<(Message, usize)> = VecDeque::new();
    let mut out = Vec::with_capacity(2 * PART);
    loop {
        if sending.is_empty() {
            match messages.recv().await {
                Some(message) => sending.push_back((message, 0)),
                None => return Ok(()),
            }
        }
        while out.len() < PART {
            while let Ok(message) = messages.try_recv() {
                sending.push_back((message, 0));
            }
            let Some((message, sent)) = sending.pop_front() else {
                break;
            };
            let end = message.bytes.len().min(sent + PART);
            let ends = end == message.bytes.len();
            let part = &message.bytes[sent..end];
            encode(&mut out, message.kind, message.id, part, ends);
            if !ends {
                sending.push_back((message, end));
            }
        }
        stream.write_all(&out).await?;
        // What is encrypted may have been taken and not have left.
        stream.flush().await?;
        out.clear();
    }
}

/// Receives messages, as they are complete.
pub(super) struct Incoming<S> {
    stream: S,
    assembler: Assembler,
    body: Vec<u8>,
    /// Counts frames.
    heard: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> Incoming<S> {
    pub(super) fn new(stream: S, heard: Arc<AtomicU64>) -> Incoming<S> {
        Incoming {
            stream,
            assembler: Assembler::default(),
            body: Vec::new(),
            heard,
        }
    }

    /// The next message. One that is given up while it waits must not be called again: a frame may be cut.
    pub(super) async fn next(&mut self) -> io::Result<Message> {
        loop {
            let mut head = [0; HEAD];
            self.stream.read_exact(&mut head).await?;
            let (length, crc) = decode_head(head)?;
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body).await?;
            self.heard.fetch_add(1, Ordering::Relaxed);
            if let Some(message) = self.assembler.push(&self.body, crc)? {
                return Ok(message);
            }
        }
    }
}
