//! The functions that clients can call, and how they change.
//!
//! They are rows of the database, one for each library, and in memory what came of running their code. A change
//! is a unit like any other: rows in a batch, and beside it what the functions are after it. Others
//! see that when the batch is committed. Running code takes time, so a change always has a thread and
//! a transaction of its own; and one latch, since two changes must not begin with the same functions.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cairn_resp::Writer;
use cairn_script::{Libraries, Library, Policy, Value, dumped_codes, library_name};
use cairn_store::{Error, Mode, Request, Result, functions};
use parking_lot::Mutex;

use super::host::LoadingHost;
use super::{engines, refused};
use crate::command::OwnedArgs;
use crate::propagation::Propagate;
use crate::server::Server;
use crate::unit::{Scope, Unit};

/// Everyone's functions.
#[derive(Default)]
pub struct Functions {
    committed: ArcSwap<View>,
    /// Libraries that were deleted just now, in a cluster: see `Change::is_done`.
    deleted: Mutex<Vec<(Vec<u8>, Instant)>>,
}

/// For how long clients may go on to delete a library from one node after the other.
const JUST_NOW: Duration = Duration::from_secs(5);

/// Functions as they are at some moment, for everybody or inside of a unit.
#[derive(Default)]
pub struct View {
    libraries: Libraries,
    /// No two have the same, save for the first of each server.
    pub number: u64,
}

impl Deref for View {
    type Target = Libraries;

    fn deref(&self) -> &Libraries {
        &self.libraries
    }
}

impl View {
    fn new(libraries: Libraries) -> Arc<View> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(View {
            libraries,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }
}

impl Functions {
    pub fn committed(&self) -> Arc<View> {
        self.committed.load_full()
    }

    /// From here on they are these, by a commit whose latches are still held.
    pub fn install(&self, view: Arc<View>) {
        self.committed.store(view);
    }

    fn note_deleted(&self, name: &[u8]) {
        let mut deleted = self.deleted.lock();
        deleted.retain(|(_, at)| at.elapsed() < JUST_NOW);
        deleted.push((name.to_vec(), Instant::now()));
    }

    fn was_deleted(&self, name: &[u8]) -> bool {
        let deleted = self.deleted.lock();
        let mut lately = deleted.iter().filter(|(_, at)| at.elapsed() < JUST_NOW);
        lately.any(|(deleted, _)| deleted == name)
    }
}

/// Reads the functions of a database that has just been opened, or that others have changed.
pub fn load(server: &Server) -> Result<()> {
    replace(server, &functions::all(&server.store)?)
}

/// From here on they are those of these libraries.
pub fn replace(server: &Server, codes: &[Vec<u8>]) -> Result<()> {
    install(server, run_codes(server, codes)?);
    Ok(())
}

/// From here on they are these.
pub fn install(server: &Server, libraries: Libraries) {
    server.scripts.functions.install(View::new(libraries));
}

/// What comes of running the code of libraries.
pub fn run_codes(server: &Server, codes: &[Vec<u8>]) -> Result<Libraries> {
    let mut libraries = Libraries::new();
    for code in codes {
        let library = run_code(server, code)?;
        libraries
            .add(library, false)
            .map_err(|text| refused(&text))?;
    }
    Ok(libraries)
}

fn run_code(server: &Server, code: &[u8]) -> Result<Arc<Library>> {
    let mut host = LoadingHost { server };
    let loaded = engines::with_new(server, |engine| engine.load(code, &mut host))?;
    loaded.map_err(|text| refused(&text))
}

/// The functions as a unit sees them.
pub fn seen_by(scope: &Scope<'_>) -> Arc<View> {
    match &scope.functions {
        Some(changed) => changed.clone(),
        None => scope.session.server.scripts.functions.committed(),
    }
}

/// What a transaction in a cluster is told that has both: they are kept in different regions, and it is one batch of one.
const NOT_WITH_KEYS: &str = "ERR functions are not changed together with keys in a cluster: send it in a transaction of its own";

/// FUNCTION LOAD, DELETE, FLUSH or RESTORE, and the words by which it was called.
pub struct Called {
    pub change: Change,
    pub words: OwnedArgs,
}

pub enum Change {
    Load { code: Vec<u8>, replaces: bool },
    Delete { name: Vec<u8> },
    Flush,
    Restore { payload: Vec<u8>, policy: Policy },
}

impl Unit for Called {
    fn request(&self) -> Request {
        // As if they were a key. If a client has one of this name, it waits now and then.
        let mut request = Request::default();
        request.add(b"functions", Mode::Exclusive);
        request
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !scope.is_patient() {
            return Err(Error::TooLong);
        }
        let server = scope.session.server.clone();
        if scope.txn.region().id() != server.store.home().id() {
            Writer::new(out, scope.session.protocol).error(NOT_WITH_KEYS);
            return Ok(());
        }
        // Another node may have led, and changed them.
        if server.store.is_replicated() && scope.functions.is_none() {
            load(&server)?;
        }
        let before = seen_by(scope);
        let mut libraries = before.libraries.clone();
        let mut writer = Writer::new(out, scope.session.protocol);
        match self.change.apply(&server, &mut libraries) {
            Ok(None) => writer.simple("OK"),
            Ok(Some(name)) => writer.bulk(name),
            Err(Error::Reply(text)) => {
                writer.error(text);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        scope.txn.mark_in_unit(scope.session.database);
        for gone in before.iter() {
            if libraries.get(&gone.name).is_none() {
                functions::delete(scope.txn, &gone.name);
            }
        }
        for library in libraries.iter() {
            let is_same = |old: &Arc<_>| Arc::ptr_eq(old, library);
            if !before.get(&library.name).is_some_and(is_same) {
                functions::put(scope.txn, &library.name, &library.code);
            }
        }
        if scope.propagates {
            self.words.with(|args| scope.txn.propagate_with(args, &[]));
        }
        scope.functions = Some(View::new(libraries));
        Ok(())
    }
}

impl Change {
    /// Makes the change; returns the name of a library that was loaded. After an error the libraries are as they
    /// were.
    fn apply(&self, server: &Server, libraries: &mut Libraries) -> Result<Option<Vec<u8>>> {
        let refuse = |text: Vec<u8>| refused(&text);
        if server.store.is_replicated()
            && let Some(name) = self.is_done(server, libraries)
        {
            return Ok(name);
        }
        match self {
            Change::Load { code, replaces } => {
                if !replaces && let Some(name) = library_name(code) {
                    libraries.check_new(&name).map_err(refuse)?;
                }
                let library = run_code(server, code)?;
                let name = library.name.clone();
                libraries.add(library, *replaces).map_err(refuse)?;
                Ok(Some(name))
            }
            Change::Delete { name } => match libraries.delete(name) {
                true => {
                    server.scripts.functions.note_deleted(name);
                    Ok(None)
                }
                false => Err(Error::fixed("ERR Library not found")),
            },
            Change::Flush => {
                *libraries = Libraries::new();
                Ok(None)
            }
            Change::Restore { payload, policy } => {
                let codes = dumped_codes(payload).map_err(|text| refused(text.as_bytes()))?;
                let restored: Result<Vec<_>> =
                    codes.iter().map(|code| run_code(server, code)).collect();
                libraries.restore(restored?, *policy).map_err(refuse)?;
                Ok(None)
            }
        }
    }
}

impl Change {
    /// In a cluster all nodes have the same functions, but clients change them on one after the other, as Redis wants it.
    /// If it has been done already, this is what they are answered.
    fn is_done(&self, server: &Server, libraries: &Libraries) -> Option<Option<Vec<u8>>> {
        let is_there = |code: &Vec<u8>| {
            let name = library_name(code)?;
            let known = libraries.get(&name)?;
            (known.code == *code).then_some(name)
        };
        match self {
            Change::Load { code, .. } => is_there(code).map(Some),
            Change::Delete { name } => {
                let is_done = server.scripts.functions.was_deleted(name);
                (is_done && libraries.get(name).is_none()).then_some(None)
            }
            Change::Flush => None,
            Change::Restore { payload, policy } => {
                let codes = dumped_codes(payload).ok()?;
                let is_same = *policy == Policy::Append
                    && !codes.is_empty()
                    && codes.iter().all(|code| is_there(code).is_some());
                is_same.then_some(None)
            }
        }
    }
}

/// FUNCTION LIST and what else only looks at functions: a unit, so that EXEC sees what it has changed itself.
pub struct Look(pub Box<dyn Fn(&View) -> Value + Send>);

impl Unit for Look {
    fn request(&self) -> Request {
        Request::nothing()
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        let value = (self.0)(&seen_by(scope));
        super::reply::write(value, &mut Writer::new(out, scope.session.protocol));
        Ok(())
    }
}
