//! Hurts nodes at random, never more of them at a time than a cluster must bear.

use std::fmt;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::fleet::Fleet;
use super::mesh::Mesh;

/// What is done to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    Stop,
    /// Parted from all others, in both directions.
    Part,
    /// It hears, and nobody hears it.
    Mute,
    /// All links are slow.
    Delay,
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
pub struct Damage {
    pub kills: usize,
    pub stops: usize,
    pub cuts: usize,
    pub delays: usize,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage {
            kills,
            stops,
            cuts,
            delays,
        } = self;
        write!(
            f,
            "{kills} kills, {stops} stops, {cuts} cuts, {delays} delays"
        )
    }
}

impl Trouble {
    /// Goes on for so long, and leaves everything whole. Without a mesh there are no links to cut.
    pub fn make(&mut self, fleet: &mut Fleet, mesh: Option<&Mesh>, duration: Duration) -> Damage {
        let mut damage = Damage::default();
        let end = Instant::now() + duration;
        while Instant::now() < end {
            let fault = self.faults[self.rng.usize(..self.faults.len())];
            let mut nodes: Vec<usize> = (0..fleet.len()).collect();
            self.rng.shuffle(&mut nodes);
            nodes.truncate(self.rng.usize(1..=self.most));
            hurt(fault, &nodes, fleet, mesh, &mut damage);
            self.pause(self.lasts_ms.clone());
            heal(fault, &nodes, fleet, mesh);
            self.pause(self.rests_ms.clone());
        }
        damage
    }

    fn pause(&mut self, range: Range<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(range)));
    }
}

fn hurt(
    fault: Fault,
    nodes: &[usize],
    fleet: &mut Fleet,
    mesh: Option<&Mesh>,
    damage: &mut Damage,
) {
    match (fault, mesh) {
        (Fault::Kill, _) => {
            nodes.iter().for_each(|node| fleet.kill(*node));
            damage.kills += nodes.len();
        }
        (Fault::Stop, _) => {
            nodes.iter().for_each(|node| fleet.stop(*node));
            damage.stops += nodes.len();
        }
        (Fault::Part, Some(mesh)) => {
            mesh.part(nodes);
            damage.cuts += 1;
        }
        (Fault::Mute, Some(mesh)) => {
            mesh.mute(nodes[0]);
            damage.cuts += 1;
        }
        (Fault::Delay, Some(mesh)) => {
            mesh.delay_all(Duration::from_millis(50));
            damage.delays += 1;
        }
        (fault, None) => panic!("{fault:?} needs links"),
    }
}

fn heal(fault: Fault, nodes: &[usize], fleet: &mut Fleet, mesh: Option<&Mesh>) {
    match fault {
        Fault::Kill => nodes.iter().for_each(|node| fleet.revive(*node)),
        Fault::Stop => nodes.iter().for_each(|node| fleet.go_on(*node)),
        Fault::Part | Fault::Mute | Fault::Delay => mesh.into_iter().for_each(Mesh::heal),
    }
}
