//! What can go wrong below the commit point, told apart by what the caller should do about it.

use std::path::PathBuf;

use cairn_encoding::system::Slots;

pub type Result<T, E = EngineError> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// At open: stop, another process has the directory.
    #[error("the data directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// At open: stop, an older program must not touch newer bytes.
    #[error(
        "the data directory was written by a newer version (format {found}, this program knows up to {known})"
    )]
    NewerFormat { found: u32, known: u32 },
    /// At open: stop, as one machine it would do damage.
    #[error("the data directory {} belongs to a node of a cluster", .0.display())]
    InCluster(PathBuf),
    /// The region cannot come here now; try again when the other has let go of its slots.
    #[error("slots {slots} of region {region} are those of region {other} here")]
    SlotsTaken {
        region: u64,
        slots: Slots,
        other: u64,
    },
    /// What was asked for makes no sense here; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// At open: stop. While running: the reply is an error, and nothing was changed.
    #[error("corrupt data: {0}")]
    Corrupt(String),
    /// The reply is an error, nothing was changed; try again when there is room.
    #[error("the disk is full")]
    DiskFull,
    /// The engine is shutting down: nothing was changed.
    #[error("the database is closing")]
    Closing,
    /// Another node leads the region: nothing was changed.
    #[error("another node leads these slots")]
    NotLeading,
    /// The region was led, or cut, anew since the batch was evaluated: nothing was changed, and it is to be evaluated
    /// again.
    #[error("these slots have changed hands meanwhile")]
    Outdated,
    /// Nobody leads the region any more who would know: the batch may have been applied, may yet be, or never.
    #[error("it is not known whether the changes were made, and whether they will be")]
    InDoubt,
    /// A batch that cannot be replicated: nothing was changed.
    #[error("the changes are too large to be replicated at once")]
    TooLarge,
    /// Whatever else RocksDB reports.
    #[error("{0}")]
    Storage(String),
}

impl From<rust_rocksdb::Error> for EngineError {
    fn from(error: rust_rocksdb::Error) -> Self {
        let text = error.to_string();
        if text.contains("No space left on device") {
            return EngineError::DiskFull;
        }
        match error.kind() {
            rust_rocksdb::ErrorKind::Corruption => EngineError::Corrupt(text),
            _ => EngineError::Storage(text),
        }
    }
}

impl From<cairn_encoding::DecodeError> for EngineError {
    fn from(error: cairn_encoding::DecodeError) -> Self {
        EngineError::Corrupt(error.to_string())
    }
}
