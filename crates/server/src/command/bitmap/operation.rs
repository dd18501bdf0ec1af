//! BITOP: values combined bit by bit.

use cairn_resp::Reply;
use cairn_store::{Error, EventClass, Expiry, ReadTxn, Result, Str, WriteTxn, string};

use crate::command::Args;
use crate::command::args::is;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn named(name: &[u8]) -> Result<Operation> {
        let operations = [
            ("and", Operation::And),
            ("or", Operation::Or),
            ("xor", Operation::Xor),
            ("not", Operation::Not),
        ];
        let named = operations.iter().find(|(word, _)| is(name, word));
        named.map(|(_, operation)| *operation).ok_or(Error::SYNTAX)
    }

    /// Combines bytes with those that were there.
    fn combine(self, there: &mut [u8], bytes: &[u8]) {
        let pairs = there.iter_mut().zip(bytes);
        match self {
            Operation::And => pairs.for_each(|(one, other)| *one &= other),
            Operation::Or => pairs.for_each(|(one, other)| *one |= other),
            Operation::Xor => pairs.for_each(|(one, other)| *one ^= other),
            Operation::Not => pairs.for_each(|(one, other)| *one = !other),
        }
    }
}

pub fn bitop(txn: &mut WriteTxn, args: &Args) -> Result<Reply> {
    let operation = Operation::named(args[1])?;
    let (target, sources) = (args[2], args.rest(3));
    if operation == Operation::Not && sources.len() != 1 {
        return Err(Error::fixed(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    let mut longest = 0;
    for source in sources {
        longest = longest.max(Str::find(txn, source)?.map_or(0, |value| value.len()));
    }
    txn.notify_of_misses();
    let key = txn.key(target);
    if longest == 0 {
        let stamp = txn.peek(&key)?.map(|found| found.stamp());
        if let Some(stamp) = stamp {
            txn.remove(&key, &stamp);
            txn.notify(EventClass::Generic, "del", target);
        }
        return Ok(Reply::Int(0));
    }
    let mut result = vec![0; longest as usize];
    for (number, source) in sources.iter().enumerate() {
        let combined = match number {
            // The first one stands for itself.
            0 if operation != Operation::Not => Operation::Or,
            _ => operation,
        };
        let length = fold(txn, source, combined, &mut result)?;
        if combined == Operation::And {
            // Where it has no bytes it has zeros.
            result[length..].fill(0);
        }
    }
    string::set(txn, target, &result, Expiry::Never)?;
    txn.notify(EventClass::String, "set", target);
    Ok(longest.into())
}

/// Combines a value with the result so far; returns its length.
fn fold(txn: &ReadTxn, name: &[u8], operation: Operation, result: &mut [u8]) -> Result<usize> {
    let Some(value) = txn.unasked(|_| Str::find(txn, name))? else {
        return Ok(0);
    };
    let Some(mut chunks) = value.chunks(txn)? else {
        let bytes = value.inline().unwrap_or_default();
        operation.combine(result, bytes);
        return Ok(bytes.len());
    };
    let (mut at, mut piece) = (0, Vec::new());
    while chunks.append_next(&mut piece)? {
        txn.step()?;
        operation.combine(&mut result[at..], &piece);
        at += piece.len();
        piece.clear();
    }
    Ok(at)
}
