//! What whoever proposed a change is told, from where it was applied.

use cairn_encoding::reader::Reader;

use super::{Read, value};
use crate::change::{Change, Effect, Refusal};
use crate::map::ClusterMap;

impl ClusterMap {
    /// Applies an entry of the log of region 0, and returns what its proposer is told. What cannot be read must not be passed
    /// over: the region has to stop.
    pub fn apply_entry(&mut self, entry: &[u8]) -> Read<Vec<u8>> {
        let applied = self.apply(&Change::decode(entry)?);
        Ok(encode(&applied))
    }
}

fn encode(applied: &Result<Effect, Refusal>) -> Vec<u8> {
    let (kind, number) = match applied {
        Err(refusal) => return [&[0], refusal.to_string().as_bytes()].concat(),
        Ok(Effect::Done) => (1, 0),
        Ok(Effect::Node(node)) => (2, *node),
        Ok(Effect::Replica(replica)) => (3, *replica),
        Ok(Effect::Region(region)) => (4, *region),
    };
    [&[kind], &u64::to_be_bytes(number)[..]].concat()
}

impl Effect {
    /// What a change has made, or why it was refused.
    pub fn read_answer(bytes: &[u8]) -> Read<Result<Effect, String>> {
        let mut reader = Reader::new("cluster answer", bytes);
        let kind = reader.u8("kind")?;
        if kind == 0 {
            return Ok(Err(String::from_utf8_lossy(reader.rest()).into_owned()));
        }
        let number = reader.u64("number")?;
        let effect = match kind {
            1 => Effect::Done,
            2 => Effect::Node(number),
            3 => Effect::Replica(number),
            4 => Effect::Region(number),
            other => return Err(value(&reader, "kind", other)),
        };
        reader.finish()?;
        Ok(Ok(effect))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LayoutError;
    use crate::simulation::{addresses, founded};

    #[test]
    fn a_proposer_learns_what_came_of_it() {
        let mut map = founded(3, 1, 3);
        let add = Change::AddNode {
            addresses: addresses(4),
            version: crate::NEWEST,
            incarnation: 9,
        };
        let changes = [
            (add.clone(), Ok(Effect::Node(4))),
            (
                add,
                Err("node 4 has the address 10.0.0.4:16379 already".to_string()),
            ),
            (Change::DrainNode { node: 1 }, Ok(Effect::Done)),
            (
                Change::BeginSplit { region: 1, at: 9 },
                Ok(Effect::Region(2)),
            ),
        ];
        for (change, expected) in changes {
            let answer = map.apply_entry(&change.encode()).unwrap();
            assert_eq!(Effect::read_answer(&answer), Ok(expected));
        }
        assert_eq!(
            encode(&Ok(Effect::Replica(258))),
            [3, 0, 0, 0, 0, 0, 0, 1, 2]
        );
        assert_eq!(encode(&Err(Refusal::NoNode(7))), b"\0there is no node 7");
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let mut map = founded(3, 1, 3);
        let before = map.clone();
        let newer = map.apply_entry(&[0, 2, 4]);
        assert!(matches!(newer, Err(LayoutError::Newer { version: 2, .. })));
        assert_eq!(map, before);
        assert!(Effect::read_answer(&[]).is_err());
        assert!(Effect::read_answer(&[9; 9]).is_err());
        assert!(Effect::read_answer(&[1; 10]).is_err());
    }
}
