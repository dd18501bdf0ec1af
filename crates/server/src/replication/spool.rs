//! A snapshot whose length is to be known before its first byte is sent: for followers that do not understand marks. What is more than
//! a little lies in a file that has no name, so that nothing is left of it whatever happens.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::path::Path;

use crate::server::random_id;

/// As much stands in memory.
const LITTLE: usize = 1 << 20;

#[derive(Default)]
pub struct Spool {
    length: u64,
    /// What is not in the file.
    bytes: Vec<u8>,
    file: Option<File>,
}

impl Spool {
    /// Adds what is in the buffer, which is empty then; a file is made in this directory if it is needed.
    pub fn add(&mut self, bytes: &mut Vec<u8>, directory: &Path) -> Result<()> {
        self.length += bytes.len() as u64;
        self.bytes.append(bytes);
        if self.bytes.len() > LITTLE {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(nameless(directory)?),
            };
            file.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    /// Begins to read what was added.
    pub fn rewind(mut self) -> Result<Spooled> {
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
        }
        Ok(Spooled {
            length: self.length,
            file: self.file,
            rest: self.bytes,
        })
    }
}

fn nameless(directory: &Path) -> Result<File> {
    let path = directory.join(format!("replication-{}.rdb", random_id()));
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

pub struct Spooled {
    pub length: u64,
    file: Option<File>,
    rest: Vec<u8>,
}

impl Spooled {
    /// The next piece, of about this length; empty at the end.
    pub fn next(&mut self, length: usize) -> Result<Vec<u8>> {
        if let Some(file) = &mut self.file {
            let mut piece = Vec::with_capacity(length);
            file.take(length as u64).read_to_end(&mut piece)?;
            if !piece.is_empty() {
                return Ok(piece);
            }
            self.file = None;
        }
        Ok(std::mem::take(&mut self.rest))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_added_is_read_in_order() {
        let directory = std::env::temp_dir();
        for pieces in [0usize, 1, 3, 40] {
            let mut spool = Spool::default();
            let mut all = Vec::new();
            for number in 0..pieces {
                let mut piece = vec![number as u8; 100_000];
                all.extend_from_slice(&piece);
                spool.add(&mut piece, &directory).unwrap();
                assert!(piece.is_empty());
            }
            let mut spooled = spool.rewind().unwrap();
            assert_eq!(spooled.length, all.len() as u64);
            let mut read = Vec::new();
            loop {
                let piece = spooled.next(64 * 1024).unwrap();
                if piece.is_empty() {
                    break;
                }
                read.extend_from_slice(&piece);
            }
            assert!(read == all);
        }
    }
}
