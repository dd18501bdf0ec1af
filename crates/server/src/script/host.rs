//! What a script reaches of the server: commands, behind the guards that Redis has for scripts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_resp::{Protocol, Value};
use cairn_script::{Host, LogLevel, Stop};
use cairn_store::Error;
use smallvec::SmallVec;

use super::reply::to_value;
use super::running::Listed;
use crate::acl::{Context, Reason, User};
use crate::client::Client;
use crate::command::{self, Args, Command, Flag, OwnedArgs};
use crate::observe::Ran;
use crate::server::Server;
use crate::turn::error_text;
use crate::unit::Scope;

/// What a script may do.
#[derive(Clone, Copy, Debug)]
pub struct Permits {
    pub may_write: bool,
    /// May let the data grow when the disk is almost full, or more memory is used than should be.
    pub may_grow: bool,
}

pub struct ScriptHost<'a, 's> {
    scope: &'a mut Scope<'s>,
    /// The keys that it was called with.
    declared: &'a [Vec<u8>],
    permits: Permits,
    /// Until when it may run here; none where it may take its time.
    deadline: Option<Instant>,
    /// Others know of it, where it may take its time.
    listed: Option<&'a Listed<'a>>,
    protocol: Protocol,
    has_written: bool,
    /// Why it has to begin again elsewhere, or cannot go on: whatever it answers is for nobody.
    broken: Option<Error>,
    /// What is to be counted and logged if it comes to its end here. Where it may take its time, nothing is kept
    /// back: that could be much, and it hardly ever begins again from there.
    kept: Vec<Kept>,
}

enum Kept {
    Ran {
        command: &'static Command,
        took: Duration,
        error: Option<Vec<u8>>,
    },
    Refused {
        command: Option<&'static Command>,
        error: Vec<u8>,
    },
    /// The user may not do this.
    Denied {
        client: Arc<Client>,
        user: Arc<User>,
        reason: Reason,
        object: Vec<u8>,
    },
    /// For those who monitor the server.
    Shown {
        client: Arc<Client>,
        database: u32,
        command: &'static Command,
        args: OwnedArgs,
    },
    Logged(LogLevel, Vec<u8>),
}

impl<'a, 's> ScriptHost<'a, 's> {
    pub fn new(
        scope: &'a mut Scope<'s>,
        declared: &'a [Vec<u8>],
        permits: Permits,
        listed: Option<&'a Listed<'a>>,
    ) -> ScriptHost<'a, 's> {
        ScriptHost {
            deadline: scope.deadline(),
            scope,
            declared,
            permits,
            listed,
            protocol: Protocol::Resp2,
            has_written: false,
            broken: None,
            kept: Vec::new(),
        }
    }

    /// The script has ended: an error if that was not its own end.
    pub fn finish(self) -> Result<(), Error> {
        // What a script says about that holds for itself.
        self.scope.propagates = true;
        match self.broken {
            Some(error) => Err(error),
            None => {
                let server = &self.scope.session.server;
                self.kept.into_iter().for_each(|kept| kept.show(server));
                Ok(())
            }
        }
    }

    fn show(&mut self, kept: Kept) {
        if self.scope.is_patient() {
            kept.show(&self.scope.session.server);
        } else {
            self.kept.push(kept);
        }
    }

    fn break_off(&mut self, error: Error) -> Stop {
        self.broken = Some(error);
        Stop(Vec::new())
    }

    fn refuse(&mut self, command: Option<&'static Command>, error: &Error) -> Value {
        let error = error_text(error);
        self.show(Kept::Refused {
            command,
            error: error.clone(),
        });
        Value::Error(error)
    }

    /// Whether the script may run a command now, in the order in which Redis asks.
    fn guard(&mut self, command: &'static Command, args: &Args<'_>) -> Result<(), Error> {
        if command.has(Flag::NoScript) {
            return Err(Error::fixed(
                "ERR This Redis command is not allowed from script",
            ));
        }
        let session = &self.scope.session;
        if let Err(denial) = session.user().check(command, args) {
            let denied = Kept::Denied {
                client: session.client.clone(),
                user: session.user().clone(),
                reason: denial.reason,
                object: denial.object(command, args).to_vec(),
            };
            self.show(denied);
            return Err(denial.error_in_script(command, args));
        }
        let writes = command.has(Flag::Write);
        if !self.permits.may_write && (writes || command.has(Flag::MayReplicate)) {
            return Err(Error::fixed(
                "ERR Write commands are not allowed from read-only scripts.",
            ));
        }
        let shortages = &self.scope.session.server.shortages;
        if writes && shortages.are_any() && !self.scope.session.is_master {
            shortages.check_read_only()?;
        }
        // What has begun to write is not stopped half-way.
        if self.has_written || !shortages.are_any() {
            return Ok(());
        }
        if writes {
            shortages.check_replicas()?;
        }
        match command.has(Flag::DenyOom) && !self.permits.may_grow {
            true => shortages.check_room(),
            false => Ok(()),
        }
    }

    /// Whether it may go on at this moment.
    fn check_at(&mut self, now: Instant) -> Result<(), Stop> {
        if self.broken.is_some() {
            return Err(Stop(Vec::new()));
        }
        if self.deadline.is_some_and(|deadline| now > deadline) {
            return Err(self.break_off(Error::TooLong));
        }
        if let Some(listed) = self.listed {
            if listed.is_killed() {
                return Err(Stop::killed());
            }
            listed.check_time(now, self.scope.session.server.live.busy_threshold());
        }
        Ok(())
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, words: &[Vec<u8>]) -> Result<Value, Stop> {
        let begun = Instant::now();
        self.check_at(begun)?;
        let words: SmallVec<[&[u8]; 8]> = words.iter().map(Vec::as_slice).collect();
        let args = Args::new(&words);
        let command = match command::for_script(&args) {
            Ok(command) => command,
            Err((command, error)) => return Ok(self.refuse(command, &error)),
        };
        if let Err(error) = self.guard(command, &args) {
            return Ok(self.refuse(Some(command), &error));
        }
        if command.has(Flag::Write) && !std::mem::replace(&mut self.has_written, true) {
            self.listed.inspect(|listed| listed.writes());
        }
        let is_patient = self.scope.is_patient();
        let reply = self.scope.call_in_script(command, &args, self.declared);
        let reply = reply.and_then(|reply| to_value(reply, self.protocol, is_patient));
        let value = reply.map_err(|error| self.break_off(error))?;
        let error = match &value {
            Value::Error(text) => Some(text.clone()),
            _ => None,
        };
        self.show(Kept::Ran {
            command,
            took: begun.elapsed(),
            error,
        });
        let session = &self.scope.session;
        if session.server.monitors.is_any() {
            let shown = Kept::Shown {
                client: session.client.clone(),
                database: session.database,
                command,
                args: OwnedArgs::new(&args),
            };
            self.show(shown);
        }
        Ok(value)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.show(Kept::Logged(level, message.to_vec()));
    }

    fn set_replication(&mut self, _: bool, replicas: bool) {
        self.scope.propagates = replicas;
    }

    fn set_protocol(&mut self, version: u8) {
        self.protocol = match version {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        };
    }

    fn may_run(&mut self, words: &[Vec<u8>]) -> Option<bool> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let args = Args::new(&words);
        let user = self.scope.session.user();
        command::lookup(&args).map(|command| user.check(command, &args).is_ok())
    }

    fn check(&mut self) -> Result<(), Stop> {
        if self.scope.session.server.is_stopping() {
            return Err(self.break_off(Error::fixed("ERR the server is shutting down")));
        }
        self.check_at(Instant::now())
    }
}

impl Kept {
    fn show(self, server: &Server) {
        match self {
            Kept::Ran {
                command,
                took,
                error,
            } => server.stats.counted(command, took, error.as_deref()),
            Kept::Refused { command, error } => {
                server.stats.error(&error);
                if let Some(command) = command {
                    server.stats.rejected(command);
                }
            }
            Kept::Denied {
                client,
                user,
                reason,
                object,
            } => {
                let acl = &server.acl;
                acl.note(&client, &user.name, reason, Context::Script, &object);
            }
            Kept::Shown {
                client,
                database,
                command,
                args,
            } => args.with(|args| {
                let ran = Ran {
                    client: &client,
                    database,
                    command,
                    args,
                };
                ran.show_of_script(server);
            }),
            Kept::Logged(level, message) => log(level, &message),
        }
    }
}

fn log(level: LogLevel, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    match level {
        LogLevel::Debug | LogLevel::Verbose => tracing::debug!("{message}"),
        LogLevel::Notice => tracing::info!("{message}"),
        LogLevel::Warning => tracing::warn!("{message}"),
    }
}

/// For code that registers functions: it may write to the log, and no more.
pub struct LoadingHost<'a> {
    pub server: &'a Server,
}

impl Host for LoadingHost<'_> {
    fn call(&mut self, _: &[Vec<u8>]) -> Result<Value, Stop> {
        Ok(Value::Null)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn may_run(&mut self, _: &[Vec<u8>]) -> Option<bool> {
        None
    }

    fn check(&mut self) -> Result<(), Stop> {
        match self.server.is_stopping() {
            true => Err(Stop(b"ERR the server is shutting down".to_vec())),
            false => Ok(()),
        }
    }
}
