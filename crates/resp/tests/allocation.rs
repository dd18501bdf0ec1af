//! The parser's promises about memory, kept under the eyes of a counting allocator: none in the steady
//! state, and none for what a client only announces.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cairn_resp::{Args, Limits, Parsed, Parser, Protocol, Writer};

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    ALLOCATED.with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: every call is handed to the system allocator unchanged; the counter is a const-initialized
// thread-local without a destructor, so touching it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligations are passed on as they came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn bytes_allocated(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    work();
    ALLOCATED.get() - before
}

/// Parses all of `stream` and returns how many requests it held.
fn parse_all(parser: &mut Parser, args: &mut Args, mut stream: &[u8]) -> usize {
    let mut requests = 0;
    while let Parsed::Complete { consumed } =
        parser.parse(stream, &Limits::default(), args).unwrap()
    {
        stream = &stream[consumed..];
        requests += 1;
    }
    requests
}

#[test]
fn the_counter_counts() {
    assert!(bytes_allocated(|| drop(vec![0u8; 100])) >= 100);
}

#[test]
fn the_steady_state_allocates_nothing() {
    let mut stream = Vec::new();
    for _ in 0..100 {
        Writer::new(&mut stream, Protocol::Resp2).request(&["SET", "key", "value", "PX", "100"]);
        stream.extend_from_slice(b"SET \"inline\\x20key\" 'value'\r\n\r\n");
    }
    let (mut parser, mut args) = (Parser::new(), Args::new());
    parse_all(&mut parser, &mut args, &stream);
    let allocated = bytes_allocated(|| {
        assert_eq!(parse_all(&mut parser, &mut args, &stream), 300);
    });
    assert_eq!(allocated, 0);
}

#[test]
fn replies_without_text_of_their_own_allocate_nothing() {
    let mut out = Vec::with_capacity(4096);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let allocated = bytes_allocated(|| {
            let mut writer = Writer::new(&mut out, protocol);
            writer.map(2);
            writer.int(i64::MIN);
            writer.double(0.1);
            writer.bulk(b"bulk");
            writer.error("ERR no\r\nsplitting");
        });
        assert_eq!(allocated, 0);
    }
}

#[test]
fn announced_sizes_cost_nothing() {
    for claim in [
        "*1\r\n$536870912\r\n",
        "*2147483647\r\n",
        "*2147483647\r\n$536870912\r\nabc",
    ] {
        let allocated = bytes_allocated(|| {
            let (mut parser, mut args) = (Parser::new(), Args::new());
            assert_eq!(parse_all(&mut parser, &mut args, claim.as_bytes()), 0);
        });
        assert_eq!(allocated, 0, "{claim:?}");
    }
}

#[test]
fn a_large_request_does_not_leave_its_memory_behind() {
    let mut stream = Vec::new();
    Writer::new(&mut stream, Protocol::Resp2).request(&vec![""; 100_000]);
    let (mut parser, mut args) = (Parser::new(), Args::new());
    let large = bytes_allocated(|| {
        assert_eq!(parse_all(&mut parser, &mut args, &stream), 1);
    });
    assert!(large > 1_000_000, "the table was expected to grow: {large}");
    parse_all(&mut parser, &mut args, b"PING\r\n");
    let medium = 10_000;
    let mut stream = Vec::new();
    Writer::new(&mut stream, Protocol::Resp2).request(&vec![""; medium]);
    let again = bytes_allocated(|| {
        assert_eq!(parse_all(&mut parser, &mut args, &stream), 1);
    });
    assert!(again > 0, "the memory of the large request was still there");
}
