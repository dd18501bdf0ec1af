//! What a script may ask of the server that runs it.

use cairn_resp::Value;

/// The server's side of a running script. A script reaches nothing but this.
pub trait Host {
    /// redis.call and redis.pcall. A refusal is a [`Value::Error`], its text as it would stand after the
    /// `-` of a reply. The answer is spelled for the protocol last given to [`Host::set_protocol`], or
    /// for any: what RESP2 does not have is put into its terms. A script that is told to stop here ends as
    /// one that is told so by [`Host::check`].
    fn call(&mut self, args: &[Vec<u8>]) -> Result<Value, Stop>;

    /// redis.log.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// redis.setresp: which protocol commands answer in from now on. A run begins with 2.
    fn set_protocol(&mut self, _version: u8) {}

    /// redis.set_repl.
    fn set_replication(&mut self, _aof: bool, _replicas: bool) {}

    /// redis.acl_check_cmd: whether the user who runs the script may run this command; nothing if there
    /// is no such command.
    fn may_run(&mut self, args: &[Vec<u8>]) -> Option<bool>;

    /// Asked every so many instructions. A script that is told to stop cannot go on: whatever it catches
    /// is thrown again at its next line.
    fn check(&mut self) -> Result<(), Stop>;
}

/// Why a script has to end: the error that its caller gets, code included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop(pub Vec<u8>);

impl Stop {
    /// SCRIPT KILL and FUNCTION KILL.
    pub fn killed() -> Stop {
        Stop(b"ERR Script killed by user with SCRIPT KILL...".to_vec())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

impl LogLevel {
    pub(crate) const ALL: [(LogLevel, &'static str); 4] = [
        (LogLevel::Debug, "LOG_DEBUG"),
        (LogLevel::Verbose, "LOG_VERBOSE"),
        (LogLevel::Notice, "LOG_NOTICE"),
        (LogLevel::Warning, "LOG_WARNING"),
    ];

    pub(crate) fn from_number(number: i64) -> Option<LogLevel> {
        let place = usize::try_from(number).ok()?;
        Self::ALL.get(place).map(|(level, _)| *level)
    }
}
