//! What nodes say to each other besides what Raft does, over the same connections.
//!
//! ```text
//!   letter    kind u8 | version u8 | ...                    kinds below 64 are Raft's requests
//!     64 report    map epoch u64 | count u32 | led*         what a node leads, several times in a second
//!                  | short u8 | count u32 | region u64*     ... whether its disk is almost full, and what cannot be started there
//!     65 change    bytes                                    a change of the map, for the leader of region 0
//!     66 transfer  region u64 | replica u64                 hand over the lead of a region
//!     67 show map  (nothing)                                the map as it is now, by the leader of region 0
//!     80 publish   messages (`publish`)                     for those who listen there
//!     81 forward   guest (`proxy`)                          commands of a client
//!     82 functions functions (`functions`)                  what they are, by the leader of region 0
//!     83 ask for functions   place u64                      for the leader of region 0
//!     84 call back visit u64                                a guest need not wait any more
//!   led       region u64 | term u64 | epoch u64 | leader u64 | settled u8
//!             | count u32 | replicas* | replicas | count u32 | (replica u64 | lag u64)*
//!   replicas  count u32 | replica u64*
//!
//!   answer    0 | text (why not)  |  kind u8 | ...
//!     1 done       (nothing)
//!     2 map        bytes                                    a newer one than that of which the report told, or the one asked for
//!     3 changed    bytes                                    what came of the change
//!     4 not here   (nothing)                                another leads, or nobody
//!    16 replied    bytes                                    what the commands answered
//!    17 functions  functions (`functions`)                  newer ones than those that are known
//!    18 came back  (nothing)                                a guest that was called back, and has done nothing
//!    19 too long   (nothing)                                what the commands answered is; they may have been done
//! ```
//!
//! A letter of a kind or version that a node does not know is refused in words, and whoever sent it does without. What a newer node
//! adds at the end of one, where its length is not open, is passed over. So nodes of two versions can talk: one of the first
//! versions ends its report after what it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cairn_cluster::{ClusterMap, Group, NodeState};
use cairn_encoding::DecodeError;
use cairn_encoding::reader::Reader;
use cairn_raft::{
    CallError, Caller, Later, Node as RaftNode, Service, Tcp, Tls, Traffic, Transport,
};

use super::functions::Told;
use super::node::ClusterNode;
use crate::guest::Guest;

/// The lowest kind of a letter.
const LETTERS: u8 = 64;
const REPORT: u8 = 64;
const CHANGE: u8 = 65;
const TRANSFER: u8 = 66;
const SHOW_MAP: u8 = 67;
const PUBLISH: u8 = 80;
const FORWARD: u8 = 81;
const FUNCTIONS: u8 = 82;
const ASK_FUNCTIONS: u8 = 83;
const CALL_BACK: u8 = 84;
const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Letter {
    Report(Report),
    Change(Vec<u8>),
    Transfer { region: u64, to: u64 },
    ShowMap,
    Publish(Vec<u8>),
    Forward(Guest),
    Functions(Told),
    AskFunctions(u64),
    CallBack(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Refused(String),
    Done,
    Map(Vec<u8>),
    Changed(Vec<u8>),
    NotHere,
    Replied(Vec<u8>),
    Functions(Told),
    CameBack,
    TooLong,
}

/// What a node tells the others of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub map_epoch: u64,
    pub led: Vec<Led>,
    /// Whether its disk is almost full.
    pub is_short: bool,
    /// Regions whose replicas it should run, and cannot start.
    pub failed: BTreeSet<u64>,
}

/// A region that a node leads, and is ready to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Led {
    pub region: u64,
    pub term: u64,
    pub group: Group,
}

/// Sends letters.
pub struct Post {
    tcp: Arc<Tcp>,
}

impl Post {
    pub fn new(tcp: Arc<Tcp>) -> Post {
        Post { tcp }
    }

    /// Sends a letter, and waits for the answer. If there is none, it is not known whether the letter was read.
    pub async fn call(
        &self,
        node: u64,
        letter: &Letter,
        limit: Duration,
    ) -> Result<Answer, CallError> {
        let answer = self.tcp.call(node, letter.encode(), limit).await?;
        Answer::decode(&answer).map_err(|error| CallError::Unreachable(error.to_string()))
    }

    /// The nodes to which there is a connection, and since when, in milliseconds of the clock.
    pub fn connected(&self) -> Vec<(u64, i64)> {
        let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let connected = self.tcp.connected().into_iter();
        connected
            .map(|(node, at)| (node, since(at).as_millis() as i64))
            .collect()
    }

    pub fn traffic(&self) -> &Traffic {
        self.tcp.traffic()
    }

    pub fn set_address(&self, node: u64, address: String) {
        self.tcp.set_address(node, address);
    }

    /// Says how new the map is that is known here.
    pub fn know(&self, epoch: u64) {
        self.tcp.know(epoch);
    }

    pub fn forget(&self, node: u64) {
        self.tcp.forget(node);
    }

    pub fn renew(&self, tls: Tls) {
        self.tcp.renew(tls);
    }
}

/// Takes what comes from other nodes to whom it is for.
pub struct Mailroom {
    raft: Arc<RaftNode>,
    node: OnceLock<Weak<ClusterNode>>,
}

impl Mailroom {
    pub fn new(raft: Arc<RaftNode>) -> Arc<Mailroom> {
        Arc::new(Mailroom {
            raft,
            node: OnceLock::new(),
        })
    }

    /// Letters are for this node. Before, they are refused.
    pub fn open(&self, node: &Arc<ClusterNode>) {
        self.node.set(Arc::downgrade(node)).ok();
    }
}

impl Service for Mailroom {
    /// Whom the map does not know is not talked to, unless it knows a newer one. Who was removed may come and learn that.
    fn admits(&self, caller: &Caller) -> Result<(), String> {
        let Some(node) = self.node.get().and_then(Weak::upgrade) else {
            return Err("it is not there yet".to_string());
        };
        admits(&node.map(), caller)
    }

    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes> {
        let node = self.node.get().and_then(Weak::upgrade);
        let kind = request.first().copied().unwrap_or(0);
        if kind != REPORT
            && node
                .as_ref()
                .is_some_and(|node| is_removed(&node.map(), from))
        {
            let why = format!("node {from} was removed from this cluster");
            return Box::pin(async { Answer::Refused(why).encode() });
        }
        if kind < LETTERS {
            return self.raft.serve(from, request);
        }
        Box::pin(async move {
            let answer = match (Letter::decode(&request), node) {
                (Err(error), _) => Answer::Refused(error.to_string()),
                (_, None) => Answer::Refused("it is not there yet".to_string()),
                (Ok(letter), Some(node)) => node.answer(from, letter).await,
            };
            answer.encode()
        })
    }
}

fn admits(map: &ClusterMap, caller: &Caller) -> Result<(), String> {
    let node = caller.node;
    match map.node(node) {
        Some(known) if known.incarnation != caller.incarnation => Err(format!(
            "the directory of node {node} is another than the one that was let in: remove the node from the cluster, and add this \
             server as a new one"
        )),
        None if map.is_founded() && caller.knows <= map.epoch() => {
            Err(format!("there is no node {node} in this cluster"))
        }
        Some(_) | None => Ok(()),
    }
}

fn is_removed(map: &ClusterMap, node: u64) -> bool {
    let known = map.node(node);
    known.is_some_and(|known| known.state == NodeState::Removed)
}

impl Letter {
    fn encode(&self) -> Bytes {
        let mut out = Out(Vec::new());
        match self {
            Letter::Report(report) => {
                out.begin(REPORT);
                out.u64(report.map_epoch);
                out.all(&report.led, Out::led);
                out.0.push(u8::from(report.is_short));
                out.all(&report.failed, |out, region| out.u64(*region));
            }
            Letter::Change(change) => {
                out.begin(CHANGE);
                out.0.extend_from_slice(change);
            }
            Letter::Transfer { region, to } => {
                out.begin(TRANSFER);
                out.u64(*region);
                out.u64(*to);
            }
            Letter::ShowMap => out.begin(SHOW_MAP),
            Letter::Publish(messages) => {
                out.begin(PUBLISH);
                out.0.extend_from_slice(messages);
            }
            Letter::Forward(guest) => {
                out.begin(FORWARD);
                guest.encode(&mut out.0);
            }
            Letter::Functions(told) => {
                out.begin(FUNCTIONS);
                told.encode(&mut out.0);
            }
            Letter::AskFunctions(known) => {
                out.begin(ASK_FUNCTIONS);
                out.u64(*known);
            }
            Letter::CallBack(visit) => {
                out.begin(CALL_BACK);
                out.u64(*visit);
            }
        }
        out.0.into()
    }

    fn decode(bytes: &[u8]) -> Result<Letter, DecodeError> {
        let mut reader = Reader::new("letter", bytes);
        let kind = reader.u8("kind")?;
        match reader.u8("version")? {
            VERSION => {}
            tag => return Err(DecodeError::UnknownTag { tag }),
        }
        let letter = match kind {
            REPORT => {
                let mut report = Report {
                    map_epoch: reader.u64("map epoch")?,
                    led: all(&mut reader, read_led)?,
                    ..Report::default()
                };
                if !reader.peek().is_empty() {
                    report.is_short = reader.u8("short")? == 1;
                    report.failed = all(&mut reader, |reader| reader.u64("region"))?;
                }
                Letter::Report(report)
            }
            CHANGE => return Ok(Letter::Change(reader.rest().to_vec())),
            PUBLISH => return Ok(Letter::Publish(reader.rest().to_vec())),
            FORWARD => return Guest::decode(reader).map(Letter::Forward),
            FUNCTIONS => return Told::decode(reader).map(Letter::Functions),
            ASK_FUNCTIONS => Letter::AskFunctions(reader.u64("place")?),
            CALL_BACK => Letter::CallBack(reader.u64("visit")?),
            TRANSFER => Letter::Transfer {
                region: reader.u64("region")?,
                to: reader.u64("to")?,
            },
            SHOW_MAP => Letter::ShowMap,
            tag => return Err(DecodeError::UnknownTag { tag }),
        };
        Ok(letter)
    }
}

impl Answer {
    fn encode(&self) -> Bytes {
        let mut encoded = Vec::new();
        let (kind, bytes): (u8, &[u8]) = match self {
            Answer::Refused(why) => (0, why.as_bytes()),
            Answer::Done => (1, &[]),
            Answer::Map(map) => (2, map),
            Answer::Changed(answer) => (3, answer),
            Answer::NotHere => (4, &[]),
            Answer::Replied(replies) => (16, replies),
            Answer::Functions(told) => {
                told.encode(&mut encoded);
                (17, &encoded)
            }
            Answer::CameBack => (18, &[]),
            Answer::TooLong => (19, &[]),
        };
        [&[kind], bytes].concat().into()
    }

    fn decode(bytes: &[u8]) -> Result<Answer, DecodeError> {
        let mut reader = Reader::new("answer", bytes);
        let kind = reader.u8("kind")?;
        if kind == 17 {
            return Told::decode(reader).map(Answer::Functions);
        }
        let rest = reader.rest();
        Ok(match kind {
            0 => Answer::Refused(String::from_utf8_lossy(rest).into_owned()),
            1 => Answer::Done,
            2 => Answer::Map(rest.to_vec()),
            3 => Answer::Changed(rest.to_vec()),
            4 => Answer::NotHere,
            16 => Answer::Replied(rest.to_vec()),
            18 => Answer::CameBack,
            19 => Answer::TooLong,
            tag => return Err(DecodeError::UnknownTag { tag }),
        })
    }
}

struct Out(Vec<u8>);

impl Out {
    fn begin(&mut self, kind: u8) {
        self.0.extend_from_slice(&[kind, VERSION]);
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn all<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        write: impl Fn(&mut Out, T),
    ) {
        let items = items.into_iter();
        self.0
            .extend_from_slice(&(items.len() as u32).to_be_bytes());
        items.for_each(|item| write(self, item));
    }

    fn replicas(&mut self, replicas: &BTreeSet<u64>) {
        self.all(replicas, |out, replica| out.u64(*replica));
    }

    fn led(&mut self, led: &Led) {
        let group = &led.group;
        for number in [led.region, led.term, group.epoch, group.leader] {
            self.u64(number);
        }
        self.0.push(u8::from(group.settled));
        self.all(&group.configs, Out::replicas);
        self.replicas(&group.learners);
        self.all(&group.lag, |out, (replica, lag)| {
            out.u64(*replica);
            out.u64(*lag);
        });
    }
}

fn all<T, C: FromIterator<T>>(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<C, DecodeError> {
    let count = reader.u32("count")?;
    (0..count).map(|_| read(reader)).collect()
}

fn read_replicas(reader: &mut Reader<'_>) -> Result<BTreeSet<u64>, DecodeError> {
    all(reader, |reader| reader.u64("replica"))
}

fn read_led(reader: &mut Reader<'_>) -> Result<Led, DecodeError> {
    let (region, term) = (reader.u64("region")?, reader.u64("term")?);
    let (epoch, leader) = (reader.u64("epoch")?, reader.u64("leader")?);
    let settled = reader.u8("settled")? == 1;
    let configs = all(reader, read_replicas)?;
    let learners = read_replicas(reader)?;
    let lag: BTreeMap<u64, u64> = all(reader, |reader| {
        Ok((reader.u64("replica")?, reader.u64("lag")?))
    })?;
    Ok(Led {
        region,
        term,
        group: Group {
            leader,
            configs,
            learners,
            settled,
            lag,
            epoch,
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use cairn_cluster::{Addresses, Change, Endpoint, Foundation, Founder, NEWEST, Peer, Settings};
    use cairn_raft::Run;

    use super::*;

    #[test]
    fn bytes_between_nodes() {
        let group = Group {
            leader: 5,
            configs: vec![BTreeSet::from([5, 6])],
            learners: BTreeSet::from([7]),
            settled: true,
            lag: BTreeMap::from([(6, 9)]),
            epoch: 2,
        };
        let led = vec![Led {
            region: 1,
            term: 3,
            group,
        }];
        let report = Report {
            map_epoch: 4,
            led,
            is_short: true,
            failed: BTreeSet::from([8]),
        };
        let letter = Letter::Report(report.clone());
        let bytes = letter.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let number = |number: u64| format!("{number:016x}");
        let expected = [
            "4001".to_string(),
            number(4),
            "00000001".to_string(),
            [1, 3, 2, 5].map(number).concat(),
            "01".to_string(),
            format!("00000001 00000002 {}{}", number(5), number(6)),
            format!("00000001 {}", number(7)),
            format!("00000001 {}{}", number(6), number(9)),
            format!("01 00000001 {}", number(8)),
        ];
        assert_eq!(hex, expected.concat().replace(' ', ""));
        assert_eq!(Letter::decode(&bytes).unwrap(), letter);
        let end_of_older = bytes.len() - 13;
        for length in (0..bytes.len()).filter(|length| *length != end_of_older) {
            assert!(Letter::decode(&bytes[..length]).is_err());
        }
        let older = Report {
            is_short: false,
            failed: BTreeSet::new(),
            ..report
        };
        let decoded = Letter::decode(&bytes[..end_of_older]).unwrap();
        assert_eq!(decoded, Letter::Report(older));
        let newer = [&bytes[..], b"more"].concat();
        assert_eq!(Letter::decode(&newer).unwrap(), letter);
        let letters = [
            Letter::Change(vec![1, 2]),
            Letter::Transfer { region: 1, to: 2 },
            Letter::ShowMap,
            Letter::Publish(vec![1]),
            Letter::AskFunctions(7),
            Letter::CallBack(8),
        ];
        for letter in letters {
            assert_eq!(Letter::decode(&letter.encode()).unwrap(), letter);
        }
        let answers = [
            Answer::Refused("no".into()),
            Answer::Done,
            Answer::Map(vec![1]),
            Answer::Changed(vec![]),
            Answer::NotHere,
            Answer::Replied(vec![1]),
            Answer::CameBack,
            Answer::TooLong,
        ];
        for answer in answers {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
        }
        assert!(Letter::decode(&[REPORT, 2]).is_err());
        assert!(Letter::decode(&[99, 1]).is_err());
    }

    fn caller(node: u64, incarnation: u64, knows: u64) -> Caller {
        let run = Run {
            starts: 1,
            number: 1,
        };
        Caller {
            node,
            incarnation,
            run,
            knows,
        }
    }

    #[test]
    fn who_calls_is_looked_up_in_the_map() {
        let address = |port| Addresses {
            clients: Endpoint {
                host: "10.0.0.1".into(),
                port,
                tls_port: 0,
            },
            advertised: None,
            peers: Peer {
                host: "10.0.0.1".into(),
                port: port + 1,
            },
        };
        let founder = |port| Founder {
            addresses: address(port),
            version: NEWEST,
            incarnation: u64::from(port),
        };
        let foundation = Foundation {
            cluster: 7,
            settings: Settings {
                replicas: 1,
                balance: true,
            },
            nodes: vec![founder(10), founder(20)],
            regions: 1,
        };
        let mut map = ClusterMap::default();
        // Who knows nothing yet is glad of everybody.
        assert_eq!(admits(&map, &caller(9, 9, 0)), Ok(()));
        map.apply(&Change::Found(foundation)).unwrap();
        assert_eq!(admits(&map, &caller(2, 20, 0)), Ok(()));
        let another = admits(&map, &caller(2, 21, 0)).unwrap_err();
        assert!(another.contains("the directory of node 2 is another"));
        let unknown = admits(&map, &caller(3, 30, map.epoch()));
        assert_eq!(unknown.unwrap_err(), "there is no node 3 in this cluster");
        // It may have been let in since.
        assert_eq!(admits(&map, &caller(3, 30, map.epoch() + 1)), Ok(()));
        map.apply(&Change::DrainNode { node: 2 }).unwrap();
        assert!(!is_removed(&map, 2) && !is_removed(&map, 3));
        map.apply(&Change::RemoveNode { node: 2 }).unwrap();
        assert!(is_removed(&map, 2));
        assert_eq!(admits(&map, &caller(2, 20, 0)), Ok(()), "it may learn that");
    }
}
