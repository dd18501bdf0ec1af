//! What row keys are written to.

use std::ops::{Deref, DerefMut};

/// Takes bytes at its end.
pub trait Append {
    fn append(&mut self, bytes: &[u8]);
}

impl Append for Vec<u8> {
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// As long as nearly all row keys are, and no longer than is moved about easily.
const NEAR: usize = 88;

/// The key of a row, made for one lookup: it allocates nothing unless it is long.
#[derive(Clone)]
pub struct RowBytes {
    near: [u8; NEAR],
    /// How much of `near` is used; unless there is something in `far`, which then has all of it.
    length: usize,
    far: Vec<u8>,
}

impl Default for RowBytes {
    #[inline]
    fn default() -> Self {
        RowBytes {
            near: [0; NEAR],
            length: 0,
            far: Vec::new(),
        }
    }
}

impl RowBytes {
    #[cold]
    fn append_far(&mut self, bytes: &[u8]) {
        if self.far.is_empty() {
            self.far.extend_from_slice(&self.near[..self.length]);
        }
        self.far.extend_from_slice(bytes);
    }
}

impl Append for RowBytes {
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.near.get_mut(self.length..end) {
            Some(room) if self.far.is_empty() => {
                room.copy_from_slice(bytes);
                self.length = end;
            }
            _ => self.append_far(bytes),
        }
    }
}

impl Deref for RowBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.far.is_empty() {
            &self.near[..self.length]
        } else {
            &self.far
        }
    }
}

impl DerefMut for RowBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.far.is_empty() {
            &mut self.near[..self.length]
        } else {
            &mut self.far
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_holds_what_was_appended(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6),
        ) {
            let mut bytes = RowBytes::default();
            for part in &parts {
                bytes.append(part);
            }
            let mut whole = parts.concat();
            prop_assert_eq!(&*bytes, &*whole);
            whole.reverse();
            bytes.reverse();
            prop_assert_eq!(&*bytes, &*whole);
        }
    }
}
