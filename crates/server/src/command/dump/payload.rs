//! The value of a key as a payload: in the form that Redis would choose, with the same limits, so that it says the
//! same of it when it has restored it.

mod stream;

use cairn_rdb::{Dump, Listpack};
use cairn_resp::number;
use cairn_store::{
    CollectionKind, Direction, Error, Found, Hash, List, ReadTxn, Result, Set, Shape, Str, Zset,
};

use crate::config::{ENCODINGS, Small};

/// More than this is not written on a connection's thread.
const SHORT: usize = 1024 * 1024;
/// The same in elements, for which no walk is begun there.
const FEW: u64 = 10_000;

/// The payload of a key, unless there is none; it may have so many bytes.
pub fn of_key(txn: &ReadTxn, name: &[u8], most: usize) -> Result<Option<Vec<u8>>> {
    let Some(shape) = txn.find(&txn.key(name))?.map(|Found { shape, .. }| shape) else {
        return Ok(None);
    };
    if elements_of(shape) > FEW && !txn.is_patient() {
        return Err(Error::TooLong);
    }
    let writing = Writing { txn, name, most };
    let dump = match shape {
        Shape::Inline { .. } | Shape::Chunked { .. } => writing.string()?,
        Shape::List { .. } => writing.list()?,
        Shape::Stream { .. } => stream::dump(&writing)?,
        Shape::Collection { kind, .. } => match kind {
            CollectionKind::Hash => match writing.hash()? {
                Some(dump) => dump,
                None => return Ok(None),
            },
            CollectionKind::Set => writing.set()?,
            CollectionKind::ZSet => writing.zset()?,
        },
    };
    writing.check(dump.size())?;
    Ok(Some(dump.seal()))
}

fn elements_of(shape: Shape) -> u64 {
    match shape {
        Shape::Inline { .. } | Shape::Chunked { .. } => 1,
        Shape::Collection { size, .. } | Shape::List { size, .. } | Shape::Stream { size, .. } => {
            size
        }
    }
}

struct Writing<'t> {
    txn: &'t ReadTxn,
    name: &'t [u8],
    most: usize,
}

impl Writing<'_> {
    /// To be asked as the payload grows.
    fn check(&self, size: usize) -> Result<()> {
        if size > self.most {
            return Err(Error::fixed(
                "ERR the value takes more bytes than proto-max-bulk-len allows",
            ));
        }
        if size > SHORT && !self.txn.is_patient() {
            return Err(Error::TooLong);
        }
        Ok(())
    }

    fn string(&self) -> Result<Dump> {
        let string = self.txn.unasked(|_| Str::find(self.txn, self.name))?;
        let string = string.ok_or(Error::NO_SUCH_KEY)?;
        if let Some(value) = string.inline() {
            return Ok(Dump::string(value));
        }
        if string.len() > SHORT as u64 && !self.txn.is_patient() {
            return Err(Error::TooLong);
        }
        Ok(Dump::string(&string.to_vec(self.txn)?))
    }

    fn list(&self) -> Result<Dump> {
        let list = List::open(self.txn, self.name)?;
        let mut rows = list.rows(self.txn, 0..list.len(), Direction::Forward)?;
        let mut nodes = Dump::list();
        while let Some((_, element)) = rows.next()? {
            self.txn.step()?;
            nodes.push(element);
            self.check(nodes.size())?;
        }
        Ok(Dump::of_list(nodes))
    }

    /// Nothing if all of its fields are due.
    fn hash(&self) -> Result<Option<Dump>> {
        let hash = Hash::open(self.txn, self.name)?;
        let small = ENCODINGS.small_hash();
        let size = hash.len(self.txn)?;
        if size == 0 {
            return Ok(None);
        }
        if let Some(first_ms) = hash.first_expiry(self.txn)? {
            return self.expiring_hash(&hash, size, first_ms).map(Some);
        }
        if size <= small.entries
            && let Some(fields) = self.small_hash(&hash, small)?
        {
            return Ok(Some(Dump::small_hash(fields)));
        }
        let mut dump = Dump::hash(size);
        let mut rows = hash.rows(self.txn)?;
        while let Some(row) = rows.next()? {
            self.txn.step()?;
            if row.is_due {
                continue;
            }
            dump.part(hash.field_of(row.row_key));
            dump.part(row.value);
            self.check(dump.size())?;
        }
        Ok(Some(dump))
    }

    /// In the form of Redis 7.4: that of 7.0 has none.
    fn expiring_hash(&self, hash: &Hash, size: u64, first_ms: u64) -> Result<Dump> {
        let mut dump = Dump::expiring_hash(size, first_ms);
        let mut rows = hash.rows_with_times(self.txn)?;
        while let Some(row) = rows.next()? {
            self.txn.step()?;
            if row.is_due {
                continue;
            }
            dump.time(first_ms, row.expire_ms);
            dump.part(hash.field_of(row.row_key));
            dump.part(row.value);
            self.check(dump.size())?;
        }
        Ok(dump)
    }

    /// Nothing if it turns out not to be small.
    fn small_hash(&self, hash: &Hash, small: Small) -> Result<Option<Listpack>> {
        let mut fields = Listpack::default();
        let mut rows = hash.rows(self.txn)?;
        while let Some(row) = rows.next()? {
            self.txn.step()?;
            if row.is_due {
                continue;
            }
            let field = hash.field_of(row.row_key);
            if !small.takes(field) || !small.takes(row.value) {
                return Ok(None);
            }
            fields.push(field);
            fields.push(row.value);
            self.check(fields.size())?;
        }
        Ok(Some(fields))
    }

    fn set(&self) -> Result<Dump> {
        let set = Set::open(self.txn, self.name)?;
        if set.len() <= ENCODINGS.intset_entries()
            && let Some(numbers) = self.set_of_numbers(&set)?
        {
            return Ok(Dump::small_set(&numbers));
        }
        let mut dump = Dump::set(set.len());
        let mut rows = set.rows(self.txn)?;
        while let Some((row_key, _)) = rows.next()? {
            self.txn.step()?;
            dump.part(set.member_of(row_key));
            self.check(dump.size())?;
        }
        Ok(dump)
    }

    /// The members in the order of numbers, if all are numbers.
    fn set_of_numbers(&self, set: &Set) -> Result<Option<Vec<i64>>> {
        let mut numbers = Vec::new();
        let mut rows = set.rows(self.txn)?;
        while let Some((row_key, _)) = rows.next()? {
            self.txn.step()?;
            match number::parse_i64(set.member_of(row_key)) {
                Some(number) => numbers.push(number),
                None => return Ok(None),
            }
        }
        numbers.sort_unstable();
        Ok(Some(numbers))
    }

    fn zset(&self) -> Result<Dump> {
        let zset = Zset::open(self.txn, self.name)?;
        let small = ENCODINGS.small_zset();
        if zset.len() <= small.entries
            && let Some(members) = self.small_zset(&zset, small)?
        {
            return Ok(Dump::small_zset(members));
        }
        let mut dump = Dump::zset(zset.len());
        // Redis loads a sorted set fastest from its end.
        let mut rows = zset.rows(self.txn, &zset.whole(), Direction::Backward)?;
        let read = zset.score_rows();
        while let Some((row_key, _)) = rows.next()? {
            self.txn.step()?;
            dump.part(read.member(row_key));
            dump.score(read.score(row_key));
            self.check(dump.size())?;
        }
        Ok(dump)
    }

    fn small_zset(&self, zset: &Zset, small: Small) -> Result<Option<Listpack>> {
        let mut members = Listpack::default();
        let mut rows = zset.rows(self.txn, &zset.whole(), Direction::Forward)?;
        let read = zset.score_rows();
        let mut score = Vec::new();
        while let Some((row_key, _)) = rows.next()? {
            self.txn.step()?;
            let member = read.member(row_key);
            if !small.takes(member) {
                return Ok(None);
            }
            members.push(member);
            score.clear();
            number::format_double(read.score(row_key), &mut score);
            members.push(&score);
            self.check(members.size())?;
        }
        Ok(Some(members))
    }
}
