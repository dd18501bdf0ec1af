//! The Lua of each thread that serves connections, and those of long work.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use cairn_script::Engine;
use cairn_store::{Error, Result};
use parking_lot::Mutex;

use super::Scripts;
use super::functions::View;
use crate::server::Server;

thread_local! {
    static ENGINE: RefCell<Option<ThreadEngine>> = const { RefCell::new(None) };
}

struct ThreadEngine {
    engine: Engine,
    /// Whose it is: tests have several servers in one process.
    server: u64,
    /// How often scripts had been forgotten when it was made.
    flushes: u64,
    /// Which libraries it was last told of.
    libraries: u64,
    /// What it takes.
    bytes: Arc<AtomicUsize>,
}

/// Has `f` use the Lua of this thread, which knows no script that was forgotten and no library but these.
pub fn with<T>(server: &Server, libraries: &View, f: impl FnOnce(&mut Engine) -> T) -> Result<T> {
    let scripts = &server.scripts;
    ENGINE.with(|cell| {
        // Commands that would come here again are refused to scripts.
        let mut slot = cell
            .try_borrow_mut()
            .map_err(|_| Error::fixed("ERR a script cannot run another"))?;
        // As Redis does: SCRIPT FLUSH begins with a new Lua, whatever has become of the old one.
        let flushes = scripts.cache.flushes();
        slot.take_if(|mine| mine.server != scripts.id || mine.flushes != flushes);
        let mine = match &mut *slot {
            Some(mine) => mine,
            None => slot.insert(ThreadEngine::new(scripts)?),
        };
        if std::mem::replace(&mut mine.libraries, libraries.number) != libraries.number {
            mine.engine.keep_libraries(libraries);
        }
        Ok(mine.lend(f))
    })
}

/// The same on a thread that has been made for one long piece of work, or is used for another next: its Lua is
/// given back at once.
pub fn with_new<T>(server: &Server, f: impl FnOnce(&mut Engine) -> T) -> Result<T> {
    Ok(ThreadEngine::new(&server.scripts)?.lend(f))
}

impl ThreadEngine {
    fn new(scripts: &Scripts) -> Result<ThreadEngine> {
        let engine = Engine::new(scripts.limits, fastrand::u64(..))
            .map_err(|error| Error::reply(format!("ERR cannot run scripts: {error}")))?;
        Ok(ThreadEngine {
            engine,
            server: scripts.id,
            flushes: scripts.cache.flushes(),
            libraries: 0,
            bytes: scripts.memory.enter(),
        })
    }

    fn lend<T>(&mut self, f: impl FnOnce(&mut Engine) -> T) -> T {
        let result = f(&mut self.engine);
        let used = self.engine.used_memory();
        self.bytes.store(used, Ordering::Relaxed);
        result
    }
}

/// What the Luas of all threads take, when each was last used.
#[derive(Default)]
pub struct Memory(Mutex<Vec<Weak<AtomicUsize>>>);

impl Memory {
    fn enter(&self) -> Arc<AtomicUsize> {
        let bytes = Arc::default();
        let mut all = self.0.lock();
        all.retain(|bytes| bytes.strong_count() > 0);
        all.push(Arc::downgrade(&bytes));
        bytes
    }

    /// That of each, in bytes.
    pub fn of_each(&self) -> Vec<usize> {
        let all = self.0.lock();
        let alive = all.iter().filter_map(Weak::upgrade);
        alive.map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }
}
