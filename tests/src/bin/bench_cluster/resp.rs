//! Just enough of Redis' protocol to set keys, many at a time over one connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::load::Writes;

const PATIENCE: Duration = Duration::from_secs(20);
const OK: &[u8] = b"+OK\r\n";

pub struct Sets {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// What has arrived of the answer after those that were whole.
    received: Vec<u8>,
}

impl Sets {
    pub fn connect(address: &str) -> io::Result<Sets> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Sets {
            stream,
            unsent: Vec::new(),
            received: Vec::new(),
        })
    }
}

impl AsRawFd for Sets {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Writes for Sets {
    fn begin(&mut self, key: &[u8], value: &[u8]) {
        self.unsent.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        for argument in [key, value] {
            // A vector takes all that it is given.
            let _ = write!(self.unsent, "${}\r\n", argument.len());
            self.unsent.extend_from_slice(argument);
            self.unsent.extend_from_slice(b"\r\n");
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<usize> {
        let mut block = [0; 512];
        while self.received.len() < OK.len() {
            let read = self.stream.read(&mut block)?;
            if read == 0 {
                return Err(io::Error::other("Cairn ends the connection"));
            }
            self.received.extend_from_slice(&block[..read]);
        }
        let (whole, rest) = self.received.as_chunks::<{ OK.len() }>();
        if whole.iter().any(|answer| answer != OK) {
            let said = String::from_utf8_lossy(&self.received);
            return Err(io::Error::other(format!("Cairn answers {said}")));
        }
        let (finished, rest) = (whole.len(), rest.to_vec());
        self.received = rest;
        Ok(finished)
    }
}
