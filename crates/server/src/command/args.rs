//! A command's arguments, and the ways handlers read them.

use std::ops::Deref;

use cairn_resp::number;
use cairn_store::{Error, Result};

/// All arguments, the command's name first. A subcommand's begin with the container's name.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [&'a [u8]]);

impl<'a> Args<'a> {
    pub fn new(words: &'a [&'a [u8]]) -> Self {
        Args(words)
    }

    /// The arguments from `at` on.
    pub fn rest(&self, at: usize) -> &'a [&'a [u8]] {
        self.0.get(at..).unwrap_or_default()
    }

    pub fn int(&self, at: usize) -> Result<i64> {
        int(self.0[at])
    }

    /// Reads options one after the other, from `at` on.
    pub fn options(&self, at: usize) -> Options<'a> {
        Options {
            words: self.rest(at),
        }
    }
}

impl<'a> Deref for Args<'a> {
    type Target = [&'a [u8]];

    fn deref(&self) -> &[&'a [u8]] {
        self.0
    }
}

/// Arguments that outlive the connection's buffer.
#[derive(Clone, Debug)]
pub struct OwnedArgs(Vec<Vec<u8>>);

impl OwnedArgs {
    pub fn new(args: &Args<'_>) -> Self {
        OwnedArgs(args.iter().map(|word| word.to_vec()).collect())
    }

    pub fn with<T>(&self, f: impl FnOnce(&Args<'_>) -> T) -> T {
        f(&Args::new(&self.words()))
    }

    pub fn words(&self) -> Vec<&[u8]> {
        self.0.iter().map(Vec::as_slice).collect()
    }

    /// The same with another word in one place.
    pub fn replace(&mut self, at: usize, word: Vec<u8>) {
        self.0[at] = word;
    }
}

pub fn int(text: &[u8]) -> Result<i64> {
    number::parse_i64(text).ok_or(Error::NOT_INTEGER)
}

/// A number that must fit 32 bits: that of a database.
pub fn int32(text: &[u8]) -> Result<i32> {
    i32::try_from(int(text)?).map_err(|_| {
        Error::fixed("ERR value is out of range, value must between -2147483648 and 2147483647")
    })
}

pub fn float(text: &[u8]) -> Result<f64> {
    number::parse_f64(text).ok_or(Error::NOT_FLOAT)
}

/// Whether an argument is this word, in any case.
pub fn is(text: &[u8], word: &str) -> bool {
    text.eq_ignore_ascii_case(word.as_bytes())
}

/// What is left of the arguments while options are read.
pub struct Options<'a> {
    words: &'a [&'a [u8]],
}

impl<'a> Options<'a> {
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The next word, whatever it is.
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// The word after an option that must have one.
    pub fn value(&mut self) -> Result<&'a [u8]> {
        self.next().ok_or(Error::SYNTAX)
    }

    /// Takes the next word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if is(first, word) => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}
