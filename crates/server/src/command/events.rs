//! Keyspace events that many commands have in common. Each command tells of its own where it makes the change, in
//! the words and the order of Redis; nothing is computed unless somebody listens.

use cairn_store::{EventClass, Result, WriteTxn};

/// Elements were taken out of a collection, which is gone if none is left.
pub fn taken(
    txn: &mut WriteTxn,
    class: EventClass,
    event: &'static str,
    name: &[u8],
    is_emptied: bool,
) {
    txn.notify(class, event, name);
    if is_emptied {
        txn.notify(EventClass::Generic, "del", name);
    }
}

/// A result became the value of a key, unless it was empty.
pub fn stored(txn: &mut WriteTxn, class: EventClass, event: &'static str, name: &[u8], size: u64) {
    if size > 0 {
        txn.notify(class, event, name);
    }
}

/// A command that writes is about to read these keys: tells of those that are not there. (Commands that only read
/// need not say so.)
pub fn missing(txn: &mut WriteTxn, names: &[&[u8]]) -> Result<()> {
    if txn.store().listeners().hear(EventClass::Missed) {
        for name in names {
            if txn.peek(&txn.key(name))?.is_none() {
                txn.notify(EventClass::Missed, "keymiss", name);
            }
        }
    }
    Ok(())
}
