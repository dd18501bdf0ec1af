//! Whole files, as Redis saves them and sends them to its replicas.
//!
//! ```text
//! "REDIS" | version, four digits | part ... | FF | CRC-64 of all before u64      little endian
//!
//! part   FA name value         a remark: who wrote it, and when
//!        F5 code               a library of functions
//!        F6 ...                the same, of a release candidate of Redis 7.0
//!        FE number             in which database the keys are that follow
//!        FB keys expiring      how many that has: a hint
//!        FC ms u64             when the next key expires; little endian
//!        FD seconds u32        the same, of long ago
//!        F8 seconds            for how long nobody has used the next key
//!        F9 uses u8            how often somebody has
//!        F7 ...                what a module keeps beside its values
//!        type u8 | key | value
//! ```
//!
//! Names, values, codes and keys are strings, and numbers are lengths, as `string` draws them. A value has the form that
//! its type says, without the footer of a payload. There is no checksum before version 5, and one of zeros says that it
//! was not computed.
//!
//! Nothing of this has to be in memory as a whole. What is written is appended to the caller's buffer, part by part, and
//! the values element by element (`part`). What is read comes in pieces of any length, and goes out of the [`Reader`]
//! as it comes. What stands in memory meanwhile is one string, or one node; what a consumer group has
//! pending, by forty bytes each, until its consumers have all of it; and eight bytes for each member of one
//! collection, up to 64 MB, to see that none is there twice.

mod read;
mod write;

pub use read::{Damage, Damaged, Part, Progress, Reader};
pub use write::{Version, append_end, append_head, append_key, append_library, append_remark};
pub use write::{append_database, append_sizes};

const MAGIC: &[u8; 5] = b"REDIS";
const HEAD: usize = 9;

const LIBRARY: u8 = 0xf5;
const LIBRARY_BEFORE_7: u8 = 0xf6;
const MODULE: u8 = 0xf7;
const IDLE: u8 = 0xf8;
const USES: u8 = 0xf9;
const REMARK: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRES_MS: u8 = 0xfc;
const EXPIRES_SECONDS: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;
