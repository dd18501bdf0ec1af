//! A cluster of Cairn, of which everything can be hurt: its processes, their links, disks, clocks and power.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;

use super::administrator::Administrator;
use super::callers::caller;
use super::fleet::Fleet;
use super::mesh::Mesh;
use super::trouble::{Fault, Target};
use crate::clock::Clock;
use crate::disk::SmallDisk;
use crate::fault::scratch;
use crate::powercut::{self, PowerCut, Severity};
use crate::server::{Launch, free_port};

pub const REPLICAS: usize = 3;

/// Links are slow by so much, and clocks wrong by at most so much.
const DELAY: Duration = Duration::from_millis(50);
const SKEW_MS: i64 = 10 * 60 * 1000;

#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: usize,
    /// The first so many nodes are the cluster; the others wait to be added.
    pub founders: usize,
    pub regions: usize,
    pub flags: Vec<String>,
    /// The size of each node's disk, which is a disk of its own then.
    pub disk: Option<&'static str>,
    /// Whether each node has a clock of its own.
    pub clocks: bool,
    /// Whether the power of each node can be cut. What it deletes stays on its disk until it is started again.
    pub power: bool,
    /// Whether nodes talk through proxies, so that links can be cut. That costs time, which who measures does not want.
    pub links: bool,
    /// Whether each node has a port for encrypted clients, too. What it shows them is said by the flags.
    pub tls: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            nodes: 3,
            founders: 3,
            regions: 4,
            flags: Vec::new(),
            disk: None,
            clocks: false,
            power: false,
            links: true,
            tls: false,
        }
    }
}

/// What is dropped first comes first: a disk outlives who writes to it.
pub struct Cluster {
    pub fleet: Fleet,
    pub administrator: Administrator,
    /// Where encrypted clients find each node, if they do.
    pub tls_ports: Vec<u16>,
    /// Nobody talks through it if there are no links.
    mesh: Mesh,
    clocks: Vec<Clock>,
    /// None if power does not fail.
    powers: Vec<PowerCut>,
    /// None where none can be had.
    disks: Vec<SmallDisk>,
    _scratch: TempDir,
}

impl Cluster {
    /// Starts nodes that belong together, and waits until all regions have all their replicas.
    pub fn found(setup: &Setup) -> Cluster {
        let cluster = Cluster::start(setup);
        let founders: Vec<usize> = (0..setup.founders).collect();
        let administrator = &cluster.administrator;
        administrator.found(&founders, setup.regions, REPLICAS);
        administrator.until_settled(REPLICAS);
        cluster
    }

    /// Starts nodes that know nothing of each other yet.
    pub fn start(setup: &Setup) -> Cluster {
        // Both are libraries that are loaded into a node, and there is one such.
        assert!(!(setup.clocks && setup.power), "clocks or power");
        let scratch = scratch("cairn-cluster-").expect("a directory");
        let nodes = 0..setup.nodes;
        let disks = setup
            .disk
            .map(|size| nodes.clone().map_while(|_| SmallDisk::mount(size)));
        let disks: Vec<SmallDisk> = disks.into_iter().flatten().collect();
        let clocks = nodes.clone().filter(|_| setup.clocks).map(|node| {
            Clock::new(&scratch.path().join(format!("clock-{node}"))).expect("a clock")
        });
        let clocks: Vec<Clock> = clocks.collect();
        let dirs: Vec<PathBuf> = nodes
            .map(|node| {
                let disk = disks.get(node).map(SmallDisk::path);
                let room = disk.map_or(scratch.path().join(node.to_string()), Path::to_path_buf);
                room.join("data")
            })
            .collect();
        let powers = dirs.iter().filter(|_| setup.power).map(|dir| {
            fs::create_dir_all(dir).expect("a data directory");
            PowerCut::over(dir).expect("power that can be cut")
        });
        let powers: Vec<PowerCut> = powers.collect();
        let ports: Vec<[u16; 2]> = dirs.iter().map(|_| [free_port(), free_port()]).collect();
        let tls_ports: Vec<u16> = dirs
            .iter()
            .filter(|_| setup.tls)
            .map(|_| free_port())
            .collect();
        let behind: Vec<u16> = ports.iter().map(|[_, behind]| *behind).collect();
        let known = dirs.clone();
        let mesh = Mesh::new(&behind, move |from| caller(from, &known)).expect("a mesh");
        let fleet = Fleet::start(setup.nodes, |node| {
            let [port, behind] = ports[node];
            let found_at = if setup.links { mesh.door(node) } else { behind };
            let flags = [
                ("--cluster-enabled", "yes".to_string()),
                ("--cluster-port", behind.to_string()),
                ("--cluster-announce-bus-port", found_at.to_string()),
            ];
            let flags = flags
                .into_iter()
                .flat_map(|(name, value)| [name.to_string(), value]);
            let launch = Launch::cairn().flags(flags).flags(setup.flags.iter());
            let launch = launch.dir(dirs[node].clone()).port(port);
            let tls_port = tls_ports.get(node).map(u16::to_string);
            let launch = launch.flags(tls_port.iter().flat_map(|port| ["--tls-port", port]));
            let clock = clocks.get(node).map(Clock::environment);
            let power = powers.get(node).map(PowerCut::environment);
            let environment = clock.into_iter().flatten();
            let environment = environment.chain(power.into_iter().flatten());
            environment.fold(launch, |launch, (name, value)| launch.env(name, value))
        });
        Cluster {
            administrator: Administrator::new(fleet.addresses()),
            fleet,
            tls_ports,
            mesh,
            clocks,
            powers,
            disks,
            _scratch: scratch,
        }
    }

    /// What can be done to it on this machine, where not every disk can be had.
    pub fn possible_faults(&self) -> Vec<Fault> {
        let mut faults = Fault::ALL.to_vec();
        faults.retain(|fault| match fault {
            Fault::FullDisk => !self.disks.is_empty(),
            Fault::Skew => !self.clocks.is_empty(),
            _ => true,
        });
        faults
    }

    /// Nodes that have ended though nobody asked them to, with what they logged.
    pub fn casualties(&mut self) -> Vec<String> {
        let ended: Vec<usize> = (0..self.fleet.len())
            .filter(|node| self.fleet.has_ended(*node))
            .collect();
        let log = |node: usize| {
            format!(
                "node {node} has ended\n{}",
                self.fleet.node(node).log_tail()
            )
        };
        ended.into_iter().map(log).collect()
    }

    /// Sets the clock of a node so many milliseconds ahead, or behind, if it has one of its own.
    pub fn set_clock(&self, node: usize, ahead_ms: i64) {
        self.skew(&[node], || ahead_ms);
    }

    /// Cuts the power of nodes, all at the same moment: they are gone, and of each so is what it has not synced, or some of it.
    pub fn cut_power(&mut self, nodes: &[usize], rng: &mut Rng) -> powercut::Damage {
        self.fleet.kill_together(nodes);
        let mut damage = powercut::Damage::default();
        for node in nodes {
            let severity = [Severity::Total, Severity::Torn][rng.usize(..2)];
            let cut = self.powers[*node].cut(severity, rng);
            damage += cut.expect("what was not synced can be taken back");
        }
        damage
    }

    /// Starts nodes from what a power cut has left, and cuts their power again so much later, however far they have come.
    pub fn interrupt_start(
        &mut self,
        nodes: &[usize],
        after: Duration,
        rng: &mut Rng,
    ) -> powercut::Damage {
        for node in nodes {
            self.powers[*node].arm().expect("power");
            self.fleet.interrupt_start(*node, after);
        }
        self.cut_power(nodes, rng)
    }

    /// Starts nodes from what a power cut has left.
    pub fn restore_power(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.powers[*node].arm().expect("power");
            self.fleet.revive(*node);
        }
    }

    fn skew(&self, nodes: &[usize], mut ahead_ms: impl FnMut() -> i64) -> bool {
        let clocks = nodes.iter().filter_map(|node| self.clocks.get(*node));
        clocks
            .map(|clock| clock.set_ms(ahead_ms()).expect("a clock"))
            .count()
            > 0
    }

    fn fill(&self, nodes: &[usize]) -> bool {
        let disks = nodes.iter().filter_map(|node| self.disks.get(*node));
        disks
            .map(|disk| fill(&filler(disk)).expect("a disk"))
            .count()
            > 0
    }

    /// Makes room again. A node that has given up for want of it is started again.
    fn empty(&mut self, nodes: &[usize]) {
        for node in nodes {
            if let Some(disk) = self.disks.get(*node) {
                fs::remove_file(filler(disk)).expect("it was filled");
                if self.fleet.has_ended(*node) {
                    self.fleet.revive(*node);
                }
            }
        }
    }
}

impl Target for Cluster {
    fn nodes(&self) -> usize {
        self.fleet.len()
    }

    fn hurt(&mut self, fault: Fault, nodes: &[usize], rng: &mut Rng) -> bool {
        match fault {
            Fault::Kill | Fault::Restart | Fault::Stop => {
                return self.fleet.hurt(fault, nodes, rng);
            }
            Fault::Part => self.mesh.part(nodes),
            Fault::Mute => self.mesh.mute(nodes[0]),
            Fault::Delay => self.mesh.delay_all(DELAY),
            Fault::FullDisk => return self.fill(nodes),
            Fault::Skew => return self.skew(nodes, || rng.i64(-SKEW_MS..SKEW_MS)),
            Fault::Transfer => return self.administrator.transfer_any(rng),
            Fault::Move => return self.administrator.move_any(rng),
        }
        true
    }

    fn heal(&mut self, fault: Fault, nodes: &[usize]) {
        match fault {
            Fault::Part | Fault::Mute | Fault::Delay => self.mesh.heal(),
            Fault::FullDisk => self.empty(nodes),
            Fault::Skew => {
                self.skew(nodes, || 0);
            }
            _ => self.fleet.heal(fault, nodes),
        }
    }
}

fn filler(disk: &SmallDisk) -> PathBuf {
    disk.path().join("filler")
}

/// Takes all the room that there is.
fn fill(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![0; 1 << 20];
    for length in [piece.len(), 4096] {
        while io::Write::write(&mut file, &piece[..length]).is_ok() {}
    }
    Ok(())
}
