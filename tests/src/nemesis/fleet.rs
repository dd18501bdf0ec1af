//! The nodes of a cluster, as processes that can be hurt.

use std::time::Duration;

use crate::server::{Launch, Server};

pub struct Fleet {
    nodes: Vec<Server>,
    stopped: Vec<bool>,
}

impl Fleet {
    /// Starts so many nodes. `launch` says how each is started, given its number.
    pub fn start(count: usize, launch: impl Fn(usize) -> Launch) -> Fleet {
        Fleet {
            nodes: (0..count).map(|node| launch(node).start()).collect(),
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

    /// Ends nodes at once, all at the same moment.
    pub fn kill_together(&mut self, nodes: &[usize]) {
        let running: Vec<usize> = nodes
            .iter()
            .copied()
            .filter(|node| !self.has_ended(*node))
            .collect();
        running
            .iter()
            .for_each(|node| self.signal(*node, libc::SIGKILL));
        nodes.iter().for_each(|node| self.nodes[*node].kill9());
        nodes.iter().for_each(|node| self.stopped[*node] = false);
    }

    /// Starts a node that was killed, and kills it again so much later, however far it has come.
    pub fn interrupt_start(&mut self, node: usize, after: Duration) {
        self.nodes[node].interrupt_start(after);
    }

    /// Ends a node in good order.
    pub fn end(&mut self, node: usize) {
        let ended = self.nodes[node].terminate();
        assert!(ended.success(), "{}", self.nodes[node].log_tail());
    }

    /// Starts a node again that was killed.
    pub fn revive(&mut self, node: usize) {
        self.nodes[node].start();
    }

    /// Whether a node has ended, of itself or because it was killed.
    pub fn has_ended(&mut self, node: usize) -> bool {
        self.nodes[node].has_ended()
    }

    /// Ends a node in good order, and starts it again.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].restart();
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
