//! What hashes, sets and sorted sets have in common: a metadata row with a version and a size, and one
//! row per element under that version.

use cairn_encoding::field_expiry::FieldTimes;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata};
use cairn_encoding::row::RowBytes;
use cairn_engine::{Direction, FEW, Family, Rows};

use crate::error::Result;
use crate::key::Key;
use crate::txn::{Found, ReadTxn, Row, Shape, Stamp, WriteTxn};

/// A collection as a command works on it. Changes of size are kept here until [`Collection::save`]
/// writes the metadata row, once.
pub struct Collection {
    key: Key,
    kind: CollectionKind,
    /// Zero: the key is absent and has no version yet.
    version: u64,
    size: u64,
    expire_ms: u64,
    /// Its elements are counted: see [`crate::ranks`].
    is_counted: bool,
    /// As stored when it was opened, to tell whether the metadata row must be written.
    stored: Option<(u64, u64)>,
    /// Of a hash that has fields that expire, or had: see [`crate::hash`]. Others have no more than this to carry.
    expiring: Option<Box<Expiring>>,
    /// Created by this command: no row of this version is in the engine.
    is_fresh: bool,
}

/// Fields that expire, as they are now and as stored.
#[derive(Clone, Copy)]
struct Expiring {
    fields: Option<FieldTimes>,
    stored: Option<FieldTimes>,
}

impl Expiring {
    #[cold]
    #[inline(never)]
    fn of_found(found: &Found<'_>) -> Option<Box<Expiring>> {
        Expiring::of_stored(found.fields())
    }

    fn of_stored(fields: Option<FieldTimes>) -> Option<Box<Expiring>> {
        fields.map(|fields| {
            Box::new(Expiring {
                fields: Some(fields),
                stored: Some(fields),
            })
        })
    }
}

impl Collection {
    /// Opens the collection, absent or not; an error if the key holds something else.
    #[inline]
    pub fn open(txn: &ReadTxn, name: &[u8], kind: CollectionKind) -> Result<Collection> {
        let key = txn.key(name);
        let mut collection = Collection {
            kind,
            version: 0,
            size: 0,
            expire_ms: 0,
            is_counted: false,
            stored: None,
            expiring: None,
            is_fresh: false,
            key,
        };
        if let Some(found) = txn.find_kind(&collection.key, kind.into())?
            && let Shape::Collection {
                version,
                size,
                is_counted,
                expires,
                ..
            } = found.shape
        {
            collection.version = version;
            collection.size = size;
            collection.expire_ms = found.expire_ms;
            collection.is_counted = is_counted;
            collection.stored = Some((version, size));
            if expires {
                collection.expiring = Expiring::of_found(&found);
            }
        }
        Ok(collection)
    }

    /// The collection that a key holds, of whichever kind, if it holds one.
    pub(crate) fn find(txn: &ReadTxn, key: Key) -> Result<Option<Collection>> {
        let stamp = txn.peek(&key)?.map(|found| found.stamp());
        Ok(stamp.and_then(|stamp| Collection::of_stamp(key, &stamp)))
    }

    /// The collection that a key holds, expired or not.
    pub(crate) fn of_stamp(key: Key, stamp: &Stamp) -> Option<Collection> {
        let Stamp {
            shape:
                Shape::Collection {
                    kind,
                    version,
                    size,
                    is_counted,
                    ..
                },
            fields,
            expire_ms,
            ..
        } = *stamp
        else {
            return None;
        };
        Some(Collection {
            key,
            kind,
            version,
            size,
            expire_ms,
            is_counted,
            stored: Some((version, size)),
            expiring: Expiring::of_stored(fields),
            is_fresh: false,
        })
    }

    /// A new collection in place of whatever the key holds (which the caller removes, or overwrites by
    /// saving this one).
    pub fn create(txn: &WriteTxn, name: &[u8], kind: CollectionKind) -> Collection {
        Collection {
            key: txn.key(name),
            kind,
            version: txn.next_version(),
            size: 0,
            expire_ms: 0,
            is_counted: false,
            stored: None,
            expiring: None,
            is_fresh: true,
        }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn kind(&self) -> CollectionKind {
        self.kind
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// What is known of its fields that expire.
    #[inline]
    pub(crate) fn fields(&self) -> Option<FieldTimes> {
        self.expiring.as_ref().and_then(|expiring| expiring.fields)
    }

    pub(crate) fn set_fields(&mut self, fields: Option<FieldTimes>) {
        match &mut self.expiring {
            Some(expiring) => expiring.fields = fields,
            None => {
                let stored = None;
                self.expiring = fields.map(|_| Box::new(Expiring { fields, stored }));
            }
        }
    }

    pub fn exists(&self) -> bool {
        self.stored.is_some()
    }

    pub fn len(&self) -> u64 {
        self.size
    }

    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Gives an absent collection its version; before the first element is written.
    pub fn ensure_version(&mut self, txn: &WriteTxn) {
        if self.version == 0 {
            self.version = txn.next_version();
            self.is_fresh = true;
        }
    }

    pub fn grow(&mut self, by: u64) {
        self.size += by;
    }

    pub fn shrink(&mut self, by: u64) {
        self.size -= by;
    }

    /// The key of an element's row.
    pub fn row_key(&self, sub: &[u8]) -> RowBytes {
        self.key.data(self.version, sub)
    }

    /// Has elements brought near that will be asked for, a few of them; see [`ReadTxn::expect`].
    pub fn expect(&self, txn: &ReadTxn, subs: &[&[u8]]) -> Result<()> {
        if self.version == 0 || self.is_fresh || subs.len() < 2 {
            return Ok(());
        }
        let rows: Vec<RowBytes> = subs.iter().map(|sub| self.row_key(sub)).collect();
        txn.expect_rows(&rows)
    }

    /// An element's value; none of a field that is due.
    pub fn get<'t>(&self, txn: &'t ReadTxn, sub: &[u8]) -> Result<Option<Row<'t>>> {
        if self.version == 0 {
            return Ok(None);
        }
        // Asked first: without a latch the field may be set anew afterwards, and then it is not due any more.
        if self.may_hide(txn) && self.is_due(txn, sub)? {
            return Ok(None);
        }
        self.get_row(txn, &self.row_key(sub))
    }

    /// The same, with the row's key at hand, and whether it is due or not.
    pub fn get_row<'t>(&self, txn: &'t ReadTxn, row_key: &[u8]) -> Result<Option<Row<'t>>> {
        if self.is_fresh {
            // The engine cannot know this version: spare it the question.
            return Ok(txn.pending_row(Family::Data, row_key));
        }
        txn.row(Family::Data, row_key)
    }

    pub fn contains(&self, txn: &ReadTxn, sub: &[u8]) -> Result<bool> {
        Ok(self.get(txn, sub)?.is_some())
    }

    /// The bounds of the elements' rows.
    pub(crate) fn range(&self) -> (RowBytes, RowBytes) {
        self.key.version_range(self.version)
    }

    /// Every element's row, in the order of the sub-keys.
    pub fn rows(&self, txn: &ReadTxn, direction: Direction) -> Result<Rows> {
        let (lower, upper) = self.range();
        self.rows_within(txn, Family::Data, &lower, &upper, direction)
    }

    /// Rows of this version in `[lower, upper)`.
    pub(crate) fn rows_within(
        &self,
        txn: &ReadTxn,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Result<Rows> {
        if self.size <= FEW as u64 {
            Ok(txn.rows_of_few(family, lower, upper, direction))
        } else {
            txn.rows(family, lower, upper, direction)
        }
    }

    /// Where the sub-key begins in a row's key.
    pub fn sub_offset(&self) -> usize {
        self.key.sub_offset()
    }

    pub fn sub_of<'r>(&self, row_key: &'r [u8]) -> &'r [u8] {
        self.key.sub_of(row_key)
    }

    /// Writes the metadata row if the size changed, or deletes the key if nothing is left.
    #[inline]
    pub fn save(self, txn: &mut WriteTxn) {
        let has_same_fields = self
            .expiring
            .as_ref()
            .is_none_or(|expiring| expiring.fields == expiring.stored);
        if self.stored != Some((self.version, self.size)) || !has_same_fields {
            self.save_change(txn);
        }
    }

    fn save_change(&self, txn: &mut WriteTxn) {
        if self.size == 0 {
            if self.stored.is_some() {
                txn.remove_metadata(&self.key, self.expire_ms);
                txn.move_fields_expiry(&self.key, self.stored_expiry(), None);
            }
            return;
        }
        self.put_metadata(txn);
        if self.stored.is_none() {
            txn.notify_new(&self.key);
        }
    }

    /// The same when it comes to be counted, or not to be.
    pub(crate) fn save_counted(mut self, txn: &mut WriteTxn, is_counted: bool) {
        self.is_counted = is_counted;
        self.put_metadata(txn);
    }

    /// What the row is made of that says when the first of its fields expires, if there is one.
    fn stored_expiry(&self) -> Option<(u64, u64)> {
        let fields = self.expiring.as_ref()?.stored?;
        Some((fields.first_ms, self.version))
    }

    fn put_metadata(&self, txn: &mut WriteTxn) {
        let metadata = Metadata {
            expire_ms: self.expire_ms,
            body: Body::Collection {
                kind: self.kind,
                version: self.version,
                size: self.size,
                is_counted: self.is_counted,
                fields: self.fields(),
            },
        };
        txn.put_metadata(&self.key, &metadata, self.expire_ms);
        if self.expiring.is_some() {
            let expiry = self.fields().map(|fields| (fields.first_ms, self.version));
            txn.move_fields_expiry(&self.key, self.stored_expiry(), expiry);
        }
    }
}
