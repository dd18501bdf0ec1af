//! Transactions: what a handler sees and what it leaves behind.
//!
//! A [`ReadTxn`] shows rows; a [`WriteTxn`] also collects changes in a batch, and everything it reads,
//! point reads and walks alike, shows them. Nothing reaches the engine before the batch is committed.
//! Several handlers may run over one transaction (a gulp of pipelined commands, MULTI, a script): each
//! sees what those before it did, and one that fails takes back its own changes only.
//!
//! Isolation is the caller's: whoever runs a handler holds the latches of the keys it names. A handler
//! therefore reads the latest rows, and they stand still.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cairn_encoding::field_expiry::FieldTimes;
use cairn_encoding::legacy::LegacyString;
use cairn_encoding::metadata::{Body, CollectionKind, Metadata, Type, ends_ms, has_expired};
use cairn_encoding::row::{self, RowKey};
use cairn_encoding::slot::slot;
use cairn_encoding::stream;
use cairn_engine::{
    Access, Batch, Commit, Direction, EngineError, Family, Moment, Reading, Rows, Value,
};

use crate::effects::{Effect, EventClass};
use crate::error::{Error, Result};
use crate::excerpts::Excerpts;
use crate::fresh::StagingRow;
use crate::key::Key;
use crate::queues::Taken;
use crate::ranks::Counted;
use crate::region::{Lead, Region, Reign};
use crate::remains::{Remains, RemainsMark};
use crate::store::Store;

/// How many rows a handler may walk on a connection thread before it has to move elsewhere.
const SHORT_WORK: u32 = 20_000;

/// A time at which nothing has expired.
pub(crate) const BEFORE_EXPIRY: u64 = 1;

/// A row's value, in the batch or in the engine; never copied.
pub enum Row<'t> {
    Pending(&'t [u8]),
    Stored(Value<'t>),
}

impl Deref for Row<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Row::Pending(bytes) => bytes,
            Row::Stored(value) => value,
        }
    }
}

impl Row<'_> {
    /// The value from an offset on, to be kept; copied unless it lies in shared memory.
    #[inline]
    pub fn share(self, from: usize) -> Shared {
        match self {
            Row::Stored(Value::Kept(kept)) => {
                let (bytes, start) = kept.share();
                Shared {
                    bytes,
                    start: start + from,
                }
            }
            row => Shared {
                bytes: row[from..].into(),
                start: 0,
            },
        }
    }
}

/// A value that outlives its transaction: what comes after `start`.
pub struct Shared {
    pub bytes: Arc<[u8]>,
    pub start: usize,
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// What a key holds, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string whose value is the row's tail, from this offset.
    Inline {
        at: usize,
    },
    Chunked {
        version: u64,
        length: u64,
    },
    Collection {
        kind: CollectionKind,
        version: u64,
        size: u64,
        is_counted: bool,
        /// It is a hash that has fields that expire: see [`Stamp::fields`].
        expires: bool,
    },
    List {
        version: u64,
        size: u64,
        head: u64,
        tail: u64,
    },
    Stream {
        version: u64,
        size: u64,
    },
}

/// A key that exists and has not expired.
pub struct Found<'t> {
    row: Row<'t>,
    pub shape: Shape,
    /// Zero: never.
    pub expire_ms: u64,
    /// Stored in the old format, outside the metadata family.
    pub is_legacy: bool,
}

impl Found<'_> {
    #[inline]
    pub fn kind(&self) -> Type {
        match self.shape {
            Shape::Inline { .. } | Shape::Chunked { .. } => Type::String,
            Shape::Collection { kind, .. } => kind.into(),
            Shape::List { .. } => Type::List,
            Shape::Stream { .. } => Type::Stream,
        }
    }

    /// When there is nothing left of it, zero for never.
    #[inline]
    pub fn ends_ms(&self) -> u64 {
        match self.shape {
            Shape::Collection { expires: true, .. } => self.ends_with_fields(),
            _ => self.expire_ms,
        }
    }

    #[cold]
    #[inline(never)]
    fn ends_with_fields(&self) -> u64 {
        self.stamp().ends_ms()
    }

    /// What the metadata of a hash says about its fields that expire.
    #[inline]
    pub(crate) fn fields(&self) -> Option<FieldTimes> {
        match self.shape {
            Shape::Collection { expires: true, .. } => self.read_fields(),
            _ => None,
        }
    }

    /// Read again where they are asked for, so that others have less to carry.
    #[cold]
    #[inline(never)]
    fn read_fields(&self) -> Option<FieldTimes> {
        // It has been decoded before.
        match Metadata::decode(&self.row).ok()?.body {
            Body::Collection { fields, .. } => fields,
            _ => None,
        }
    }

    /// The value of an inline string; empty for everything else.
    #[inline]
    pub fn inline(&self) -> &[u8] {
        match self.shape {
            Shape::Inline { at } => &self.row[at..],
            _ => &[],
        }
    }

    /// What the metadata says of a stream; none if it is something else.
    pub(crate) fn stream_head(&self) -> Result<Option<stream::Head>> {
        match Metadata::decode(&self.row)?.body {
            Body::Stream {
                version,
                size,
                rest,
            } => Ok(Some(stream::Head::of(version, size, rest)?)),
            _ => Ok(None),
        }
    }

    /// What the metadata says beside its shape: the value of an inline string, the rest of a stream's.
    pub(crate) fn beside_shape(&self) -> Result<&[u8]> {
        Ok(match Metadata::decode(&self.row)?.body {
            Body::Stream { rest, .. } => rest,
            _ => self.inline(),
        })
    }

    /// The same, to be kept.
    #[inline]
    pub fn share_inline(self) -> Option<Shared> {
        match self.shape {
            Shape::Inline { at } => Some(self.row.share(at)),
            _ => None,
        }
    }

    pub fn version(&self) -> Option<u64> {
        match self.shape {
            Shape::Inline { .. } => None,
            Shape::Chunked { version, .. }
            | Shape::Collection { version, .. }
            | Shape::List { version, .. }
            | Shape::Stream { version, .. } => Some(version),
        }
    }

    /// Takes the shape and expiry along without the row, which borrows from the transaction.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            shape: self.shape,
            fields: self.fields(),
            expire_ms: self.expire_ms,
            is_legacy: self.is_legacy,
        }
    }

    #[inline]
    pub(crate) fn of_metadata(row: Row<'_>) -> Result<Found<'_>> {
        let metadata = Metadata::decode(&row)?;
        let shape = match metadata.body {
            Body::Inline(value) => Shape::Inline {
                at: row.len() - value.len(),
            },
            Body::Chunked { version, length } => Shape::Chunked { version, length },
            Body::Collection {
                kind,
                version,
                size,
                is_counted,
                fields,
            } => Shape::Collection {
                kind,
                version,
                size,
                is_counted,
                expires: fields.is_some(),
            },
            Body::List {
                version,
                size,
                head,
                tail,
            } => Shape::List {
                version,
                size,
                head,
                tail,
            },
            Body::Stream { version, size, .. } => Shape::Stream { version, size },
        };
        Ok(Found {
            shape,
            expire_ms: metadata.expire_ms,
            is_legacy: false,
            row,
        })
    }

    fn of_legacy(row: Row<'_>) -> Result<Found<'_>> {
        let legacy = LegacyString::decode(&row)?;
        Ok(Found {
            shape: Shape::Inline {
                at: row.len() - legacy.payload.len(),
            },
            expire_ms: legacy.expire_ms,
            is_legacy: true,
            row,
        })
    }
}

/// The time at which a command runs.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// By this node's clock.
    At(Moment),
    /// By that of another node, which leads the region, in milliseconds.
    Leaders(u64),
    /// Before anything has expired: for commands of a server that decides about that by itself.
    BeforeExpiry,
}

/// The facts of a [`Found`] that outlive the borrow of the transaction.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub shape: Shape,
    pub fields: Option<FieldTimes>,
    pub expire_ms: u64,
    pub is_legacy: bool,
}

/// A key of which a row was changed.
pub struct ChangedKey<'t> {
    /// That of its database.
    pub index: u64,
    pub name: &'t [u8],
    /// It is the row that says what the key holds, and how much of it: without a change of it nothing was added.
    pub is_metadata: bool,
}

impl Stamp {
    /// When there is nothing left of it, zero for never.
    pub(crate) fn ends_ms(&self) -> u64 {
        match (self.shape, self.fields) {
            (Shape::Collection { size, .. }, Some(fields)) => ends_ms(self.expire_ms, size, fields),
            _ => self.expire_ms,
        }
    }

    /// The time at which the first field of a hash expires, and its version: what its row in `expiry` is made of.
    pub(crate) fn fields_expiry(&self) -> Option<(u64, u64)> {
        match (self.shape, self.fields) {
            (Shape::Collection { version, .. }, Some(fields)) => Some((fields.first_ms, version)),
            _ => None,
        }
    }
}

/// How often a command asked for a key, and how often there was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u32,
    pub misses: u32,
}

pub struct ReadTxn {
    store: Arc<Store>,
    region: Arc<Region>,
    /// By which it is committed; none if the node did not lead the region when it began.
    lead: Option<Arc<Lead>>,
    batch: Batch,
    database: u32,
    /// Where the databases are after this transaction, if it moved them.
    moved: Option<Vec<u64>>,
    now_ms: u64,
    work_left: Cell<Option<u32>>,
    /// What it reads is not kept in memory.
    is_quiet: bool,
    /// What the current command reads keys for.
    reading: Reading,
    lookups: Cell<Lookups>,
    /// The keys among them that were not there, if somebody wants to know.
    missed: RefCell<Vec<Box<[u8]>>>,
}

impl ReadTxn {
    fn new(
        store: Arc<Store>,
        region: Arc<Region>,
        lead: Option<Arc<Lead>>,
        patience: Patience,
    ) -> Self {
        ReadTxn {
            now_ms: store.clock().now_ms(),
            store,
            region,
            lead,
            batch: Batch::new(),
            database: 0,
            moved: None,
            work_left: Cell::new(patience.work()),
            is_quiet: patience == Patience::Background,
            reading: Reading::Use,
            lookups: Cell::default(),
            missed: RefCell::default(),
        }
    }

    /// Reads about keys of any region, at the same moment and with what is left of the same allowance.
    pub(crate) fn beside<T>(
        &self,
        region: &Arc<Region>,
        read: impl FnOnce(&ReadTxn) -> Result<T>,
    ) -> Result<T> {
        if Arc::ptr_eq(region, &self.region) {
            return read(self);
        }
        let (store, region) = (self.store.clone(), region.clone());
        let mut other = ReadTxn::new(store, region, None, Patience::Long);
        (other.database, other.now_ms) = (self.database, self.now_ms);
        other.reading = self.reading;
        other.work_left.set(self.work_left.get());
        let result = read(&other);
        self.work_left.set(other.work_left.get());
        result
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The region whose keys it is about.
    #[inline]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn lead(&self) -> Option<&Arc<Lead>> {
        self.lead.as_ref()
    }

    /// Whether what it reads may be kept in memory: where others lead they change it without telling. Asked under the lock of
    /// what it is kept in: a lead is over before that is cleared.
    pub(crate) fn may_keep(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| !lead.is_over())
    }

    /// An error if it can no longer be committed: what it looks for in memory may not be there any more.
    pub(crate) fn check_lead(&self) -> Result<()> {
        match self.may_keep() {
            true => Ok(()),
            false => Err(EngineError::Outdated.into()),
        }
    }

    /// Whether it began in the region's present term.
    pub fn is_of_this_term(&self) -> bool {
        match &self.lead {
            Some(lead) => !lead.is_over(),
            None => !self.region.is_led(),
        }
    }

    /// In which the transaction began, in a cluster; what it reads may be outdated when that has ended.
    pub fn reign(&self) -> Option<Reign> {
        let is_replicated = self.store.is_replicated();
        let lead = self.lead.as_ref().filter(|_| is_replicated)?;
        Some(Reign::of(&self.region, lead))
    }

    /// The time of this transaction, sampled after its latches were taken.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Whether it runs what a server has said that is followed, which decides by itself what has expired.
    pub fn is_of_master(&self) -> bool {
        self.now_ms == BEFORE_EXPIRY
    }

    /// The same for what remembers when it was done, whatever may have expired.
    pub fn wall_ms(&self) -> u64 {
        match self.now_ms {
            BEFORE_EXPIRY => self.store.clock().now_ms(),
            now_ms => now_ms,
        }
    }

    /// What is known of the last use of a key. One that this transaction makes is used now.
    pub fn access(&self, key: &Key) -> Access {
        let known = self.store.engine().access(key.metadata());
        known.unwrap_or_else(Access::now)
    }

    /// The number of the selected database.
    pub fn database(&self) -> u32 {
        self.database
    }

    pub fn select(&mut self, database: u32) {
        self.database = database;
    }

    /// The index of any database as this transaction sees it.
    #[inline]
    pub fn index_of(&self, database: u32) -> u64 {
        match &self.moved {
            Some(moved) => moved[database as usize],
            None => self.region.databases().index_of(database),
        }
    }

    #[inline]
    pub fn index(&self) -> u64 {
        self.index_of(self.database)
    }

    #[inline]
    pub fn key(&self, name: &[u8]) -> Key {
        Key::new(self.index(), name)
    }

    /// A key that may be one of another region; none if this node does not lead that.
    pub fn key_of_any_region(&self, database: u32, name: &[u8]) -> Option<Key> {
        if self.store.is_replicated() && !self.region.slots().contains(&slot(name)) {
            let regions = self.store.regions();
            let region = regions.with_slot(slot(name))?;
            let index = region.databases().index_of(database);
            return region.is_led().then(|| Key::new(index, name));
        }
        Some(Key::new(self.index_of(database), name))
    }

    /// To be called once per row in every walk (reads of single rows count by themselves): a command that
    /// goes far must not hold up the connections that share its thread.
    #[inline]
    pub fn step(&self) -> Result<()> {
        match self.work_left.get() {
            None => Ok(()),
            Some(0) => Err(Error::TooLong),
            Some(left) => {
                self.work_left.set(Some(left - 1));
                Ok(())
            }
        }
    }

    /// Reads without being counted: for what has to be known whatever the command has done so far, and what it asks for
    /// itself.
    pub fn uncounted<T>(&self, read: impl FnOnce(&ReadTxn) -> T) -> T {
        let left = self.work_left.replace(None);
        let result = self.unasked(read);
        self.work_left.set(left);
        result
    }

    /// Reads what the command will ask for itself: that counts then.
    pub fn unasked<T>(&self, read: impl FnOnce(&ReadTxn) -> T) -> T {
        let lookups = self.lookups.get();
        let result = read(self);
        self.restore_lookups(lookups);
        result
    }

    /// Whether this transaction may take its time (and wait for the disk).
    pub fn is_patient(&self) -> bool {
        self.work_left.get().is_none()
    }

    #[inline]
    pub fn row(&self, family: Family, key: &[u8]) -> Result<Option<Row<'_>>> {
        self.step()?;
        if let Some(pending) = self.batch.get(family, key) {
            return Ok(pending.map(Row::Pending));
        }
        let engine = self.store.engine();
        let stored = if self.is_quiet {
            engine.get_quietly(family, key)
        } else {
            engine.read(family, key, self.reading)
        };
        Ok(stored?.map(Row::Stored))
    }

    /// Whether the rows it asks for are not to be kept in memory.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// The row, if it is in memory; the disk is not asked.
    pub(crate) fn row_in_memory(&self, family: Family, key: &[u8]) -> Option<Row<'_>> {
        match self.batch.get(family, key) {
            Some(pending) => pending.map(Row::Pending),
            None => {
                let kept = self.store.engine().get_in_memory(family, key)??;
                Some(Row::Stored(Value::Kept(kept)))
            }
        }
    }

    /// What was lately read of lists. A transaction that has changed elements, or reads a replica of what another node leads,
    /// must neither rely on it nor add to it.
    pub(crate) fn excerpts(&self) -> Option<&Excerpts> {
        let is_all_committed = !self.batch.has_changes_in(Family::Data);
        (is_all_committed && self.lead.is_some()).then(|| self.store.excerpts())
    }

    /// The rows that are in memory, for those who look at many in a moment. Commits wait meanwhile.
    pub(crate) fn in_memory(&self) -> InMemory<'_> {
        InMemory {
            batch: &self.batch,
            committed: self.store.engine().in_memory(),
        }
    }

    /// A row of this transaction's own; the engine is not asked.
    pub(crate) fn pending_row(&self, family: Family, key: &[u8]) -> Option<Row<'_>> {
        self.batch.get(family, key).flatten().map(Row::Pending)
    }

    pub fn has_row(&self, family: Family, key: &[u8]) -> Result<bool> {
        Ok(self.row(family, key)?.is_some())
    }

    /// Walks the rows in `[lower, upper)`, changes of this transaction included.
    ///
    /// A walk has to put in order what was changed just now, deleted too, before it begins. If that is much, it is not
    /// for a connection's thread.
    pub fn rows(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Result<Rows> {
        self.may_walk(family, lower, upper)?;
        let engine = self.store.engine();
        Ok(engine.rows(Some(&self.batch), family, lower, upper, direction))
    }

    /// An error if a walk had better be begun on a thread of its own.
    fn may_walk(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<()> {
        let before = || self.store.engine().before_walk(family, lower, upper);
        match !self.is_patient() && before() > SHORT_WORK as usize {
            true => Err(Error::TooLong),
            false => Ok(()),
        }
    }

    /// The same as [`ReadTxn::rows`] for rows that are too many to be kept in memory.
    pub fn passing_rows(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Rows> {
        self.may_walk(family, lower, upper)?;
        let engine = self.store.engine();
        Ok(engine.passing_rows(Some(&self.batch), family, lower, upper))
    }

    /// The same for all rows of a collection that are few: see [`cairn_engine::FEW`].
    pub fn rows_of_few(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Rows {
        let engine = self.store.engine();
        engine.rows_of_few(Some(&self.batch), family, lower, upper, direction)
    }

    /// The key's metadata, whether it has expired or not.
    // By itself the compiler decides otherwise, here and in what follows, and has what was found copied from one to the
    // other.
    #[inline(always)]
    pub fn find_even_expired(&self, key: &Key) -> Result<Option<Found<'_>>> {
        // Asked first: without a latch the last old string may be moved, and its end recorded, after the
        // metadata was read.
        let may_have_legacy = self.store.may_have_legacy();
        if let Some(row) = self.row(Family::Metadata, key.metadata())? {
            return Found::of_metadata(row).map(Some);
        }
        if may_have_legacy {
            return self.find_legacy(key);
        }
        Ok(None)
    }

    #[cold]
    fn find_legacy(&self, key: &Key) -> Result<Option<Found<'_>>> {
        if let Some(row) = self.row(Family::Data, &key.legacy())? {
            return Found::of_legacy(row).map(Some);
        }
        // Without a latch it may have been moved between the two reads.
        let moved = self.row(Family::Metadata, key.metadata())?;
        moved.map(Found::of_metadata).transpose()
    }

    /// Whether a key that was found has not expired.
    pub(crate) fn is_live(&self, stamp: &Stamp) -> bool {
        !has_expired(stamp.ends_ms(), self.now_ms)
    }

    /// The key, if it exists and has not expired; for those whose question is not to be counted.
    #[inline(always)]
    pub fn peek(&self, key: &Key) -> Result<Option<Found<'_>>> {
        let found = self.find_even_expired(key)?;
        Ok(found.filter(|found| !has_expired(found.ends_ms(), self.now_ms)))
    }

    /// The key, if it exists and has not expired.
    #[inline(always)]
    pub fn find(&self, key: &Key) -> Result<Option<Found<'_>>> {
        let found = self.peek(key)?;
        let mut lookups = self.lookups.get();
        match found {
            Some(_) => lookups.hits += 1,
            None => {
                lookups.misses += 1;
                self.note_miss(key);
            }
        }
        self.lookups.set(lookups);
        Ok(found)
    }

    #[inline]
    fn note_miss(&self, key: &Key) {
        if self.store.listeners().hear(EventClass::Missed) {
            self.missed.borrow_mut().push(key.name().into());
        }
    }

    /// Forgets what was asked for since, where a key has to be asked for again.
    pub(crate) fn restore_lookups(&self, lookups: Lookups) {
        self.lookups.set(lookups);
        self.missed.borrow_mut().truncate(lookups.misses as usize);
    }

    /// What the current command has asked for.
    pub fn lookups(&self) -> Lookups {
        self.lookups.get()
    }

    /// The key, if it exists; an error if it holds something else than `kind`.
    #[inline]
    pub fn find_kind(&self, key: &Key, kind: Type) -> Result<Option<Found<'_>>> {
        match self.find(key)? {
            Some(found) if found.kind() != kind => Err(Error::WRONG_TYPE),
            found => Ok(found),
        }
    }

    pub fn exists(&self, key: &Key) -> Result<bool> {
        Ok(self.find(key)?.is_some())
    }
}

/// What a transaction sees without asking the disk.
pub(crate) struct InMemory<'t> {
    batch: &'t Batch,
    committed: cairn_engine::InMemory<'t>,
}

impl InMemory<'_> {
    #[inline]
    pub(crate) fn row(&self, family: Family, key: &[u8]) -> Option<&[u8]> {
        match self.batch.get(family, key) {
            Some(pending) => pending,
            None => self.committed.get(family, key)?,
        }
    }
}

/// How long a handler may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// On a connection thread: [`Error::TooLong`] after some thousand rows.
    Short,
    /// On a thread of its own.
    Long,
    /// The same for nobody in particular: the rows it asks for are not kept in memory, where they would
    /// push out what clients ask for.
    Background,
}

impl Patience {
    fn work(self) -> Option<u32> {
        match self {
            Patience::Short => Some(SHORT_WORK),
            Patience::Long | Patience::Background => None,
        }
    }
}

pub struct WriteTxn {
    read: ReadTxn,
    /// What was written ahead, to be cleared away unless the commit succeeds.
    staged: Vec<StagingRow>,
    remains: Remains,
    /// What is seen outside once this is committed.
    effects: Vec<Effect>,
    /// Room for a metadata row, from one to the next.
    encoded: Vec<u8>,
    /// Of which queues something was taken that is gone from them unless the commit succeeds.
    taken: Vec<Taken>,
    /// What was counted, to be taken back unless the commit succeeds.
    counted: Vec<Counted>,
    /// How much there was of all this before the current command.
    command: Mark,
    /// The same before the current unit.
    unit: Mark,
    is_unit: bool,
    /// How much the batch held when the handler of the current command began, if others follow.
    unchanged_at: usize,
}

/// How much a transaction had gathered at a moment, beside the rows.
#[derive(Clone, Default)]
struct Mark {
    moved: Option<Vec<u64>>,
    staged: usize,
    counted: usize,
    taken: usize,
    effects: usize,
    remains: RemainsMark,
}

impl Deref for WriteTxn {
    type Target = ReadTxn;

    fn deref(&self) -> &ReadTxn {
        &self.read
    }
}

impl DerefMut for WriteTxn {
    fn deref_mut(&mut self) -> &mut ReadTxn {
        &mut self.read
    }
}

impl Drop for WriteTxn {
    fn drop(&mut self) {
        if !self.taken.is_empty() || !self.read.batch.is_empty() {
            self.read.store.queues().clear();
        }
        self.take_back_counted(0);
    }
}

impl WriteTxn {
    /// About keys of this region. No latch is held yet: what was evaluated under one commits in the term in which it was.
    pub fn new(store: Arc<Store>, region: Arc<Region>, patience: Patience) -> Self {
        let lead = region.lead();
        Self::over(ReadTxn::new(store, region, lead, patience))
    }

    /// The first of a new lead.
    pub(crate) fn led_by(store: Arc<Store>, region: Arc<Region>, lead: Arc<Lead>) -> Self {
        Self::over(ReadTxn::new(
            store,
            region,
            Some(lead),
            Patience::Background,
        ))
    }

    fn over(read: ReadTxn) -> Self {
        WriteTxn {
            read,
            staged: Vec::new(),
            remains: Remains::default(),
            effects: Vec::new(),
            encoded: Vec::new(),
            taken: Vec::new(),
            counted: Vec::new(),
            command: Mark::default(),
            unit: Mark::default(),
            is_unit: false,
            unchanged_at: 0,
        }
    }

    /// Starts a command: from here on [`WriteTxn::undo`] takes back. Time is sampled anew and the
    /// allowance for long work refilled.
    pub fn begin(&mut self, database: u32) {
        self.mark(database);
        self.sample_time();
    }

    /// The same without a look at the clock, which follows when the latches are held.
    #[inline]
    pub fn mark(&mut self, database: u32) {
        self.read.batch.savepoint();
        self.is_unit = false;
        self.start(database);
        if self.read.work_left.get().is_some() {
            self.read.work_left.set(Patience::Short.work());
        }
    }

    /// Starts several commands that can be taken back together, by [`WriteTxn::undo_unit`]: EXEC, a script.
    /// They share one moment, which is to be sampled when the latches are held, and one allowance for work.
    pub fn mark_unit(&mut self, database: u32) {
        self.mark(database);
        self.read.batch.begin_unit();
        self.unit.clone_from(&self.command);
        self.is_unit = true;
    }

    /// Starts one of them: from here on [`WriteTxn::undo`] takes back.
    pub fn mark_in_unit(&mut self, database: u32) {
        self.read.batch.savepoint_in_unit();
        self.start(database);
    }

    #[inline]
    fn start(&mut self, database: u32) {
        let command = &mut self.command;
        command.moved.clone_from(&self.read.moved);
        command.staged = self.staged.len();
        command.counted = self.counted.len();
        command.taken = self.taken.len();
        command.effects = self.effects.len();
        command.remains = self.remains.mark();
        self.read.database = database;
        self.read.reading = Reading::Use;
        self.read.lookups.set(Lookups::default());
        self.read.missed.get_mut().clear();
    }

    /// What the command that was just started reads keys for.
    #[inline]
    pub fn set_reading(&mut self, reading: Reading) {
        self.read.reading = reading;
    }

    /// To be called when the latches are held: a key that others have seen expire by then must not be seen
    /// alive, and kept alive, with an earlier time.
    #[inline]
    pub fn sample_time(&mut self) {
        self.read.now_ms = self.read.store.clock().now_ms();
    }

    /// The same for those who have just asked a clock. What others have seen expire meanwhile has expired here too:
    /// the time is never before one that anybody was told.
    #[inline]
    pub fn set_time(&mut self, time: Time) {
        self.read.now_ms = match time {
            Time::At(moment) => self.read.store.clock().ms_at(moment),
            Time::Leaders(ms) => ms,
            Time::BeforeExpiry => BEFORE_EXPIRY,
        };
    }

    /// Takes back what the current command changed.
    pub fn undo(&mut self) {
        self.read.batch.rollback();
        let mark = std::mem::take(&mut self.command);
        self.undo_to(&mark);
        self.command = mark;
    }

    /// Takes back what the commands of the current unit changed.
    pub fn undo_unit(&mut self) {
        self.read.batch.rollback_unit();
        let mark = std::mem::take(&mut self.unit);
        self.undo_to(&mark);
    }

    fn undo_to(&mut self, mark: &Mark) {
        self.read.moved.clone_from(&mark.moved);
        self.staged.truncate(mark.staged);
        self.take_back_counted(mark.counted);
        let taken = self.taken.drain(mark.taken.min(self.taken.len())..);
        self.read.store.queues().forget_taken(taken);
        self.effects.truncate(mark.effects);
        self.remains.undo(mark.remains);
    }

    /// Commits what the current command has done so far, if nothing will take it back: on a thread of its own, and not in
    /// a unit. The latches stay held, so that nobody sees it without the rest; but a crash may leave it so, and it has
    /// to make sense by itself.
    pub(crate) fn commit_ahead(&mut self) -> Result<()> {
        if self.is_patient() && !self.is_unit {
            let store = self.read.store.clone();
            store.commit_blocking(self)?;
            self.mark(self.read.database);
        }
        Ok(())
    }

    /// Has something seen outside once this is committed.
    pub fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Whether others follow, and are told of every change.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.read.store.listeners().are_followed()
    }

    /// Has followers do this in the selected database: a request as it goes over the wire, or nothing at all.
    pub fn propagate(&mut self, request: Vec<u8>) {
        let database = self.read.database;
        self.effects.push(Effect::Propagated { database, request });
    }

    /// Whether the current command has said what followers are to do.
    pub fn has_propagated(&self) -> bool {
        let mut effects = self.effects[self.command.effects..].iter();
        effects.any(|effect| matches!(effect, Effect::Propagated { .. }))
    }

    /// Whatever the current command has said, followers are to do nothing.
    pub fn take_back_propagated(&mut self) {
        let behind = self.effects.split_off(self.command.effects);
        let is_kept = |effect: &Effect| !matches!(effect, Effect::Propagated { .. });
        self.effects.extend(behind.into_iter().filter(is_kept));
    }

    /// Has followers do at once, or not at all, what they were told since the last time.
    pub fn propagate_together(&mut self) {
        if !matches!(self.effects.last(), None | Some(Effect::Together)) {
            self.effects.push(Effect::Together);
        }
    }

    /// To be called before a handler runs: what is changed from here on is its doing.
    pub fn note_unchanged(&mut self) {
        self.unchanged_at = self.read.batch.bytes();
    }

    /// Whether the current command has changed anything since.
    pub fn has_changed(&self) -> bool {
        self.read.batch.has_changed_since(self.unchanged_at)
            || self.read.moved != self.command.moved
    }

    /// What the current command has shown last, if anything.
    pub fn last_effect(&mut self) -> Option<&mut Effect> {
        self.effects[self.command.effects..].last_mut()
    }

    /// Has those told who listen for such events, once this is committed.
    #[inline]
    pub fn notify(&mut self, class: EventClass, event: &'static str, name: &[u8]) {
        if self.read.store.listeners().hear(class) {
            self.notify_in(self.read.database, class, event, name);
        }
    }

    /// A key has come to be.
    #[inline]
    pub(crate) fn notify_new(&mut self, key: &Key) {
        if self.read.store.listeners().hear(EventClass::New) {
            self.notify_of(EventClass::New, "new", key);
        }
    }

    /// The same as [`WriteTxn::notify`] about a key whose database is known by its index.
    #[cold]
    pub(crate) fn notify_of(&mut self, class: EventClass, event: &'static str, key: &Key) {
        if let Some(database) = self.database_of(key) {
            self.notify_in(database, class, event, key.name());
        }
    }

    /// The number of the database that the key is in; none if that is gone.
    pub(crate) fn database_of(&self, key: &Key) -> Option<u32> {
        let databases = self.databases_now();
        let database = databases.iter().position(|index| *index == key.index());
        database.map(|database| database as u32)
    }

    /// Deletes a key that has expired, and tells of that, as whoever writes to it is about to find nothing.
    pub fn bury(&mut self, name: &[u8]) -> Result<()> {
        let key = self.key(name);
        let now_ms = self.now_ms();
        if let Some(stamp) = self.expired(&key)? {
            self.remove(&key, &stamp);
            self.propagate_expiry(name);
            if has_expired(stamp.expire_ms, now_ms) {
                self.notify(EventClass::Expired, "expired", name);
            } else {
                self.notify(EventClass::Hash, "hexpired", name);
                self.notify(EventClass::Generic, "del", name);
            }
        }
        Ok(())
    }

    /// What a key was that has expired, and is still there.
    fn expired(&self, key: &Key) -> Result<Option<Stamp>> {
        let now_ms = self.now_ms();
        let found = self.find_even_expired(key)?;
        let expired = found.filter(|found| has_expired(found.ends_ms(), now_ms));
        Ok(expired.map(|found| found.stamp()))
    }

    /// Tells followers, who hide nothing from what they are told to do, if a key that is about to be read has expired. It stays where
    /// it is, since its latch is shared; whoever deletes it tells them again.
    pub fn propagate_if_expired(&mut self, name: &[u8]) -> Result<()> {
        if self.expired(&self.key(name))?.is_some() {
            self.propagate_expiry(name);
        }
        Ok(())
    }

    fn propagate_expiry(&mut self, name: &[u8]) {
        if self.is_followed() {
            let (database, key) = (self.read.database, name.into());
            self.add_effect(Effect::Expired { database, key });
        }
    }

    /// Tells of the keys that the current command has read and that are not there. True if somebody listens.
    pub fn notify_of_misses(&mut self) -> bool {
        let missed = self.read.missed.take();
        for name in &missed {
            self.notify(EventClass::Missed, "keymiss", name);
        }
        !missed.is_empty()
    }

    /// The same about a key of any database.
    #[cold]
    pub fn notify_in(
        &mut self,
        database: u32,
        class: EventClass,
        event: &'static str,
        name: &[u8],
    ) {
        if self.read.store.listeners().hear(class) {
            self.effects.push(Effect::Event {
                class,
                name: event,
                database,
                key: name.into(),
            });
        }
    }

    /// The keys that the current command, or unit, has changed, some more than once.
    pub fn changed_keys(&self) -> impl Iterator<Item = ChangedKey<'_>> {
        let rows = self.read.batch.changed();
        rows.filter_map(|(family, row)| match family {
            Family::Metadata | Family::Data | Family::ZsetScore => {
                let key = RowKey::decode_metadata(row::metadata_key_of(row).ok()?).ok()?;
                let (index, name) = key.index_and_key();
                Some(ChangedKey {
                    index,
                    name,
                    is_metadata: family == Family::Metadata,
                })
            }
            _ => None,
        })
    }

    /// Where the databases were before the current command, or unit, if it moved them.
    pub fn databases_before(&self) -> Option<Vec<u64>> {
        let mark = if self.is_unit {
            &self.unit
        } else {
            &self.command
        };
        if self.read.moved == mark.moved {
            return None;
        }
        let before = mark.moved.clone();
        Some(before.unwrap_or_else(|| self.read.region.databases().all()))
    }

    /// Something was taken from what is popped next of a key: see [`crate::queues`].
    pub(crate) fn note_taken(&mut self, key: &Key) {
        let taken = Taken::from_queue_of(key);
        // What an earlier command took is not taken back with this one.
        let is_noted = self.taken.len() > self.command.taken && self.taken.last() == Some(&taken);
        if !is_noted {
            self.taken.push(taken);
        }
    }

    /// Whether the current command, or unit, has changed a row: that may be undone.
    pub(crate) fn has_changed_rows(&self) -> bool {
        self.read.batch.changed().next().is_some()
    }

    /// Remembers a change of a directory: see [`crate::ranks`].
    pub(crate) fn keep_counted(&mut self, counted: Counted) {
        self.counted.push(counted);
    }

    fn take_back_counted(&mut self, up_to: usize) {
        while self.counted.len() > up_to
            && let Some(counted) = self.counted.pop()
        {
            self.read.store.ranks().take_back(counted);
        }
    }

    #[inline]
    pub fn pending(&self) -> &Batch {
        &self.read.batch
    }

    /// Whether there is nothing to commit, and nothing to be seen.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.read.batch.is_empty() && self.effects.is_empty()
    }

    /// Commits the changes. With what follows from them taken out, the transaction is as new.
    pub(crate) fn propose(&mut self) -> Commit {
        self.taken.clear();
        self.counted.clear();
        let ReadTxn {
            batch,
            lead,
            is_quiet,
            ..
        } = &mut self.read;
        if *is_quiet {
            batch.be_no_use();
        }
        let commit = match lead {
            _ if batch.is_empty() => Commit::Done(Ok(())),
            Some(lead) => lead.commit(batch),
            None => Commit::Done(Err(EngineError::NotLeading)),
        };
        batch.begin_again();
        commit
    }

    /// To be where they are when the commit has succeeded.
    pub(crate) fn take_moved(&mut self) -> Option<Vec<u64>> {
        self.read.moved.take()
    }

    /// To be told when the commit has succeeded; they clear away after themselves if it does not.
    pub(crate) fn take_staged(&mut self) -> Vec<StagingRow> {
        std::mem::take(&mut self.staged)
    }

    /// To be shown when the commit has succeeded.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// To be told to the reclaimer when the commit has succeeded.
    pub(crate) fn take_remains(&mut self) -> Remains {
        std::mem::take(&mut self.remains)
    }

    /// What is dead once this is committed.
    pub(crate) fn remains(&mut self) -> &mut Remains {
        &mut self.remains
    }

    pub(crate) fn keep_staged(&mut self, staged: StagingRow) {
        self.staged.push(staged);
    }

    #[inline]
    pub fn put(&mut self, family: Family, key: &[u8], value: impl AsRef<[u8]>) {
        if family == Family::Metadata {
            self.read.region.databases().note_written(key);
        }
        self.read.batch.put(family, key, value);
    }

    /// Puts a row of a collection that is certainly not there, neither in what is committed nor in this transaction.
    pub fn put_new(&mut self, family: Family, key: &[u8], value: impl AsRef<[u8]>) {
        self.read.batch.put_new(family, key, value);
    }

    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.read.batch.delete(family, key);
    }

    pub fn next_version(&self) -> u64 {
        self.read.store.clock().next_version()
    }

    /// Writes a key's metadata, and moves its expiry row if `before` (the expiry it had) differs.
    pub fn put_metadata(&mut self, key: &Key, metadata: &Metadata<'_>, before: u64) {
        if before != metadata.expire_ms {
            if before != 0 {
                self.delete(Family::Expiry, &key.expiry(before));
            }
            if metadata.expire_ms != 0 {
                self.put(Family::Expiry, &key.expiry(metadata.expire_ms), []);
            }
        }
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        metadata.encode_into(&mut encoded);
        self.put(Family::Metadata, key.metadata(), &encoded);
        self.encoded = encoded;
        self.forget_legacy(key);
    }

    /// Moves the row that says when the first field of a hash expires; `before` and `after` are that time, and the
    /// version.
    pub(crate) fn move_fields_expiry(
        &mut self,
        key: &Key,
        before: Option<(u64, u64)>,
        after: Option<(u64, u64)>,
    ) {
        if before == after {
            return;
        }
        if let Some((at_ms, version)) = before {
            self.delete(Family::Expiry, &key.fields_expiry(at_ms, version));
        }
        if let Some((at_ms, version)) = after {
            self.put(Family::Expiry, &key.fields_expiry(at_ms, version), []);
        }
    }

    /// A key that is written in the new form must not come back in the old one.
    fn forget_legacy(&mut self, key: &Key) {
        if self.read.store.may_have_legacy() {
            self.delete(Family::Data, &key.legacy());
        }
    }

    /// Deletes the key: its metadata row, and whatever says when it expires. The rows of a collection
    /// are dead from now on, and reclaimed later.
    pub fn remove(&mut self, key: &Key, stamp: &Stamp) {
        self.remains.add(key, stamp.shape);
        if stamp.is_legacy {
            self.delete(Family::Data, &key.legacy());
        } else {
            self.remove_metadata(key, stamp.expire_ms);
            self.move_fields_expiry(key, stamp.fields_expiry(), None);
        }
    }

    /// Deletes a key of the new form whose expiry is known.
    pub(crate) fn remove_metadata(&mut self, key: &Key, expire_ms: u64) {
        if expire_ms != 0 {
            self.delete(Family::Expiry, &key.expiry(expire_ms));
        }
        self.delete(Family::Metadata, key.metadata());
        self.forget_legacy(key);
    }

    /// From here on, for this transaction and after its commit for all, the databases are these.
    pub(crate) fn move_databases(&mut self, indexes: Vec<u64>) {
        self.read.moved = Some(indexes);
    }

    /// The index of each database, as this transaction sees it.
    pub fn databases_now(&self) -> Vec<u64> {
        match &self.read.moved {
            Some(moved) => moved.clone(),
            None => self.read.region.databases().all(),
        }
    }
}
