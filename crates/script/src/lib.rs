//! Redis' Lua, without a database: EVAL and FUNCTION as Redis 7.0 has them, down to the error messages.
//!
//! An [`Engine`] is a Lua 5.1 state in which scripts find what they find in Redis: `redis`, `KEYS`, `ARGV`,
//! Lua's libraries as far as they are harmless, and `cjson`, `cmsgpack`, `struct` and `bit`. Whatever a
//! script wants beyond, it asks of a [`Host`]: to run a command, to write to the log, and every so many
//! instructions whether it may go on. What commands there are, who may run them and what they change, this
//! crate does not know.
//!
//! A server keeps [`Script`]s by their SHA-1 and [`Libraries`] by name, for all threads; each thread has an
//! engine, which compiles what it is given and remembers that.
//!
//! The life of an EVAL:
//!
//! 1. [`Script::new`] reads the shebang and computes the name; [`Flags::may_write`] says how it may run.
//! 2. [`Engine::eval`] compiles the script unless it knows it (`engine`), sets KEYS and ARGV, and calls
//!    it with the hook on that asks the host (`raw/call`).
//! 3. The script runs in globals that it cannot change (`sandbox`, `raw/face`). `redis.call` (`api`) hands
//!    words to the host, and its reply back as Lua's values (`convert`).
//! 4. What it returns becomes a reply; what it throws, an error with the line that threw it.

mod api;
mod convert;
mod engine;
mod flags;
mod function;
mod host;
mod library;
mod random;
mod raw;
mod run;
mod sandbox;
mod script;
mod sha1;
mod shebang;

pub use cairn_resp::Value;
pub use engine::{Engine, Limits};
pub use flags::Flags;
pub use function::dump::{codes as dumped_codes, dump};
pub use function::libraries::{Libraries, Library, Policy};
pub use function::load::Declared;
pub use host::{Host, LogLevel, Stop};
pub use script::Script;
pub use sha1::sha1_hex;
pub use shebang::library_name;
