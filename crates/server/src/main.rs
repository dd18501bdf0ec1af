//! The program; what it does is in the library.

/// Fragments less than the system's under a database's mix of sizes, and RocksDB is built with it too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Memory that is free goes back to the system within ten seconds, or sooner (see `Memory::keep_within`), by threads of the
/// allocator's own: the process shall not stand at the size of its largest moment.
// SAFETY: this is the name under which jemalloc looks for its settings at start, and the type it expects:
// a pointer to a string that ends with a zero byte and lives for ever.
#[unsafe(export_name = "malloc_conf")]
pub static ALLOCATOR_SETTINGS: &[u8; 61] =
    b"background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:0\0";

fn main() -> std::process::ExitCode {
    cairn_server::main()
}
