//! ZRANDMEMBER.

use cairn_resp::{Reply, Writer};
use cairn_store::zset::ScoreRows;
use cairn_store::{ReadTxn, Result, Zset};

use super::Args;
use crate::command::random::{Item, Request};

pub fn zrandmember(txn: &ReadTxn, args: &Args) -> Result<Reply> {
    let request = Request::parse(args, "withscores")?;
    let zset = Zset::open(txn, args[1])?;
    request.reply(txn, zset.collection(), zset.score_rows())
}

impl Item for ScoreRows {
    fn name(self, row_key: &[u8]) -> &[u8] {
        self.member(row_key)
    }

    fn write_partner(self, row_key: &[u8], _: &[u8], out: &mut Writer<'_>) {
        out.double(self.score(row_key));
    }
}
