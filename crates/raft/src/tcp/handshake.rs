//! How two nodes find out that they belong together.
//!
//! ```text
//!   hello   "cairn raft" | oldest u16 | newest u16 | cluster u64 | node u64 | nonce 32
//!   proof   HMAC-SHA-256 under the cluster's secret of: label | the caller's hello | the answerer's hello
//!
//!   caller → answerer   hello
//!   answerer → caller   hello | proof with the label "answer"
//!   caller → answerer   proof with the label "call"
//! ```
//!
//! `oldest` and `newest` are the versions that a node speaks; the two take the newest that both do. So a node of the
//! next version and one of this can talk, as long as the next one still knows this. Each proof covers both
//! nonces and both nodes, so none can be used a second time, or by another. What is said afterwards is
//! neither encrypted nor signed: a network in which others can write needs more than the secret. With TLS (`tls`) all of
//! this is said inside, and the secret may be left out.

use std::io;

use cairn_encoding::reader::Reader;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::tls::Tls;

const MAGIC: &[u8; 10] = b"cairn raft";
const HELLO: usize = 62;
const PROOF: usize = 32;
/// The oldest version that is spoken, and the newest.
const OLDEST: u16 = 1;
const NEWEST: u16 = 1;

/// Who a node is, and how it shows it.
#[derive(Clone)]
pub struct Identity {
    pub cluster: u64,
    pub node: u64,
    /// Shared by all nodes of the cluster. An empty one shows nothing.
    pub secret: Vec<u8>,
    /// Nodes either all talk so, or none.
    pub tls: Option<Tls>,
}

struct Hello {
    oldest: u16,
    newest: u16,
    cluster: u64,
    node: u64,
}

impl Hello {
    fn encode(&self, nonce: &[u8; 32]) -> [u8; HELLO] {
        let mut out = Vec::with_capacity(HELLO);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.oldest.to_be_bytes());
        out.extend_from_slice(&self.newest.to_be_bytes());
        out.extend_from_slice(&self.cluster.to_be_bytes());
        out.extend_from_slice(&self.node.to_be_bytes());
        out.extend_from_slice(nonce);
        let mut hello = [0; HELLO];
        hello.copy_from_slice(&out);
        hello
    }

    fn decode(bytes: &[u8; HELLO]) -> io::Result<Hello> {
        let mut reader = Reader::new("raft hello", bytes);
        let mut read = || {
            let magic = *reader.chunk::<10>("magic")?;
            let hello = Hello {
                oldest: reader.u16("oldest")?,
                newest: reader.u16("newest")?,
                cluster: reader.u64("cluster")?,
                node: reader.u64("node")?,
            };
            Ok((magic, hello))
        };
        let (magic, hello) =
            read().map_err(|error: cairn_encoding::DecodeError| io::Error::other(error))?;
        match magic == *MAGIC {
            true => Ok(hello),
            false => Err(refused("it is no node of a cluster")),
        }
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

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn hello(identity: &Identity) -> io::Result<(Hello, [u8; HELLO])> {
    let mut nonce = [0; 32];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| io::Error::other("the system has no random numbers"))?;
    let hello = Hello {
        oldest: OLDEST,
        newest: NEWEST,
        cluster: identity.cluster,
        node: identity.node,
    };
    let bytes = hello.encode(&nonce);
    Ok((hello, bytes))
}

fn signed(label: &str, caller: &[u8; HELLO], answerer: &[u8; HELLO]) -> Vec<u8> {
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

/// Introduces this node to `node`, and makes sure that it is that.
pub(super) async fn call<S>(stream: &mut S, identity: &Identity, node: u64) -> io::Result<u16>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (own, sent) = hello(identity)?;
    stream.write_all(&sent).await?;
    stream.flush().await?;
    let mut received = [0; HELLO];
    stream.read_exact(&mut received).await?;
    let other = Hello::decode(&received)?;
    let mut theirs = [0; PROOF];
    stream.read_exact(&mut theirs).await?;
    check(identity, &signed("answer", &sent, &received), &theirs)?;
    if other.node != node {
        return Err(refused("it is another node"));
    }
    let version = own.agree(&other)?;
    let ours = proof(identity, &signed("call", &sent, &received));
    stream.write_all(ours.as_ref()).await?;
    stream.flush().await?;
    Ok(version)
}

/// Finds out who calls.
pub(super) async fn answer<S>(stream: &mut S, identity: &Identity) -> io::Result<(u64, u16)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut received = [0; HELLO];
    stream.read_exact(&mut received).await?;
    let other = Hello::decode(&received)?;
    let (own, sent) = hello(identity)?;
    let version = own.agree(&other)?;
    let ours = proof(identity, &signed("answer", &received, &sent));
    stream.write_all(&sent).await?;
    stream.write_all(ours.as_ref()).await?;
    stream.flush().await?;
    let mut theirs = [0; PROOF];
    stream.read_exact(&mut theirs).await?;
    check(identity, &signed("call", &received, &sent), &theirs)?;
    Ok((other.node, version))
}

#[cfg(test)]
mod tests {
    use openraft::rt::AsyncRuntime;

    use super::*;
    use crate::runtime::Runtime;

    fn identity(cluster: u64, node: u64, secret: &str) -> Identity {
        Identity {
            cluster,
            node,
            secret: secret.as_bytes().to_vec(),
            tls: None,
        }
    }

    type Met = (io::Result<u16>, io::Result<(u64, u16)>);

    fn meet(caller: Identity, answerer: Identity, expected: u64) -> Met {
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
        assert_eq!(called.unwrap(), NEWEST);
        assert_eq!(answered.unwrap(), (5, NEWEST));
    }

    #[test]
    fn others_are_refused() {
        let refused = |caller, answerer, expected| {
            let (called, answered) = meet(caller, answerer, expected);
            assert!(called.is_err());
            assert!(answered.is_err());
        };
        refused(identity(1, 5, "x"), identity(1, 6, "y"), 6);
        refused(identity(1, 5, ""), identity(1, 6, "y"), 6);
        refused(identity(2, 5, "x"), identity(1, 6, "x"), 6);
        refused(identity(1, 5, "x"), identity(1, 7, "x"), 6);
    }

    #[test]
    fn versions_that_overlap_agree() {
        let speaks = |oldest, newest| Hello {
            oldest,
            newest,
            cluster: 1,
            node: 1,
        };
        assert_eq!(speaks(1, 2).agree(&speaks(2, 3)).unwrap(), 2);
        assert_eq!(speaks(1, 3).agree(&speaks(1, 2)).unwrap(), 2);
        assert!(speaks(1, 2).agree(&speaks(3, 4)).is_err());
    }

    #[test]
    fn bytes_on_the_wire() {
        let hello = Hello {
            oldest: 1,
            newest: 2,
            cluster: 3,
            node: 4,
        };
        let bytes = hello.encode(&[9; 32]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "636169726e2072616674 0001 0002 0000000000000003 0000000000000004";
        assert_eq!(hex, expected.replace(' ', "") + &"09".repeat(32));
    }
}
