//! Functions in a cluster: one set of libraries, which every node has.
//!
//! They are rows of region 0, and the node that leads it changes them (`script/functions`); other nodes have it do so
//! (`proxy`). It tells all others before it answers, and who was not there asks once in a second. What they are is told
//! with the place in the log of region 0 at which they were so, so that nobody goes back.
//!
//! ```text
//!   functions   place u64 | (length u32 | code)*
//! ```

use std::sync::Arc;
use std::time::Duration;

use cairn_cluster::MAP_REGION;
use cairn_encoding::DecodeError;
use cairn_encoding::reader::Reader;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::node::ClusterNode;
use super::post::{Answer, Letter};
use crate::script::functions;
use crate::server::Server;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The same until they have been heard of.
const AT_FIRST: Duration = Duration::from_millis(100);
/// How long other nodes have to take a change over before it is answered.
const LIMIT: Duration = Duration::from_secs(1);

/// All libraries, as they were at a place in the log of region 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub place: u64,
    pub codes: Vec<Vec<u8>>,
}

impl Told {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.place.to_be_bytes());
        for code in &self.codes {
            out.extend_from_slice(&(code.len() as u32).to_be_bytes());
            out.extend_from_slice(code);
        }
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Told, DecodeError> {
        let place = reader.u64("place")?;
        let mut codes = Vec::new();
        while !reader.peek().is_empty() {
            let length = reader.u32("length")? as usize;
            codes.push(reader.bytes("code", length)?.to_vec());
        }
        Ok(Told { place, codes })
    }
}

impl ClusterNode {
    /// Follows what the functions are, for as long as the node runs.
    pub(super) async fn follow_functions(self: Arc<Self>) {
        let mut led_in = None;
        loop {
            let reign = self.store.home().reign();
            if reign.is_none() {
                self.ask_for_functions().await;
            } else if reign != led_in {
                // Others have changed them before.
                self.read_functions().await;
            }
            led_in = reign;
            let is_known = *self.functions_at.lock() > 0;
            sleep(if is_known { BETWEEN_LOOKS } else { AT_FIRST }).await;
        }
    }

    /// What they are by the rows of region 0, which this node leads.
    async fn read_functions(&self) {
        let Some(server) = self.server() else {
            return;
        };
        let place = self.place_of_map();
        let read = tokio::task::spawn_blocking(move || functions::load(&server)).await;
        match read {
            Ok(Ok(())) => self.note_functions(place),
            Ok(Err(error)) => tracing::error!("functions cannot be read: {error}"),
            Err(_) => {}
        }
    }

    async fn ask_for_functions(self: &Arc<Self>) {
        let map = self.map();
        let region = map.region(MAP_REGION);
        let leader = region.and_then(|region| self.observed().leader(region));
        let Some(leader) = leader.filter(|leader| *leader != self.id()) else {
            return;
        };
        let letter = Letter::AskFunctions(*self.functions_at.lock());
        if let Ok(Answer::Functions(told)) = self.post().call(leader, &letter, LIMIT).await {
            self.take_functions(told).await;
        }
    }

    /// Answers one who knows them as they were at a place.
    pub(super) fn tell_functions(&self, known: u64) -> Answer {
        let place = *self.functions_at.lock();
        match self.server() {
            Some(server) if self.store.home().is_led() && place > known => {
                Answer::Functions(told(&server, place))
            }
            _ => Answer::Done,
        }
    }

    /// This node has changed them, at this place; others are to know before that is answered. For a thread that may wait.
    pub fn spread_functions(self: &Arc<Self>, server: &Server, place: u64) {
        self.note_functions(place);
        let letter = Arc::new(Letter::Functions(told(server, place)));
        self.runtime.block_on(async {
            let mut telling = JoinSet::new();
            for other in self.others() {
                let (node, letter) = (self.clone(), letter.clone());
                telling.spawn(async move { node.post().call(other, &letter, LIMIT).await });
            }
            telling.join_all().await;
        });
    }

    /// Takes over what the leader of region 0 has told.
    pub(super) async fn take_functions(&self, told: Told) {
        let Some(server) = self.server() else {
            return;
        };
        // One after the other, so that the newest stays.
        let _one_at_a_time = self.taking_functions.lock().await;
        if told.place <= *self.functions_at.lock() {
            return;
        }
        let codes = told.codes;
        let taken = tokio::task::spawn_blocking(move || functions::replace(&server, &codes)).await;
        match taken {
            Ok(Ok(())) => self.note_functions(told.place),
            Ok(Err(error)) => tracing::error!("functions cannot be taken over: {error}"),
            Err(_) => {}
        }
    }

    fn note_functions(&self, place: u64) {
        let mut at = self.functions_at.lock();
        *at = place.max(*at);
    }

    /// Where this node is in the log of region 0. Raft itself learns of it a moment later than whoever has made a change, and two
    /// changes must not have the same place.
    pub fn place_of_map(&self) -> u64 {
        let applied = self.regions.applied(MAP_REGION).ok();
        let last = applied.and_then(|applied| applied.last);
        last.map_or(0, |last| last.index)
    }
}

fn told(server: &Server, place: u64) -> Told {
    let libraries = server.scripts.functions.committed();
    let codes = libraries.iter().map(|library| library.code.clone());
    Told {
        place,
        codes: codes.collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_between_nodes() {
        let told = Told {
            place: 9,
            codes: vec![b"ab".to_vec(), Vec::new()],
        };
        let mut out = Vec::new();
        told.encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0000000000000009 00000002 6162 00000000".replace(' ', "")
        );
        assert_eq!(Told::decode(Reader::new("functions", &out)).unwrap(), told);
    }
}
