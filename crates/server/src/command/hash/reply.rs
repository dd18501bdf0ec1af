//! The values of many fields as a reply.

use cairn_resp::{Detached, Progress, Reply, ReplyStream, StreamError, Writer};
use cairn_store::Values;

/// The values, or nulls where there is none.
pub fn of_values(values: Values<'_>) -> Reply<'_> {
    Reply::Stream(Box::new(ValuesReply {
        values,
        has_header: false,
    }))
}

struct ValuesReply<'t> {
    values: Values<'t>,
    has_header: bool,
}

impl ReplyStream for ValuesReply<'_> {
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

    fn detach<'s>(self: Box<Self>) -> Detached<'s>
    where
        Self: 's,
    {
        if self.values.has_pending() {
            return Err(self);
        }
        let has_header = self.has_header;
        match self.values.into_stored() {
            Some(values) => Ok(Box::new(ValuesReply { values, has_header })),
            None => unreachable!("a walk without pending changes is free of its transaction"),
        }
    }
}
