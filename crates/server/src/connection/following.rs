//! A connection whose client follows this server: SYNC and PSYNC. It is sent a snapshot, or what it has missed; from then on
//! what others do comes into its outbox.

use std::time::Duration;

use cairn_store::{Error, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::running::blocking;
use super::{Connection, Gone, error_reply};
use crate::rdb_file::{Preparation, Snapshot};
use crate::replication::{Following, Spool, Stage};
use crate::server::random_id;
use crate::session::Sync;

/// How much of a snapshot is made before it is sent.
const PIECE: usize = 256 * 1024;
/// Who waits for a snapshot that is not ready yet is shown that somebody is there.
const PATIENCE: Duration = Duration::from_secs(5);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) async fn synchronize(&mut self, sync: Sync) -> Result<(), Gone> {
        // What it has asked for before comes before.
        self.leave_turn().await;
        self.flush().await?;
        let Sync {
            introduction,
            place,
        } = &sync;
        let server = self.session.server.clone();
        let client = self.session.client.clone();
        if let Some((id, next)) = place
            && let Some((following, id)) =
                server
                    .replication
                    .resume(&client, introduction, (id, *next))
        {
            tracing::info!("{}: follows again from byte {next} on", client.peer);
            let name = match introduction.knows_names {
                true => format!(" {id}"),
                false => String::new(),
            };
            self.output
                .extend_from_slice(format!("+CONTINUE{name}\r\n").as_bytes());
            self.follow(following);
            return Ok(());
        }
        self.copy_everything(sync).await
    }

    /// From now on it is sent what comes into its outbox.
    fn follow(&mut self, following: Following) {
        following.follower.enter(Stage::Online);
        self.session.following = Some(following);
        self.session.listens = true;
    }

    async fn copy_everything(&mut self, sync: Sync) -> Result<(), Gone> {
        let server = self.session.server.clone();
        let client = self.session.client.clone();
        let busy = client.clone();
        let _busy = busy.work();
        // The snapshot is of the moment at which it begins to be told.
        self.session.listens = false;
        self.session.following = None;
        let shared = server.clone();
        let prepared = blocking(move || Preparation::new(&shared)).await?;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.write_reply(error_reply(error)),
        };
        let held = server.store.latches().acquire(Request::everything()).await;
        let introduction = sync.introduction.clone();
        let (shared, follower) = (server.clone(), client.clone());
        let opened = blocking(move || {
            let size = shared.config.text("repl-backlog-size").parse();
            let size = size.unwrap_or(1 << 20);
            let snapshot = prepared.open(&shared)?;
            let attached = shared.replication.attach(&follower, &introduction, size);
            drop(held);
            Ok::<_, Error>((snapshot, attached))
        })
        .await?;
        let (snapshot, (following, id, offset)) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!("{}: there is no snapshot for it: {error}", client.peer);
                return self.write_reply(error_reply(error));
            }
        };
        tracing::info!(
            "{}: follows, and is sent everything as of byte {offset}",
            client.peer
        );
        if sync.place.is_some() {
            self.output
                .extend_from_slice(format!("+FULLRESYNC {id} {offset}\r\n").as_bytes());
            self.send_patiently().await?;
        }
        match sync.introduction.knows_mark {
            true => self.stream_snapshot(snapshot).await?,
            false => self.spool_snapshot(snapshot).await?,
        }
        if sync.introduction.only_snapshot {
            self.session.closes = true;
            return Ok(());
        }
        if sync.introduction.knows_mark {
            // What came right behind the mark would be taken for a part of the snapshot.
            following.follower.enter(Stage::Copied);
            self.session.following = Some(following);
        } else {
            self.follow(following);
        }
        Ok(())
    }

    /// Sends the output, to a client that may take its time but has to take something.
    async fn send_patiently(&mut self) -> Result<(), Gone> {
        let patience = self.session.server.config.text("repl-timeout").parse();
        let patience = Duration::from_secs(patience.unwrap_or(60));
        let sent = tokio::time::timeout(patience, self.send()).await;
        if sent.is_err() {
            let peer = &self.session.client.peer;
            tracing::warn!("{peer}: closed, it takes its snapshot too slowly");
        }
        sent.map_err(|_| Gone)?
    }

    /// Sends a snapshot while it is made, between marks.
    async fn stream_snapshot(&mut self, mut snapshot: Snapshot) -> Result<(), Gone> {
        let mark = random_id();
        self.output
            .extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
        loop {
            let (back, piece, is_more) = next_piece(snapshot).await?;
            self.output.extend_from_slice(&piece);
            if !is_more {
                self.output.extend_from_slice(mark.as_bytes());
                return self.send_patiently().await;
            }
            self.send_patiently().await?;
            snapshot = back;
        }
    }

    /// Makes a snapshot, and sends it behind its length.
    async fn spool_snapshot(&mut self, mut snapshot: Snapshot) -> Result<(), Gone> {
        let mut spool = Spool::default();
        let directory = self.session.server.settings.dir.clone();
        let mut shown = tokio::time::Instant::now();
        let mut spooled = loop {
            let (back, mut piece, is_more) = next_piece(snapshot).await?;
            snapshot = back;
            let directory = directory.clone();
            let (back, added) = blocking(move || {
                let added = spool.add(&mut piece, &directory);
                (spool, added)
            })
            .await?;
            spool = back;
            added.map_err(|error| {
                tracing::error!("a snapshot cannot be kept: {error}");
                Gone
            })?;
            if !is_more {
                break spool.rewind()?;
            }
            if shown.elapsed() > PATIENCE {
                shown = tokio::time::Instant::now();
                self.output.push(b'\n');
                self.send_patiently().await?;
            }
        };
        drop(snapshot);
        self.output
            .extend_from_slice(format!("${}\r\n", spooled.length).as_bytes());
        loop {
            let (back, piece) = blocking(move || {
                let piece = spooled.next(PIECE);
                (spooled, piece)
            })
            .await?;
            spooled = back;
            let piece = piece?;
            if piece.is_empty() {
                return self.send_patiently().await;
            }
            self.output.extend_from_slice(&piece);
            self.send_patiently().await?;
        }
    }

    /// REPLCONF ACK: a follower says how much of the stream it has.
    pub(super) fn note_acknowledged(&mut self) {
        let Some(offset) = self.session.acknowledges.take() else {
            return;
        };
        let session = &mut self.session;
        if let Some(following) = &session.following {
            let follower = &following.follower;
            session
                .server
                .replication
                .note_acknowledged(follower, offset);
            if follower.has_to_confirm() {
                follower.enter(Stage::Online);
                session.listens = true;
            }
        }
    }
}

/// The snapshot, what comes next of it, and whether there is more.
async fn next_piece(mut snapshot: Snapshot) -> Result<(Snapshot, Vec<u8>, bool), Gone> {
    let (snapshot, piece, more) = blocking(move || {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        let more = loop {
            match snapshot.write_next(&mut piece) {
                Ok(true) if piece.len() < PIECE => {}
                ended => break ended,
            }
        };
        (snapshot, piece, more)
    })
    .await?;
    match more {
        Ok(is_more) => Ok((snapshot, piece, is_more)),
        Err(error) => {
            tracing::error!("a snapshot for a follower broke off: {error}");
            Err(Gone)
        }
    }
}
