//! What the functions of a script share while it runs: its host, its protocol, its random numbers.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::time::Instant;

use cairn_resp::Value as Reply;

use crate::function::load::Loading;
use crate::host::{Host, Stop};
use crate::library::cjson;
use crate::random::Random;

/// One for the life of an engine; a run begins and ends in it.
pub struct Run {
    /// Taken out while it is in use, so that there is never a second reference to it.
    host: Cell<Option<NonNull<dyn Host>>>,
    /// Whether the host has panicked. Lua makes an error of it, which a script may catch.
    panicked: Cell<bool>,
    phase: Cell<Phase>,
    protocol: Cell<u8>,
    stopped: RefCell<OnceCell<Box<[u8]>>>,
    deadline: Cell<Option<Instant>>,
    pub random: RefCell<Random>,
    pub json: cjson::Shared,
    /// The functions that the library being loaded has registered so far.
    pub loading: RefCell<Loading>,
    /// Where the C stack stood when the run began, and the state that runs.
    pub stack: Cell<usize>,
    pub state: Cell<*mut mlua::lua_State>,
    /// What redis.call is about to return. It lies here while Lua may jump out of whoever would own it.
    pub reply: RefCell<Reply>,
    /// Whether the error that the run ended with is what a command has answered.
    pub error_is_a_commands: Cell<bool>,
    /// What a buffer outside of Lua, and a reply, may grow to.
    pub most_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Idle,
    Script,
    /// FUNCTION LOAD: the host may be written to a log, and nothing else.
    Load,
}

impl Run {
    pub fn new(most_bytes: usize, seed: u64) -> Run {
        Run {
            host: Cell::new(None),
            panicked: Cell::new(false),
            phase: Cell::new(Phase::Idle),
            protocol: Cell::new(2),
            stopped: RefCell::default(),
            deadline: Cell::new(None),
            random: RefCell::new(Random::new(seed)),
            json: cjson::Shared::default(),
            loading: RefCell::default(),
            stack: Cell::new(0),
            state: Cell::new(std::ptr::null_mut()),
            reply: RefCell::new(Reply::Null),
            error_is_a_commands: Cell::new(false),
            most_bytes,
        }
    }

    /// Runs `f` with `host` for all functions that ask for one.
    pub fn with<R>(&self, host: &mut dyn Host, phase: Phase, f: impl FnOnce() -> R) -> R {
        let host = NonNull::from(host);
        // SAFETY: only the lifetime changes. The pointer is taken away below before this call returns, also
        // when `f` panics, so that it is not used after the reference it was made of.
        let host = unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host + 'static>>(host)
        };
        self.host.set(Some(host));
        self.phase.set(phase);
        self.protocol.set(2);
        self.stopped.replace(OnceCell::new());
        self.error_is_a_commands.set(false);
        self.random.borrow_mut().begin();
        self.json.reset();
        let _end = End(self);
        let result = f();
        assert!(!self.panicked.take(), "the host of a script panicked");
        result
    }

    /// The host, if there is one and it is not in use.
    pub fn host<R>(&self, f: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut host = self.host.take()?;
        let _back = Back(self, host);
        // SAFETY: the pointer was made of a unique reference that outlives the run (see `with`), and as it
        // was taken out, nobody else has it until `_back` puts it back.
        Some(f(unsafe { host.as_mut() }))
    }

    pub fn forget_reply(&self) {
        self.reply.replace(Reply::Null);
    }

    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Redis' protocol version that commands answer in.
    pub fn protocol(&self) -> u8 {
        self.protocol.get()
    }

    pub fn set_protocol(&self, version: u8) {
        self.protocol.set(version);
        self.host(|host| host.set_protocol(version));
    }

    /// Has the run end with an error, besides what the host says, once `deadline` has passed.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.set(deadline);
    }

    /// Why the run has to stop, if it has to: from the first time on, always.
    pub fn stop(&self) -> Option<&[u8]> {
        self.ask();
        // SAFETY: the cell is replaced only by `with` when the next run begins, which no one can call who is
        // inside of this one and holds the text; and what is in a `OnceCell` stays where it is.
        unsafe { (*self.stopped.as_ptr()).get().map(|text| &**text) }
    }

    fn ask(&self) {
        let stopped = self.stopped.borrow();
        if stopped.get().is_some() {
            return;
        }
        let late = self
            .deadline
            .get()
            .is_some_and(|deadline| Instant::now() > deadline);
        let reason = if late {
            Some(b"ERR FUNCTION LOAD timeout".to_vec())
        } else {
            self.check().err().map(|stop| stop.0)
        };
        if let Some(reason) = reason {
            stopped.get_or_init(|| reason.into_boxed_slice());
        }
    }

    /// Asks the host. A panic must not reach Lua, through whose frames it could not unwind.
    fn check(&self) -> Result<(), Stop> {
        let asked = AssertUnwindSafe(|| self.host(|host| host.check()));
        match std::panic::catch_unwind(asked) {
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(_) => Err(Stop(b"ERR the host of a script panicked".to_vec())),
        }
    }

    /// The host wants no more of this run.
    pub fn end(&self, stop: &Stop) {
        let stopped = self.stopped.borrow();
        stopped.get_or_init(|| stop.0.clone().into_boxed_slice());
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.borrow().get().is_some()
    }

    /// Why the run was told to stop, if it was.
    pub fn stopped(&self) -> Option<Vec<u8>> {
        self.stopped.borrow().get().map(|text| text.to_vec())
    }
}

struct End<'a>(&'a Run);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.host.set(None);
        self.0.forget_reply();
        self.0.phase.set(Phase::Idle);
        self.0.deadline.set(None);
    }
}

struct Back<'a>(&'a Run, NonNull<dyn Host>);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked.set(true);
        }
        self.0.host.set(Some(self.1));
    }
}
