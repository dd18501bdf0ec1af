//! The words of one request.
//!
//! A bulk argument is a stretch of the connection's input buffer, and stays there: [`Args`] remembers
//! where it lies. The words of an inline request may hold escapes, so that what they mean is not what
//! was sent; they are few and typed by hand, and all of them are copied to a buffer of `Args`' own.
//! Either way the whole request lies in one place, and which one is asked once per request, not once
//! per argument.
//!
//! One `Args` serves a connection for its whole life, so parsing allocates only while it meets a
//! request larger than any before it.

/// What one connection may keep for its next request: beyond it the memory goes back, so that a
/// thousand connections that each sent one enormous request do not hold on to a thousand tables.
const KEPT_RANGES: usize = 4096;

#[derive(Debug, Default)]
pub struct Args {
    ranges: Vec<Range>,
    /// The unescaped words of an inline request.
    words: Vec<u8>,
    inline: bool,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    end: usize,
}

impl Args {
    pub fn new() -> Args {
        Args::default()
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True for an empty line or `*0`: a request that asks for nothing and gets no reply.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument `i`; `buf` is what the parser was given when it completed the request.
    ///
    /// # Panics
    /// If there is no argument `i`, or `buf` is shorter than the request.
    pub fn get<'a>(&'a self, buf: &'a [u8], i: usize) -> &'a [u8] {
        let Range { start, end } = self.ranges[i];
        &self.source(buf)[start..end]
    }

    /// All arguments in order, the command's name first; `buf` as for [`get`](Self::get).
    pub fn iter<'a>(&'a self, buf: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + 'a {
        let source = self.source(buf);
        self.ranges
            .iter()
            .map(move |range| &source[range.start..range.end])
    }

    fn source<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        if self.inline { &self.words } else { buf }
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        if self.ranges.capacity() > KEPT_RANGES {
            self.ranges.shrink_to(KEPT_RANGES);
        }
        // Its capacity needs no such care: an inline request is limited to 64 KiB.
        self.words.clear();
        self.inline = false;
    }

    pub(crate) fn push_range(&mut self, start: usize, end: usize) {
        self.ranges.push(Range { start, end });
    }

    pub(crate) fn begin_inline(&mut self) {
        self.clear();
        self.inline = true;
    }

    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.words.push(byte);
    }

    pub(crate) fn end_word(&mut self) {
        let start = self.ranges.last().map_or(0, |previous| previous.end);
        self.push_range(start, self.words.len());
    }
}
