//! Certificates for tests of TLS, made by openssl when they are needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Somebody who vouches for others, in a directory of its own.
pub struct Authority {
    folder: TempDir,
}

/// A certificate and its key.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        let folder = TempDir::with_prefix("cairn-tls-").expect("a temporary directory");
        openssl(
            folder.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
             -subj /CN=authority -days 2",
        );
        Authority { folder }
    }

    /// What those have to know who trust it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// A certificate for this machine. One of the same name is replaced.
    pub fn issue(&self, name: &str) -> Certificate {
        let folder = self.folder.path();
        std::fs::write(
            folder.join("names"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        )
        .expect("a file");
        openssl(
            folder,
            &format!(
                "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost"
            ),
        );
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names -out {name}.crt"
            ),
        );
        Certificate {
            certificate: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let status = Command::new("openssl")
        .args(arguments.split_ascii_whitespace())
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("openssl runs");
    assert!(status.success(), "openssl {arguments}");
}
