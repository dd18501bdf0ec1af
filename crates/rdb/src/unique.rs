//! Whether the members of a large collection are all different, without a copy of them.
//!
//! Eight bytes are kept of each. If two have the same eight, which chance alone hardly ever brings about, the
//! payload is gone through once more for those.

use std::hash::{BuildHasher, RandomState};

use foldhash::HashSet;

use crate::Corrupt;

#[derive(Default)]
pub struct Unique {
    state: RandomState,
    hashes: Vec<u64>,
}

impl Unique {
    pub fn add(&mut self, member: &[u8]) {
        self.hashes.push(self.state.hash_one(member));
    }

    /// Those who may be the same; `None` if there are none.
    pub fn suspects(mut self) -> Option<Suspects> {
        self.hashes.sort_unstable();
        let pairs = self.hashes.array_windows::<2>();
        let same: HashSet<u64> = pairs.filter(|[a, b]| a == b).map(|[a, _]| *a).collect();
        (!same.is_empty()).then(|| Suspects {
            state: self.state,
            same,
            members: HashSet::default(),
        })
    }
}

pub struct Suspects {
    state: RandomState,
    same: HashSet<u64>,
    members: HashSet<Vec<u8>>,
}

impl Suspects {
    pub fn add(&mut self, member: &[u8]) -> Result<(), Corrupt> {
        let is_suspect = self.same.contains(&self.state.hash_one(member));
        match !is_suspect || self.members.insert(member.to_vec()) {
            true => Ok(()),
            false => Err(Corrupt),
        }
    }
}
