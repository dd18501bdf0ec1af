//! openraft's own tests of a log store, over the real one: RocksDB, and the thread that writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_core::Stream;
use openraft::alias::SnapshotOf;
use openraft::rt::AsyncRuntime;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError};
use tempfile::TempDir;

use super::{Log, RegionLog};
use crate::config::Config;
use crate::consensus::{RaftLogId, RaftSnapshotMeta, RaftStoredMembership, Types};
use crate::machine::Machine;
use crate::runtime::Runtime;
use crate::simulation::machine::Memory;
use crate::state_machine::{Place, SnapshotData, StateMachine};

struct Builder;

impl StoreBuilder<Types, RegionLog, Tested, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, RegionLog, Tested), StorageError<Types>> {
        let dir = TempDir::new().unwrap();
        let config = Config {
            // Nothing stays in memory that need not, so that the rows are read.
            cached_bytes: 0,
            failure: Arc::new(|reason| panic!("{reason}")),
            ..Config::default()
        };
        let log = Log::open(dir.path(), &config).unwrap();
        // A neighbour on either side, whose entries must not show.
        for region in [6, 8] {
            super::tests::fill(&log, region, 3).await;
        }
        let region = log.region(7, 1).await.unwrap();
        let memory = Memory {
            lenient: true,
            ..Memory::default()
        };
        let running = Arc::new(AtomicBool::new(true));
        let failure = config.failure.clone();
        let machine = Arc::new(memory.clone());
        let machine =
            StateMachine::open(7, machine, u64::MAX, failure, running, Arc::default()).unwrap();
        Ok((dir, region, Tested { machine, memory }))
    }
}

#[test]
fn the_log_store_is_what_openraft_expects() {
    Runtime::run(Suite::test_all(Builder)).unwrap();
}

/// The suite installs what another has read, without a network between that makes it something received.
struct Tested {
    machine: StateMachine,
    memory: Memory,
}

impl RaftStateMachine<Types> for Tested {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Place;

    async fn applied_state(&mut self) -> io::Result<(Option<RaftLogId>, RaftStoredMembership)> {
        self.machine.applied_state().await
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        self.machine.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> Place {
        self.machine.get_snapshot_builder().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &RaftSnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let SnapshotData::Read {
            applied,
            mut reader,
        } = snapshot
        else {
            panic!("the suite installs what was read");
        };
        let mut writer = self.memory.receive(7).await?;
        while let Some(piece) = reader.next().await? {
            writer.write(piece).await?;
        }
        let received = SnapshotData::Received { applied, writer };
        self.machine.install_snapshot(meta, received).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<Types, SnapshotData>>> {
        self.machine.get_current_snapshot().await
    }
}
