//! The values of many fields as a reply.

use cairn_resp::{Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::Values;

/// The values, or nulls where there is none.
pub fn of_values(values: Values) -> Reply {
    Reply::Stream(Box::new(ValuesReply {
        has_header: false,
        values,
    }))
}

struct ValuesReply {
    has_header: bool,
    values: Values,
}

impl ReplyStream for ValuesReply {
    fn write(&mut self, out: &mut Writer<'_>, limit: usize) -> Result<Progress, StreamError> {
        if !std::mem::replace(&mut self.has_header, true) {
            out.array(self.values.len());
        }
        while out.len() < limit {
            match self.values.next().map_err(StreamError::new)? {
                Some(Some(value)) => out.bulk(value),
                Some(None) => out.null(),
                None => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }
}
