//! What followers are told: each command that has changed something, once, in a form that has the same effect wherever
//! and whenever it is run.
//!
//! Mostly that is the command as it was called. Where it depends on the moment, on chance or on what it waited for, its
//! handler says by [`Propagate`] what followers are to do in its place, in the words of Redis 7.0. Either way it is an
//! effect of the transaction: what is undone is told to nobody, and what is tried twice is told once. Effects are shown
//! while the latches are held, so two commands about one key are told in the order in which they ran.

use std::sync::atomic::{AtomicBool, Ordering};

use cairn_resp::{Protocol, Writer};
use cairn_store::{Mode, Result, WriteTxn};

use crate::command::{Args, Command, Handler};

/// `lazyfree-lazy-expire`, which followers are told of by the word.
pub static EXPIRES_LAZILY: AtomicBool = AtomicBool::new(false);
/// `lazyfree-lazy-user-del`.
pub static DELETES_LAZILY: AtomicBool = AtomicBool::new(false);
/// The same for keys that are evicted.
pub static EVICTS_LAZILY: AtomicBool = AtomicBool::new(false);

/// The word for a key that goes because its time has come.
pub fn expiring_word() -> &'static [u8] {
    word_for_deletion(&EXPIRES_LAZILY)
}

/// The same for keys that are evicted.
pub fn evicting_word() -> &'static [u8] {
    word_for_deletion(&EVICTS_LAZILY)
}

/// The same because somebody wants it to.
pub fn deleting_word() -> &'static [u8] {
    word_for_deletion(&DELETES_LAZILY)
}

fn word_for_deletion(is_lazy: &AtomicBool) -> &'static [u8] {
    match is_lazy.load(Ordering::Relaxed) {
        true => b"UNLINK",
        false => b"DEL",
    }
}

/// A number as a word.
pub fn decimal(number: u64) -> DecimalWord {
    let mut buffer = itoa::Buffer::new();
    DecimalWord::from(buffer.format(number).as_bytes())
}

pub type DecimalWord = smallvec::SmallVec<[u8; 20]>;

/// For handlers whose commands followers cannot run as they are.
pub trait Propagate {
    /// Has followers do this, if there are any. A handler may say several things.
    fn propagate_as(&mut self, words: &[&[u8]]);

    /// The same as the command that was called, with other words in some places; those behind its end are added.
    fn propagate_with(&mut self, args: &Args<'_>, changes: &[(usize, &[u8])]);

    /// Has followers do nothing, whatever was changed here.
    fn propagate_nothing(&mut self);
}

impl Propagate for WriteTxn {
    fn propagate_as(&mut self, words: &[&[u8]]) {
        if self.is_followed() {
            self.propagate(request(words));
        }
    }

    fn propagate_with(&mut self, args: &Args<'_>, changes: &[(usize, &[u8])]) {
        if self.is_followed() {
            let mut words = args.to_vec();
            for (at, word) in changes {
                match words.get_mut(*at) {
                    Some(place) => *place = word,
                    None => words.push(word),
                }
            }
            self.propagate(request(&words));
        }
    }

    fn propagate_nothing(&mut self) {
        if self.is_followed() {
            self.propagate(Vec::new());
        }
    }
}

/// A command as it goes over the wire.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let length: usize = words.iter().map(|word| word.len() + 16).sum();
    let mut out = Vec::with_capacity(length + 16);
    Writer::new(&mut out, Protocol::Resp2).request(words);
    out
}

/// To be called before a handler that writes. What its keys held that have expired, followers still have, and it must be
/// gone there before the command runs.
pub fn begin(txn: &mut WriteTxn, command: &Command, args: &Args<'_>) -> Result<()> {
    let mut names = Vec::new();
    command
        .keys
        .visit(args, |name, access| names.push((name, access.mode())));
    for (name, mode) in names {
        match mode {
            Mode::Exclusive => txn.bury(name)?,
            Mode::Shared => txn.propagate_if_expired(name)?,
        }
    }
    txn.note_unchanged();
    Ok(())
}

/// To be called when a command has run, if others follow.
pub fn end(txn: &mut WriteTxn, command: &Command, args: &Args<'_>) {
    // The others say for themselves what is to be done.
    let is_plain = matches!(command.handler, Handler::Write(_) | Handler::Exclusive(_));
    if is_plain && txn.has_changed() && !txn.has_propagated() {
        txn.propagate(request(args));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_clients_write_it() {
        let words: [&[u8]; 2] = [b"DEL", b"key"];
        assert_eq!(request(&words), b"*2\r\n$3\r\nDEL\r\n$3\r\nkey\r\n");
    }
}
