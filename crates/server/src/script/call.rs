//! EVAL and FCALL as units.

use std::sync::Arc;

use cairn_resp::{Value, Writer, number};
use cairn_script::{Engine, Flags, Library, Script};
use cairn_store::{Error, Mode, Request, Result};

use super::functions::{self, View};
use super::host::{Permits, ScriptHost};
use super::running::Kind;
use super::{engines, reply};
use crate::command::Args;
use crate::route::SlotOfKeys;
use crate::session::Session;
use crate::unit::{Scope, Unit};

/// A script whose text is longer than this is compiled where it holds up nobody.
const LONG_TEXT: usize = 64 * 1024;

/// A call of a script or function, with all that its client gave.
pub struct Call {
    callee: Callee,
    /// Whether the script has been compiled before, here or elsewhere.
    is_known: bool,
    /// EVAL_RO, FCALL_RO.
    is_read_only: bool,
    /// All words of the command.
    words: Vec<Vec<u8>>,
    /// How many of them are keys, from the fourth on.
    keys: usize,
    /// What it has turned out to be about, if it names none.
    found: Option<u16>,
}

enum Callee {
    Script(Script),
    /// By its name, the second word: what it is called when the call runs.
    Function,
}

/// Where the keys begin among the words of EVAL and FCALL.
const FIRST_KEY: usize = 3;

impl Call {
    /// EVAL, EVALSHA: what they call is found by `find`, once the other arguments make sense, which also says
    /// whether it has been compiled before.
    pub fn of_script(
        args: &Args<'_>,
        is_read_only: bool,
        find: impl FnOnce() -> Result<(Script, bool)>,
    ) -> Result<Call> {
        let keys = number::parse_i64(args[2]).ok_or(Error::NOT_INTEGER)?;
        let keys = count_keys(args, keys)?;
        let (script, is_known) = find()?;
        let mut call = Call::new(Callee::Script(script), is_read_only, args, keys);
        call.is_known = is_known;
        Ok(call)
    }

    /// FCALL.
    pub fn of_function(session: &Session, args: &Args<'_>, is_read_only: bool) -> Result<Call> {
        // Whether there is such a function is seen when it runs; but that is told before all else.
        let keys = number::parse_i64(args[2])
            .ok_or(Error::fixed("ERR Bad number of keys provided"))
            .and_then(|keys| count_keys(args, keys));
        let keys = match keys {
            Ok(keys) => keys,
            Err(error) => {
                let known = session.server.scripts.functions.committed();
                return Err(known.function(args[1]).map_or(NOT_FOUND, |_| error));
            }
        };
        Ok(Call::new(Callee::Function, is_read_only, args, keys))
    }

    fn new(callee: Callee, is_read_only: bool, args: &Args<'_>, keys: usize) -> Call {
        Call {
            callee,
            is_known: false,
            is_read_only,
            words: args.iter().map(|word| word.to_vec()).collect(),
            keys,
            found: None,
        }
    }
}

const NOT_FOUND: Error = Error::fixed("ERR Function not found");

fn count_keys(args: &Args<'_>, keys: i64) -> Result<usize> {
    match usize::try_from(keys) {
        Err(_) => Err(Error::fixed("ERR Number of keys can't be negative")),
        Ok(keys) if keys > args.len() - FIRST_KEY => Err(Error::fixed(
            "ERR Number of keys can't be greater than number of args",
        )),
        Ok(keys) => Ok(keys),
    }
}

/// What is called, once it is found.
enum Found<'a> {
    Script(&'a Script),
    Function {
        library: Arc<Library>,
        name: Vec<u8>,
        flags: Flags,
    },
}

impl Found<'_> {
    fn flags(&self) -> Option<Flags> {
        match self {
            Found::Script(script) => script.flags(),
            Found::Function { flags, .. } => Some(*flags),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Found::Script(_) => Kind::Script,
            Found::Function { .. } => Kind::Function,
        }
    }

    fn name(&self) -> &[u8] {
        match self {
            Found::Script(script) => script.sha().as_bytes(),
            Found::Function { name, .. } => name,
        }
    }
}

impl Call {
    fn find<'a>(&'a self, view: &View) -> Option<Found<'a>> {
        match &self.callee {
            Callee::Script(script) => Some(Found::Script(script)),
            Callee::Function => {
                let (library, function) = view.function(&self.words[1])?;
                Some(Found::Function {
                    library: library.clone(),
                    name: function.name.clone(),
                    flags: function.flags,
                })
            }
        }
    }

    fn keys(&self) -> &[Vec<u8>] {
        &self.words[FIRST_KEY..FIRST_KEY + self.keys]
    }

    fn arguments(&self) -> &[Vec<u8>] {
        &self.words[FIRST_KEY + self.keys..]
    }

    /// What it may do; an error if it may not even begin.
    fn permits(&self, found: &Found<'_>, session: &Session) -> Result<Permits> {
        let flags = found.flags();
        let may_write = Flags::may_write(flags, self.is_read_only).map_err(Error::reply)?;
        let may_grow = flags.is_some_and(|flags| flags.contains(Flags::ALLOW_OOM));
        // A script that says what it does is judged before it begins, others when they do it.
        if flags.is_some() && may_write {
            let shortages = &session.server.shortages;
            shortages.check_replicas()?;
            if !may_grow {
                shortages.check_room()?;
            }
        }
        Ok(Permits {
            may_write,
            may_grow,
        })
    }

    /// Runs what was found in the Lua of this thread.
    fn enter(
        &self,
        engine: &mut Engine,
        found: &Found<'_>,
        scope: &mut Scope<'_>,
    ) -> Result<Value> {
        if let Found::Script(script) = found
            && !self.is_known
        {
            if let Err(text) = engine.compile(script) {
                return Ok(Value::Error(text));
            }
            scope.session.server.scripts.cache.add(script);
        }
        let permits = match self.permits(found, scope.session) {
            Ok(permits) => permits,
            Err(Error::Reply(text)) => return Ok(Value::Error(text.into_owned())),
            Err(error) => return Err(error),
        };
        let server = scope.session.server.clone();
        let listed = scope.is_patient().then(|| {
            let (name, words) = (found.name().to_vec(), self.words.clone());
            server.scripts.running.enter(found.kind(), name, words)
        });
        let (keys, arguments) = (self.keys(), self.arguments());
        let mut host = ScriptHost::new(scope, keys, permits, listed.as_ref());
        let value = match found {
            Found::Script(script) => engine.eval(script, keys, arguments, &mut host),
            Found::Function { library, name, .. } => {
                engine.call_function(library, name, keys, arguments, &mut host)
            }
        };
        host.finish()?;
        scope.session.error_is_counted = engine.error_is_a_commands();
        Ok(value)
    }
}

impl Unit for Call {
    fn request(&self) -> Request {
        let may_write = match &self.callee {
            Callee::Script(script) => Flags::may_write(script.flags(), self.is_read_only),
            // If it turns out to write, it asks for more.
            Callee::Function => Ok(!self.is_read_only),
        };
        let mode = match may_write {
            Ok(true) => Mode::Exclusive,
            _ => Mode::Shared,
        };
        let mut request = Request::default();
        self.keys().iter().for_each(|key| request.add(key, mode));
        request
    }

    fn slot(&self) -> SlotOfKeys {
        let mut slot = SlotOfKeys::default();
        self.keys().iter().for_each(|key| slot.add(key));
        self.found.iter().for_each(|found| slot.add_slot(*found));
        slot
    }

    fn is_about(&mut self, slot: u16) {
        self.found = Some(slot);
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !scope.is_patient() && self.words[1].len() > LONG_TEXT {
            return Err(Error::TooLong);
        }
        let view = functions::seen_by(scope);
        let (database, protocol) = (scope.session.database, scope.session.protocol);
        let value = match self.find(&view) {
            Some(found) => {
                let server = scope.session.server.clone();
                let value = if scope.is_patient() {
                    engines::with_new(&server, |engine| self.enter(engine, &found, scope))
                } else {
                    engines::with(&server, &view, |engine| {
                        let value = self.enter(engine, &found, scope);
                        if value.is_err() {
                            engine.tidy();
                        }
                        value
                    })
                };
                // What a script selects is for itself.
                scope.session.select(database);
                value??
            }
            None => Value::Error(b"ERR Function not found".to_vec()),
        };
        reply::write(value, &mut Writer::new(out, protocol));
        Ok(())
    }
}

/// SCRIPT LOAD.
pub struct Load(pub Script);

impl Unit for Load {
    fn request(&self) -> Request {
        Request::nothing()
    }

    fn run(&mut self, scope: &mut Scope<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !scope.is_patient() && self.0.text().len() > LONG_TEXT {
            return Err(Error::TooLong);
        }
        let server = scope.session.server.clone();
        let view = functions::seen_by(scope);
        let compile = |engine: &mut Engine| engine.compile(&self.0);
        let compiled = if scope.is_patient() {
            engines::with_new(&server, compile)?
        } else {
            engines::with(&server, &view, compile)?
        };
        let mut writer = Writer::new(out, scope.session.protocol);
        match compiled {
            Ok(()) => {
                server.scripts.cache.add(&self.0);
                writer.bulk(self.0.sha());
            }
            Err(text) => writer.error(text),
        }
        Ok(())
    }
}
