//! How two nodes find out that they belong together.
//!
//! ```text
//!   hello    "cairn raft" | length u16 | what follows: oldest u16 | newest u16 | cluster u64 | node u64
//!            | incarnation u64 | starts u64 | run u64 | knows u64 | nonce 32 | more, of which a newer node knows
//!   proof    HMAC-SHA-256 under the cluster's secret of: label | the caller's hello | the answerer's hello
//!   verdict  0 (welcome)  |  1 | length u16 | why not  |  2 | length u16 | why it must not be this node at all
//!
//!   caller → answerer   hello
//!   answerer → caller   hello | proof with the label "answer"
//!   caller → answerer   proof with the label "call"
//!   answerer → caller   verdict
//! ```
//!
//! `oldest` and `newest` are the versions that a node speaks; the two take the newest that both do. So a node of the
//! next version and one of this can talk, as long as the next one still knows this. `incarnation` tells a node's directory from
//! others, `starts` and `run` tell its processes apart (`processes`), and `knows` is how new the cluster's map is that it
//! has. Each proof covers both
//! nonces and both nodes, so none can be used a second time, or by another. What is said afterwards is
//! neither encrypted nor signed: a network in which others can write needs more than the secret. With TLS (`tls`) all of
//! this is said inside, and the secret may be left out.

use std::io;

use cairn_encoding::reader::Reader;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::processes::Run;
use super::tls::Tls;

const MAGIC: &[u8; 10] = b"cairn raft";
const HEAD: usize = MAGIC.len() + 2;
/// The longest that is listened to.
const LONGEST: usize = 4096;
const PROOF: usize = 32;
/// The oldest version that is spoken, and the newest.
const OLDEST: u16 = 1;
pub(super) const NEWEST: u16 = 1;

/// Who a node is, and how it shows it.
#[derive(Clone)]
pub struct Identity {
    pub cluster: u64,
    pub node: u64,
    /// What tells its directory from others.
    pub incarnation: u64,
    pub run: Run,
    /// Shared by all nodes of the cluster. An empty one shows nothing.
    pub secret: Vec<u8>,
    /// Nodes either all talk so, or none.
    pub tls: Option<Tls>,
}

/// A node as it has introduced itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub node: u64,
    pub incarnation: u64,
    pub run: Run,
    /// How new what it knows of the cluster is.
    pub knows: u64,
}

#[derive(Debug, PartialEq)]
struct Hello {
    oldest: u16,
    newest: u16,
    cluster: u64,
    caller: Caller,
}

impl Hello {
    fn encode(&self, nonce: &[u8; 32]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.oldest.to_be_bytes());
        out.extend_from_slice(&self.newest.to_be_bytes());
        let Caller {
            node,
            incarnation,
            run,
            knows,
        } = self.caller;
        let numbers = [
            self.cluster,
            node,
            incarnation,
            run.starts,
            run.number,
            knows,
        ];
        for number in numbers {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(nonce);
        let length = (out.len() - HEAD) as u16;
        out[MAGIC.len()..HEAD].copy_from_slice(&length.to_be_bytes());
        out
    }

    /// Reads what this version knows of it.
    fn decode(bytes: &[u8]) -> io::Result<Hello> {
        let mut reader = Reader::new("raft hello", &bytes[HEAD..]);
        let mut read = || {
            let hello = Hello {
                oldest: reader.u16("oldest")?,
                newest: reader.u16("newest")?,
                cluster: reader.u64("cluster")?,
                caller: Caller {
                    node: reader.u64("node")?,
                    incarnation: reader.u64("incarnation")?,
                    run: Run {
                        starts: reader.u64("starts")?,
                        number: reader.u64("run")?,
                    },
                    knows: reader.u64("knows")?,
                },
            };
            reader.chunk::<32>("nonce")?;
            Ok(hello)
        };
        read().map_err(|error: cairn_encoding::DecodeError| refused(&error.to_string()))
    }

    /// The version in which the two talk.
    fn agree(&self, other: &Hello) -> io::Result<u16> {
        if self.cluster != other.cluster {
            return Err(refused("it belongs to another cluster"));
        }
        let version = self.newest.min(other.newest);
        match version >= self.oldest.max(other.oldest) {
            true => Ok(version),
            false => Err(refused("it speaks no version that is spoken here")),
        }
    }
}

pub(super) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// A process has the directory of a node as it was earlier. It can never be that node again.
#[derive(Debug, Error)]
#[error("{0}")]
struct Outdated(String);

pub(super) fn outdated(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Outdated(why.to_string()))
}

pub(super) fn is_outdated(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Outdated>())
}

/// What to say instead, if the other side has closed the connection.
fn closed(why: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => refused(why),
        _ => error,
    }
}

/// Who this node says that it is.
pub(super) struct Introduction {
    pub identity: Identity,
    /// The newest version that it speaks.
    pub newest: u16,
    pub knows: u64,
}

impl Introduction {
    fn hello(&self) -> io::Result<(Hello, Vec<u8>)> {
        let mut nonce = [0; 32];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| io::Error::other("the system has no random numbers"))?;
        let Identity {
            cluster,
            node,
            incarnation,
            run,
            ..
        } = self.identity;
        let hello = Hello {
            oldest: OLDEST,
            newest: self.newest,
            cluster,
            caller: Caller {
                node,
                incarnation,
                run,
                knows: self.knows,
            },
        };
        let bytes = hello.encode(&nonce);
        Ok((hello, bytes))
    }
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(Hello, Vec<u8>)> {
    let mut bytes = vec![0; HEAD];
    stream.read_exact(&mut bytes).await?;
    if !bytes.starts_with(MAGIC) {
        return Err(refused("it is no node of a cluster, or talks by TLS"));
    }
    let length = usize::from(u16::from_be_bytes([bytes[HEAD - 2], bytes[HEAD - 1]]));
    if length > LONGEST {
        return Err(refused("it says too much"));
    }
    bytes.resize(HEAD + length, 0);
    stream.read_exact(&mut bytes[HEAD..]).await?;
    Ok((Hello::decode(&bytes)?, bytes))
}

fn signed(label: &str, caller: &[u8], answerer: &[u8]) -> Vec<u8> {
    [label.as_bytes(), caller, answerer].concat()
}

fn proof(identity: &Identity, signed: &[u8]) -> hmac::Tag {
    hmac::sign(&key(identity), signed)
}

fn key(identity: &Identity) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &identity.secret)
}

/// Compares in a time that does not depend on where they differ.
fn check(identity: &Identity, signed: &[u8], proof: &[u8]) -> io::Result<()> {
    hmac::verify(&key(identity), signed, proof).map_err(|_| refused("it does not know the secret"))
}

/// Introduces this node to `node`, and makes sure that it is that. The answer is for [`take_verdict`] to hear.
pub(super) async fn call<S>(
    stream: &mut S,
    introduction: &Introduction,
    node: u64,
) -> io::Result<(Caller, u16)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let identity = &introduction.identity;
    let (own, sent) = introduction.hello()?;
    stream.write_all(&sent).await?;
    stream.flush().await?;
    let answered = receive(stream).await;
    let (other, received) = answered.map_err(closed("it hangs up when it hears who calls"))?;
    let mut theirs = [0; PROOF];
    stream.read_exact(&mut theirs).await?;
    check(identity, &signed("answer", &sent, &received), &theirs)?;
    if other.caller.node != node {
        return Err(refused("it is another node"));
    }
    let version = own.agree(&other)?;
    let ours = proof(identity, &signed("call", &sent, &received));
    stream.write_all(ours.as_ref()).await?;
    stream.flush().await?;
    Ok((other.caller, version))
}

/// Finds out who calls. It waits to hear whether it is welcome.
pub(super) async fn answer<S>(
    stream: &mut S,
    introduction: &Introduction,
) -> io::Result<(Caller, u16)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let identity = &introduction.identity;
    let (other, received) = receive(stream).await?;
    let (own, sent) = introduction.hello()?;
    let version = own.agree(&other)?;
    let ours = proof(identity, &signed("answer", &received, &sent));
    stream.write_all(&sent).await?;
    stream.write_all(ours.as_ref()).await?;
    stream.flush().await?;
    let mut theirs = [0; PROOF];
    let proven = stream.read_exact(&mut theirs).await;
    proven.map_err(closed("it hangs up: its secret may be another"))?;
    check(identity, &signed("call", &received, &sent), &theirs)?;
    Ok((other.caller, version))
}

/// Tells a caller whether it is welcome.
pub(super) async fn tell_verdict<S>(stream: &mut S, refusal: Option<&io::Error>) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut out = Vec::new();
    match refusal {
        None => out.push(0),
        Some(refusal) => {
            let why = refusal.to_string();
            let why = &why.as_bytes()[..why.len().min(LONGEST)];
            out.push(if is_outdated(refusal) { 2 } else { 1 });
            out.extend_from_slice(&(why.len() as u16).to_be_bytes());
            out.extend_from_slice(why);
        }
    }
    stream.write_all(&out).await?;
    stream.flush().await
}

pub(super) async fn take_verdict<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let told = stream.read_u8().await;
    let told = told.map_err(closed("it hangs up: its secret may be another"))?;
    if told == 0 {
        return Ok(());
    }
    let mut why = vec![0; usize::from(stream.read_u16().await?).min(LONGEST)];
    stream.read_exact(&mut why).await?;
    let why = String::from_utf8_lossy(&why);
    let why = format!("it refuses this node: {why}");
    Err(match told {
        2 => outdated(&why),
        _ => refused(&why),
    })
}

#[cfg(test)]
mod tests {
    use openraft::rt::AsyncRuntime;

    use super::*;
    use crate::runtime::Runtime;

    const RUN: Run = Run {
        starts: 6,
        number: 7,
    };

    fn identity(cluster: u64, node: u64, secret: &str) -> Introduction {
        let identity = Identity {
            cluster,
            node,
            incarnation: 5,
            run: RUN,
            secret: secret.as_bytes().to_vec(),
            tls: None,
        };
        Introduction {
            identity,
            newest: NEWEST,
            knows: 8,
        }
    }

    fn caller(node: u64) -> Caller {
        Caller {
            node,
            incarnation: 5,
            run: RUN,
            knows: 8,
        }
    }

    type Met = io::Result<(Caller, u16)>;

    fn meet(caller: Introduction, answerer: Introduction, expected: u64) -> (Met, Met) {
        Runtime::run(async move {
            let (mut here, mut there) = tokio::io::duplex(1000);
            let answering = tokio::spawn(async move { answer(&mut there, &answerer).await });
            let called = call(&mut here, &caller, expected).await;
            drop(here);
            (called, answering.await.unwrap())
        })
    }

    #[test]
    fn nodes_of_one_cluster_know_each_other() {
        let (called, answered) = meet(identity(1, 5, "x"), identity(1, 6, "x"), 6);
        assert_eq!(called.unwrap(), (caller(6), NEWEST));
        assert_eq!(answered.unwrap(), (caller(5), NEWEST));
    }

    #[test]
    fn others_are_refused() {
        let refused = |caller, answerer, expected, here: &str, there: &str| {
            let (called, answered) = meet(caller, answerer, expected);
            assert_eq!(called.unwrap_err().to_string(), here);
            assert_eq!(answered.unwrap_err().to_string(), there);
        };
        let (unknown, gone) = (
            "it does not know the secret",
            "it hangs up: its secret may be another",
        );
        refused(identity(1, 5, "x"), identity(1, 6, "y"), 6, unknown, gone);
        refused(identity(1, 5, ""), identity(1, 6, "y"), 6, unknown, gone);
        let (unheard, foreign) = (
            "it hangs up when it hears who calls",
            "it belongs to another cluster",
        );
        refused(
            identity(2, 5, "x"),
            identity(1, 6, "x"),
            6,
            unheard,
            foreign,
        );
        refused(
            identity(1, 5, "x"),
            identity(1, 7, "x"),
            6,
            "it is another node",
            gone,
        );
    }

    #[test]
    fn a_verdict_is_told() {
        let heard = |refusal: Option<io::Error>| {
            Runtime::run(async move {
                let (mut here, mut there) = tokio::io::duplex(1000);
                tell_verdict(&mut there, refusal.as_ref()).await.unwrap();
                drop(there);
                take_verdict(&mut here).await
            })
        };
        heard(None).unwrap();
        let why = heard(Some(refused("no room"))).unwrap_err();
        assert_eq!(why.to_string(), "it refuses this node: no room");
        assert!(!is_outdated(&why));
        let why = heard(Some(outdated("it is of the past"))).unwrap_err();
        assert_eq!(why.to_string(), "it refuses this node: it is of the past");
        assert!(is_outdated(&why));
    }

    #[test]
    fn versions_that_overlap_agree() {
        let speaks = |oldest, newest| Hello {
            oldest,
            newest,
            cluster: 1,
            caller: caller(1),
        };
        assert_eq!(speaks(1, 2).agree(&speaks(2, 3)).unwrap(), 2);
        assert_eq!(speaks(1, 3).agree(&speaks(1, 2)).unwrap(), 2);
        assert!(speaks(1, 2).agree(&speaks(3, 4)).is_err());
    }

    /// A node of the next version calls: it speaks this one too, and says more of itself.
    #[test]
    fn a_newer_node_is_understood() {
        let (called, answered) = Runtime::run(async move {
            let (mut here, mut there) = tokio::io::duplex(1000);
            let answerer = identity(1, 6, "x");
            let answering = tokio::spawn(async move { answer(&mut there, &answerer).await });
            let newer = identity(1, 5, "x");
            let (mut hello, _) = newer.hello().unwrap();
            hello.newest = NEWEST + 1;
            let mut sent = hello.encode(&[3; 32]);
            sent.extend_from_slice(b"of which this version knows nothing");
            let length = (sent.len() - HEAD) as u16;
            sent[MAGIC.len()..HEAD].copy_from_slice(&length.to_be_bytes());
            here.write_all(&sent).await.unwrap();
            let (other, received) = receive(&mut here).await.unwrap();
            let mut theirs = [0; PROOF];
            here.read_exact(&mut theirs).await.unwrap();
            let proven = check(
                &newer.identity,
                &signed("answer", &sent, &received),
                &theirs,
            );
            proven.unwrap();
            let ours = proof(&newer.identity, &signed("call", &sent, &received));
            here.write_all(ours.as_ref()).await.unwrap();
            (hello.agree(&other), answering.await.unwrap())
        });
        assert_eq!(called.unwrap(), NEWEST);
        assert_eq!(answered.unwrap(), (caller(5), NEWEST));
    }

    #[test]
    fn bytes_on_the_wire() {
        let hello = Hello {
            oldest: 1,
            newest: 2,
            cluster: 3,
            caller: caller(4),
        };
        let bytes = hello.encode(&[9; 32]);
        assert_eq!(Hello::decode(&bytes).unwrap(), hello);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "636169726e2072616674 0054 0001 0002 0000000000000003 0000000000000004 \
             0000000000000005 0000000000000006 0000000000000007 0000000000000008";
        assert_eq!(hex, expected.replace(' ', "") + &"09".repeat(32));
    }
}
