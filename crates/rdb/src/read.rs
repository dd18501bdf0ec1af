//! Reading a payload, whatever form it has.

use cairn_resp::number;

use crate::kind::Form;
use crate::listpack::Value;
use crate::stream::{self, Facts, Id, Read, Writer};
use crate::unique::{Suspects, Unique};
use crate::unit::Unit;
use crate::{
    Corrupt, Input, Kind, Refused, expiring, footer, intset, listpack, quicklist, ziplist, zipmap,
};

/// How many names are compared with each other at once, by 64 MB that stand for them.
pub(crate) const NAMES_AT_ONCE: usize = 8 << 20;

/// Entries of a stream share the names of their fields, in Redis, and a few bytes can be a share in very long ones. Here
/// each entry has its own: what comes to more than this, and so many times the payload, is not written out.
const SHARED_WORDS: usize = 64 << 20;
const SHARED_TIMES: usize = 1000;

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// The whole of a string.
    String(&'a [u8]),
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored(&'a [u8], f64),
    /// A field of a hash.
    Field(&'a [u8], &'a [u8]),
    /// One that expires at that time.
    FieldUntil(&'a [u8], &'a [u8], u64),
    /// An entry of a stream: fields and values, one after the other.
    Entry(Id, &'a [Value<'a>]),
    /// What is known of a stream: behind its entries.
    Facts(Facts),
    /// A group of a stream, whose consumers follow.
    Group {
        name: &'a [u8],
        last: Id,
        read: Read,
    },
    /// A consumer of the last group, and what it has pending follows.
    Consumer { name: &'a [u8], seen_ms: u64 },
    /// An entry that the last consumer has pending.
    Pending {
        id: Id,
        delivered_ms: u64,
        deliveries: u64,
    },
}

impl Item<'_> {
    /// What there may be only once in a collection. (A stream's reader sees to that itself.)
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match self {
            Item::Member(name)
            | Item::Scored(name, _)
            | Item::Field(name, _)
            | Item::FieldUntil(name, ..) => Some(name),
            _ => None,
        }
    }
}

/// A payload whose footer is right. What it holds may make no sense still.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    form: Form,
    value: Input<'a>,
}

impl<'a> Payload<'a> {
    pub fn open(payload: &'a [u8]) -> Result<Self, Refused> {
        let is_later = payload
            .first()
            .and_then(|form| Form::of(*form))
            .is_some_and(Form::is_later);
        let content = match is_later {
            true => footer::opened_later(payload),
            false => footer::opened(payload),
        };
        let mut value = Input(content.ok_or(Refused::Footer)?);
        let form = Form::of(value.byte()?).filter(|form| !form.is_of_files());
        let form = form.ok_or(Corrupt)?;
        Ok(Payload { form, value })
    }

    pub fn kind(&self) -> Kind {
        self.form.kind()
    }

    /// Goes through all of it, and makes sure that it can be read, that it is not empty, and that nothing is there
    /// twice that may be there once. What comes behind the value is not looked at; neither does Redis.
    pub fn check(&self) -> Result<(), Corrupt> {
        self.check_by(NAMES_AT_ONCE)
    }

    /// The same, with so many names in view at once.
    fn check_by(&self, most: usize) -> Result<(), Corrupt> {
        let (mut items, mut names) = (0_u64, 0_u64);
        let mut unique = Unique::of_all(most);
        let mut is_full = false;
        let mut words_left = SHARED_WORDS + self.value.0.len().saturating_mul(SHARED_TIMES);
        // Numbers that rise are all different.
        let is_sorted = self.form == Form::SetIntset;
        self.read(&mut |item| {
            items += 1;
            if let Some(name) = item.name()
                && !is_sorted
            {
                names += 1;
                is_full |= !unique.add(name);
            }
            if let Item::Entry(_, words) = item {
                let entry = words.iter().map(|word| word.most_len()).sum();
                words_left = words_left.checked_sub(entry).ok_or(Corrupt)?;
            }
            Ok(())
        })?;
        if items == 0 {
            return Err(Corrupt);
        }
        if !is_full {
            return self.look_closer(unique);
        }
        drop(unique);
        Unique::of_parts(names, most).try_for_each(|unique| self.check_part(unique))
    }

    /// Makes sure that nothing is there twice among very many.
    fn check_part(&self, mut unique: Unique) -> Result<(), Corrupt> {
        self.read(&mut |item| match item.name() {
            Some(name) if !unique.add(name) => Err(Corrupt),
            _ => Ok(()),
        })?;
        self.look_closer(unique)
    }

    fn look_closer(&self, unique: Unique) -> Result<(), Corrupt> {
        match unique.suspects() {
            Some(suspects) => self.compare(suspects),
            None => Ok(()),
        }
    }

    fn compare(&self, mut suspects: Suspects) -> Result<(), Corrupt> {
        self.read(&mut |item| item.name().map_or(Ok(()), |name| suspects.add(name)))
    }

    /// Shows one part after the other, until all have been seen or `visit` fails. No more than one of them, or one
    /// node, stands in memory.
    pub fn read<E: From<Corrupt>>(
        &self,
        visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut input = self.value;
        let mut reading = Reading::new(self.form);
        while !reading.is_done() {
            reading.step(&mut input, visit)?;
        }
        Ok(())
    }
}

/// Reads a value step by step: each takes what [`Reading::needs`] says, and no more. So it may come in pieces.
pub struct Reading {
    form: Form,
    place: Place,
}

/// What comes next.
enum Place {
    Start,
    /// So many elements, and not none, of a hash in which none expires before that time.
    Elements {
        left: u64,
        first_ms: u64,
    },
    Stream(Box<stream::Reading>),
    End,
}

impl Reading {
    pub fn new(form: Form) -> Reading {
        let place = match form {
            Form::StreamBefore7 => stream_by(Writer::Before70),
            Form::Stream => stream_by(Writer::Redis70),
            Form::Stream72 => stream_by(Writer::Redis72),
            _ => Place::Start,
        };
        Reading { form, place }
    }

    pub fn is_done(&self) -> bool {
        match &self.place {
            Place::Start | Place::Elements { .. } => false,
            Place::Stream(stream) => stream.is_done(),
            Place::End => true,
        }
    }

    /// What the next step reads.
    pub fn needs(&self) -> &'static [Unit] {
        use Unit::{Bytes, Length, String};
        match &self.place {
            Place::Start => match self.form {
                Form::HashExpiring => &[Bytes(8), Length],
                Form::HashListpackExpiring => &[Bytes(8), String],
                form if form.element().is_some() => &[Length],
                _ => &[String],
            },
            Place::Elements { .. } => self.form.element().unwrap_or_default(),
            Place::Stream(stream) => stream.needs(),
            Place::End => &[],
        }
    }

    pub fn step<E: From<Corrupt>>(
        &mut self,
        input: &mut Input<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (left, first_ms) = match &mut self.place {
            Place::Stream(stream) => return stream.step(input, visit),
            Place::End => return Ok(()),
            Place::Start if self.form.element().is_none() => {
                read_whole(self.form, input, visit)?;
                (0, 0)
            }
            Place::Start => {
                let first_ms = match self.form {
                    Form::HashExpiring => u64::from_le_bytes(input.fixed()?),
                    _ => 0,
                };
                (input.length()?, first_ms)
            }
            Place::Elements { left, first_ms } => {
                read_element(self.form, input, *first_ms, visit)?;
                (*left - 1, *first_ms)
            }
        };
        self.place = match left {
            0 => Place::End,
            left => Place::Elements { left, first_ms },
        };
        Ok(())
    }
}

fn stream_by(writer: Writer) -> Place {
    Place::Stream(Box::new(stream::Reading::new(writer)))
}

/// The next element of a value that has a number of them.
fn read_element<E: From<Corrupt>>(
    form: Form,
    input: &mut Input<'_>,
    first_ms: u64,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match form {
        Form::List => visit(Item::Element(&input.string()?)),
        Form::Set => visit(Item::Member(&input.string()?)),
        Form::Zset => {
            let member = input.string()?;
            let score = f64::from_le_bytes(input.fixed()?);
            visit(Item::Scored(&member, checked(score)?))
        }
        Form::ZsetOfText => {
            let member = input.string()?;
            let score = text_score(input)?;
            visit(Item::Scored(&member, checked(score)?))
        }
        Form::Hash => {
            let field = input.string()?;
            visit(Item::Field(&field, &input.string()?))
        }
        Form::HashExpiring => expiring::read_field(input, first_ms, visit),
        Form::ListOfZiplists => read_ziplist(&input.string()?, Kind::List, visit),
        Form::ListOfListpacks => quicklist::read_node(input, visit),
        _ => Err(Corrupt.into()),
    }
}

/// A value in one piece.
fn read_whole<E: From<Corrupt>>(
    form: Form,
    input: &mut Input<'_>,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match form {
        Form::String => visit(Item::String(&input.string()?)),
        Form::HashZipmap => {
            let node = input.string()?;
            let mut fields = zipmap::Fields::open(&node)?;
            while let Some((field, value)) = fields.next()? {
                visit(Item::Field(field, value))?;
            }
            Ok(())
        }
        Form::SetIntset => {
            let node = input.string()?;
            let mut numbers = intset::Numbers::open(&node)?;
            while let Some(number) = numbers.next()? {
                visit(Item::Member(number.to_string().as_bytes()))?;
            }
            Ok(())
        }
        Form::ListZiplist | Form::HashZiplist | Form::ZsetZiplist => {
            read_ziplist(&input.string()?, form.kind(), visit)
        }
        Form::HashListpack | Form::ZsetListpack => {
            let node = input.string()?;
            let mut elements = listpack::Elements::open(&node)?;
            read_small(form.kind(), || elements.next(), visit)
        }
        Form::HashListpackExpiring => expiring::read_small(input, visit),
        Form::SetListpack => {
            let node = input.string()?;
            let mut elements = listpack::Elements::open(&node)?;
            while let Some(member) = elements.next()? {
                member.with(|member| visit(Item::Member(member)))?;
            }
            Ok(())
        }
        _ => Err(Corrupt.into()),
    }
}

fn read_ziplist<E: From<Corrupt>>(
    node: &[u8],
    kind: Kind,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut elements = ziplist::Elements::open(node)?;
    read_small(kind, || elements.next(), visit)
}

/// A collection in one piece: its elements, or pairs of them.
fn read_small<'a, E: From<Corrupt>>(
    kind: Kind,
    mut next: impl FnMut() -> Result<Option<Value<'a>>, Corrupt>,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(first) = next()? {
        if kind == Kind::List {
            first.with(|element| visit(Item::Element(element)))?;
            continue;
        }
        let second = next()?.ok_or(Corrupt)?;
        if kind == Kind::Hash {
            first.with(|field| second.with(|value| visit(Item::Field(field, value))))?;
        } else {
            let score = match second {
                Value::Number(number) => number as f64,
                Value::String(text) => number::parse_f64(text).ok_or(Corrupt)?,
            };
            let score = checked(score)?;
            first.with(|member| visit(Item::Scored(member, score)))?;
        }
    }
    Ok(())
}

/// Scores before version 8: their length and their text.
fn text_score(input: &mut Input<'_>) -> Result<f64, Corrupt> {
    match input.byte()? {
        253 => Err(Corrupt),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length => number::parse_f64(input.take(length.into())?).ok_or(Corrupt),
    }
}

fn checked(score: f64) -> Result<f64, Corrupt> {
    match score.is_nan() {
        true => Err(Corrupt),
        false => Ok(score),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::string;

    /// A set of these, in Redis' form for large ones.
    fn set(members: impl ExactSizeIterator<Item = usize>) -> Vec<u8> {
        let mut bytes = vec![2];
        string::append_length(members.len() as u64, &mut bytes);
        members.for_each(|member| string::append(member.to_string().as_bytes(), &mut bytes));
        footer::seal(&mut bytes);
        bytes
    }

    #[test]
    fn names_are_compared_with_few_in_view() {
        for most in [256, 1000, 1001, 100_000] {
            let payload = set(0..1000);
            let payload = Payload::open(&payload).expect("it is sealed");
            assert_eq!(payload.check_by(most), Ok(()), "{most}");
            for same in [0, 1, 500, 998] {
                let members = (0..1000).map(|member| if member == 999 { same } else { member });
                let payload = set(members);
                let payload = Payload::open(&payload).expect("it is sealed");
                assert_eq!(payload.check_by(most), Err(Corrupt), "{most} {same}");
            }
        }
        let all_the_same = set(std::iter::repeat_n(7, 1000));
        let payload = Payload::open(&all_the_same).expect("it is sealed");
        assert_eq!(payload.check_by(256), Err(Corrupt));
    }
}
