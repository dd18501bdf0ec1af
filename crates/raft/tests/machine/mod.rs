//! A state machine in memory, which a node finds again when it comes back.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use cairn_raft::{Applied, Content, Entry, Later, Machine, SnapshotReader, SnapshotWriter};

#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<u64, State>>);

#[derive(Clone, Default)]
struct State {
    applied: Applied,
    batches: Vec<Bytes>,
}

impl Memory {
    pub fn batches(&self, region: u64) -> Vec<Bytes> {
        self.state(region).batches
    }

    fn state(&self, region: u64) -> State {
        let states = self.0.lock().unwrap();
        states.get(&region).cloned().unwrap_or_default()
    }
}

impl Machine for Memory {
    fn applied(&self, region: u64) -> io::Result<Applied> {
        Ok(self.state(region).applied)
    }

    fn apply<'a>(
        &'a self,
        region: u64,
        entries: Vec<Entry>,
        applied: &'a Applied,
    ) -> Later<'a, io::Result<Vec<Bytes>>> {
        let mut states = self.0.lock().unwrap();
        let state = states.entry(region).or_default();
        let answers = entries.iter().map(|_| Bytes::new()).collect();
        for entry in entries {
            if let Content::Batch { payload, .. } = entry.content {
                state.batches.push(payload);
            }
        }
        state.applied = applied.clone();
        Box::pin(async { Ok(answers) })
    }

    fn durable(&self, region: u64) -> Option<u64> {
        self.state(region).applied.last.map(|last| last.index)
    }

    fn sync(&self) -> Later<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn snapshot(&self, region: u64) -> Later<'_, io::Result<Box<dyn SnapshotReader>>> {
        let reader: Box<dyn SnapshotReader> = Box::new(Reader(self.batches(region).into_iter()));
        Box::pin(async { Ok(reader) })
    }

    fn remove(&self, region: u64) -> Later<'_, io::Result<()>> {
        self.0.lock().unwrap().remove(&region);
        Box::pin(async { Ok(()) })
    }

    fn receive(&self, _: u64) -> Later<'_, io::Result<Box<dyn SnapshotWriter>>> {
        let writer: Box<dyn SnapshotWriter> = Box::new(Received::default());
        Box::pin(async { Ok(writer) })
    }

    fn install<'a>(
        &'a self,
        region: u64,
        applied: &'a Applied,
        received: Box<dyn SnapshotWriter>,
    ) -> Later<'a, io::Result<()>> {
        let received: Box<dyn Any> = received;
        let received = received.downcast::<Received>().expect("it made the writer");
        let state = State {
            applied: applied.clone(),
            batches: received.0,
        };
        self.0.lock().unwrap().insert(region, state);
        Box::pin(async { Ok(()) })
    }
}

struct Reader(std::vec::IntoIter<Bytes>);

impl SnapshotReader for Reader {
    fn next(&mut self) -> Later<'_, io::Result<Option<Bytes>>> {
        let next = self.0.next();
        Box::pin(async { Ok(next) })
    }
}

#[derive(Default)]
struct Received(Vec<Bytes>);

impl SnapshotWriter for Received {
    fn write(&mut self, piece: Bytes) -> Later<'_, io::Result<()>> {
        self.0.push(piece);
        Box::pin(async { Ok(()) })
    }
}
