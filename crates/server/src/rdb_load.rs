//! An RDB file into the store, as its bytes come.
//!
//! `cairn_rdb::file::Reader` finds keys and their elements in the bytes. A large value is written ahead under a version that
//! nobody sees, so it takes no more memory than a batch; when it is whole it becomes that of its key. What came in one
//! piece of the file is committed together, alone: others see a key as a whole or not at all, and wait no longer than for
//! one piece. Nothing is held between two pieces, for which the caller may have to wait.
//!
//! Keys replace those of the same name, and the functions of the file replace all that there were, at its end. Whoever wants
//! the file and nothing else flushes before. What has expired is passed over.

use std::sync::Arc;

use cairn_rdb::file::{Damaged, Part, Progress, Reader};
use cairn_rdb::{Item, Kind};
use cairn_store::{Error, Held, Patience, Request, Result, Store, WriteTxn, functions, keys};

use crate::command::dump::building::{Building, Stopped};
use crate::script::functions::{install, run_codes};
use crate::server::Server;

/// More than this is committed before the piece is at its end.
const BATCH_BYTES: usize = 1024 * 1024;

/// Why a file was not loaded. What came before is.
#[derive(Debug)]
pub enum Failure {
    /// It is not as it should be.
    Damaged(Damaged),
    /// It cannot be written.
    Store(Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Damaged(damaged) => damaged.fmt(f),
            Failure::Store(error) => error.fmt(f),
        }
    }
}

impl From<Damaged> for Failure {
    fn from(damaged: Damaged) -> Self {
        Failure::Damaged(damaged)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

/// A file on its way into the store.
pub struct Loading {
    reader: Reader,
    target: Target,
}

impl Loading {
    pub fn new(server: &Server) -> Result<Loading> {
        let store = &server.store;
        if store.is_replicated() {
            return Err(Error::fixed("ERR a node of a cluster loads no file"));
        }
        let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Background);
        txn.begin(0);
        Ok(Loading {
            reader: Reader::default(),
            target: Target {
                store: store.clone(),
                txn,
                held: None,
                key: None,
                libraries: Vec::new(),
                keys: 0,
                stream_database: 0,
                is_wanted: None,
            },
        })
    }

    /// It comes from a server that is followed for as long as that is wanted. What has expired is kept, since that server will say
    /// when it is to go.
    pub fn from_master(mut self, is_wanted: Box<dyn Fn() -> bool>) -> Loading {
        self.target.is_wanted = Some(is_wanted);
        self
    }

    /// The database that the stream behind the file is about, until it says otherwise: a server that follows another tells
    /// what it is told, which may have begun long ago.
    pub fn stream_database(&self) -> u32 {
        self.target.stream_database
    }

    /// Takes the next bytes of the file in, and tells whether it was at its end. On a thread that may block.
    pub fn push(&mut self, server: &Server, bytes: &[u8]) -> Result<Progress, Failure> {
        let Loading { reader, target } = self;
        reader.push(bytes);
        let progress = reader.read(&mut |part| target.take(part))?;
        if progress == Progress::Done {
            target.replace_functions(server)?;
        }
        target.commit()?;
        Ok(progress)
    }

    /// What was pushed behind the end of the file.
    pub fn rest(&self) -> &[u8] {
        self.reader.rest()
    }

    /// What is wrong if no more bytes come, although the file was not at its end.
    pub fn cut(&self) -> Failure {
        self.reader.cut().into()
    }

    /// How many keys have been loaded.
    pub fn keys(&self) -> u64 {
        self.target.keys
    }
}

/// Where it is written to.
struct Target {
    store: Arc<Store>,
    txn: WriteTxn,
    /// As long as something is to be committed.
    held: Option<Held>,
    key: Option<Key>,
    libraries: Vec<Vec<u8>>,
    keys: u64,
    stream_database: u32,
    /// Whether it is still to be loaded, if another server decides what there is.
    is_wanted: Option<Box<dyn Fn() -> bool>>,
}

/// The key whose value is being read.
struct Key {
    name: Vec<u8>,
    kind: Kind,
    building: Building,
    /// A part of it has come. A stream without entries has one: what is known of it.
    has_parts: bool,
}

impl Target {
    fn take(&mut self, part: Part<'_>) -> Result<(), Failure> {
        match part {
            Part::Remark(b"repl-stream-db", number) => {
                let number = std::str::from_utf8(number).ok();
                self.stream_database = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            }
            Part::Remark(..) | Part::Sizes(..) => {}
            Part::Library(code) => self.libraries.push(code.to_vec()),
            Part::Database(number) => self.select(number)?,
            Part::Key {
                name,
                kind,
                expire_ms,
            } => self.begin_key(name, kind, expire_ms),
            Part::Item(item) => self.add(item)?,
            Part::KeyEnd => self.end_key()?,
        }
        Ok(())
    }

    fn select(&mut self, number: u64) -> Result<()> {
        let count = self.store.database_count();
        match u32::try_from(number) {
            Ok(number) if number < count => {
                self.txn.select(number);
                Ok(())
            }
            _ => Err(Error::reply(format!(
                "ERR the file has keys in database {number}, and there are {count} databases"
            ))),
        }
    }

    fn begin_key(&mut self, name: &[u8], kind: Kind, expire_ms: u64) {
        let is_past = expire_ms != 0 && expire_ms < self.txn.now_ms() && self.is_wanted.is_none();
        self.key = (!is_past).then(|| Key {
            name: name.to_vec(),
            kind,
            building: Building::new(&self.txn, name, kind, expire_ms),
            has_parts: false,
        });
    }

    fn add(&mut self, item: Item<'_>) -> Result<(), Failure> {
        if matches!(item, Item::String(_)) {
            self.be_alone();
        }
        let Some(key) = &mut self.key else {
            return Ok(());
        };
        key.has_parts = true;
        let added = key.building.add(&mut self.txn, item);
        added.map_err(|stopped| match stopped {
            // The reader tells a value by its kind.
            Stopped::Corrupt => Failure::Store(Error::fixed("ERR Bad data format")),
            Stopped::Store(error) => Failure::Store(error),
        })
    }

    fn end_key(&mut self) -> Result<()> {
        let Some(key) = self.key.take() else {
            return Ok(());
        };
        if key.has_parts {
            self.be_alone();
            if key.kind == Kind::Stream {
                keys::clear(&mut self.txn, &key.name)?;
            }
            key.building.finish(&mut self.txn)?;
            self.keys += 1;
        }
        match self.txn.pending().bytes() < BATCH_BYTES {
            true => Ok(()),
            false => self.commit(),
        }
    }

    /// With the latch of everything, if there is something to be committed: others who write since it is not are behind that.
    fn check_wanted(&self) -> Result<()> {
        match &self.is_wanted {
            Some(is_wanted) if !is_wanted() => {
                Err(Error::fixed("ERR it is not to be followed any more"))
            }
            _ => Ok(()),
        }
    }

    fn be_alone(&mut self) {
        if self.held.is_none() {
            let latches = self.store.latches();
            self.held = Some(latches.acquire_blocking(Request::everything()));
            self.txn.sample_time();
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.check_wanted()?;
        let result = self.store.commit_blocking(&mut self.txn);
        self.held = None;
        let database = self.txn.database();
        self.txn.begin(database);
        result
    }

    /// From here on the functions are those of the file.
    fn replace_functions(&mut self, server: &Server) -> Result<()> {
        let codes = std::mem::take(&mut self.libraries);
        let libraries = run_codes(server, &codes)?;
        self.be_alone();
        for gone in server.scripts.functions.committed().iter() {
            functions::delete(&mut self.txn, &gone.name);
        }
        for library in libraries.iter() {
            functions::put(&mut self.txn, &library.name, &library.code);
        }
        self.check_wanted()?;
        self.store.commit_blocking(&mut self.txn)?;
        install(server, libraries);
        Ok(())
    }
}
