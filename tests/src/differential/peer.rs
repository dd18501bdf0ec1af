//! The two servers, as far as the comparison needs them: something to connect to, and connections
//! that take commands and give replies. Tests of the comparison put a liar in between.

use std::io;
use std::time::Duration;

use crate::client::Client;
use crate::value::Value;

/// A server that does not answer for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(15);

pub trait Peer {
    fn connect(&self) -> io::Result<Box<dyn Link>>;
}

pub trait Link {
    /// Queues a command, to leave at the latest with the next receive.
    fn send(&mut self, argv: &[Vec<u8>]);
    /// Sends what is queued.
    fn flush(&mut self) -> io::Result<()>;
    /// The reply to the first command not answered yet.
    fn receive(&mut self) -> io::Result<Value>;

    fn ask(&mut self, argv: &[Vec<u8>]) -> io::Result<Value> {
        self.send(argv);
        self.receive()
    }
}

/// A server at `host:port`.
pub struct Address(pub String);

impl Peer for Address {
    fn connect(&self) -> io::Result<Box<dyn Link>> {
        let mut client = Client::connect(&self.0)?;
        client.set_read_timeout(PATIENCE)?;
        Ok(Box::new(client))
    }
}

impl Link for Client {
    fn send(&mut self, argv: &[Vec<u8>]) {
        Client::send(self, argv);
    }

    fn flush(&mut self) -> io::Result<()> {
        Client::flush(self)
    }

    fn receive(&mut self) -> io::Result<Value> {
        self.try_receive()
    }
}
