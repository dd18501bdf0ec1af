//! The Unix socket that the server listens on, if it does.

use std::fs::{self, Permissions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::address::BACKLOG;

/// The file of a socket. It goes with the server, unless it has become another's.
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Listens on a socket of this name, in place of one that an earlier server left. Permissions of zero are what
/// the system gives.
pub fn listen(path: &Path, permissions: u32) -> Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(Error::other("there is a file of this name")),
        Err(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Nobody can connect before it listens, so nobody comes before the permissions.
    if permissions != 0 {
        fs::set_permissions(path, Permissions::from_mode(permissions))?;
    }
    socket.listen(BACKLOG)?;
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.to_owned(),
        device: metadata.dev(),
        inode: metadata.ino(),
    };
    Ok((socket.into(), file))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode)) {
            // Whoever comes next replaces it, if it stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_socket_replaces_what_is_left_of_another_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (first, first_file) = listen(&path, 0o700).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let (_second, second_file) = listen(&path, 0).unwrap();
        drop((first, first_file));
        assert!(path.exists(), "it is the second's");
        drop(second_file);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path, 0).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
