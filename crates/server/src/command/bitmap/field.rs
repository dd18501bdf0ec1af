//! BITFIELD: integers of any width inside a value.

use std::sync::atomic::Ordering;

use cairn_resp::{Reply, number};
use cairn_store::string::Edit;
use cairn_store::{Error, EventClass, ReadTxn, Result, Store, Str, WriteTxn};

use super::OFFSET;
use super::range::parse_offset;
use crate::command::args::{int, is};
use crate::command::{Access, Args};

/// How an integer lies in the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    is_signed: bool,
    /// In bits: 1 to 64, or to 63 without a sign.
    width: u32,
    /// Of its first bit.
    offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    fn parse(store: &Store, encoding: &[u8], offset: &[u8]) -> Result<Field> {
        let invalid = Error::fixed(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
             i64 is.",
        );
        let (is_signed, most) = match encoding.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(invalid),
        };
        let width = number::parse_i64(&encoding[1..]).filter(|width| (1..=most).contains(width));
        let width = width.ok_or(invalid)? as u32;
        let (text, factor) = match offset.strip_prefix(b"#") {
            Some(text) => (text, u64::from(width)),
            None => (offset, 1),
        };
        let offset = parse_offset(text).and_then(|offset| offset.checked_mul(factor));
        let offset = offset.ok_or(OFFSET)?;
        let most = store.max_value_len().load(Ordering::Relaxed) as u64;
        if offset / 8 >= most {
            return Err(OFFSET);
        }
        Ok(Field {
            is_signed,
            width,
            offset,
        })
    }

    fn first_byte(self) -> u64 {
        self.offset / 8
    }

    /// Behind the last.
    fn end_byte(self) -> u64 {
        (self.offset + u64::from(self.width)).div_ceil(8)
    }

    /// How far the field stands from the end of its bytes.
    fn shift(self) -> u32 {
        (self.end_byte() * 8 - self.offset - u64::from(self.width)) as u32
    }

    fn mask(self) -> u128 {
        (1 << self.width) - 1
    }

    /// The number in the bytes that it touches.
    fn read(self, bytes: &[u8]) -> i64 {
        let all = bytes
            .iter()
            .fold(0, |all: u128, byte| all << 8 | u128::from(*byte));
        let bits = (all >> self.shift() & self.mask()) as u64;
        if !self.is_signed {
            return bits.cast_signed();
        }
        let unused = 64 - self.width;
        (bits << unused).cast_signed() >> unused
    }

    /// The bytes that it touches with another number.
    fn write(self, bytes: &[u8], value: i64) -> Vec<u8> {
        let all = bytes
            .iter()
            .fold(0, |all: u128, byte| all << 8 | u128::from(*byte));
        let (mask, bits) = (self.mask(), u128::from(value.cast_unsigned()));
        let all = all & !(mask << self.shift()) | (bits & mask) << self.shift();
        all.to_be_bytes()[16 - bytes.len()..].to_vec()
    }

    /// The sum as the field can hold it; none if it cannot, and that is a failure. What is not signed is
    /// treated as such, though the sum is one of signed numbers.
    fn fit(self, before: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        let (least, most) = match self.is_signed {
            true => (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1),
            false => (0, (1_i128 << self.width) - 1),
        };
        let before = match self.is_signed {
            true => i128::from(before),
            false => i128::from(before.cast_unsigned()),
        };
        let sum = before + i128::from(increment);
        if (least..=most).contains(&sum) {
            return Some(sum as i64);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(sum.clamp(least, most) as i64),
            Overflow::Wrap => {
                let bits = (sum as u128 & self.mask()) as u64;
                let unused = 64 - self.width;
                Some(match self.is_signed {
                    true => (bits << unused).cast_signed() >> unused,
                    false => bits.cast_signed(),
                })
            }
        }
    }
}

fn parse(store: &Store, args: &Args, may_write: bool) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut options = args.options(2);
    while let Some(word) = options.next() {
        if is(word, "overflow") && !options.is_empty() {
            let name = options.value()?;
            overflow = match name.to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Error::fixed("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let (is_get, is_set) = (is(word, "get"), is(word, "set"));
        let words = if is_get { 2 } else { 3 };
        if !is_get && !is_set && !is(word, "incrby") || options.len() < words {
            return Err(Error::SYNTAX);
        }
        let field = Field::parse(store, options.value()?, options.value()?)?;
        let action = if is_get {
            Action::Get
        } else {
            let value = int(options.value()?)?;
            if !may_write {
                return Err(Error::fixed(
                    "ERR BITFIELD_RO only supports the GET subcommand",
                ));
            }
            if is_set {
                Action::Set(value)
            } else {
                Action::Add(value)
            }
        };
        operations.push(Operation {
            field,
            action,
            overflow,
        });
    }
    Ok(operations)
}

pub fn bitfield_ro(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let operations = parse(txn.store(), args, false)?;
    let value = Str::find(txn, args[1])?;
    let get = |operation: Operation| {
        let field = operation.field;
        let mut bytes = vec![0; (field.end_byte() - field.first_byte()) as usize];
        if let Some(value) = &value {
            let end = field.end_byte().min(value.len());
            let start = field.first_byte().min(end);
            let there = value.range(txn, start, end)?;
            bytes[..there.len()].copy_from_slice(&there);
        }
        Ok(Reply::Int(field.read(&bytes)))
    };
    let replies: Result<Vec<Reply>> = operations.into_iter().map(get).collect();
    Ok(Reply::Array(replies?))
}

pub fn bitfield(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let operations = parse(txn.store(), args, true)?;
    let writes = operations.iter().filter(|of| of.action != Action::Get);
    let Some(length) = writes.map(|of| of.field.end_byte()).max() else {
        let reply = bitfield_ro(txn, args)?;
        txn.notify_of_misses();
        return Ok(reply);
    };
    // It becomes as long as any of its writes needs, whether that succeeds or not.
    let edit = Edit::open(txn, args[1])?;
    let has_grown = edit.len() < length;
    if has_grown {
        edit.write_at(txn, length - 1, &[0])?;
    }
    let mut replies = Vec::with_capacity(operations.len());
    let mut has_changed = false;
    for Operation {
        field,
        action,
        overflow,
    } in operations
    {
        let edit = Edit::open(txn, args[1])?;
        let touched = field.first_byte()..field.end_byte();
        let bytes: Result<Vec<u8>> = touched.map(|at| edit.byte(txn, at)).collect();
        let bytes = bytes?;
        let before = field.read(&bytes);
        let (value, reply) = match action {
            Action::Get => (None, Some(before)),
            Action::Set(value) => {
                let value = field.fit(value, 0, overflow);
                (value, value.map(|_| before))
            }
            Action::Add(increment) => {
                let value = field.fit(before, increment, overflow);
                (value, value)
            }
        };
        if let Some(value) = value {
            if value != before {
                edit.write_at(txn, field.first_byte(), &field.write(&bytes, value))?;
            }
            has_changed |= value != before || has_grown;
        }
        replies.push(reply.map_or(Reply::Null, Reply::Int));
    }
    if has_changed {
        txn.notify(EventClass::String, "setbit", args[1]);
    }
    Ok(Reply::Array(replies))
}

/// A call that only gets reads the key, and may be made by whoever may do that. One that cannot be understood might do
/// anything.
pub fn access_of_bitfield(args: &Args) -> Access {
    let mut words = args.rest(2);
    loop {
        words = match words {
            [] => return Access::READ,
            [word, _, _, rest @ ..] if is(word, "get") => rest,
            [word, _, rest @ ..] if is(word, "overflow") => rest,
            _ => return Access::READ_UPDATE,
        };
    }
}
