//! Arguments drawn at random: keys, members and values.
//!
//! Names come from small alphabets, so that commands meet each other's data, overwrite it and find it
//! of the wrong type. Values range from nothing to several chunks of a large string.

use fastrand::Rng;

use super::dumps::{HAND_OVER, PAYLOADS};
use super::grammar::Argv;

/// A place in a command's grammar, filled anew each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Key,
    /// A sorted set whose members mostly share one score.
    LexKey,
    /// How many keys follow, and those keys.
    Keys,
    /// One weight for each of those keys.
    Weights,
    Field,
    Member,
    Element,
    Value,
    Int,
    Float,
    Longitude,
    Latitude,
    /// How far a search reaches, in any unit.
    Radius,
    Score,
    ScoreBound,
    LexBound,
    Index,
    Offset,
    Count,
    /// How many members to pick at random; a negative number allows repetition.
    Pick,
    Ttl,
    Pttl,
    At,
    Pat,
    Pattern,
    /// Where SORT is to look for what an element stands for.
    Lookup,
    Cursor,
    Db,
    Type,
    Name,
    /// The ID of an entry.
    Id,
    /// Where a range of IDs begins or ends.
    IdBound,
    /// An ID to add an entry with.
    NewId,
    /// What a consumer asks for.
    ReadId,
    /// How a stream is trimmed.
    Trim,
    Group,
    Consumer,
    /// What RESTORE takes, or nearly so.
    Payload,
    /// A script that dumps and restores.
    Handover,
    /// A whole other command.
    Command,
}

impl Slot {
    pub fn named(name: &str) -> Option<Slot> {
        Some(match name {
            "key" => Slot::Key,
            "lexkey" => Slot::LexKey,
            "keys" => Slot::Keys,
            "weights" => Slot::Weights,
            "field" => Slot::Field,
            "member" => Slot::Member,
            "element" => Slot::Element,
            "value" => Slot::Value,
            "int" => Slot::Int,
            "float" => Slot::Float,
            "longitude" => Slot::Longitude,
            "latitude" => Slot::Latitude,
            "radius" => Slot::Radius,
            "score" => Slot::Score,
            "scorebound" => Slot::ScoreBound,
            "lexbound" => Slot::LexBound,
            "index" => Slot::Index,
            "offset" => Slot::Offset,
            "count" => Slot::Count,
            "pick" => Slot::Pick,
            "ttl" => Slot::Ttl,
            "pttl" => Slot::Pttl,
            "at" => Slot::At,
            "pat" => Slot::Pat,
            "pattern" => Slot::Pattern,
            "lookup" => Slot::Lookup,
            "cursor" => Slot::Cursor,
            "db" => Slot::Db,
            "type" => Slot::Type,
            "name" => Slot::Name,
            "id" => Slot::Id,
            "idbound" => Slot::IdBound,
            "newid" => Slot::NewId,
            "readid" => Slot::ReadId,
            "trim" => Slot::Trim,
            "group" => Slot::Group,
            "consumer" => Slot::Consumer,
            "payload" => Slot::Payload,
            "handover" => Slot::Handover,
            "command" => Slot::Command,
            _ => return None,
        })
    }
}

/// The initials of the home keys of the six types, of the sorted sets in order of name, of those of positions, and of
/// HyperLogLogs.
const INITIALS: [char; 9] = ['s', 'h', 'l', 't', 'z', 'y', 'x', 'g', 'p'];
const KEYS_PER_INITIAL: usize = 3;

/// Keys that a layout or a pattern might stumble over.
const ODD_KEYS: [&[u8]; 6] = [
    b"",
    b"\x00\xff\r\n",
    b"{z0}tag",
    b"a*b[c]?",
    "schlüssel".as_bytes(),
    &[b'k'; 300],
];

const ODD_MEMBERS: [&[u8]; 6] = [b"", b"\x00", b"\xff\xfe", b"a\r\nb", b"-5", &[b'm'; 100]];

const PATTERNS: [&str; 16] = [
    "*", "?0", "s*", "[hl]?", "[^s]*", "[a-c]*", "z[0-1]", "*0", "\\*", "**", "a\\*b*", "[", "[z",
    "m1*", "", "*ü*",
];

const LOOKUPS: [&str; 9] = [
    "s*", "s*", "h*->a", "h*->b", "h*->*", "#", "nosort", "*", "p*->",
];

/// Lengths just below, at and above what a string's chunk holds, and well beyond.
const LARGE: [usize; 9] = [
    16_383, 16_384, 16_385, 32_767, 32_768, 32_769, 49_152, 65_536, 100_000,
];

/// What the arguments of a round lean to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Plain,
    /// Collections of hundreds and thousands.
    Crowded,
    /// Strings of several chunks.
    Large,
}

pub struct Draw<'a> {
    pub rng: &'a mut Rng,
    pub mood: Mood,
    home: Option<char>,
    /// Many members are wanted at once: draw them from a large alphabet.
    pub crowded: bool,
    /// How many keys the last `<keys>` announced.
    announced: usize,
}

impl Draw<'_> {
    pub fn new(rng: &mut Rng, mood: Mood, home: Option<char>) -> Draw<'_> {
        Draw {
            rng,
            mood,
            home,
            crowded: false,
            announced: 0,
        }
    }

    pub fn chance(&mut self, of: u32, all: u32) -> bool {
        self.rng.u32(..all) < of
    }

    pub fn one_of<'t, T: ?Sized>(&mut self, choices: &[&'t T]) -> &'t T {
        choices[self.rng.usize(..choices.len())]
    }

    pub fn fill(&mut self, slot: Slot, argv: &mut Argv) {
        match slot {
            Slot::Keys => self.numbered_keys(argv),
            Slot::Weights => self.weights(argv),
            Slot::Trim => self.trim(argv),
            single => {
                let argument = self.argument(single);
                argv.push(argument);
            }
        }
    }

    fn argument(&mut self, slot: Slot) -> Vec<u8> {
        match slot {
            Slot::Key => self.key(),
            Slot::LexKey => self.key_at_home('y'),
            Slot::Field | Slot::Member => self.member(),
            Slot::Element => self.element(),
            Slot::Value => self.value(),
            Slot::Pattern => self.one_of(&PATTERNS).into(),
            Slot::Lookup => self.one_of(&LOOKUPS).into(),
            Slot::Type => self
                .one_of(&[
                    "string", "hash", "list", "set", "zset", "stream", "LIST", "x",
                ])
                .into(),
            Slot::Name => self
                .one_of(&["alice", "bob", "", "with space", "new\nline", "\x7f", "ü"])
                .into(),
            Slot::Id => self.id(),
            Slot::IdBound => self.id_bound(),
            Slot::NewId => self.new_id(),
            Slot::ReadId => self.read_id(),
            Slot::Group => self.one_of(&["g", "g", "g", "g", "h", ""]).into(),
            Slot::Consumer => self.one_of(&["alice", "bob", "\u{7f}"]).into(),
            Slot::Payload => self.payload(),
            Slot::Handover => self.one_of(&HAND_OVER).into(),
            number => self.number(number),
        }
    }

    /// Damaged now and then.
    fn payload(&mut self) -> Vec<u8> {
        let mut payload = PAYLOADS[self.rng.usize(..PAYLOADS.len())].clone();
        if self.chance(1, 10) {
            let place = self.rng.usize(..payload.len());
            payload[place] ^= 1 << self.rng.u32(..8);
        }
        payload
    }

    /// Usually where the command's own type lives.
    fn key(&mut self) -> Vec<u8> {
        match self.home {
            Some(initial) => self.key_at_home(initial),
            None => self.any_key(),
        }
    }

    fn key_at_home(&mut self, initial: char) -> Vec<u8> {
        if self.chance(1, 9) {
            return self.any_key();
        }
        let number = self.rng.usize(..KEYS_PER_INITIAL);
        format!("{initial}{number}").into_bytes()
    }

    fn any_key(&mut self) -> Vec<u8> {
        if self.chance(1, 10) {
            return self.one_of(&ODD_KEYS).to_vec();
        }
        let initial = INITIALS[self.rng.usize(..INITIALS.len())];
        let number = self.rng.usize(..KEYS_PER_INITIAL);
        format!("{initial}{number}").into_bytes()
    }

    /// Mostly few, at times so many that a collection outgrows every compact form of it.
    pub fn repetitions(&mut self) -> usize {
        let (hundreds, tens) = match self.mood {
            Mood::Crowded => (12, 24),
            _ => (1, 6),
        };
        match self.rng.u32(..200) {
            rolled if rolled < hundreds => self.rng.usize(200..600),
            rolled if rolled < tens => self.rng.usize(20..60),
            _ => self.rng.usize(1..=4),
        }
    }

    /// The announced number is wrong now and then.
    fn numbered_keys(&mut self, argv: &mut Argv) {
        let keys = self.rng.usize(1..=4);
        self.announced = match self.rng.u32(..25) {
            0 => keys + 1,
            1 => keys - 1,
            _ => keys,
        };
        argv.push(match self.rng.u32(..40) {
            0 => self.number(Slot::Int),
            _ => self.announced.to_string().into_bytes(),
        });
        for _ in 0..keys {
            let key = self.key();
            argv.push(key);
        }
    }

    fn weights(&mut self, argv: &mut Argv) {
        let weights = match self.rng.u32(..25) {
            0 => self.announced + 1,
            _ => self.announced,
        };
        for _ in 0..weights {
            let weight = self.number(Slot::Score);
            argv.push(weight);
        }
    }

    fn member(&mut self) -> Vec<u8> {
        match self.rng.u32(..400) {
            0 => self.large(),
            1..=20 => self.one_of(&ODD_MEMBERS).to_vec(),
            21..=80 => self.rng.i32(-3..10).to_string().into_bytes(),
            _ if self.crowded || self.mood == Mood::Crowded || self.chance(1, 4) => {
                format!("m{}", self.rng.u32(..2000)).into_bytes()
            }
            _ => vec![self.rng.u8(b'a'..=b'g')],
        }
    }

    fn element(&mut self) -> Vec<u8> {
        match self.rng.u32(..12) {
            0 => self.value(),
            _ => self.member(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        if self.mood == Mood::Large && self.home == Some('s') && self.chance(1, 5) {
            return self.large();
        }
        match self.rng.u32(..400) {
            0..=5 => self.large(),
            6..=60 => self.binary(),
            61..=130 => self.number(Slot::Int),
            131..=180 => self.number(Slot::Float),
            181..=200 => Vec::new(),
            201..=260 => self.text(),
            _ => self.member(),
        }
    }

    fn binary(&mut self) -> Vec<u8> {
        let length = self.rng.usize(1..40);
        std::iter::repeat_with(|| self.rng.u8(..))
            .take(length)
            .collect()
    }

    /// Few letters, so that two texts have much in common.
    fn text(&mut self) -> Vec<u8> {
        let length = self.rng.usize(1..80);
        std::iter::repeat_with(|| self.rng.u8(b'a'..=b'c'))
            .take(length)
            .collect()
    }

    /// A large value repeats a short word of odd length. A chunk out of its place shows, since no
    /// chunk's length is a multiple of the word's, and a report can print the whole value in a line.
    fn large(&mut self) -> Vec<u8> {
        let length = match self.rng.u32(..4) {
            0 => self.rng.usize(1_000..100_000),
            _ => LARGE[self.rng.usize(..LARGE.len())],
        };
        let period = 7 + 2 * self.rng.usize(..3);
        let word: Vec<u8> = std::iter::repeat_with(|| self.rng.u8(b'a'..=b'z'))
            .take(period)
            .collect();
        word.into_iter().cycle().take(length).collect()
    }

    pub fn in_some_case(&mut self, word: &str) -> Vec<u8> {
        match self.rng.u32(..20) {
            0 | 1 => word.to_ascii_lowercase().into_bytes(),
            2 => {
                let mut mixed = word.to_owned().into_bytes();
                for letter in &mut mixed {
                    if self.rng.bool() {
                        *letter = letter.to_ascii_lowercase();
                    }
                }
                mixed
            }
            _ => word.into(),
        }
    }
}
