//! A node is its directory: one process at a time, and never an old copy of it, for others rely on what it has promised.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cairn_tests::client::Value;
use cairn_tests::fault::one_at_a_time;
use cairn_tests::nemesis::cairn::{Cluster, REPLICAS, Setup};
use cairn_tests::nemesis::until;
use cairn_tests::server::{Launch, cairn_binary, free_port};

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

fn ports() -> [String; 4] {
    let (port, nodes) = (free_port(), free_port());
    let flags = [
        "--port",
        &port.to_string(),
        "--cluster-port",
        &nodes.to_string(),
    ];
    flags.map(str::to_string)
}

/// What a node says that does not start.
fn refused(dir: &Path) -> String {
    let mut command = Command::new("timeout");
    command.arg("60").arg(cairn_binary()).arg("serve");
    command
        .args(ports())
        .args(["--cluster-enabled", "yes", "--dir"]);
    let output = command.arg(dir).stdin(Stdio::null()).output();
    let output = output.expect("cairn runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(
        !output.status.success() && output.status.code() != Some(124),
        "{said}"
    );
    said
}

#[test]
fn a_node_is_one_process_with_the_latest_of_its_directory() {
    let _turn = one_at_a_time();
    let setup = Setup {
        regions: 1,
        links: false,
        ..Setup::default()
    };
    let mut cluster = Cluster::found(&setup);
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = cluster.fleet.node(2).dir().to_owned();
    let key = cluster.administrator.until_settled(REPLICAS).regions[0].key(0);

    // Logs of the time before the last start.
    let old = scratch.path().join("old-raft");
    cluster.fleet.kill(2);
    copy(&dir.join("raft"), &old);
    cluster.fleet.revive(2);
    cluster.administrator.until_settled(REPLICAS);

    // A copy of the whole directory, which runs beside it.
    let twin = scratch.path().join("twin");
    copy(&dir, &twin);
    let launch = Launch::cairn().dir(&twin).port(free_port());
    let port = free_port().to_string();
    let flags = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let second = launch.flags(flags).start();
    until("it hears that it is the second", || {
        let log = second.log();
        log.contains("another process runs as node") || log.contains("an old copy of its directory")
    });
    let refused_by = |node: usize| {
        cluster
            .fleet
            .node(node)
            .log()
            .contains("is not talked to: node")
    };
    until("the others tell who was refused", || {
        refused_by(0) && refused_by(1)
    });
    let reply = second.client().command(&["SET", &key, "x"]);
    assert!(reply.is_error(), "{reply:?}");
    drop(second);
    let status = cluster.administrator.until_settled(REPLICAS);
    let leader = status.regions[0].leader.expect("a leader");
    let mut client = cluster.fleet.node(leader).client();
    assert_eq!(client.command(&["SET", &key, "y"]), Value::ok());

    cluster.fleet.kill(2);
    let newest = scratch.path().join("newest-raft");
    fs::rename(dir.join("raft"), &newest).expect("it is there");
    let without = refused(&dir);
    assert!(
        without.contains("the logs are missing, or older"),
        "{without}"
    );
    fs::remove_dir_all(dir.join("raft")).ok();
    fs::rename(&old, dir.join("raft")).expect("a copy");
    let outdated = refused(&dir);
    assert!(
        outdated.contains("the logs are missing, or older"),
        "{outdated}"
    );
    fs::remove_dir_all(dir.join("raft")).expect("the copy");
    fs::rename(&newest, dir.join("raft")).expect("it is there");
    cluster.fleet.revive(2);
    cluster.administrator.until_settled(REPLICAS);

    // The whole directory as it was earlier: only others can tell.
    cluster.fleet.kill(2);
    cluster.fleet.revive(2);
    cluster.administrator.until_settled(REPLICAS);
    cluster.fleet.kill(2);
    fs::remove_dir_all(&dir).expect("the directory");
    fs::rename(&twin, &dir).expect("a copy");
    // They remember it, whoever was started since.
    cluster.fleet.restart(0);
    cluster.fleet.restart(1);
    let past = refused(&dir);
    assert!(past.contains("an old copy of its directory"), "{past}");
    // However often somebody tries.
    for _ in 0..3 {
        let again = refused(&dir);
        assert!(again.contains("refused this directory"), "{again}");
    }
    std::thread::sleep(Duration::from_millis(500));
    until("the others go on", || {
        let mut clients = (0..2).map(|node| cluster.fleet.node(node).client());
        clients.any(|mut client| client.command(&["GET", &key]) == Value::bulk("y"))
    });
}
