//! Hurts nodes at random, never more of them at a time than a cluster must bear.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::fleet::Fleet;

/// What is done to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Kill,
    /// Ended in good order, and started again.
    Restart,
    Stop,
    /// Parted from all others, in both directions.
    Part,
    /// It hears, and nobody hears it.
    Mute,
    /// All links are slow.
    Delay,
    /// There is no room on the disk.
    FullDisk,
    /// The clock is ahead, or behind.
    Skew,
    /// Somebody else is made the leader of a region.
    Transfer,
    /// A replica of a region is moved from one node to another.
    Move,
}

impl Fault {
    pub const ALL: [Fault; 10] = [
        Fault::Kill,
        Fault::Restart,
        Fault::Stop,
        Fault::Part,
        Fault::Mute,
        Fault::Delay,
        Fault::FullDisk,
        Fault::Skew,
        Fault::Transfer,
        Fault::Move,
    ];

    pub fn named(name: &str) -> Result<Fault, String> {
        let mut all = Fault::ALL.into_iter();
        all.find(|fault| format!("{fault:?}") == name)
            .ok_or_else(|| format!("{name} is none of {:?}", Fault::ALL))
    }
}

/// What can be hurt.
pub trait Target {
    fn nodes(&self) -> usize;
    /// Returns whether it could be done.
    fn hurt(&mut self, fault: Fault, nodes: &[usize], rng: &mut Rng) -> bool;
    /// Takes it back.
    fn heal(&mut self, fault: Fault, nodes: &[usize]);
}

pub struct Trouble {
    pub rng: Rng,
    pub faults: Vec<Fault>,
    /// How many nodes are hurt at once.
    pub most: usize,
    /// For how long each fault lasts, and how long it is quiet afterwards, in milliseconds.
    pub lasts_ms: Range<u64>,
    pub rests_ms: Range<u64>,
}

/// How often what was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage(BTreeMap<Fault, usize>);

impl Damage {
    fn add(&mut self, fault: Fault, times: usize) {
        *self.0.entry(fault).or_default() += times;
    }

    /// Which of these was never done.
    pub fn lacks(&self, faults: &[Fault]) -> Vec<Fault> {
        let missing = faults.iter().filter(|fault| !self.0.contains_key(fault));
        missing.copied().collect()
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl std::ops::AddAssign for Damage {
    fn add_assign(&mut self, other: Damage) {
        for (fault, times) in other.0 {
            self.add(fault, times);
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self
            .0
            .iter()
            .map(|(fault, times)| format!("{times} × {fault:?}"));
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}

impl Trouble {
    /// All that can befall a cluster which bears the loss of one node, for long enough that others take over.
    pub fn of_all_kinds(seed: u64) -> Trouble {
        Trouble {
            rng: Rng::with_seed(seed),
            faults: Fault::ALL.to_vec(),
            most: 2,
            lasts_ms: 100..4000,
            rests_ms: 200..3000,
        }
    }

    /// Goes on for so long, and leaves everything whole.
    pub fn make(&mut self, target: &mut impl Target, duration: Duration) -> Damage {
        let mut damage = Damage::default();
        let (mut deck, mut failed) = (Vec::new(), Vec::new());
        let end = Instant::now() + duration;
        while Instant::now() < end {
            let fault = deck.pop().unwrap_or_else(|| {
                self.shuffled(&mut deck, &mut failed);
                deck.pop().expect("there are faults")
            });
            let mut nodes: Vec<usize> = (0..target.nodes()).collect();
            self.rng.shuffle(&mut nodes);
            nodes.truncate(self.rng.usize(1..=self.most));
            if target.hurt(fault, &nodes, &mut self.rng) {
                damage.add(fault, nodes.len());
            } else {
                failed.push(fault);
            }
            self.pause(self.lasts_ms.clone());
            target.heal(fault, &nodes);
            self.pause(self.rests_ms.clone());
        }
        damage
    }

    /// All faults, so that each has its turn before any has the next; those come first that could not be done.
    fn shuffled(&mut self, deck: &mut Vec<Fault>, failed: &mut Vec<Fault>) {
        deck.clone_from(&self.faults);
        self.rng.shuffle(deck);
        deck.append(failed);
    }

    fn pause(&mut self, range: Range<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(range)));
    }
}

impl Target for Fleet {
    fn nodes(&self) -> usize {
        self.len()
    }

    fn hurt(&mut self, fault: Fault, nodes: &[usize], _: &mut Rng) -> bool {
        match fault {
            Fault::Kill => nodes.iter().for_each(|node| self.kill(*node)),
            Fault::Restart => nodes.iter().for_each(|node| self.restart(*node)),
            Fault::Stop => nodes.iter().for_each(|node| self.stop(*node)),
            _ => return false,
        }
        true
    }

    fn heal(&mut self, fault: Fault, nodes: &[usize]) {
        match fault {
            Fault::Kill => nodes.iter().for_each(|node| self.revive(*node)),
            Fault::Stop => nodes.iter().for_each(|node| self.go_on(*node)),
            _ => {}
        }
    }
}
