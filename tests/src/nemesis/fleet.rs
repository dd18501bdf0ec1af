//! The nodes of a cluster, as processes that can be hurt.

use std::path::Path;

use crate::server::{Launch, Server};

pub struct Fleet {
    nodes: Vec<Server>,
    stopped: Vec<bool>,
}

impl Fleet {
    /// Starts so many nodes. `launch` says how each is started, given its number and a directory that is its own.
    pub fn start(count: usize, dir: &Path, launch: impl Fn(usize, &Path) -> Launch) -> Fleet {
        let nodes = (0..count).map(|node| {
            let own = dir.join(node.to_string());
            launch(node, &own).dir(own).start()
        });
        Fleet {
            nodes: nodes.collect(),
            stopped: vec![false; count],
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node]
    }

    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Server::addr).collect()
    }

    /// Ends a node at once, as a crash would.
    pub fn kill(&mut self, node: usize) {
        self.go_on(node);
        self.nodes[node].kill9();
    }

    /// Starts a node again that was killed.
    pub fn revive(&mut self, node: usize) {
        self.nodes[node].start();
    }

    /// Has a node stand still, as one whose machine does something else. Its sockets stay open.
    pub fn stop(&mut self, node: usize) {
        self.stopped[node] = true;
        self.signal(node, libc::SIGSTOP);
    }

    pub fn go_on(&mut self, node: usize) {
        if std::mem::take(&mut self.stopped[node]) {
            self.signal(node, libc::SIGCONT);
        }
    }

    fn signal(&self, node: usize, signal: libc::c_int) {
        let pid = self.nodes[node].pid().expect("the node is running");
        let pid = libc::pid_t::try_from(pid).expect("a process id");
        // SAFETY: the process is our child and has not been waited for, so its id names it and nothing else.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "node {node} takes signal {signal}");
    }
}
