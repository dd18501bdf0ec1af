use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use bytes::Bytes;
use openraft::rt::AsyncRuntime;
use openraft::storage::{IOFlushed, RaftLogStorage, RaftLogStorageExt};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader};
use tempfile::TempDir;

use super::*;
use crate::consensus::{Batch, RaftEntry, RaftVote, Types, raft_log_id};
use crate::runtime::Runtime;

fn id(term: u64, index: u64) -> LogId {
    LogId { term, index }
}

fn entry(term: u64, index: u64) -> RaftEntry {
    RaftEntry {
        log_id: raft_log_id(id(term, index)),
        payload: EntryPayload::Normal(Batch {
            timestamp_ms: index,
            epoch: 1,
            payload: Bytes::from(format!("{term}.{index}")),
        }),
    }
}

/// The terms of all entries, from the first.
async fn terms(log: &mut RegionLog) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.unwrap();
    let mut next = log.indexes().start;
    for found in &entries {
        assert_eq!(*found, entry(found.log_id.leader_id.term, next));
        next += 1;
    }
    assert_eq!(log.indexes().end, next);
    entries
        .iter()
        .map(|entry| entry.log_id.leader_id.term)
        .collect()
}

pub(super) async fn fill(log: &Log, region: u64, count: u64) -> RegionLog {
    let mut log = log.region(region, 1).await.unwrap();
    log.blocking_append((0..count).map(|index| entry(1, index)))
        .await
        .unwrap();
    log
}

fn small() -> Config {
    Config {
        cached_bytes: 0,
        ..Config::default()
    }
}

/// Runs a story, opens the log again, and runs another.
fn reopened<T, F, G>(config: Config, before: impl FnOnce(Log) -> F, after: impl FnOnce(Log, T) -> G)
where
    F: Future<Output = T>,
    G: Future<Output = ()>,
{
    let dir = TempDir::new().unwrap();
    Runtime::run(async {
        let kept = before(Log::open(dir.path(), &config).unwrap()).await;
        after(Log::open(dir.path(), &config).unwrap(), kept).await;
    });
}

#[test]
fn what_was_appended_is_there_afterwards() {
    reopened(
        small(),
        |log| async move {
            for region in [1, 2] {
                let mut log = fill(&log, region, 5).await;
                assert_eq!(terms(&mut log).await, [1; 5]);
                // It is written with what comes next.
                log.save_committed(Some(raft_log_id(id(1, region))))
                    .await
                    .unwrap();
                log.save_vote(&RaftVote::new_committed(region, 3))
                    .await
                    .unwrap();
            }
        },
        |log, ()| async move {
            assert_eq!(log.replicas(), [(1, 1), (2, 1)]);
            for region in [1, 2] {
                let mut log = log.region(region, 1).await.unwrap();
                assert_eq!(terms(&mut log).await, [1; 5]);
                let vote = log.read_vote().await.unwrap();
                assert_eq!(vote, Some(RaftVote::new_committed(region, 3)));
                let committed = log.read_committed().await.unwrap();
                assert_eq!(committed, Some(raft_log_id(id(1, region))));
            }
        },
    );
}

#[test]
fn entries_that_take_the_place_of_others_stay() {
    for cached_bytes in [0, usize::MAX] {
        let config = Config {
            cached_bytes,
            ..Config::default()
        };
        reopened(
            config,
            |log| async move {
                let mut log = fill(&log, 1, 6).await;
                log.truncate_after(Some(raft_log_id(id(1, 2))))
                    .await
                    .unwrap();
                assert_eq!(terms(&mut log).await, [1; 3]);
                // Read before they are written, and after.
                let (told, flushed) = Types::oneshot();
                let new = [entry(2, 3), entry(2, 4)];
                log.append(new, IOFlushed::signal(told)).await.unwrap();
                assert_eq!(terms(&mut log).await, [1, 1, 1, 2, 2]);
                flushed.await.unwrap().unwrap();
                assert_eq!(terms(&mut log).await, [1, 1, 1, 2, 2]);
            },
            |log, ()| async move {
                let mut log = log.region(1, 1).await.unwrap();
                assert_eq!(terms(&mut log).await, [1, 1, 1, 2, 2]);
            },
        );
    }
}

#[test]
fn a_purged_log_goes_on_where_it_was() {
    reopened(
        small(),
        |log| async move {
            let mut log = fill(&log, 1, 6).await;
            let before = log.bytes();
            log.purge(raft_log_id(id(1, 2))).await.unwrap();
            assert_eq!(log.indexes(), 3..6);
            assert_eq!(log.bytes(), before / 2);
            assert_eq!(terms(&mut log).await, [1; 3]);
            // Those that are gone are gone for readers too.
            assert_eq!(log.limited_get_log_entries(0, 4).await.unwrap().len(), 1);
            log.blocking_append([entry(1, 6)]).await.unwrap();
            log.bytes()
        },
        |log, bytes| async move {
            let mut log = log.region(1, 1).await.unwrap();
            assert_eq!(log.bytes(), bytes);
            assert_eq!(terms(&mut log).await, [1; 4]);
            // A snapshot that reaches further than the log.
            log.purge(raft_log_id(id(3, 20))).await.unwrap();
            assert_eq!(log.bytes(), 0);
            log.blocking_append([entry(3, 21)]).await.unwrap();
            assert_eq!(terms(&mut log).await, [3]);
            let state = log.get_log_state().await.unwrap();
            assert_eq!(state.last_purged_log_id, Some(raft_log_id(id(3, 20))));
            // Down to the purged entry, and up again.
            let bytes = log.bytes();
            log.truncate_after(Some(raft_log_id(id(3, 20))))
                .await
                .unwrap();
            assert_eq!(log.bytes(), 0);
            log.blocking_append([entry(4, 21)]).await.unwrap();
            assert_eq!(log.bytes(), bytes);
        },
    );
}

#[test]
fn no_gap_is_appended() {
    reopened(
        small(),
        |log| async move {
            let mut log = fill(&log, 1, 3).await;
            assert!(log.blocking_append([entry(1, 4)]).await.is_err());
            assert!(log.blocking_append([entry(1, 2)]).await.is_err());
        },
        |log, ()| async move {
            let mut log = log.region(1, 1).await.unwrap();
            assert_eq!(terms(&mut log).await, [1; 3]);
        },
    );
}

#[test]
fn a_replicas_number_is_never_used_again() {
    reopened(
        small(),
        |log| async move {
            drop(fill(&log, 1, 3).await);
            assert!(log.region(1, 2).await.is_err(), "it has another");
            assert!(!log.is_removed(1, 1));
            log.destroy(1).await.unwrap();
            assert!(log.region(1, 1).await.is_err());
        },
        |log, ()| async move {
            assert_eq!(log.replicas(), []);
            assert!(log.is_removed(1, 1) && !log.is_removed(1, 2));
            assert!(log.region(1, 1).await.is_err());
            let mut new = log.region(1, 2).await.unwrap();
            assert_eq!(terms(&mut new).await, []);
            assert_eq!(new.read_vote().await.unwrap(), None);
        },
    );
}

#[test]
fn messages_are_bounded_by_bytes() {
    reopened(
        small(),
        |log| async move {
            let log = fill(&log, 1, 100).await;
            let mut log = log.bounded(5 * 67);
            let some = log.limited_get_log_entries(10, 90).await.unwrap();
            assert!((1..20).contains(&some.len()), "{} entries", some.len());
            assert_eq!(some[0], entry(1, 10));
            // All the same where all are wanted.
            assert_eq!(log.try_get_log_entries(10..90).await.unwrap().len(), 80);
        },
        |_, ()| async {},
    );
}

/// Rows that count how often they are synced, and take their time.
struct Counted {
    syncs: AtomicUsize,
    fails: AtomicBool,
}

impl Rows for Counted {
    fn get(&self, _: Key) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn entries(&self, _: u64, _: u64, _: u64, _: usize) -> io::Result<Vec<(u64, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn last_entry(&self, _: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
        Ok(None)
    }

    fn replicas(&self) -> io::Result<Vec<(u64, Replica)>> {
        Ok(Vec::new())
    }

    fn write(&self, _: Vec<Change>, sync: bool) -> io::Result<()> {
        self.syncs.fetch_add(usize::from(sync), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk is gone")),
            false => Ok(()),
        }
    }
}

fn counted(failure: crate::config::Failure) -> (Arc<Counted>, Log) {
    let rows = Arc::new(Counted {
        syncs: AtomicUsize::new(0),
        fails: AtomicBool::new(false),
    });
    let config = Config {
        failure,
        ..Config::default()
    };
    let (queue, receiver) = mpsc::unbounded_channel();
    let writer = Log::writer(rows.clone(), receiver, &config)
        .spawn()
        .unwrap();
    (rows.clone(), Log::new(rows, queue, Some(writer)).unwrap())
}

#[test]
fn what_all_regions_have_queued_takes_one_sync() {
    Runtime::run(async {
        let (rows, log) = counted(Arc::new(|reason| panic!("{reason}")));
        let mut logs = Vec::new();
        for region in 0..32 {
            logs.push(log.region(region, 1).await.unwrap());
        }
        let before = rows.syncs.load(Ordering::Relaxed);
        let appends: Vec<_> = logs
            .into_iter()
            .map(|mut log| tokio::spawn(async move { log.blocking_append([entry(1, 0)]).await }))
            .collect();
        for append in appends {
            append.await.unwrap().unwrap();
        }
        let syncs = rows.syncs.load(Ordering::Relaxed) - before;
        assert!(syncs <= 4, "{syncs} syncs");
    });
}

#[test]
fn a_failed_sync_is_the_end() {
    Runtime::run(async {
        let failures = Arc::new(AtomicUsize::new(0));
        let counter = failures.clone();
        let (rows, log) = counted(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let mut region = log.region(1, 1).await.unwrap();
        rows.fails.store(true, Ordering::Relaxed);
        assert!(region.blocking_append([entry(1, 0)]).await.is_err());
        assert!(region.save_vote(&RaftVote::new(1, 1)).await.is_err());
        assert_eq!(region.read_vote().await.unwrap(), None);
        assert_eq!(failures.load(Ordering::Relaxed), 2);
    });
}

/// What takes the place of entries that were cut off may be applied before it is on the disk itself. After a crash, a log that
/// still had the old ones would contradict the state.
#[test]
fn what_is_cut_off_is_gone_for_good_before_anything_else_comes() {
    Runtime::run(async {
        let (rows, log) = counted(Arc::new(|reason| panic!("{reason}")));
        let mut region = log.region(1, 1).await.unwrap();
        let entries = (0..3).map(|index| entry(1, index));
        region.blocking_append(entries).await.unwrap();
        let before = rows.syncs.load(Ordering::Relaxed);
        let kept = region.try_get_log_entries(0..1).await.unwrap();
        region.truncate_after(Some(kept[0].log_id)).await.unwrap();
        assert_eq!(rows.syncs.load(Ordering::Relaxed), before + 1);
    });
}
