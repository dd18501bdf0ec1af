//! A redis-server to compare with.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cairn_resp::decode;
use cairn_script::Value;
use tempfile::TempDir;

pub struct Redis {
    server: Child,
    connection: TcpStream,
    unread: Vec<u8>,
    _dir: TempDir,
}

impl Redis {
    pub fn start() -> Redis {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let dir = tempfile::tempdir().unwrap();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let connection = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(connection) => break connection,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut redis = Redis {
            server,
            connection,
            unread: Vec::new(),
            _dir: dir,
        };
        redis.ask(&[b"HELLO".to_vec(), b"3".to_vec()]);
        redis
    }

    pub fn ask(&mut self, words: &[Vec<u8>]) -> Value {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.connection.write_all(&request).unwrap();
        loop {
            if let Some((value, len)) = decode(&self.unread).unwrap() {
                self.unread.drain(..len);
                return value;
            }
            let mut piece = [0; 65536];
            let len = self.connection.read(&mut piece).unwrap();
            assert!(len > 0, "redis-server went down at {words:?}");
            self.unread.extend_from_slice(&piece[..len]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
