//! How much room the disk has.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub free: u64,
    pub total: u64,
}

/// `None` if the system does not tell.
pub(crate) fn of(path: &Path) -> Option<Disk> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: statvfs is plain data, for which all zeroes is a value.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a NUL-terminated string and `stats` a valid place to write, both for the
    // length of the call.
    let failed = unsafe { libc::statvfs(path.as_ptr(), &raw mut stats) } != 0;
    (!failed).then(|| Disk {
        free: stats.f_bavail as u64 * stats.f_frsize as u64,
        total: stats.f_blocks as u64 * stats.f_frsize as u64,
    })
}
