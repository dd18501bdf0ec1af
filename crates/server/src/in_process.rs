//! A server without sockets: it serves streams that live in its own process, on the calling thread. The
//! instructions of a command are counted over it, from the bytes that come in to those that go out.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use cairn_engine::{EngineOptions, SystemTime};
use cairn_store::{Store, StoreOptions, SyncMode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Endpoint;
use crate::client::Ends;
use crate::config::Flags;
use crate::connection::Connection;
use crate::route::Directory;
use crate::server::Server;
use crate::turn::Worker;

pub struct InProcess {
    worker: Rc<Worker>,
}

impl InProcess {
    /// Opens the database in `dir`. Nothing is synced, and keys do not expire by themselves.
    pub fn open(dir: &Path) -> Result<InProcess, String> {
        let options = Self::options()?;
        let store = Store::open(dir, options).map_err(|error| error.to_string())?;
        Self::over(store)
    }

    /// How a store is opened for this.
    pub fn options() -> Result<StoreOptions, String> {
        let settings = Flags::default().load()?;
        Ok(StoreOptions {
            engine: EngineOptions::default(),
            sync: SyncMode::No,
            databases: settings.databases,
            time: Box::<SystemTime>::default(),
            ranks: Default::default(),
        })
    }

    /// Over a store that is open.
    pub fn over(store: Arc<Store>) -> Result<InProcess, String> {
        let mut settings = Flags::default().load()?;
        settings.dir = store.engine().path().to_owned();
        settings.sync = SyncMode::No;
        let server = Server::new(store, settings);
        Ok(InProcess {
            worker: Worker::new(server),
        })
    }

    /// Says where other regions are led, on a node of a cluster. Once.
    pub fn direct(&self, directory: Box<dyn Directory>) {
        // A second one is not asked for anything.
        let _ = self.worker.server.directory.set(directory);
    }

    /// Serves one client to its end. Runs on a `LocalSet`.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), String> {
        let clients = &self.worker.server.clients;
        let place = clients.reserve(usize::MAX).ok_or("too many clients")?;
        let nowhere = Endpoint::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let ends = Ends {
            peer: nowhere.clone(),
            local: nowhere,
            is_encrypted: false,
        };
        let user = self.worker.server.acl.default_user().clone();
        let entered = clients.enter(place, ends, -1, user);
        let connection = Connection::new(stream, self.worker.clone(), entered);
        connection.serve().await;
        Ok(())
    }

    /// Does what the background would do, and waits until RocksDB has everything.
    pub fn rest(&self) -> Result<(), String> {
        let store = &self.worker.server.store;
        while store.keep_ranks().map_err(|error| error.to_string())? {}
        store.engine().sync().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Result as IoResult;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};

    use super::*;

    /// Takes all that is written, and sends it when it is flushed: so does encryption while the socket is full.
    struct Keeping {
        stream: DuplexStream,
        kept: Vec<u8>,
    }

    impl AsyncRead for Keeping {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<IoResult<()>> {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Keeping {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<IoResult<usize>> {
            self.kept.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
            let this = &mut *self;
            while !this.kept.is_empty() {
                let written = Pin::new(&mut this.stream).poll_write(context, &this.kept);
                let count = ready!(written)?;
                this.kept.drain(..count);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
            self.poll_flush(context)
        }
    }

    #[test]
    fn what_a_stream_keeps_back_is_sent_too() {
        let folder = tempfile::tempdir().unwrap();
        let server = InProcess::open(folder.path()).unwrap();
        let (mut client, stream) = tokio::io::duplex(64);
        let kept = Vec::new();
        let serve = async { server.serve(Keeping { stream, kept }).await.unwrap() };
        let talk = async {
            let value = "x".repeat(1000);
            let (request, reply) = (format!("ECHO {value}\r\n"), format!("$1000\r\n{value}\r\n"));
            let mut received = vec![0; reply.len()];
            for _ in 0..3 {
                client.write_all(request.as_bytes()).await.unwrap();
                client.read_exact(&mut received).await.unwrap();
                assert_eq!(received, reply.as_bytes());
            }
            client.write_all(b"QUIT\r\n").await.unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"+OK\r\n");
        };
        let both = async { tokio::join!(serve, talk) };
        let limited = async { tokio::time::timeout(Duration::from_secs(10), both).await };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let done = tokio::task::LocalSet::new().block_on(&runtime, limited);
        assert!(done.is_ok(), "a reply has not come");
    }
}
