//! Three nodes of etcd, as Debian packages it, with its own settings.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::json::Json;
use cairn_tests::server::free_port;
use tempfile::TempDir;

const NODES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Etcd {
    nodes: Vec<Child>,
    clients: Vec<String>,
    _scratch: TempDir,
}

pub struct Status {
    /// Where the leader answers clients.
    pub leader: String,
    /// How many changes were made so far.
    pub revision: u64,
}

impl Etcd {
    /// `None` if it is not installed.
    pub fn start() -> Option<Etcd> {
        let scratch = TempDir::with_prefix("etcd-").expect("a directory");
        let [clients, peers] = [(); 2].map(|()| {
            let addresses = (0..NODES).map(|_| format!("127.0.0.1:{}", free_port()));
            addresses.collect::<Vec<String>>()
        });
        let members = peers
            .iter()
            .enumerate()
            .map(|(n, peer)| format!("n{n}=http://{peer}"));
        let members = members.collect::<Vec<_>>().join(",");
        let nodes = (0..NODES).map(|n| {
            let name = format!("n{n}");
            run(
                &name,
                &scratch.path().join(&name),
                &clients[n],
                &peers[n],
                &members,
            )
        });
        let etcd = Etcd {
            nodes: nodes.collect::<Option<Vec<_>>>()?,
            clients,
            _scratch: scratch,
        };
        let deadline = Instant::now() + PATIENCE;
        while etcd
            .clients
            .iter()
            .any(|client| TcpStream::connect(client).is_err())
            || etcd.status().is_none()
        {
            assert!(Instant::now() < deadline, "etcd does not start");
            thread::sleep(Duration::from_millis(100));
        }
        Some(etcd)
    }

    /// `None` while there is no leader.
    pub fn status(&self) -> Option<Status> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["endpoint", "status", "--write-out", "json", "--endpoints"])
            .arg(self.clients.join(","))
            .output()
            .ok()?;
        let told = Json::parse(&String::from_utf8_lossy(&output.stdout))?;
        told.items().iter().find_map(|node| {
            let (status, header) = (node.get("Status"), node.get("Status").get("header"));
            let is_leader = status.get("leader").number()? == header.get("member_id").number()?;
            is_leader.then_some(Status {
                leader: node.get("Endpoint").text()?.to_string(),
                revision: header.get("revision").number()?,
            })
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may have ended, and then there is nothing to do.
            drop(node.kill().and_then(|()| node.wait()));
        }
    }
}

fn run(name: &str, dir: &Path, client: &str, peer: &str, members: &str) -> Option<Child> {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let node = Command::new("etcd")
        .args(["--name", name, "--data-dir"])
        .arg(dir)
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", members, "--log-level", "error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    node.ok()
}
