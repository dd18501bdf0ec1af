//! A server without sockets: it serves streams that live in its own process, on the calling thread. The
//! instructions of a command are counted over it, from the bytes that come in to those that go out.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cairn_engine::{EngineOptions, SystemTime};
use cairn_store::{Store, StoreOptions, SyncMode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Endpoint;
use crate::config::Flags;
use crate::connection::Connection;
use crate::server::Server;
use crate::turn::Worker;

pub struct InProcess {
    worker: Rc<Worker>,
}

impl InProcess {
    /// Opens the database in `dir`. Nothing is synced, and keys do not expire by themselves.
    pub fn open(dir: &Path) -> Result<InProcess, String> {
        let mut settings = Flags::default().load()?;
        settings.dir = dir.to_owned();
        settings.sync = SyncMode::No;
        let options = StoreOptions {
            engine: EngineOptions::default(),
            sync: settings.sync,
            databases: settings.databases,
            time: Box::new(SystemTime),
            ranks: Default::default(),
        };
        let store = Store::open(dir, options).map_err(|error| error.to_string())?;
        let server = Server::new(store, settings);
        Ok(InProcess {
            worker: Worker::new(server),
        })
    }

    /// Serves one client to its end. Runs on a `LocalSet`.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), String> {
        let clients = &self.worker.server.clients;
        let place = clients.reserve(usize::MAX).ok_or("too many clients")?;
        let nowhere = Endpoint::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let ends = (nowhere.clone(), nowhere);
        let user = self.worker.server.acl.default_user().clone();
        let entered = clients.enter(place, ends, -1, user);
        let connection = Connection::new(stream, self.worker.clone(), entered);
        connection.serve().await;
        Ok(())
    }

    /// Waits until RocksDB has everything.
    pub fn rest(&self) {
        let engine = self.worker.server.store.engine();
        while engine.statistics().young_bytes > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
