//! Which of our processes has opened a connection, as the kernel tells.
//!
//! All nodes come from the same address, and their ports mean nothing. But the kernel lists each socket by an inode, and which
//! process holds that. So nodes need no special way to say who they are, whatever they speak.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The node whose process is called from `from`. A node is known by its directory, which stands on its command line.
pub fn caller(from: SocketAddr, dirs: &[PathBuf]) -> Option<usize> {
    let socket = format!("socket:[{}]", inode(from.port())?);
    let holds = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten();
        open.flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|name| name == *socket))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes
        .map(|process| process.path())
        .find_map(|process| node(&process, dirs).filter(|_| holds(&process)))
}

/// The inode of the socket on loopback that has this port as its own, and is in the middle of a connection.
fn inode(port: u16) -> Option<String> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let own = format!("0100007F:{port:04X}");
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_own = words.nth(1) == Some(&own);
        let inode = words.nth(7)?;
        (is_own && inode != "0").then(|| inode.to_string())
    })
}

fn node(process: &Path, dirs: &[PathBuf]) -> Option<usize> {
    let command = fs::read(process.join("cmdline")).ok()?;
    let has = |dir: &PathBuf| {
        let mut words = command.split(|byte| *byte == 0);
        words.any(|word| word == dir.as_os_str().as_encoded_bytes())
    };
    dirs.iter().position(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    #[test]
    fn the_process_that_calls_is_found_by_what_it_was_given() {
        let door = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = door.local_addr().expect("an address").port();
        let dirs = ["/no/such/0", "/no/such/1"].map(PathBuf::from);
        let mut child = Command::new("bash")
            .args([
                "-c",
                &format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read line"),
            ])
            .arg(&dirs[1])
            .stdin(Stdio::piped())
            .spawn()
            .expect("bash runs");
        let (mut connection, from) = door.accept().expect("it calls");
        assert_eq!(caller(from, &dirs), Some(1));
        assert_eq!(caller(from, &dirs[..1]), None, "somebody else");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!(connection.read(&mut [0]).expect("closed"), 0);
    }
}
