//! INFO: figures about the server, under the names that Redis gives them, so that the tools that watch a
//! Redis watch Cairn. What Redis counts and Cairn has no use for stands at zero if tools look for it.

mod command;
pub mod memory;
mod process;
mod reclaim;
mod storage;

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_store::Result;

use crate::acl::Reason;
use crate::client::Client;
use crate::pubsub::Kind;
use crate::server::Server;
use crate::shortage;
use crate::upstream::{self, Stage};

/// The version of Redis whose behaviour this is.
pub const REDIS_VERSION: &str = "7.0.15";
pub const CAIRN_VERSION: &str = env!("CARGO_PKG_VERSION");

struct Section {
    title: &'static str,
    /// Whether INFO shows it when no section is named.
    is_default: bool,
    write: fn(&Server, &mut Report) -> Result<()>,
}

const fn section(title: &'static str, write: fn(&Server, &mut Report) -> Result<()>) -> Section {
    Section {
        title,
        is_default: true,
        write,
    }
}

const fn on_demand(title: &'static str, write: fn(&Server, &mut Report) -> Result<()>) -> Section {
    Section {
        is_default: false,
        ..section(title, write)
    }
}

const SECTIONS: &[Section] = &[
    section("Server", server),
    section("Clients", clients),
    section("Memory", memory::section),
    section("Persistence", persistence),
    section("Storage", storage::section),
    section("Reclaim", reclaim::section),
    section("Stats", stats),
    section("Replication", replication),
    section("CPU", cpu),
    section("Modules", |_, _| Ok(())),
    on_demand("Commandstats", command::stats),
    section("Errorstats", command::errors),
    on_demand("Latencystats", command::latencies),
    section("Cluster", cluster),
    section("Keyspace", keyspace),
];

/// The sections that are asked for, each once and always in the same order.
pub fn report(server: &Server, names: &[&[u8]]) -> Result<String> {
    let is_asked_for = |section: &Section| {
        names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            match name.as_slice() {
                b"all" | b"everything" => true,
                b"default" => section.is_default,
                name => section.title.to_ascii_lowercase().as_bytes() == name,
            }
        }) || names.is_empty() && section.is_default
    };
    let mut report = Report::default();
    for section in SECTIONS.iter().filter(|section| is_asked_for(section)) {
        report.title(section.title);
        (section.write)(server, &mut report)?;
    }
    Ok(report.text)
}

#[derive(Default)]
struct Report {
    text: String,
}

impl Report {
    fn title(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push_str("\r\n");
        }
        self.text.push_str(&format!("# {title}\r\n"));
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.text.push_str(&format!("{name}:{value}\r\n"));
    }

    /// The number, and beside it the same for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }

    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.field(name, 0);
        }
    }
}

fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut amount = bytes as f64;
    let mut units = "KMGTPE".chars();
    let mut unit = 'B';
    while amount >= 1024.0
        && let Some(next) = units.next()
    {
        amount /= 1024.0;
        unit = next;
    }
    format!("{amount:.2}{unit}")
}

fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn server(server: &Server, report: &mut Report) -> Result<()> {
    let uptime = server.started.elapsed().as_secs();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let file = server.config.file();
    report.field("redis_version", REDIS_VERSION);
    report.field("cairn_version", CAIRN_VERSION);
    report.field("redis_git_sha1", "00000000");
    report.field("redis_git_dirty", 0);
    report.field("redis_build_id", "0");
    report.field("redis_mode", server.mode());
    report.field("os", process::system());
    report.field("arch_bits", usize::BITS);
    report.field("monotonic_clock", "POSIX clock_gettime");
    report.field("multiplexing_api", "epoll");
    report.field("process_id", std::process::id());
    report.field("process_supervised", "no");
    report.field("run_id", &server.run_id);
    let address = server.config.address();
    let port = match address.port {
        0 => address.tls_port,
        port => port,
    };
    report.field("tcp_port", port);
    report.field("server_time_usec", now.as_micros());
    report.field("uptime_in_seconds", uptime);
    report.field("uptime_in_days", uptime / 86_400);
    report.field("hz", server.config.text("hz"));
    report.field("configured_hz", server.config.text("hz"));
    report.field("lru_clock", now.as_secs() & 0xff_ffff);
    report.field("executable", executable.display());
    report.field(
        "config_file",
        file.map(|path| path.display().to_string())
            .unwrap_or_default(),
    );
    report.field("io_threads_active", 0);
    Ok(())
}

fn clients(server: &Server, report: &mut Report) -> Result<()> {
    let all = server.clients.all();
    let most = |of: fn(&Client) -> usize| all.iter().map(|client| of(client)).max().unwrap_or(0);
    report.field("connected_clients", server.clients.count());
    report.field("cluster_connections", 0);
    report.field(
        "maxclients",
        server.live.max_clients.load(Ordering::Relaxed),
    );
    report.field(
        "client_recent_max_input_buffer",
        most(|client| client.input.capacity()),
    );
    report.field(
        "client_recent_max_output_buffer",
        most(|client| client.output.used()),
    );
    let blocked = all.iter().filter(|client| client.is_blocked()).count();
    report.field("blocked_clients", blocked);
    report.field("tracking_clients", server.tracking.clients());
    report.field("clients_in_timeout_table", 0);
    Ok(())
}

/// Everything is persistent all the time; what follows tells tools that nothing is under way.
fn persistence(server: &Server, report: &mut Report) -> Result<()> {
    report.zeros(&[
        "loading",
        "async_loading",
        "current_cow_peak",
        "current_cow_size",
        "current_cow_size_age",
    ]);
    report.field("current_fork_perc", "0.00");
    report.zeros(&["current_save_keys_processed", "current_save_keys_total"]);
    report.zeros(&["rdb_changes_since_last_save", "rdb_bgsave_in_progress"]);
    report.field(
        "rdb_last_save_time",
        server.last_save.load(Ordering::Relaxed),
    );
    report.field("rdb_last_bgsave_status", "ok");
    report.field("rdb_last_bgsave_time_sec", -1);
    report.field("rdb_current_bgsave_time_sec", -1);
    report.zeros(&["rdb_saves", "rdb_last_cow_size"]);
    report.zeros(&["rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"]);
    report.zeros(&[
        "aof_enabled",
        "aof_rewrite_in_progress",
        "aof_rewrite_scheduled",
        "aof_rewrites",
        "aof_rewrites_consecutive_failures",
    ]);
    report.field("aof_last_rewrite_time_sec", -1);
    report.field("aof_current_rewrite_time_sec", -1);
    report.field("aof_last_bgrewrite_status", "ok");
    let can_write = !server.store.disk_is_full();
    report.field(
        "aof_last_write_status",
        if can_write { "ok" } else { "err" },
    );
    report.zeros(&[
        "aof_last_cow_size",
        "module_fork_in_progress",
        "module_fork_last_cow_size",
    ]);
    Ok(())
}

fn stats(server: &Server, report: &mut Report) -> Result<()> {
    let stats = &server.stats;
    let rate = stats.rates.now();
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    report.field("total_connections_received", stats.connections.get());
    report.field("total_commands_processed", stats.commands());
    report.field("instantaneous_ops_per_sec", rate.commands as u64);
    report.field("total_net_input_bytes", stats.bytes_in.get());
    report.field("total_net_output_bytes", stats.bytes_out.get());
    report.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    report.field("instantaneous_input_kbps", kilobytes(rate.bytes_in));
    report.field("instantaneous_output_kbps", kilobytes(rate.bytes_out));
    report.field("instantaneous_input_repl_kbps", "0.00");
    report.field("instantaneous_output_repl_kbps", "0.00");
    report.field("rejected_connections", stats.rejected_connections.get());
    let syncs = &server.replication.counts;
    for (name, count) in [
        ("sync_full", &syncs.full),
        ("sync_partial_ok", &syncs.partial),
        ("sync_partial_err", &syncs.refused),
    ] {
        report.field(name, count.load(Ordering::Relaxed));
    }
    report.field(
        "expired_keys",
        stats.expired(server.store.expirer().expired_keys()),
    );
    report.field(
        "expired_subkeys",
        stats.expired_fields(server.store.expirer().expired_fields()),
    );
    report.field("expired_stale_perc", "0.00");
    report.zeros(&[
        "expired_time_cap_reached_count",
        "expire_cycle_cpu_milliseconds",
    ]);
    report.field("evicted_keys", server.room.evicted_keys(server));
    report.field("evicted_clients", 0);
    let (total, current) = server.room.exceeded();
    report.field("total_eviction_exceeded_time", total.as_millis());
    report.field("current_eviction_exceeded_time", current.as_millis());
    report.field("keyspace_hits", stats.keyspace_hits.get());
    report.field("keyspace_misses", stats.keyspace_misses.get());
    let subscribed = |kind| server.pubsub.count(kind);
    report.field("pubsub_channels", subscribed(Kind::Channel));
    report.field("pubsub_patterns", subscribed(Kind::Pattern));
    report.field("pubsubshard_channels", subscribed(Kind::Shard));
    report.zeros(&["latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    report.zeros(&[
        "slave_expires_tracked_keys",
        "active_defrag_hits",
        "active_defrag_misses",
    ]);
    report.zeros(&["active_defrag_key_hits", "active_defrag_key_misses"]);
    report.zeros(&["total_active_defrag_time", "current_active_defrag_time"]);
    report.field("tracking_total_keys", server.tracking.keys());
    report.field("tracking_total_items", server.tracking.items());
    report.field("tracking_total_prefixes", server.tracking.prefixes());
    report.field("unexpected_error_replies", 0);
    report.field("total_error_replies", stats.errors().values().sum::<u64>());
    report.field("dump_payload_sanitizations", 0);
    report.field("total_reads_processed", stats.reads.get());
    report.field("total_writes_processed", stats.writes.get());
    report.zeros(&[
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
        "reply_buffer_shrinks",
        "reply_buffer_expands",
    ]);
    for (name, reason) in [
        ("acl_access_denied_auth", Reason::Auth),
        ("acl_access_denied_cmd", Reason::Command),
        ("acl_access_denied_key", Reason::Key),
        ("acl_access_denied_channel", Reason::Channel),
    ] {
        report.field(name, server.acl.denied(reason));
    }
    Ok(())
}

fn replication(server: &Server, report: &mut Report) -> Result<()> {
    let overview = server.replication.overview();
    match server.upstream.overview() {
        None => report.field("role", "master"),
        Some(upstream) => followed(server, &upstream, report),
    }
    report.field("connected_slaves", overview.followers.len());
    if let Some(most_lag) = shortage::wanted_replicas(server).map(|wanted| wanted.most_lag) {
        let good = server.replication.count_good(most_lag);
        report.field("min_slaves_good_slaves", good);
    }
    for (number, follower) in overview.followers.iter().enumerate() {
        let (address, port) = follower.address();
        let (state, offset) = (follower.state(), follower.acknowledged());
        let lag = follower.lag().as_secs();
        let told = format!("ip={address},port={port},state={state},offset={offset},lag={lag}");
        report.field(&format!("slave{number}"), told);
    }
    report.field("master_failover_state", "no-failover");
    report.field("master_replid", &overview.id);
    report.field("master_replid2", "0".repeat(40));
    report.field("master_repl_offset", overview.offset);
    report.field("second_repl_offset", -1);
    report.field("repl_backlog_active", u8::from(overview.backlog.is_some()));
    report.field("repl_backlog_size", server.config.text("repl-backlog-size"));
    let (first, length) = overview.backlog.unwrap_or_default();
    report.field("repl_backlog_first_byte_offset", first);
    report.field("repl_backlog_histlen", length);
    Ok(())
}

/// What is told of the server that this one follows.
fn followed(server: &Server, upstream: &upstream::Overview, report: &mut Report) {
    let is_up = upstream.stage == Stage::Connected;
    report.field("role", "slave");
    report.field("master_host", &upstream.master.host);
    report.field("master_port", upstream.master.port);
    report.field("master_link_status", if is_up { "up" } else { "down" });
    let heard_ago = match is_up {
        true => upstream.heard_ago.as_secs() as i64,
        false => -1,
    };
    report.field("master_last_io_seconds_ago", heard_ago);
    let is_loading = upstream.stage == Stage::Loading;
    report.field("master_sync_in_progress", u8::from(is_loading));
    report.field("slave_read_repl_offset", upstream.applied);
    report.field("slave_repl_offset", upstream.applied);
    if !is_up {
        let seconds = upstream.down_for.as_secs();
        report.field("master_link_down_since_seconds", seconds);
    }
    report.field("slave_priority", server.config.text("replica-priority"));
    let is_read_only = server.config.text("replica-read-only") != "no";
    report.field("slave_read_only", u8::from(is_read_only));
    report.field("replica_announced", 1);
}

fn cpu(_: &Server, report: &mut Report) -> Result<()> {
    let (process, children) = process::cpu_seconds();
    let micros = |seconds: f64| format!("{seconds:.6}");
    report.field("used_cpu_sys", micros(process.system));
    report.field("used_cpu_user", micros(process.user));
    report.field("used_cpu_sys_children", micros(children.system));
    report.field("used_cpu_user_children", micros(children.user));
    Ok(())
}

fn cluster(server: &Server, report: &mut Report) -> Result<()> {
    let is_enabled = server.settings.cluster_enabled;
    report.field("cluster_enabled", u8::from(is_enabled));
    Ok(())
}

fn keyspace(server: &Server, report: &mut Report) -> Result<()> {
    for database in 0..server.store.database_count() {
        let count = server.store.count_keys(database)?;
        if count.keys > 0 {
            let (keys, expires) = (count.keys, count.expires);
            let name = format!("db{database}");
            report.field(&name, format!("keys={keys},expires={expires},avg_ttl=0"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (940_936, "918.88K"),
            (12_333_056, "11.76M"),
            (25_276_518_400, "23.54G"),
        ];
        for (bytes, shown) in cases {
            assert_eq!(human(bytes), shown);
        }
    }
}
