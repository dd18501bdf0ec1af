//! What is published on one node, told to those who listen on the others.
//!
//! As on Redis' cluster bus this is done once, and nobody is told whether it came about. Letters may overtake each other, so one
//! at a time is on its way to a node, with all that has been published until it leaves: messages stay in their order, and many
//! of them make few letters.
//!
//! ```text
//!   messages   (length u32 | channel | length u32 | text)*
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_encoding::DecodeError;
use cairn_encoding::reader::Reader;
use parking_lot::Mutex;

use super::node::ClusterNode;
use super::post::Letter;
use crate::pubsub::Published;
use crate::server::Server;

/// How much may wait for a node. What comes then is not told to it.
const MOST_WAITING: usize = 32 << 20;
/// The longest message, if nothing waits: what is longer than a letter may be would cost the nodes their connection.
const LONGEST: usize = 128 << 20;
/// How long a letter may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What waits to be told to other nodes.
#[derive(Default)]
pub struct Publisher {
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<u8>,
    /// A letter is on its way.
    is_sending: bool,
    /// Something was left out, of which it has been told.
    is_overfull: bool,
}

impl ClusterNode {
    /// Tells all other nodes of a message.
    pub fn publish(self: &Arc<Self>, channel: &[u8], text: &[u8]) {
        for other in self.others() {
            let mut waiting = self.publisher.waiting.lock();
            let queue = waiting.entry(other).or_default();
            let length = channel.len() + text.len();
            let has_room = match queue.messages.len() {
                0 => length <= LONGEST,
                waiting => waiting + length <= MOST_WAITING,
            };
            if !has_room {
                if !std::mem::replace(&mut queue.is_overfull, true) {
                    tracing::warn!("node {other} is not told of all messages: it is too slow");
                }
                continue;
            }
            append(&mut queue.messages, channel, text);
            if !std::mem::replace(&mut queue.is_sending, true) {
                let node = self.clone();
                self.spawn(async move { node.send_messages(other).await });
            }
        }
    }

    async fn send_messages(&self, other: u64) {
        while let Some(messages) = self.publisher.take(other) {
            let letter = Letter::Publish(messages);
            if let Err(error) = self.post().call(other, &letter, LIMIT).await {
                tracing::debug!("messages for node {other} may be lost: {error}");
            }
        }
    }
}

impl Publisher {
    /// What is to be sent next; none if nothing is, and whoever sends may go.
    fn take(&self, node: u64) -> Option<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        let queue = waiting.get_mut(&node)?;
        if queue.messages.is_empty() {
            waiting.remove(&node);
            return None;
        }
        queue.is_overfull = false;
        Some(std::mem::take(&mut queue.messages))
    }
}

fn append(out: &mut Vec<u8>, channel: &[u8], text: &[u8]) {
    for part in [channel, text] {
        out.extend_from_slice(&(part.len() as u32).to_be_bytes());
        out.extend_from_slice(part);
    }
}

/// Shows those who listen here what was published elsewhere.
pub(super) fn show(server: &Server, messages: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new("messages", messages);
    while !reader.peek().is_empty() {
        let mut part = || {
            let length = reader.u32("length")?;
            reader.bytes("part", length as usize)
        };
        let (channel, text) = (part()?, part()?);
        let published = Published {
            channel,
            text,
            is_sharded: false,
        };
        let limits = &server.live.output_limits;
        server.pubsub.publish(published, None, limits);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_nodes() {
        let mut out = Vec::new();
        append(&mut out, b"ab", b"c");
        append(&mut out, b"", b"");
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "00000002616200000001630000000000000000");
    }

    #[test]
    fn messages_wait_for_the_letter_before() {
        let publisher = Publisher::default();
        let queue = |text: &[u8]| {
            let mut waiting = publisher.waiting.lock();
            append(&mut waiting.entry(7).or_default().messages, b"c", text);
        };
        queue(b"1");
        assert!(publisher.take(7).is_some());
        queue(b"2");
        queue(b"3");
        let both = publisher.take(7).map(|messages| messages.len());
        assert_eq!(both, Some(2 * (4 + 1 + 4 + 1)));
        assert_eq!(publisher.take(7), None);
        assert!(publisher.waiting.lock().is_empty());
    }
}
