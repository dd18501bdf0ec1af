//! A user's key in one database, with the bytes that all its rows begin with.

use cairn_encoding::row::{self, RowBytes, RowKey};

#[derive(Clone)]
pub struct Key {
    /// The metadata row's key: the prefix of every other row.
    prefix: RowBytes,
    name_at: usize,
}

impl Key {
    #[inline]
    pub fn new(index: u64, name: &[u8]) -> Key {
        let mut prefix = RowBytes::default();
        row::metadata_key(&mut prefix, index, name);
        Key {
            name_at: prefix.len() - name.len(),
            prefix,
        }
    }

    /// The index of its database.
    pub fn index(&self) -> u64 {
        // The prefix was written by `new`.
        RowKey::decode_metadata(&self.prefix).map_or(0, |key| key.index_and_key().0)
    }

    pub fn name(&self) -> &[u8] {
        &self.prefix[self.name_at..]
    }

    #[inline]
    pub fn metadata(&self) -> &[u8] {
        &self.prefix
    }

    /// The row of a sub-key: a hash's field, a set's member, a list's index, a string's chunk.
    pub fn data(&self, version: u64, sub: &[u8]) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_data(&mut out, &self.prefix, version, sub);
        out
    }

    /// The row of a member in score order.
    pub fn score(&self, version: u64, score: f64, member: &[u8]) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_score(&mut out, &self.prefix, version, score, member);
        out
    }

    /// The row that counts the elements from a place of their order on.
    pub fn count(&self, version: u64, first: &[u8]) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_count(&mut out, &self.prefix, version, first);
        out
    }

    /// The row that says when a field expires.
    pub fn field(&self, version: u64, field: &[u8]) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_field(&mut out, &self.prefix, version, field);
        out
    }

    /// The same in the order of time.
    pub fn field_time(&self, version: u64, at_ms: u64, field: &[u8]) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_field_time(&mut out, &self.prefix, version, at_ms, field);
        out
    }

    /// The row that says when the first of its fields expires.
    pub fn fields_expiry(&self, at_ms: u64, version: u64) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_fields_expiry(&mut out, &self.prefix, at_ms, version);
        out
    }

    /// The row that says when the key expires.
    pub fn expiry(&self, at_ms: u64) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_expiry(&mut out, &self.prefix, at_ms);
        out
    }

    /// The row of an old-format string.
    pub fn legacy(&self) -> RowBytes {
        let mut out = RowBytes::default();
        row::append_legacy(&mut out, &self.prefix);
        out
    }

    /// The range that holds all rows of one version, of any family.
    pub fn version_range(&self, version: u64) -> (RowBytes, RowBytes) {
        let lower = self.data(version, b"");
        // Versions never reach u64::MAX, so the next one is never a carry away.
        let upper = self.data(version + 1, b"");
        (lower, upper)
    }

    /// Where the sub-key begins in a data row's key, and the score in a score row's.
    pub fn sub_offset(&self) -> usize {
        self.prefix.len() + row::VERSION_LEN
    }

    /// The sub-key of one of this key's data rows.
    pub fn sub_of<'r>(&self, data_row: &'r [u8]) -> &'r [u8] {
        &data_row[self.sub_offset()..]
    }

    /// The score and member of one of this key's score rows.
    pub fn member_of<'r>(&self, score_row: &'r [u8]) -> (f64, &'r [u8]) {
        let at = self.sub_offset();
        let mut score = [0; row::SCORE_LEN];
        score.copy_from_slice(&score_row[at..at + row::SCORE_LEN]);
        (
            cairn_encoding::score::decode(score),
            &score_row[at + row::SCORE_LEN..],
        )
    }
}
