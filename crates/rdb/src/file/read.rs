//! Reading a file whose bytes come piece by piece.

use std::fmt;
use std::ops::Range;

use super::{
    DATABASE, END, EXPIRES_MS, EXPIRES_SECONDS, HEAD, IDLE, LIBRARY, LIBRARY_BEFORE_7, MAGIC,
    MODULE, REMARK, SIZES, USES,
};
use crate::crc64::Sum;
use crate::kind::{Form, Kind};
use crate::read::{Item, NAMES_AT_ONCE, Reading};
use crate::unique::Unique;
use crate::unit::{Unit, measure};
use crate::{Corrupt, Input};

/// That of Redis 7.4.
const LATEST: u32 = 12;
/// The first that ends with a checksum.
const SUMMED: u32 = 5;
/// Types of values that only modules understand.
const MODULE_VALUES: [u8; 2] = [6, 7];

/// What a file says, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// A name and a value.
    Remark(&'a [u8], &'a [u8]),
    /// The code of a library of functions.
    Library(&'a [u8]),
    /// The keys that follow are in this database.
    Database(u64),
    /// How many keys it has, and how many of them expire: a hint.
    Sizes(u64, u64),
    /// A key, whose value follows; it expires then, unless it is zero.
    Key {
        name: &'a [u8],
        kind: Kind,
        expire_ms: u64,
    },
    /// A part of the last key's value.
    Item(Item<'a>),
    /// The last key's value is whole. If it had no part the key is none; Redis, too, passes it over.
    KeyEnd,
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs more bytes.
    Short,
    /// The file is at its end, and its checksum was right.
    Done,
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not begin as one.
    Foreign,
    /// It is of a later version than this reader knows.
    Version(u32),
    /// It ends too early.
    Cut,
    /// Something in it makes no sense.
    Corrupt,
    /// The same member, field or group is there twice.
    Twice,
    /// Its bytes are not those that were written.
    Checksum,
    /// It holds what only a module understands.
    Module,
    /// It holds a value of a type that there is not.
    Type(u8),
}

/// What is wrong with a file, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub damage: Damage,
    /// So many bytes from the beginning.
    pub at: u64,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.damage {
            Damage::Foreign => write!(f, "this is no RDB file"),
            Damage::Version(version) => write!(
                f,
                "the RDB file is of version {version}, and versions up to {LATEST} are known"
            ),
            Damage::Cut => write!(f, "the RDB file was cut off after {} bytes", self.at),
            Damage::Corrupt => write!(f, "the RDB file is damaged at byte {}", self.at),
            Damage::Twice => write!(
                f,
                "the RDB file is damaged: a collection that ends at byte {} has something twice",
                self.at
            ),
            Damage::Checksum => write!(f, "the checksum of the RDB file is wrong"),
            Damage::Module => write!(
                f,
                "the RDB file holds data of a module at byte {}: modules are not supported",
                self.at
            ),
            Damage::Type(kind) => write!(
                f,
                "the RDB file holds a value of the unknown type {kind} at byte {}",
                self.at
            ),
        }
    }
}

impl std::error::Error for Damaged {}

/// What comes next.
enum State {
    Head,
    /// The byte that says what follows, and that.
    Part,
    Value(Value),
    Checksum,
    Done,
}

/// A value of which perhaps not all has come yet.
struct Value {
    reading: Reading,
    /// To find what is there twice; none where that cannot be, or where there are too many.
    names: Option<Unique>,
}

/// What takes bytes in as they come, and shows what they say.
pub struct Reader {
    bytes: Vec<u8>,
    /// How many of them have been read.
    read: usize,
    /// How many have been read that are not there any more.
    gone: u64,
    sum: Sum,
    version: u32,
    state: State,
    /// When the next key expires.
    expire_ms: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            bytes: Vec::new(),
            read: 0,
            gone: 0,
            sum: Sum::default(),
            version: 0,
            state: State::Head,
            expire_ms: 0,
        }
    }
}

impl Reader {
    /// Takes the next bytes of the file in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.gone += self.read as u64;
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// What was pushed and has not been read: behind the end of the file, what does not belong to it.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// How many bytes of the file have been read.
    pub fn position(&self) -> u64 {
        self.gone + self.read as u64
    }

    /// What is wrong if no more bytes come, although the file was not at its end.
    pub fn cut(&self) -> Damaged {
        Damaged {
            damage: Damage::Cut,
            at: self.gone + self.bytes.len() as u64,
        }
    }

    /// Shows all that is whole, until the bytes or the file are at their end, or `visit` fails.
    pub fn read<E: From<Damaged>>(
        &mut self,
        visit: &mut dyn FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<Progress, E> {
        loop {
            let goes_on = match &self.state {
                State::Head => self.read_head()?,
                State::Part => self.read_part(visit)?,
                State::Value(_) => self.read_value(visit)?,
                State::Checksum => self.read_checksum()?,
                State::Done => return Ok(Progress::Done),
            };
            if !goes_on {
                return Ok(Progress::Short);
            }
        }
    }

    fn damaged(&self, damage: Damage) -> Damaged {
        Damaged {
            damage,
            at: self.position(),
        }
    }

    /// Takes these units, if all of them are there.
    fn take(&mut self, units: &[Unit]) -> Result<Option<Range<usize>>, Damaged> {
        let length = measure(&self.bytes[self.read..], units);
        let Some(length) = length.map_err(|Corrupt| self.damaged(Damage::Corrupt))? else {
            return Ok(None);
        };
        let taken = self.read..self.read + length;
        self.sum.add(&self.bytes[taken.clone()]);
        self.read = taken.end;
        Ok(Some(taken))
    }

    /// Whether a file that begins like this can be read, as far as that can be told from its first nine bytes.
    pub fn check_head(head: &[u8]) -> Result<(), Damaged> {
        let mut reader = Reader::default();
        reader.push(head);
        reader.read_head().map(drop)
    }

    fn read_head(&mut self) -> Result<bool, Damaged> {
        let foreign = self.damaged(Damage::Foreign);
        let begin = self.rest().len().min(MAGIC.len());
        if self.rest()[..begin] != MAGIC[..begin] {
            return Err(foreign);
        }
        let Some(taken) = self.take(&[Unit::Bytes(HEAD)])? else {
            return Ok(false);
        };
        let digits = &self.bytes[taken][MAGIC.len()..];
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(foreign);
        }
        self.version = digits
            .iter()
            .fold(0, |version, digit| version * 10 + u32::from(digit - b'0'));
        if !(1..=LATEST).contains(&self.version) {
            return Err(self.damaged(Damage::Version(self.version)));
        }
        self.state = State::Part;
        Ok(true)
    }

    /// What stands between keys, and the beginning of a key.
    fn read_part<E: From<Damaged>>(
        &mut self,
        visit: &mut dyn FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(&first) = self.rest().first() else {
            return Ok(false);
        };
        let start = self.position();
        let units = self.units_of(first)?;
        let Some(taken) = self.take(&units)? else {
            return Ok(false);
        };
        let mut input = Input(&self.bytes[taken][1..]);
        let corrupt = |Corrupt| Damaged {
            damage: Damage::Corrupt,
            at: start,
        };
        match first {
            REMARK => {
                let name = input.string().map_err(corrupt)?;
                let value = input.string().map_err(corrupt)?;
                visit(Part::Remark(&name, &value))?;
            }
            LIBRARY => visit(Part::Library(&input.string().map_err(corrupt)?))?,
            LIBRARY_BEFORE_7 => {
                visit(Part::Library(&old_library(&mut input).map_err(corrupt)?))?;
            }
            DATABASE => visit(Part::Database(input.length().map_err(corrupt)?))?,
            SIZES => {
                let keys = input.length().map_err(corrupt)?;
                visit(Part::Sizes(keys, input.length().map_err(corrupt)?))?;
            }
            EXPIRES_MS => self.expire_ms = u64::from_le_bytes(input.fixed().map_err(corrupt)?),
            EXPIRES_SECONDS => {
                let seconds = u32::from_le_bytes(input.fixed().map_err(corrupt)?);
                self.expire_ms = u64::from(seconds) * 1000;
            }
            IDLE | USES => {}
            END => self.state = State::Checksum,
            form => {
                let unknown = Damaged {
                    damage: Damage::Type(form),
                    at: start,
                };
                let form = Form::of(form).ok_or(unknown)?;
                let expire_ms = std::mem::take(&mut self.expire_ms);
                let name = input.string().map_err(corrupt)?;
                visit(Part::Key {
                    name: &name,
                    kind: form.kind(),
                    expire_ms,
                })?;
                self.state = State::Value(Value::new(form));
            }
        }
        Ok(true)
    }

    /// What has to be there of a part that begins with this byte.
    fn units_of(&self, first: u8) -> Result<Vec<Unit>, Damaged> {
        use Unit::{Bytes, Length, String};
        Ok(match first {
            REMARK => vec![Bytes(1), String, String],
            LIBRARY => vec![Bytes(1), String],
            DATABASE | IDLE => vec![Bytes(1), Length],
            SIZES => vec![Bytes(1), Length, Length],
            EXPIRES_MS => vec![Bytes(1 + 8)],
            EXPIRES_SECONDS => vec![Bytes(1 + 4)],
            USES => vec![Bytes(1 + 1)],
            END => vec![Bytes(1)],
            MODULE => return Err(self.damaged(Damage::Module)),
            LIBRARY_BEFORE_7 => {
                // A number tells whether there is a description between it and the code.
                let head = vec![Bytes(1), String, String, Length];
                let length = measure(self.rest(), &head);
                let length = length.map_err(|Corrupt| self.damaged(Damage::Corrupt))?;
                let is_described = length.is_some_and(|length| self.rest()[length - 1] != 0);
                [&head[..], &[String], &[String][..usize::from(is_described)]].concat()
            }
            form if Form::of(form).is_some() => vec![Bytes(1), String],
            form if MODULE_VALUES.contains(&form) => return Err(self.damaged(Damage::Module)),
            form => return Err(self.damaged(Damage::Type(form))),
        })
    }

    fn read_value<E: From<Damaged>>(
        &mut self,
        visit: &mut dyn FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        loop {
            let State::Value(value) = &self.state else {
                return Ok(true);
            };
            if value.reading.is_done() {
                self.end_value()?;
                visit(Part::KeyEnd)?;
                return Ok(true);
            }
            let start = self.position();
            let Some(taken) = self.take(value.reading.needs())? else {
                return Ok(false);
            };
            let State::Value(value) = &mut self.state else {
                return Ok(true);
            };
            let input = &mut Input(&self.bytes[taken]);
            let names = &mut value.names;
            let step = value.reading.step(input, &mut |item| {
                names.take_if(|names| item.name().is_some_and(|name| !names.add(name)));
                visit(Part::Item(item)).map_err(Stopped::Outside)
            });
            match step {
                // What is left over is no part of the value that it was taken for.
                Ok(()) if input.is_empty() => {}
                Ok(()) | Err(Stopped::Corrupt) => {
                    let damage = Damage::Corrupt;
                    return Err(Damaged { damage, at: start }.into());
                }
                Err(Stopped::Outside(error)) => return Err(error),
            }
        }
    }

    fn end_value(&mut self) -> Result<(), Damaged> {
        let state = std::mem::replace(&mut self.state, State::Part);
        let State::Value(value) = state else {
            return Ok(());
        };
        match value.names.and_then(Unique::suspects) {
            // By chance alone two of millions of names have the same hash once in a million files.
            Some(_) => Err(self.damaged(Damage::Twice)),
            None => Ok(()),
        }
    }

    fn read_checksum(&mut self) -> Result<bool, Damaged> {
        if self.version >= SUMMED {
            let sum = self.sum;
            let Some(taken) = self.take(&[Unit::Bytes(8)])? else {
                return Ok(false);
            };
            let told = &self.bytes[taken];
            if told != [0; 8] && told != sum.value().to_le_bytes() {
                return Err(self.damaged(Damage::Checksum));
            }
        }
        self.state = State::Done;
        Ok(true)
    }
}

impl Value {
    fn new(form: Form) -> Value {
        // Numbers that rise are all different.
        let has_names =
            matches!(form.kind(), Kind::Set | Kind::Zset | Kind::Hash) && form != Form::SetIntset;
        Value {
            reading: Reading::new(form),
            names: has_names.then(|| Unique::of_all(NAMES_AT_ONCE)),
        }
    }
}

/// Name, engine, description or not, and code. Redis 7.0 has all but the description in the code's first line.
fn old_library(input: &mut Input<'_>) -> Result<Vec<u8>, Corrupt> {
    let name = input.string()?;
    let engine = input.string()?;
    if input.length()? != 0 {
        input.string()?;
    }
    let code = input.string()?;
    Ok([b"#!", &engine[..], b" name=", &name, b"\n", &code].concat())
}

/// Why a step was not finished.
enum Stopped<E> {
    Corrupt,
    /// By whoever looks on.
    Outside(E),
}

impl<E> From<Corrupt> for Stopped<E> {
    fn from(Corrupt: Corrupt) -> Self {
        Stopped::Corrupt
    }
}
