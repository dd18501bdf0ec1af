//! A row in memory.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, LazyLock};

use cairn_encoding::row;
use foldhash::fast::RandomState;

use crate::expected::prefetch;
use crate::family::Family;

/// What stands before the key: kind, whether it is deleted, and the key's length.
const HEAD: usize = 6;

/// What a row in memory stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A row of a family.
    One(Family),
    /// All rows of a collection, in one piece: see `whole`.
    Whole(Family),
}

const WHOLE: u8 = 0x80;

impl Kind {
    #[inline]
    fn family(self) -> Family {
        match self {
            Kind::One(family) | Kind::Whole(family) => family,
        }
    }

    #[inline]
    fn byte(self) -> u8 {
        match self {
            Kind::One(family) => family as u8,
            Kind::Whole(family) => family as u8 | WHOLE,
        }
    }
}

impl From<Family> for Kind {
    #[inline]
    fn from(family: Family) -> Self {
        Kind::One(family)
    }
}

/// A row, or the mark of one that is deleted: in one piece, and shared, because a committed row stands in
/// several places at once (see `young`).
#[derive(Clone)]
pub(crate) struct Row(Arc<[u8]>);

impl Row {
    /// None deletes it.
    pub(crate) fn new(kind: impl Into<Kind>, key: &[u8], value: Option<&[u8]>) -> Row {
        let length = HEAD + key.len() + value.map_or(0, <[u8]>::len);
        let row = Arc::<[u8]>::new_uninit_slice(length);
        // SAFETY: an Arc that was just made is the only one, and nobody else is given it before the last use of `bytes`.
        // The pointer is the one that it writes through itself. (`Arc::get_mut` would make sure of the former by an instruction
        // that locks, and every row is made here.)
        let bytes = unsafe { &mut *Arc::as_ptr(&row).cast_mut() };
        let (head, rest) = bytes.split_at_mut(HEAD);
        let (to_key, to_value) = rest.split_at_mut(key.len());
        let [a, b, c, d] = (key.len() as u32).to_ne_bytes();
        let is_deletion = u8::from(value.is_none());
        head.write_copy_of_slice(&[kind.into().byte(), is_deletion, a, b, c, d]);
        to_key.write_copy_of_slice(key);
        to_value.write_copy_of_slice(value.unwrap_or_default());
        // SAFETY: all three parts were written, and together they are the whole: each copy would have panicked if the
        // lengths were not the same.
        Row(unsafe { row.assume_init() })
    }

    #[inline]
    pub(crate) fn family(&self) -> Family {
        family_of(&self.0)
    }

    /// All of it, as it stands in memory.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Row {
        Row(bytes.into())
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self.0[0] & WHOLE {
            0 => Kind::One(self.family()),
            _ => Kind::Whole(self.family()),
        }
    }

    #[inline]
    fn value_at(&self) -> usize {
        value_at(&self.0)
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        key_of(&self.0)
    }

    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        (self.0[1] == 0).then(|| &self.0[self.value_at()..])
    }

    /// The bytes that hold the row, and where its value begins, for a value of this length to be written over it. None if
    /// the row has another length, or is shared.
    #[inline]
    pub(crate) fn place_to_overwrite(&mut self, length: usize) -> Option<(&mut [u8], usize)> {
        let value_at = self.value_at();
        let has_value = self.0[1] == 0 && self.0.len() - value_at == length;
        let bytes = has_value.then(|| Arc::get_mut(&mut self.0)).flatten()?;
        Some((bytes, value_at))
    }

    /// The bytes that hold the row, and where its value begins.
    #[inline]
    pub(crate) fn share(self) -> (Arc<[u8]>, usize) {
        let value_at = self.value_at();
        (self.0, value_at)
    }

    /// Has the beginning of the row brought near: its reference count, its key, and a small value.
    #[inline]
    pub(crate) fn expect(&self) {
        let start = Arc::as_ptr(&self.0).cast::<u8>();
        for offset in [0, 64, 128] {
            prefetch(start.wrapping_add(offset));
        }
    }

    /// How many bytes it takes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is(&self, kind: Kind, key: &[u8]) -> bool {
        self.0[0] == kind.byte() && self.key() == key
    }
}

/// The family of a row, from its bytes.
#[inline]
pub(crate) fn family_of(bytes: &[u8]) -> Family {
    Family::ALL[usize::from(bytes[0] & !WHOLE)]
}

/// The same for its key.
#[inline]
pub(crate) fn key_of(bytes: &[u8]) -> &[u8] {
    &bytes[HEAD..value_at(bytes)]
}

#[inline]
fn value_at(bytes: &[u8]) -> usize {
    let [_, _, a, b, c, d, ..] = *bytes else {
        return HEAD;
    };
    HEAD + u32::from_ne_bytes([a, b, c, d]) as usize
}

/// Clients choose the keys, so they must not be able to tell which of them meet in a table.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// What tables of rows are ordered by.
#[inline]
pub(crate) fn hash(kind: impl Into<Kind>, key: &[u8]) -> u32 {
    long_hash(kind, key) as u32
}

#[inline]
pub(crate) fn long_hash(kind: impl Into<Kind>, key: &[u8]) -> u64 {
    let kind = kind.into();
    let (head, rest) = match kind.family() {
        Family::Metadata | Family::Data | Family::ZsetScore => row::essence(key),
        Family::Expiry | Family::Meta => (0, key),
    };
    hash_of_parts(kind, head, rest)
}

/// The hash of a metadata row, which need not be written down for it.
#[inline]
pub(crate) fn metadata_hash(index: u64, name: &[u8]) -> u32 {
    let (head, rest) = row::essence_of_metadata(index, name);
    hash_of_parts(Family::Metadata.into(), head, rest) as u32
}

#[inline]
fn hash_of_parts(kind: Kind, head: u64, rest: &[u8]) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write_u64(head ^ u64::from(kind.byte()) << 24);
    hasher.write(rest);
    hasher.finish()
}

/// So many rows ahead of the one that is looked at are brought near.
pub(crate) const FETCHED_AHEAD: usize = 12;

/// The rows that these stand for, each brought near before it is looked at: there may be very many, and nobody has looked at
/// them for a while.
pub(crate) fn fetched<'i, T>(
    items: &'i [T],
    row_of: impl Fn(&'i T) -> &'i Row,
) -> impl Iterator<Item = &'i Row> {
    let first = items.iter().take(FETCHED_AHEAD);
    first.for_each(|item| row_of(item).expect());
    items.iter().enumerate().map(move |(number, item)| {
        if let Some(ahead) = items.get(number + FETCHED_AHEAD) {
            row_of(ahead).expect();
        }
        row_of(item)
    })
}

/// Rows in the order of their keys; those of the same key stay as they are.
pub(crate) fn sorted<R: Borrow<Row>>(rows: Vec<R>) -> impl Iterator<Item = R> {
    let common = common_prefix(fetched(&rows, Borrow::borrow).map(Row::key));
    let numbered = rows
        .into_iter()
        .map(|row| (number_at(row.borrow().key(), common), row));
    let mut numbered: Vec<(u64, R)> = numbered.collect();
    numbered.sort_by(|(a, one), (b, other)| {
        a.cmp(b)
            .then_with(|| one.borrow().key().cmp(other.borrow().key()))
    });
    numbered.into_iter().map(|(_, row)| row)
}

/// How many bytes all keys begin with.
pub(crate) fn common_prefix<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> usize {
    let Some(first) = keys.next() else {
        return 0;
    };
    keys.fold(first.len(), |common, key| {
        let pairs = first[..common].iter().zip(key);
        match key.get(..common) == first.get(..common) {
            true => common,
            false => pairs.take_while(|(a, b)| a == b).count(),
        }
    })
}

/// The eight bytes of a key from there on, as a number that sorts as they do. Keys are compared by these
/// first: that does not have to fetch them from memory.
pub(crate) fn number_at(key: &[u8], at: usize) -> u64 {
    let part = &key[at..];
    if let Some(bytes) = part.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..part.len()].copy_from_slice(part);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_metadata_is_known_without_its_row() {
        for name in [&b""[..], b"a", b"user:1", &[7; 300]] {
            let mut key = Vec::new();
            row::metadata_key(&mut key, 3, name);
            assert_eq!(metadata_hash(3, name), hash(Family::Metadata, &key));
            assert_ne!(metadata_hash(4, name), metadata_hash(3, name));
            assert_ne!(hash(Family::Data, &key), hash(Family::Metadata, &key));
            assert_ne!(
                long_hash(Kind::Whole(Family::Data), &key),
                long_hash(Family::Data, &key)
            );
        }
    }
}
