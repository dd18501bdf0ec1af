//! The first byte of a payload: what it holds, and in which form.

use crate::unit::Unit;

/// What a payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    List,
    Set,
    Zset,
    Hash,
    Stream,
}

/// In which form. The numbers are Redis'; those that are missing are modules'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    String = 0,
    List = 1,
    Set = 2,
    ZsetOfText = 3,
    Hash = 4,
    Zset = 5,
    HashZipmap = 9,
    ListZiplist = 10,
    SetIntset = 11,
    ZsetZiplist = 12,
    HashZiplist = 13,
    ListOfZiplists = 14,
    StreamBefore7 = 15,
    HashListpack = 16,
    ZsetListpack = 17,
    ListOfListpacks = 18,
    Stream = 19,
    /// Of Redis 7.2, as the next one. They are read in files only.
    SetListpack = 20,
    Stream72 = 21,
    /// With fields that expire: of Redis 7.4, as the next one.
    HashExpiring = 24,
    HashListpackExpiring = 25,
}

impl Form {
    pub fn of(byte: u8) -> Option<Form> {
        [
            Form::String,
            Form::List,
            Form::Set,
            Form::ZsetOfText,
            Form::Hash,
            Form::Zset,
            Form::HashZipmap,
            Form::ListZiplist,
            Form::SetIntset,
            Form::ZsetZiplist,
            Form::HashZiplist,
            Form::ListOfZiplists,
            Form::StreamBefore7,
            Form::HashListpack,
            Form::ZsetListpack,
            Form::ListOfListpacks,
            Form::Stream,
            Form::SetListpack,
            Form::Stream72,
            Form::HashExpiring,
            Form::HashListpackExpiring,
        ]
        .into_iter()
        .find(|form| *form as u8 == byte)
    }

    /// Redis 7.0 does not know it.
    pub fn is_later(self) -> bool {
        matches!(self, Form::HashExpiring | Form::HashListpackExpiring)
    }

    /// Redis 7.0 does not know it, and so no RESTORE does: it comes in files, by which one changes from a later Redis.
    pub fn is_of_files(self) -> bool {
        matches!(self, Form::SetListpack | Form::Stream72)
    }

    /// What each element takes, where a number of them is followed by one after the other.
    pub fn element(self) -> Option<&'static [Unit]> {
        use Unit::{Bytes, Length, Score, String};
        match self {
            Form::List | Form::Set | Form::ListOfZiplists => Some(&[String]),
            Form::Hash => Some(&[String, String]),
            Form::Zset => Some(&[String, Bytes(8)]),
            Form::ZsetOfText => Some(&[String, Score]),
            Form::ListOfListpacks => Some(&[Length, String]),
            Form::HashExpiring => Some(&[Length, String, String]),
            _ => None,
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Form::String => Kind::String,
            Form::List | Form::ListZiplist | Form::ListOfZiplists | Form::ListOfListpacks => {
                Kind::List
            }
            Form::Set | Form::SetIntset | Form::SetListpack => Kind::Set,
            Form::ZsetOfText | Form::Zset | Form::ZsetZiplist | Form::ZsetListpack => Kind::Zset,
            Form::Hash
            | Form::HashZipmap
            | Form::HashZiplist
            | Form::HashListpack
            | Form::HashExpiring
            | Form::HashListpackExpiring => Kind::Hash,
            Form::StreamBefore7 | Form::Stream | Form::Stream72 => Kind::Stream,
        }
    }
}
