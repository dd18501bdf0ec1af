//! The end of what followers were told, for those who were cut off.

use std::collections::VecDeque;

pub struct Backlog {
    bytes: VecDeque<u8>,
    most: usize,
}

impl Backlog {
    pub fn new(most: usize) -> Backlog {
        Backlog {
            bytes: VecDeque::new(),
            most,
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of its first byte in the stream, whose first has the number one; `offset` is that of the last.
    pub fn first(&self, offset: u64) -> u64 {
        offset - self.bytes.len() as u64 + 1
    }

    pub fn resize(&mut self, most: usize) {
        self.most = most;
        self.forget();
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.most);
        let room = self.most - kept;
        if self.bytes.len() > room {
            self.bytes.drain(..self.bytes.len() - room);
        }
        self.bytes.extend(&bytes[bytes.len() - kept..]);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    fn forget(&mut self) {
        if self.bytes.len() > self.most {
            self.bytes.drain(..self.bytes.len() - self.most);
            self.bytes.shrink_to_fit();
        }
    }

    /// All from the byte of this number on; none if not all of it is known, or it is of the future.
    pub fn since(&self, offset: u64, next: u64) -> Option<Vec<u8>> {
        let skipped = next.checked_sub(self.first(offset))?;
        let skipped = usize::try_from(skipped).ok()?;
        (skipped <= self.bytes.len()).then(|| self.bytes.range(skipped..).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_end_of_the_stream() {
        let mut backlog = Backlog::new(4);
        assert_eq!(backlog.since(0, 1), Some(Vec::new()));
        assert_eq!(backlog.since(0, 2), None);
        assert_eq!(backlog.since(0, 0), None);
        backlog.add(b"abc");
        assert_eq!(backlog.first(3), 1);
        assert_eq!(backlog.since(3, 2), Some(b"bc".to_vec()));
        backlog.add(b"de");
        assert_eq!((backlog.first(5), backlog.len()), (2, 4));
        assert_eq!(backlog.since(5, 1), None);
        assert_eq!(backlog.since(5, 2), Some(b"bcde".to_vec()));
        assert_eq!(backlog.since(5, 6), Some(Vec::new()));
        assert_eq!(backlog.since(5, 7), None);
        backlog.add(b"fghijk");
        assert_eq!(backlog.since(11, 8), Some(b"hijk".to_vec()));
        backlog.resize(2);
        assert_eq!(backlog.since(11, 10), Some(b"jk".to_vec()));
        assert_eq!(backlog.since(11, 9), None);
    }
}
