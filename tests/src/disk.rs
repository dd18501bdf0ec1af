//! A small disk that fills up.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system of its own, in memory, gone when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where file systems may not be mounted.
    pub fn mount(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            println!("skipped: file systems cannot be mounted here");
        }
        mounted.then_some(SmallDisk(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
