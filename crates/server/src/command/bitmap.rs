//! Strings as arrays of bits: the first is the highest of the first byte.

mod field;
mod operation;
mod range;

use std::sync::atomic::Ordering;

use cairn_resp::{Reply, number};
use cairn_store::string::Edit;
use cairn_store::{Error, EventClass, Point, Result, Store, WriteTxn};

use super::flags::Flag::{DenyOom, Fast};
use super::keys::{self, Access, KeySpec, Keys};
use super::{Args, Command, Handler, command};

const GROUP: &str = "bitmap";

pub const COMMANDS: &[Command] = &[
    command("getbit", 3, Handler::Point(getbit))
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast])
        .syntax("key offset:i")
        .about(GROUP, "2.2.0", "O(1)", "Returns one bit of a value."),
    command("setbit", 4, Handler::Write(setbit))
        .keys(Keys(&[KeySpec::at(1, Access::READ_UPDATE)]))
        .flags(&[DenyOom])
        .syntax("key offset:i value:i")
        .about(
            GROUP,
            "2.2.0",
            "O(1)",
            "Sets or clears one bit of a value, making it longer where needed.",
        ),
    command("bitcount", -2, Handler::Read(range::bitcount))
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .syntax("key index{start:i end:i index_unit(BYTE!|BIT!)?}?")
        .about(
            GROUP,
            "2.6.0",
            "O(N)",
            "Counts the bits that are set, in a value or a part of it.",
        ),
    command("bitpos", -3, Handler::Read(range::bitpos))
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .syntax("key bit:i index{start:i end_index{end:i index_unit(BYTE!|BIT!)?}?}?")
        .about(
            GROUP,
            "2.8.7",
            "O(N)",
            "Finds the first bit that is set, or not, in a value or a part of it.",
        ),
    command("bitop", -4, Handler::Write(operation::bitop))
        .counts_lookups()
        .keys(Keys(&[
            KeySpec::at(2, Access::OVERWRITE),
            KeySpec {
                access: Access::READ,
                place: keys::Place::Range {
                    first: 3,
                    last: -1,
                    step: 1,
                },
            },
        ]))
        .flags(&[DenyOom])
        .syntax("operation destkey:k key+")
        .about(
            GROUP,
            "2.6.0",
            "O(N)",
            "Combines values bit by bit, and stores the result.",
        ),
    command("bitfield", -2, Handler::Write(field::bitfield))
        .counts_lookups()
        .keys(Keys(&[KeySpec::at(1, Access::READ_UPDATE)]))
        .flags(&[DenyOom])
        .syntax(
            "key operation(GET/encoding_offset{encoding offset:i}|\
             write{OVERFLOW/wrap_sat_fail(WRAP!|SAT!|FAIL!)? \
             write_operation(SET/encoding_offset_value{encoding offset:i value:i}|\
             INCRBY/encoding_offset_increment{encoding offset:i increment:i})})?+",
        )
        .notes(&["This command allows both access and modification of the key"])
        .access(field::access_of_bitfield)
        .about(
            GROUP,
            "3.2.0",
            "O(1) for each subcommand",
            "Reads and writes integers of any width inside a value.",
        ),
    command("bitfield_ro", -2, Handler::Read(field::bitfield_ro))
        .keys(Keys(&[KeySpec::at(1, Access::READ)]))
        .flags(&[Fast])
        .syntax("key GET/encoding_offset{encoding offset:i}?++")
        .about(
            GROUP,
            "6.0.0",
            "O(1) for each subcommand",
            "Reads integers of any width inside a value.",
        ),
];

const OFFSET: Error = Error::fixed("ERR bit offset is not an integer or out of range");
const BIT: Error = Error::fixed("ERR bit is not an integer or out of range");

/// The byte that holds a bit, and the bit in it.
struct Place {
    byte: u64,
    mask: u8,
}

impl Place {
    fn parse(store: &Store, offset: &[u8]) -> Result<Place> {
        let offset = range::parse_offset(offset).ok_or(OFFSET)?;
        let byte = offset / 8;
        if byte >= store.max_value_len().load(Ordering::Relaxed) as u64 {
            return Err(OFFSET);
        }
        Ok(Place {
            byte,
            mask: 0x80 >> (offset % 8),
        })
    }
}

fn getbit(point: Point<'_>, args: &Args) -> Result<Reply> {
    let place = Place::parse(point.store(), args[2])?;
    let byte = point.byte(args[1], place.byte)?;
    Ok(Reply::Int((byte & place.mask != 0).into()))
}

fn setbit(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let place = Place::parse(txn.store(), args[2])?;
    let is_set = match number::parse_i64(args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BIT),
    };
    let edit = Edit::open(txn, args[1])?;
    let byte = edit.byte(txn, place.byte)?;
    let was_set = byte & place.mask != 0;
    // A bit that is as it should be may still lie behind the end.
    if was_set != is_set || place.byte >= edit.len() {
        let byte = if is_set {
            byte | place.mask
        } else {
            byte & !place.mask
        };
        edit.write_at(txn, place.byte, &[byte])?;
        txn.notify(EventClass::String, "setbit", args[1]);
    }
    Ok(Reply::Int(was_set.into()))
}
