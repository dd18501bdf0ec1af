//! The values of many fields as a reply.

use cairn_resp::{Progress, Reply, StreamError, Writer};
use cairn_store::Values;

use crate::command::stream::{self, Pieces};

/// The values, or nulls where there is none.
pub fn of_values(values: Values<'_>) -> Reply<'_> {
    stream::reply(values, ValuesReply { has_header: false })
}

struct ValuesReply {
    has_header: bool,
}

impl Pieces for ValuesReply {
    type Walk<'t> = Values<'t>;

    fn write(
        &mut self,
        values: &mut Values<'_>,
        out: &mut Writer<'_>,
        limit: usize,
    ) -> Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.array(values.len());
        }
        while out.len() < limit {
            match values.next().map_err(StreamError::new)? {
                Some(Some(value)) => out.bulk(value),
                Some(None) => out.null(),
                None => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }
}
