//! A Lua state, and what it has compiled.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_resp::Value as Reply;
use mlua::chunk::ChunkMode;
use mlua::{Function, IntoLuaMulti, Table, Value};

use crate::convert::{self, Unanswerable, error_line};
use crate::function::libraries::{Libraries, Library};
use crate::function::load::{BAD_NAME, Loading, is_name};
use crate::host::Host;
use crate::raw::arguments;
use crate::raw::call::{self, Called};
use crate::raw::face;
use crate::run::{Phase, Run};
use crate::sandbox::Sandbox;
use crate::script::Script;
use crate::sha1::sha1_hex;
use crate::shebang::{self, Metadata};

/// Scripts kept compiled. A server whose clients send ever new ones compiles some again.
const MOST_COMPILED: usize = 1000;
/// How long FUNCTION LOAD may take; a library is to register its functions, and no more.
const LOAD_TIME: Duration = Duration::from_millis(500);

/// What scripts may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the Lua state. Also what a reply, or a text that is being encoded, may grow to.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory: 256 * 1024 * 1024,
        }
    }
}

/// One per thread, for its whole life. No script leaves anything in it for the next, except what a library
/// keeps in its own local variables.
///
/// Scripts, and values that they nest deeply, take up to 1 MB of the thread's stack. A pattern that backtracks
/// without end, `('a'):rep(99):find(('a-'):rep(99) .. 'b')`, is the one thing that no limit ends: Lua asks
/// nobody while it matches. So it is in Redis.
pub struct Engine {
    sandbox: Sandbox,
    run: Rc<Run>,
    scripts: HashMap<String, Function>,
    libraries: HashMap<String, HashMap<Vec<u8>, Function>>,
    limits: Limits,
}

impl Engine {
    /// `seed` sets the random numbers of this engine's scripts apart from those of others.
    pub fn new(limits: Limits, seed: u64) -> mlua::Result<Engine> {
        let run = Rc::new(Run::new(limits.memory, seed));
        let sandbox = Sandbox::new(&run)?;
        // SAFETY: the state's functions hold the `Rc` as well, so it lives as long as the state does.
        unsafe { call::set_run(&sandbox.lua, &run) }?;
        sandbox.lua.set_memory_limit(limits.memory)?;
        Ok(Engine {
            sandbox,
            run,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            limits,
        })
    }

    /// Bytes that the state takes now.
    pub fn used_memory(&self) -> usize {
        self.sandbox.lua.used_memory()
    }

    /// Whether the error that the last run ended with is what a command has answered: who counts errors has
    /// counted that one already.
    pub fn error_is_a_commands(&self) -> bool {
        self.run.error_is_a_commands.get()
    }

    fn forget_scripts(&mut self) {
        self.scripts.clear();
        // What cannot be collected now will be later.
        let _ = self.sandbox.lua.gc_collect();
    }

    /// Forgets all libraries but these, and with them what they keep in their variables. To be called once
    /// libraries were deleted or replaced.
    pub fn keep_libraries(&mut self, libraries: &Libraries) {
        let kept: HashSet<&str> = libraries.iter().map(|library| &*library.sha).collect();
        self.libraries.retain(|sha, _| kept.contains(sha.as_str()));
        let _ = self.sandbox.lua.gc_collect();
    }

    /// Makes sure that a script is compiled; SCRIPT LOAD. The error is the reply's text.
    pub fn compile(&mut self, script: &Script) -> Result<(), Vec<u8>> {
        self.compiled(script).map(|_| ())
    }

    fn compiled(&mut self, script: &Script) -> Result<Function, Vec<u8>> {
        if let Some(function) = self.scripts.get(script.sha()) {
            return Ok(function.clone());
        }
        if self.scripts.len() >= MOST_COMPILED {
            self.forget_scripts();
        }
        let globals = &self.sandbox.scripts.face;
        let function = self
            .chunk(script.code(), "@user_script", globals)
            .map_err(|message| {
                with_bytes(
                    "ERR Error compiling script (new function): ",
                    message.as_bytes(),
                )
            })?;
        self.scripts
            .insert(script.sha().to_string(), function.clone());
        Ok(function)
    }

    fn chunk(&self, code: &[u8], name: &str, globals: &Table) -> Result<Function, String> {
        // Bytecode is not to be read; behind a blank it is bad text.
        let blank = if code.starts_with(b"\x1b") { " " } else { "" };
        let code = [blank.as_bytes(), code].concat();
        self.sandbox
            .lua
            .load(code)
            .set_name(name)
            .set_mode(ChunkMode::Text)
            .set_environment(globals.clone())
            .into_function()
            .map_err(|error| match error {
                mlua::Error::SyntaxError { message, .. } => message,
                mlua::Error::MemoryError(_) => "not enough memory".to_string(),
                other => other.to_string(),
            })
    }

    /// EVAL. Whether it may run at all is for the caller to decide
    /// ([`Flags::may_write`](crate::Flags::may_write)), and whether a command may, for the host.
    pub fn eval(
        &mut self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        host: &mut dyn Host,
    ) -> Reply {
        let function = match self.compiled(script) {
            Ok(function) => function,
            Err(error) => return error_line(&error),
        };
        self.collect_garbage();
        let globals = self.sandbox.scripts.behind.clone();
        let lua = &self.sandbox.lua;
        let given = arguments::set(lua, &globals, &slices(keys), &slices(args))
            .and_then(|()| self.sandbox.enter(&self.sandbox.scripts));
        let reply = match given {
            Ok(()) => self.call(&function, (), script.sha(), host),
            Err(error) => out_of_memory(script.sha(), &error),
        };
        // What cannot be taken away now will be by the next.
        let _ = arguments::clear(&self.sandbox.lua, &globals);
        reply
    }

    /// FCALL. `name` is the function's, as its library spells it.
    pub fn call_function(
        &mut self,
        library: &Library,
        name: &[u8],
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        host: &mut dyn Host,
    ) -> Reply {
        if !self.libraries.contains_key(&library.sha)
            && let Err(error) = self.load(&library.code, host)
        {
            return error_line(&with_bytes("ERR ", &error));
        }
        let functions = self.libraries.get(&library.sha);
        let Some(function) = functions.and_then(|functions| functions.get(name)).cloned() else {
            return Reply::Error(b"ERR Function not found".to_vec());
        };
        self.collect_garbage();
        let shown = String::from_utf8_lossy(name).into_owned();
        let lua = &self.sandbox.lua;
        let given = arguments::array(lua, &slices(keys)).and_then(|keys| {
            self.sandbox.enter(&self.sandbox.functions)?;
            Ok((keys, arguments::array(lua, &slices(args))?))
        });
        match given {
            Ok(given) => self.call(&function, given, &shown, host),
            Err(error) => out_of_memory(&shown, &error),
        }
    }

    /// Gives back what scripts have left behind. Lua does so by itself, in small steps and while scripts run: this is
    /// for one that was broken off, after which none may come for a while.
    pub fn tidy(&mut self) {
        let _ = self.sandbox.lua.gc_collect();
    }

    /// Lua 5.1 does not collect garbage when it runs out of memory, but fails at once.
    fn collect_garbage(&self) {
        if self.used_memory() > self.limits.memory / 4 {
            let _ = self.sandbox.lua.gc_collect();
        }
    }

    fn call(
        &self,
        function: &Function,
        given: impl IntoLuaMulti,
        name: &str,
        host: &mut dyn Host,
    ) -> Reply {
        let (lua, handler) = (&self.sandbox.lua, &self.sandbox.error_handler);
        self.run.with(host, Phase::Script, || {
            match call::protected(lua, &self.run, function, given, handler) {
                // It may have caught the error, and come to its end on the same line.
                Ok(Called::Returned(_)) if self.run.is_stopped() => {
                    error_line(&self.run.stopped().unwrap_or_default())
                }
                Ok(Called::Returned(value)) => match convert::to_reply(&self.run, value) {
                    Ok(reply) => reply,
                    Err(Unanswerable::Stopped(reason)) => error_line(&reason),
                    Err(Unanswerable::TooLarge) => {
                        Reply::Error(b"ERR the reply of the script is too large".to_vec())
                    }
                    Err(Unanswerable::Failed(error)) => out_of_memory(name, &error),
                },
                Ok(Called::Failed(value)) => self.failure(value, name),
                Err(error) => out_of_memory(name, &error),
            }
        })
    }

    /// The reply for an error, as the handler has left it.
    fn failure(&self, error: Value, name: &str) -> Reply {
        let Value::Table(error) = error else {
            let message = self
                .as_text(error)
                .unwrap_or_else(|| b"execution failure".to_vec());
            let message = convert::c_string(&message);
            let shown = &message[..message.len().min(100)];
            return error_line(&with_bytes(
                &format!("ERR Error running script {name}, "),
                shown,
            ));
        };
        // Raw: nothing would end what a metatable has to say, now that the hook is off.
        let field = |name: &str| {
            let value = error.raw_get::<Value>(name).ok();
            value.and_then(|value| self.as_text(value))
        };
        let message = match self.run.stopped() {
            Some(reason) => reason,
            // Redis goes down if there is none.
            None => field("err").unwrap_or_else(|| b"ERR unknown error".to_vec()),
        };
        let is_a_commands = convert::is_a_commands(&error).unwrap_or(false);
        self.run.error_is_a_commands.set(is_a_commands);
        let mut text = convert::c_string(&message).to_vec();
        if let (Some(source), Some(line)) = (field("source"), field("line")) {
            text.extend_from_slice(format!(" script: {name}, on ").as_bytes());
            text.extend_from_slice(convert::c_string(&source));
            text.push(b':');
            text.extend_from_slice(convert::c_string(&line));
            text.push(b'.');
        }
        error_line(&text)
    }

    /// A string, or a number as Lua spells it.
    fn as_text(&self, value: Value) -> Option<Vec<u8>> {
        match value {
            Value::String(_) | Value::Integer(_) | Value::Number(_) => {
                let string = self.sandbox.lua.coerce_string(value).ok()??;
                Some(string.as_bytes().to_vec())
            }
            _ => None,
        }
    }

    /// FUNCTION LOAD: runs a library's code, and finds out what it registers. Errors are the text after
    /// `ERR `. The host is for its log, and may stop it; commands it cannot call.
    pub fn load(&mut self, code: &[u8], host: &mut dyn Host) -> Result<Arc<Library>, Vec<u8>> {
        let Metadata {
            engine,
            name,
            code: chunk,
        } = shebang::of_library(code)?;
        if !is_name(&name) {
            return Err(BAD_NAME.into());
        }
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err([b"Engine '", &engine[..], b"' not found"].concat());
        }
        let registered = self.register(chunk, host)?;
        if registered.functions.is_empty() {
            return Err("No functions registered".into());
        }
        let sha = sha1_hex(code);
        let mut functions = HashMap::new();
        let mut declared = Vec::new();
        for function in registered.functions {
            functions.insert(function.declared.name.clone(), function.callback);
            declared.push(function.declared);
        }
        self.libraries.insert(sha.clone(), functions);
        Ok(Arc::new(Library {
            name,
            code: code.to_vec(),
            functions: declared,
            sha,
        }))
    }

    fn register(&self, chunk: &[u8], host: &mut dyn Host) -> Result<Loading, Vec<u8>> {
        let environment = &self.sandbox.functions;
        let chunk = self
            .chunk(chunk, "@user_function", &environment.face)
            .map_err(|message| with_bytes("Error compiling function: ", message.as_bytes()))?;
        self.run.loading.take();
        let failed = |error: mlua::Error| {
            with_bytes(
                "Error registering functions: ",
                error.to_string().as_bytes(),
            )
        };
        face::redirect(&environment.face, &self.sandbox.loading).map_err(failed)?;
        let called = self.run.with(host, Phase::Load, || {
            self.run.set_deadline(Some(Instant::now() + LOAD_TIME));
            let (lua, handler) = (&self.sandbox.lua, &self.sandbox.error_handler);
            call::protected(lua, &self.run, &chunk, (), handler)
        });
        face::redirect(&environment.face, &environment.behind).map_err(failed)?;
        let registered = self.run.loading.take();
        match called.map_err(failed)? {
            Called::Returned(_) => Ok(registered),
            Called::Failed(error) => {
                let message = match error {
                    Value::Table(error) => error
                        .raw_get("err")
                        .ok()
                        .and_then(|message| self.as_text(message)),
                    other => self.as_text(other).map(|text| with_bytes("ERR ", &text)),
                };
                let message = self
                    .run
                    .stopped()
                    .or(message)
                    .unwrap_or_else(|| b"ERR unknown error".to_vec());
                Err(with_bytes(
                    "Error registering functions: ",
                    convert::c_string(&message),
                ))
            }
        }
    }
}

fn slices(items: &[impl AsRef<[u8]>]) -> Vec<&[u8]> {
    items.iter().map(AsRef::as_ref).collect()
}

/// An error text that ends with bytes of others.
fn with_bytes(text: &str, bytes: &[u8]) -> Vec<u8> {
    [text.as_bytes(), bytes].concat()
}

/// mlua fails only for want of memory, where it is used as it is here.
fn out_of_memory(name: &str, error: &mlua::Error) -> Reply {
    let why = match error {
        mlua::Error::MemoryError(_) => "not enough memory".to_string(),
        other => other.to_string(),
    };
    error_line(format!("ERR Error running script {name}, {why}").as_bytes())
}
