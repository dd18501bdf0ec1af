//! Whether the members of a large collection are all different, without a copy of them.
//!
//! Eight bytes are kept of each. If two have the same eight, which chance alone hardly ever brings about, the
//! payload is gone through once more for those. Of a collection with very many members some are looked at in turn,
//! however often it has to be gone through: a small payload may hold more than there is memory.

use std::hash::{BuildHasher, RandomState};

use foldhash::HashSet;

use crate::Corrupt;

pub struct Unique {
    state: RandomState,
    hashes: Vec<u64>,
    /// It looks at those whose hash begins with this part, of so many bits.
    part: u64,
    bits: u32,
    /// How many that may be.
    most: usize,
}

impl Unique {
    /// Looks at all members, as far as they are not too many.
    pub fn of_all(most: usize) -> Unique {
        Unique::of_part(RandomState::new(), 0, 0, most)
    }

    fn of_part(state: RandomState, part: u64, bits: u32, most: usize) -> Unique {
        Unique {
            state,
            hashes: Vec::new(),
            part,
            bits,
            most,
        }
    }

    /// So many look at this number of members in parts, each at half as many as it could.
    pub fn of_parts(members: u64, most: usize) -> impl Iterator<Item = Unique> {
        let parts = members.div_ceil(most as u64 / 2).next_power_of_two();
        let bits = parts.trailing_zeros();
        // They have to agree on who looks at what.
        let state = RandomState::new();
        (0..parts).map(move |part| Unique::of_part(state.clone(), part, bits, most))
    }

    /// False if it is full: of different members, so many do not fall into one part.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let hash = self.state.hash_one(member);
        if hash.checked_shr(u64::BITS - self.bits).unwrap_or(0) != self.part {
            return true;
        }
        let has_room = self.hashes.len() < self.most;
        if has_room {
            self.hashes.push(hash);
        }
        has_room
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
