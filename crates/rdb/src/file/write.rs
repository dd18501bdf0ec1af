//! Writing a file, part by part.

use super::{DATABASE, END, EXPIRES_MS, LIBRARY, MAGIC, REMARK, SIZES};
use crate::crc64::Sum;
use crate::kind::Form;
use crate::string;

/// Who is to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Redis 7.0 and everything later.
    Redis70 = 10,
    /// Redis 7.4 and everything later: fields of hashes may expire.
    Redis74 = 12,
}

pub fn append_head(version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let version = version as u8;
    out.extend_from_slice(&[b'0', b'0', b'0' + version / 10, b'0' + version % 10]);
}

pub fn append_remark(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(REMARK);
    string::append(name, out);
    string::append(value, out);
}

pub fn append_library(code: &[u8], out: &mut Vec<u8>) {
    out.push(LIBRARY);
    string::append(code, out);
}

/// The keys that follow are in this database.
pub fn append_database(number: u32, out: &mut Vec<u8>) {
    out.push(DATABASE);
    string::append_length(u64::from(number), out);
}

/// How many keys it has, and how many of them expire.
pub fn append_sizes(keys: u64, expiring: u64, out: &mut Vec<u8>) {
    out.push(SIZES);
    string::append_length(keys, out);
    string::append_length(expiring, out);
}

/// A key, which expires then unless it is zero. Its value follows, in this form.
pub fn append_key(name: &[u8], expire_ms: u64, form: Form, out: &mut Vec<u8>) {
    if expire_ms != 0 {
        out.push(EXPIRES_MS);
        out.extend_from_slice(&expire_ms.to_le_bytes());
    }
    out.push(form as u8);
    string::append(name, out);
}

/// The end of a file. All that came before has been added to the checksum.
pub fn append_end(mut sum: Sum, out: &mut Vec<u8>) {
    out.push(END);
    sum.add(&[END]);
    out.extend_from_slice(&sum.value().to_le_bytes());
}
