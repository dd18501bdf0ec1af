//! A row in memory.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::FxHasher;

use crate::family::Family;

/// What stands before the key: family, whether it is deleted, and the key's length.
const HEAD: usize = 6;

/// A row, or the mark of one that is deleted: in one piece, and shared, because a committed row stands in
/// several places at once (see `young`).
#[derive(Clone)]
pub(crate) struct Row(Arc<[u8]>);

impl Row {
    /// None deletes it.
    pub(crate) fn new(family: Family, key: &[u8], value: Option<&[u8]>) -> Row {
        let length = HEAD + key.len() + value.map_or(0, <[u8]>::len);
        let mut row: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        if let Some(bytes) = Arc::get_mut(&mut row) {
            bytes[0] = family as u8;
            bytes[1] = u8::from(value.is_none());
            bytes[2..HEAD].copy_from_slice(&(key.len() as u32).to_ne_bytes());
            let (to_key, to_value) = bytes[HEAD..].split_at_mut(key.len());
            to_key.copy_from_slice(key);
            to_value.copy_from_slice(value.unwrap_or_default());
        }
        Row(row)
    }

    #[inline]
    pub(crate) fn family(&self) -> Family {
        Family::ALL[usize::from(self.0[0])]
    }

    #[inline]
    fn value_at(&self) -> usize {
        let [_, _, a, b, c, d, ..] = *self.0 else {
            return HEAD;
        };
        HEAD + u32::from_ne_bytes([a, b, c, d]) as usize
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.0[HEAD..self.value_at()]
    }

    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        (self.0[1] == 0).then(|| &self.0[self.value_at()..])
    }

    /// The bytes that hold the row, and where its value begins.
    pub(crate) fn share(&self) -> (Arc<[u8]>, usize) {
        (self.0.clone(), self.value_at())
    }

    /// How many bytes it takes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is(&self, family: Family, key: &[u8]) -> bool {
        self.0[0] == family as u8 && self.key() == key
    }
}

/// What tables of rows are ordered by.
pub(crate) fn hash(family: Family, key: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(key);
    hasher.write_u8(family as u8);
    hasher.finish()
}
