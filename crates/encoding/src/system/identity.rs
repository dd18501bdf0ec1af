//! Which node of which cluster a directory belongs to.
//!
//! ```text
//!   Identity   cluster u64 | node u64 | count u32 | (node u64 | length u16 | address)*
//! ```
//!
//! The addresses are those of other nodes, as they were last known: a node that starts again finds the cluster by them.

use std::collections::BTreeMap;

use crate::DecodeError;
use crate::reader::Reader;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub cluster: u64,
    pub node: u64,
    /// Where other nodes are, as `host:port`.
    pub peers: BTreeMap<u64, String>,
}

impl Identity {
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::new();
        value.extend_from_slice(&self.cluster.to_be_bytes());
        value.extend_from_slice(&self.node.to_be_bytes());
        value.extend_from_slice(&(self.peers.len() as u32).to_be_bytes());
        for (node, address) in &self.peers {
            value.extend_from_slice(&node.to_be_bytes());
            value.extend_from_slice(&(address.len() as u16).to_be_bytes());
            value.extend_from_slice(address.as_bytes());
        }
        value
    }

    pub fn decode(value: &[u8]) -> Result<Identity, DecodeError> {
        let mut reader = Reader::new("identity value", value);
        let mut identity = Identity {
            cluster: reader.u64("cluster")?,
            node: reader.u64("node")?,
            peers: BTreeMap::new(),
        };
        for _ in 0..reader.u32("count")? {
            let node = reader.u64("peer")?;
            let length = usize::from(reader.u16("length")?);
            let address = reader.bytes("address", length)?;
            let address = String::from_utf8_lossy(address).into_owned();
            identity.peers.insert(node, address);
        }
        reader.finish()?;
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::assert_bytes;

    #[test]
    fn golden_bytes() {
        let identity = Identity {
            cluster: 7,
            node: 2,
            peers: BTreeMap::from([(1, "a:1".to_string())]),
        };
        let bytes = identity.encode();
        assert_bytes(
            &bytes,
            "0000000000000007 0000000000000002 00000001 0000000000000001 0003 613a31",
        );
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        for length in 0..bytes.len() {
            assert!(Identity::decode(&bytes[..length]).is_err());
        }
    }
}
