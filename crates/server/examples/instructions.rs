//! Sends one kind of command many times through a connection, for `tests/instructions/run` to have the
//! instructions counted that each takes. How often memory was allocated it counts itself.
//!
//!   instructions DIRECTORY COMMAND N
//!
//! Only what runs inside [`measured`] counts. Everything before puts the database into a state that does
//! not depend on how fast this machine is: all rows that the command asks for are in memory, each is
//! changed once at most, and nothing is on its way to RocksDB.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use cairn_server::in_process::InProcess;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// The server's allocator, and how often this thread asks it for memory.
struct Counting(tikv_jemallocator::Jemalloc);

#[global_allocator]
static ALLOCATOR: Counting = Counting(tikv_jemallocator::Jemalloc);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count_allocation() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is handed to the allocator unchanged; the counter is a const-initialized thread-local without a
// destructor, so touching it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller's obligations are passed on as they came.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from this allocator with this layout.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count_allocation();
        // SAFETY: as above.
        unsafe { self.0.realloc(pointer, layout, new_size) }
    }
}

/// Memory that is free stays with the process: when to give it back is a matter of time, and what
/// depends on time cannot be counted.
// SAFETY: this is the name under which jemalloc looks for its settings at start, and the type it expects:
// a pointer to a string that ends with a zero byte and lives for ever.
#[unsafe(export_name = "malloc_conf")]
pub static ALLOCATOR_SETTINGS: &[u8; 36] = b"dirty_decay_ms:-1,muzzy_decay_ms:-1\0";

/// How many keys or elements there are.
const ELEMENTS: usize = 5_000;
/// How many commands are sent before those that count, so that whatever happens only once has happened.
const WARM_UP: usize = 160;
/// How many commands come at once.
const PIPELINE: usize = 16;
/// How many hashes are read again and again.
const ASKED_AGAIN: usize = 20;
/// How many elements LRANGE_100 returns.
const RANGE: usize = 100;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, command, count] = arguments.as_slice() else {
        return Err("usage: instructions DIRECTORY COMMAND N".into());
    };
    let count: usize = count.parse().map_err(|_| "N is not a number")?;
    if WARM_UP + count > ELEMENTS {
        return Err(format!("N is at most {}", ELEMENTS - WARM_UP));
    }
    let workload = Workload::named(command).ok_or("no such command")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let tasks = LocalSet::new();
    let server = InProcess::open(Path::new(directory))?;
    let mut before = Script::new(workload.before, 0..ELEMENTS);
    tasks.block_on(&runtime, server.serve(&mut before))?;
    let mut warm_up = Script::new(workload.command, 0..WARM_UP);
    tasks.block_on(&runtime, server.serve(&mut warm_up))?;
    server.rest()?;
    let mut script = Script::new(workload.command, WARM_UP..WARM_UP + count);
    let allocated = ALLOCATIONS.get();
    measured(&runtime, &tasks, &server, &mut script)?;
    let allocated = ALLOCATIONS.get() - allocated;
    if ![before, warm_up, script].iter().all(Script::is_over) {
        return Err("a connection ended early".into());
    }
    println!("Allocated : {allocated}");
    Ok(())
}

/// What is counted. Its name is known to `tests/instructions/run`.
#[inline(never)]
fn measured(
    runtime: &Runtime,
    tasks: &LocalSet,
    server: &InProcess,
    script: &mut Script,
) -> Result<(), String> {
    tasks.block_on(runtime, server.serve(script))
}

/// A command and the reply to it, by its number.
type Exchange = fn(usize) -> (String, String);

struct Workload {
    /// Sent once for each element, to begin with.
    before: Exchange,
    command: Exchange,
}

impl Workload {
    fn named(command: &str) -> Option<Workload> {
        let (before, command): (Exchange, Exchange) = match command {
            "GET" => (set, get),
            "SET" => (set, set),
            "HSET" => (new_field, old_field),
            "HGET" => (new_field, hget),
            "SADD" => (sadd, sadd_again),
            "ZPOPMIN" => (new_member, zpopmin),
            "LPOP" => (lpush, lpop),
            "RPOP" => (lpush, rpop),
            "ZADD" => (new_member, old_member),
            "ZADD_NEW" => (scattered, more_scattered),
            "ZADD_RANK" => (scattered_and_ranked, more_scattered),
            "LPUSH" => (lpush, lpush_more),
            "INCR" => (incr, incr_more),
            "MSET_10" => (set, mset),
            "MGET_10" => (set, mget),
            "HGETALL" => (small_hash, hgetall),
            "HGETALL_AGAIN" => (small_hash, hgetall_again),
            "LRANGE_100" => (lpush, lrange),
            _ => return None,
        };
        Some(Workload { before, command })
    }
}

fn request(words: &[&str]) -> String {
    let words = words.iter().map(|word| bulk(word));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn element(number: usize) -> String {
    format!("element:{number:012}")
}

fn set(number: usize) -> (String, String) {
    let key = element(number);
    (request(&["SET", &key, "some value"]), "+OK\r\n".into())
}

fn get(number: usize) -> (String, String) {
    (request(&["GET", &element(number)]), bulk("some value"))
}

fn new_field(number: usize) -> (String, String) {
    let field = element(number);
    let words = ["HSET", "a hash", &field, "some value"];
    (request(&words), ":1\r\n".into())
}

fn old_field(number: usize) -> (String, String) {
    let field = element(number);
    let words = ["HSET", "a hash", &field, "other value"];
    (request(&words), ":0\r\n".into())
}

fn hget(number: usize) -> (String, String) {
    let words = ["HGET", "a hash", &element(number)];
    (request(&words), bulk("some value"))
}

fn new_member(number: usize) -> (String, String) {
    let words = ["ZADD", "a sorted set", "1", &element(number)];
    (request(&words), ":1\r\n".into())
}

fn old_member(number: usize) -> (String, String) {
    let score = (number + 2).to_string();
    let words = ["ZADD", "a sorted set", &score, &element(number)];
    (request(&words), ":0\r\n".into())
}

/// Members that are added everywhere in the order of their scores.
fn scattered(number: usize) -> (String, String) {
    let score = (number * 1237 % ELEMENTS).to_string();
    let words = ["ZADD", "a sorted set", &score, &element(number)];
    (request(&words), ":1\r\n".into())
}

/// The same, and in the end somebody asks for a rank: from then on they are counted.
fn scattered_and_ranked(number: usize) -> (String, String) {
    let (mut requests, mut replies) = scattered(number);
    if number == ELEMENTS - 1 {
        requests += &request(&["ZRANK", "a sorted set", &element(0)]);
        replies += ":0\r\n";
    }
    (requests, replies)
}

fn more_scattered(number: usize) -> (String, String) {
    scattered(ELEMENTS + number)
}

fn incr(number: usize) -> (String, String) {
    (
        request(&["INCR", "a number"]),
        format!(":{}\r\n", number + 1),
    )
}

fn incr_more(number: usize) -> (String, String) {
    incr(ELEMENTS + number)
}

/// Ten of the strings that there are.
fn ten_keys(number: usize) -> Vec<String> {
    let keys = (0..10).map(|at| element((number * 10 + at) % ELEMENTS));
    keys.collect()
}

fn mget(number: usize) -> (String, String) {
    let keys = ten_keys(number);
    let words = std::iter::once("MGET").chain(keys.iter().map(String::as_str));
    let words: Vec<&str> = words.collect();
    let reply = format!("*10\r\n{}", bulk("some value").repeat(10));
    (request(&words), reply)
}

/// Fields of a hash, and what they are set to.
const FIELDS: [[&str; 2]; 3] = [["born", "1815"], ["name", "Ada"], ["work", "notes"]];

fn small_hash(number: usize) -> (String, String) {
    let key = element(number);
    let words = ["HSET", &key]
        .into_iter()
        .chain(FIELDS.into_iter().flatten());
    let words: Vec<&str> = words.collect();
    (request(&words), format!(":{}\r\n", FIELDS.len()))
}

fn hgetall(number: usize) -> (String, String) {
    let fields = FIELDS.into_iter().flatten().map(bulk);
    let reply = format!("*{}\r\n{}", 2 * FIELDS.len(), fields.collect::<String>());
    (request(&["HGETALL", &element(number)]), reply)
}

fn hgetall_again(number: usize) -> (String, String) {
    hgetall(number % ASKED_AGAIN)
}

fn mset(number: usize) -> (String, String) {
    let keys = ten_keys(number);
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "some value"]);
    let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
    (request(&words), "+OK\r\n".into())
}

fn lpush(number: usize) -> (String, String) {
    let words = ["LPUSH", "a list", &element(number)];
    (request(&words), format!(":{}\r\n", number + 1))
}

fn lpush_more(number: usize) -> (String, String) {
    lpush(ELEMENTS + number)
}

fn lpop(number: usize) -> (String, String) {
    (
        request(&["LPOP", "a list"]),
        bulk(&element(ELEMENTS - 1 - number)),
    )
}

fn rpop(number: usize) -> (String, String) {
    (request(&["RPOP", "a list"]), bulk(&element(number)))
}

fn sadd(number: usize) -> (String, String) {
    let words = ["SADD", "a set", &element(number)];
    (request(&words), ":1\r\n".into())
}

fn sadd_again(number: usize) -> (String, String) {
    let (request, _) = sadd(number);
    (request, ":0\r\n".into())
}

fn zpopmin(number: usize) -> (String, String) {
    let reply = format!("*2\r\n{}{}", bulk(&element(number)), bulk("1"));
    (request(&["ZPOPMIN", "a sorted set"]), reply)
}

fn lrange(_number: usize) -> (String, String) {
    let words = ["LRANGE", "a list", "0", &(RANGE - 1).to_string()];
    let elements = (0..RANGE).map(|at| bulk(&element(ELEMENTS - 1 - at)));
    let reply = format!("*{RANGE}\r\n{}", elements.collect::<String>());
    (request(&words), reply)
}

/// A client that sends its commands a pipeline at a time, never waits, and allocates nothing. Wrong
/// replies make it panic.
struct Script {
    pipelines: Vec<Pipeline>,
    sent: usize,
    answered: usize,
}

struct Pipeline {
    requests: String,
    replies: String,
}

impl Script {
    fn new(exchange: Exchange, numbers: Range<usize>) -> Script {
        let numbers: Vec<usize> = numbers.collect();
        let pipeline = |numbers: &[usize]| {
            let (requests, replies) = numbers.iter().map(|number| exchange(*number)).unzip();
            Pipeline { requests, replies }
        };
        Script {
            pipelines: numbers.chunks(PIPELINE).map(pipeline).collect(),
            sent: 0,
            answered: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.answered == self.pipelines.len()
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if let Some(pipeline) = self.pipelines.get(self.sent) {
            buffer.put_slice(pipeline.requests.as_bytes());
            self.sent += 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        replies: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let expected = self.pipelines[self.answered].replies.as_bytes();
        assert!(
            replies == expected,
            "replied: {}\nexpected: {}",
            replies.escape_ascii(),
            expected.escape_ascii()
        );
        self.answered += 1;
        Poll::Ready(Ok(replies.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
