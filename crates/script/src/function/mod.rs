//! Functions: libraries of them, kept by the server and called by name.
//!
//! - [`libraries`]: the libraries of a server as a value, which knows no Lua.
//! - [`load`]: running a library's code, so that it registers its functions.
//! - [`dump`]: the bytes of FUNCTION DUMP and RESTORE.

pub mod dump;
pub mod libraries;
pub mod load;
