//! HRANDFIELD.

#[cfg(test)]
mod tests;

use cairn_resp::{Reply, Writer};
use cairn_store::{Hash, ReadTxn, Result};

use super::Args;
use crate::command::random::{Item, Request};

pub fn hrandfield(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let request = Request::parse(args, "withvalues")?;
    let hash = Hash::open(txn, args[1])?;
    let fields = Fields {
        field_at: hash.collection().sub_offset(),
    };
    request.reply(txn, hash.collection(), fields)
}

#[derive(Clone, Copy)]
struct Fields {
    field_at: usize,
}

impl Item for Fields {
    fn name(self, row_key: &[u8]) -> &[u8] {
        &row_key[self.field_at..]
    }

    fn write_partner(self, _: &[u8], value: &[u8], out: &mut Writer<'_>) {
        out.bulk(value);
    }
}
