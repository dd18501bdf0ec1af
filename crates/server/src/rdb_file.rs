//! All keys of all databases as one RDB file, of one moment, while clients go on.
//!
//! ```text
//! commits ──▶ rows ──(one moment)──▶ Image ──key by key, element by element──▶ Snapshot ──pieces──▶ a replica, a file
//! ```
//!
//! `cairn_store::Image` has the rows of the moment, and `cairn_rdb::file` knows the bytes. Here the one is turned into the
//! other, piece by piece, in memory that does not depend on how much there is. In RDB a count comes before what it counts.
//! Most are in metadata rows. Where a value has another number of pieces than of elements, and the pieces come to more than
//! [`SMALL`], they are not gathered: a list is written in the older form that counts elements, and the nodes of a stream
//! are counted first, by going through it twice.
//!
//! The file is for Redis 7.0, to which fields of hashes that expire are unknown: they are written without their time, unless
//! [`Preparation::for_version`] says that a later Redis will read it.

mod stream;
mod value;

use std::borrow::Cow;

use cairn_engine::Memory;
use cairn_rdb::Sum;
use cairn_rdb::file::{self, Version};
use cairn_store::image::Pictured;
use cairn_store::{Image, KeyCount, Patience, Result, WriteTxn, count_keys};

use crate::info::REDIS_VERSION;
use crate::server::{Server, unix_seconds};

/// About how many bytes are appended at a time. A single element may be longer.
const PIECE: usize = 64 * 1024;
/// And how many elements are looked at: some have to be counted before anything can be written.
const STEPS: usize = 16 * 1024;
/// What a value may come to that is put together in memory.
const SMALL: usize = 64 * 1024;

/// What can be done for a snapshot before its moment, so that others are held up for a shorter time.
pub struct Preparation {
    version: Version,
    /// By the number of the database, as far as that could be found out quickly.
    sizes: Vec<Option<KeyCount>>,
}

impl Default for Preparation {
    fn default() -> Self {
        Preparation {
            version: Version::Redis70,
            sizes: Vec::new(),
        }
    }
}

impl Preparation {
    /// May take long, and is not to be done while being alone.
    pub fn new(server: &Server) -> Result<Preparation> {
        Image::prepare(&server.store)?;
        let databases = 0..server.store.database_count();
        Ok(Preparation {
            sizes: databases.map(|number| size_of(server, number)).collect(),
            ..Preparation::default()
        })
    }

    /// Who is to read it.
    pub fn for_version(mut self, version: Version) -> Preparation {
        self.version = version;
        self
    }

    /// The moment is now.
    pub fn open(self, server: &Server) -> Result<Snapshot> {
        let mut image = Image::open(&server.store)?;
        if server.upstream.is_any() {
            image = image.with_expired();
        }
        Ok(Snapshot {
            image,
            preparation: self,
            sum: Sum::default(),
            database: None,
            place: Place::Head,
        })
    }
}

/// How many keys a database has, unless it takes long to find out.
fn size_of(server: &Server, number: u32) -> Option<KeyCount> {
    let store = &server.store;
    let mut txn = WriteTxn::new(store.clone(), store.home().clone(), Patience::Short);
    txn.begin(number);
    count_keys(&txn).ok()
}

/// The file under construction.
pub struct Snapshot {
    image: Image,
    preparation: Preparation,
    sum: Sum,
    /// That of the keys that were written last.
    database: Option<u32>,
    place: Place,
}

/// What is to be written next.
enum Place {
    Head,
    Keys,
    Value(value::Rest),
    End,
    Done,
}

impl Snapshot {
    /// All keys as they are now. If that shall be a particular moment, nobody else may write meanwhile.
    pub fn open(server: &Server) -> Result<Snapshot> {
        Preparation::default().open(server)
    }

    /// Appends the next piece, which may be an empty one; false if it was the last.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        let mut steps = STEPS;
        while out.len() - start < PIECE && steps > 0 && !matches!(self.place, Place::End) {
            if matches!(self.place, Place::Done) {
                return Ok(false);
            }
            self.step(out)?;
            steps -= 1;
        }
        self.sum.add(&out[start..]);
        if matches!(self.place, Place::End) {
            file::append_end(self.sum, out);
            self.place = Place::Done;
            return Ok(false);
        }
        Ok(true)
    }

    fn step(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match &mut self.place {
            Place::Head => {
                self.write_head(out);
                self.place = Place::Keys;
            }
            Place::Keys => match self.image.next()? {
                Some(key) => self.write_key(&key, out)?,
                None => self.place = Place::End,
            },
            Place::Value(rest) => {
                if !rest.write_next(&mut self.image, out)? {
                    self.place = Place::Keys;
                }
            }
            Place::End | Place::Done => {}
        }
        Ok(())
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        file::append_head(self.preparation.version, out);
        let remarks: [(&str, Cow<'_, str>); 4] = [
            ("redis-ver", REDIS_VERSION.into()),
            ("redis-bits", usize::BITS.to_string().into()),
            ("ctime", unix_seconds().to_string().into()),
            ("used-mem", Memory::now().allocated.to_string().into()),
        ];
        for (name, value) in remarks {
            file::append_remark(name.as_bytes(), value.as_bytes(), out);
        }
        for code in self.image.libraries() {
            file::append_library(code, out);
        }
    }

    fn write_key(&mut self, key: &Pictured, out: &mut Vec<u8>) -> Result<()> {
        if self.database != Some(key.database) {
            self.database = Some(key.database);
            file::append_database(key.database, out);
            let sizes = &self.preparation.sizes;
            if let Some(Some(size)) = sizes.get(key.database as usize) {
                file::append_sizes(size.keys, size.expires, out);
            }
        }
        let keeps_times = self.preparation.version == Version::Redis74;
        let rest = value::begin(&mut self.image, key, keeps_times, out)?;
        if let Some(rest) = rest {
            self.place = Place::Value(rest);
        }
        Ok(())
    }
}
