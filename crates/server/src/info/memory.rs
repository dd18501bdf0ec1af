//! What memory is used for.

use cairn_engine::Memory;
use cairn_resp::Reply;
use cairn_store::Result;

use super::{Report, human, process, ratio};
use crate::client::Client;
use crate::command::Args;
use crate::server::Server;

pub(super) fn section(server: &Server, report: &mut Report) -> Result<()> {
    let memory = Memory::now();
    let resident = process::resident_bytes();
    let peak = server.stats.note_memory(memory.allocated);
    let statistics = server.store.engine().statistics();
    let dataset = statistics.block_cache_bytes.min(memory.allocated);
    let overhead = memory.allocated - dataset;
    report.bytes("used_memory", memory.allocated);
    report.bytes("used_memory_rss", resident);
    report.bytes("used_memory_peak", peak);
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    report.field(
        "used_memory_peak_perc",
        percent(ratio(memory.allocated, peak)),
    );
    report.field("used_memory_overhead", overhead);
    report.field("used_memory_startup", 0);
    report.field("used_memory_dataset", dataset);
    report.field(
        "used_memory_dataset_perc",
        percent(ratio(dataset, memory.allocated)),
    );
    report.field("allocator_allocated", memory.allocated);
    report.field("allocator_active", memory.active);
    report.field("allocator_resident", memory.resident);
    report.bytes("total_system_memory", process::system_memory());
    // Every thread has a Lua, which scripts and functions share. Where Redis tells of its one, this is the largest.
    let scripts = server.scripts.figures();
    report.bytes("used_memory_lua", scripts.largest_lua_bytes as u64);
    report.field("used_memory_vm_eval", scripts.largest_lua_bytes);
    report.field("used_memory_scripts_eval", scripts.script_bytes);
    report.field("number_of_cached_scripts", scripts.scripts);
    report.field("number_of_functions", scripts.functions);
    report.field("number_of_libraries", scripts.libraries);
    report.field("used_memory_vm_functions", scripts.largest_lua_bytes);
    report.bytes("used_memory_vm_total", scripts.lua_bytes as u64);
    report.field("used_memory_functions", scripts.library_bytes);
    let texts = scripts.script_bytes + scripts.library_bytes;
    report.bytes("used_memory_scripts", texts as u64);
    let limit = server.config.text("maxmemory").parse().unwrap_or(0);
    report.bytes("maxmemory", limit);
    report.field("maxmemory_policy", server.config.text("maxmemory-policy"));
    let two_digits = |number: f64| format!("{number:.2}");
    let pairs = [
        ("allocator_frag", memory.active, memory.allocated),
        ("allocator_rss", memory.resident, memory.active),
        ("rss_overhead", resident, memory.resident),
        ("mem_fragmentation", resident, memory.allocated),
    ];
    for (name, of, to) in pairs {
        report.field(&format!("{name}_ratio"), two_digits(ratio(of, to)));
        report.field(&format!("{name}_bytes"), of as i64 - to as i64);
    }
    // All of the data counts, and not what of it is in memory: what is left of `used_memory` without this is what `maxmemory`
    // limits. It is below zero if much of the data is on the disk only.
    let data = server.store.data_bytes();
    let limited = data + server.room.bytes_beside_data(server);
    let not_counted = memory.allocated as i64 - limited as i64;
    report.field("mem_not_counted_for_evict", not_counted);
    report.field("data_bytes", data);
    report.zeros(&[
        "mem_replication_backlog",
        "mem_total_replication_buffers",
        "mem_clients_slaves",
    ]);
    report.field("mem_clients_normal", client_buffers(server));
    report.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    report.field("mem_allocator", Memory::allocator());
    report.zeros(&[
        "active_defrag_running",
        "lazyfree_pending_objects",
        "lazyfreed_objects",
    ]);
    Ok(())
}

pub fn client_buffers(server: &Server) -> usize {
    let buffers = |client: &Client| client.input.capacity() + client.output.capacity();
    let clients = server.clients.all();
    clients.iter().map(|client| buffers(client)).sum()
}

/// MEMORY DOCTOR.
pub fn doctor(server: &Server, _: &Args) -> Result<Reply> {
    let memory = Memory::now();
    let statistics = server.store.engine().statistics();
    let text = format!(
        "The process has {} allocated and {} resident. Of that, the cache holds {} of the {} it \
         may hold, among them {} of changes that are not yet in files. The data itself is on \
         disk, {} of it, and need not fit.\n",
        human(memory.allocated),
        human(process::resident_bytes()),
        human(statistics.block_cache_bytes),
        human(statistics.block_cache_capacity),
        human(statistics.memtable_bytes),
        human(statistics.sst_bytes),
    );
    Ok(Reply::Verbatim("txt", text.into_bytes()))
}

/// MEMORY MALLOC-STATS.
pub fn malloc_stats(_: &Server, _: &Args) -> Result<Reply> {
    Ok(Reply::Verbatim("txt", Memory::report().into_bytes()))
}

/// MEMORY PURGE.
pub fn purge(_: &Server, _: &Args) -> Result<Reply> {
    Memory::purge();
    Ok(Reply::Ok)
}

/// MEMORY STATS: Redis' figures, as far as they mean something here. What it counts as the dataset is what of it is
/// in memory.
pub fn stats(server: &Server, _: &Args) -> Result<Reply> {
    let memory = Memory::now();
    let resident = process::resident_bytes();
    let peak = server.stats.note_memory(memory.allocated);
    let statistics = server.store.engine().statistics();
    let dataset = statistics.block_cache_bytes.min(memory.allocated);
    let scripts = server.scripts.figures();
    let mut keys = 0;
    for database in 0..server.store.database_count() {
        keys += server.store.count_keys(database)?.keys;
    }
    let mut figures: Vec<(Reply, Reply)> = Vec::new();
    let mut add = |name: &'static str, figure: Reply| figures.push((name.into(), figure));
    add("peak.allocated", peak.into());
    add("total.allocated", memory.allocated.into());
    add("startup.allocated", Reply::Int(0));
    for nothing in ["replication.backlog", "clients.slaves"] {
        add(nothing, Reply::Int(0));
    }
    add("clients.normal", client_buffers(server).into());
    for nothing in ["cluster.links", "aof.buffer"] {
        add(nothing, Reply::Int(0));
    }
    add("lua.caches", scripts.script_bytes.into());
    add("functions.caches", scripts.library_bytes.into());
    add("overhead.total", (memory.allocated - dataset).into());
    add("keys.count", keys.into());
    add("keys.bytes-per-key", (dataset / keys.max(1)).into());
    add("dataset.bytes", dataset.into());
    let percent = |part: u64, whole: u64| Reply::Double(100.0 * ratio(part, whole));
    add("dataset.percentage", percent(dataset, memory.allocated));
    add("peak.percentage", percent(memory.allocated, peak));
    add("allocator.allocated", memory.allocated.into());
    add("allocator.active", memory.active.into());
    add("allocator.resident", memory.resident.into());
    for (ratio_name, bytes_name, of, to) in [
        (
            "allocator-fragmentation.ratio",
            "allocator-fragmentation.bytes",
            memory.active,
            memory.allocated,
        ),
        (
            "allocator-rss.ratio",
            "allocator-rss.bytes",
            memory.resident,
            memory.active,
        ),
        (
            "rss-overhead.ratio",
            "rss-overhead.bytes",
            resident,
            memory.resident,
        ),
        (
            "fragmentation",
            "fragmentation.bytes",
            resident,
            memory.allocated,
        ),
    ] {
        add(ratio_name, Reply::Double(ratio(of, to)));
        add(bytes_name, Reply::Int(of as i64 - to as i64));
    }
    Ok(Reply::Map(figures))
}
