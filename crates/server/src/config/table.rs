//! Every parameter, declared once: flags, file keys, CONFIG GET, CONFIG SET and CONFIG REWRITE all
//! follow from here.
//!
//! The first part is what Cairn acts on. The rest are the parameters of Redis 7.0 that mean nothing to a
//! database on disk; tools set and read them, so they are checked as Redis checks them, and remembered.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::live;
use super::parameter::{
    Parameter, number, octal, one_of, size, size_or_percent, special, text, yes_no,
};
use super::special as read;

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;
const BYTES: u64 = i64::MAX as u64;
const PORT: i64 = u16::MAX as i64;
const MIB: u64 = 1 << 20;

/// Where the parameters are looked up: by either name, in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    static BY_NAME: LazyLock<FxHashMap<&str, usize>> = LazyLock::new(|| {
        let numbered = PARAMETERS.iter().enumerate();
        numbered
            .flat_map(|(at, parameter)| parameter.names().map(move |name| (name, at)))
            .collect()
    });
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    BY_NAME.get(name.as_str()).copied()
}

pub static PARAMETERS: &[Parameter] = &[
    special("bind", read::addresses, "127.0.0.1").flag(
        "Addresses to listen on, with blanks between: * and ::* are all, and -ADDRESS need not be there",
    ),
    number("port", 0, PORT, "6379").flag("Port to listen on; 0 is none"),
    // Those of TLS are read together, see `tls`.
    number("tls-port", 0, PORT, "0").flag("Port for encrypted connections; 0 is none"),
    text("tls-cert-file", "").flag("The server's certificate, and those that vouch for it (PEM)"),
    text("tls-key-file", "").flag("The key of the certificate (PEM)"),
    text("tls-key-file-pass", ""),
    text("tls-ca-cert-file", "").flag("Certificates that clients' own must be vouched for by (PEM)"),
    text("tls-ca-cert-dir", "").flag("A directory with such certificates"),
    one_of("tls-auth-clients", &["no", "yes", "optional"], "yes").flag(
        "Whether clients have to have a certificate: yes, no, or only a valid one if any (optional)",
    ),
    text("tls-protocols", "").flag("Versions of TLS, of TLSv1.2 and TLSv1.3; empty is both"),
    text("tls-ciphers", "").flag("Ciphers of TLSv1.2 with colons between; empty is all"),
    text("tls-ciphersuites", "").flag("Ciphers of TLSv1.3 with colons between; empty is all"),
    text("tls-dh-params-file", ""),
    yes_no("tls-prefer-server-ciphers", "no"),
    yes_no("tls-session-caching", "yes"),
    number("tls-session-cache-size", 0, INT, "20480"),
    text("unixsocket", "")
        .immutable()
        .flag("Path of a Unix socket to listen on; empty is none"),
    octal("unixsocketperm", "0")
        .immutable()
        .flag("Permissions of the Unix socket, as in 770; 0 is what the system gives"),
    text("dir", "./data")
        .protected()
        .flag("Where the data lies"),
    one_of("sync", &["everysec", "always", "no"], "everysec")
        .alias("appendfsync")
        .immutable()
        .flag(
            "When writes reach the disk: before they are acknowledged (always), within a second \
             (everysec), or when the system writes them (no)",
        ),
    size("memory", 0, BYTES, "0")
        .immutable()
        .flag("Memory to use, as in 512mb or 2gb; 0 is a quarter of the machine's"),
    number("threads", 0, 1024, "0")
        .immutable()
        .flag("Threads that serve connections; 0 is one for every two cores"),
    number("databases", 1, INT, "16")
        .immutable()
        .flag("Number of databases for SELECT"),
    number("maxclients", 1, u32::MAX as i64, "10000")
        .flag("The most connections at once")
        .checked(live::check_max_clients)
        .applies(live::set_max_clients),
    number("timeout", 0, INT, "0")
        .flag("Seconds after which an idle connection is closed; 0 is never")
        .applies(live::set_timeout),
    number("tcp-keepalive", 0, INT, "300")
        .flag("Seconds of silence after which a connection is probed; 0 is never")
        .applies(live::set_tcp_keepalive),
    text("requirepass", "")
        .flag("Password of the default user; empty is none")
        .applies(live::set_password),
    text("aclfile", "")
        .immutable()
        .flag("File that the users are in; empty is none"),
    one_of(
        "acl-pubsub-default",
        &["allchannels", "resetchannels"],
        "resetchannels",
    )
    .applies(live::set_channels_of_new_users),
    number("acllog-max-len", 0, LONG, "128").applies(live::set_acl_log_len),
    size("proto-max-bulk-len", MIB, BYTES, "536870912")
        .flag("The longest argument that is accepted")
        .applies(live::set_max_bulk_len),
    size("client-query-buffer-limit", MIB, BYTES, "1073741824")
        .flag("How much of what a client sends may wait to be run before the client is closed")
        .applies(live::set_query_buffer_limit),
    one_of(
        "loglevel",
        &["debug", "verbose", "notice", "warning"],
        "notice",
    )
    .flag("What is logged: debug, verbose, notice or warning")
    .applies(live::set_log_level),
    number("expire-batch", 1, 1_000_000, "256")
        .immutable()
        .flag("The most keys that the expirer deletes in one batch"),
    number("expire-interval-ms", 1, INT, "100")
        .immutable()
        .flag("Milliseconds that the expirer rests when nothing is due"),
    size("min-free-disk", 0, BYTES, "1073741824")
        .immutable()
        .flag("Free disk space below which writes are refused"),
    yes_no("rank-index", "yes").immutable().flag(
        "Whether the elements of large collections that are asked for ranks or random picks are counted",
    ),
    // Those of a cluster are read when the server starts as a node of one.
    yes_no("cluster-enabled", "no")
        .immutable()
        .flag("Whether this server is a node of a cluster, or waits to become one"),
    number("cluster-port", 0, PORT, "0")
        .immutable()
        .flag("Port for other nodes; 0 is the port for clients and 10000"),
    special("cluster-announce-ip", read::announced_host, "")
        .immutable()
        .flag(
            "What others reach this node by, if not by the address that it listens on: behind \
             NAT, or by name",
        ),
    number("cluster-announce-port", 0, PORT, "0")
        .immutable()
        .flag("The port by which clients reach this node, if not the one that it listens on"),
    number("cluster-announce-tls-port", 0, PORT, "0")
        .immutable()
        .flag("The same for encrypted connections"),
    number("cluster-announce-bus-port", 0, PORT, "0")
        .immutable()
        .flag("The same for other nodes"),
    text("cluster-secret", "")
        .immutable()
        .flag(
            "What the nodes of a cluster show each other that they know; without it, and \
             without tls-cluster, they talk on one machine only",
        ),
    yes_no("tls-cluster", "no")
        .alias("cluster-tls")
        .immutable()
        .flag(
            "Whether nodes talk by TLS, and show each other certificates: those of \
             tls-cert-file, vouched for by tls-ca-cert-file",
        ),
    number("cluster-election-timeout", 100, 600_000, "1000")
        .immutable()
        .flag("Milliseconds without a word of a region's leader after which another is elected"),
    number("cluster-heartbeat", 10, 60_000, "250")
        .immutable()
        .flag("Milliseconds after which a leader that has nothing to say shows that it is there"),
    size("cluster-log-size", 65_536, BYTES, "67108864")
        .immutable()
        .flag("The length from which on a region's log is purged of what all its replicas have"),
    size("cluster-log-limit", 65_536, BYTES, "1073741824")
        .immutable()
        .flag(
            "The length from which on it is purged though a replica needs it, which then gets \
             a snapshot",
        ),
    yes_no("cluster-proxy", "no")
        .immutable()
        .flag("Whether a command for another node's slot is forwarded there, instead of the client"),
    yes_no("cluster-replica-reads", "no")
        .immutable()
        .flag("Whether clients are told of replicas that they can read from after READONLY"),
    yes_no("readonly-stale", "no")
        .immutable()
        .flag("Whether such reads may be of the past, instead of waiting for the leader's word"),
    yes_no("protected-mode", "yes")
        .flag("Whether only clients of this machine are served while there is no password")
        .applies(live::set_protected_mode),
    one_of("enable-debug-command", &["no", "yes", "local"], "local")
        .immutable()
        .flag("Who may use DEBUG: nobody (no), everybody (yes), clients of this machine (local)"),
    number("busy-reply-threshold", 0, LONG, "5000")
        .alias("lua-time-limit")
        .applies(live::set_busy_threshold),
    yes_no("latency-tracking", "yes").applies(live::set_latency_tracking),
    number("latency-monitor-threshold", 0, LONG, "0").applies(live::set_spike),
    number("slowlog-log-slower-than", -1, LONG, "10000").applies(live::set_slower_than),
    number("slowlog-max-len", 0, LONG, "128").applies(live::set_slowlog_len),
    // What OBJECT ENCODING calls a value, see `encodings`.
    number("hash-max-listpack-entries", 0, LONG, "512")
        .alias("hash-max-ziplist-entries")
        .applies(live::set_hash_entries),
    size("hash-max-listpack-value", 0, BYTES, "64")
        .alias("hash-max-ziplist-value")
        .applies(live::set_hash_value),
    number("set-max-intset-entries", 0, LONG, "512").applies(live::set_intset_entries),
    number("zset-max-listpack-entries", 0, LONG, "128")
        .alias("zset-max-ziplist-entries")
        .applies(live::set_zset_entries),
    size("zset-max-listpack-value", 0, BYTES, "64")
        .alias("zset-max-ziplist-value")
        .applies(live::set_zset_value),
    size("hll-sparse-max-bytes", 0, BYTES, "3000").applies(live::set_sparse_hyperloglog),
    number("list-max-listpack-size", -(1 << 31), INT, "-2").alias("list-max-ziplist-size"),
    // What room there is, and how it is made: see `room`.
    size("maxmemory", 0, u64::MAX, "0")
        .applies(live::set_max_memory)
        .flag("The most that the data and the buffers of clients may take, e.g. 4gb; 0 is no limit"),
    number("maxmemory-samples", 1, INT, "5").applies(live::set_eviction_samples),
    number("lfu-decay-time", 0, INT, "1").applies(live::set_use_decay),
    number("lfu-log-factor", 0, INT, "10").applies(live::set_use_growth),
    yes_no("lazyfree-lazy-eviction", "no").applies(live::set_lazy_eviction),
    // These two are read by `shortage`.
    number("min-replicas-to-write", 0, INT, "0").alias("min-slaves-to-write"),
    number("min-replicas-max-lag", 0, INT, "10").alias("min-slaves-max-lag"),
    one_of(
        "maxmemory-policy",
        &[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ],
        "noeviction",
    )
    .applies(live::set_eviction_policy)
    .flag("Which keys are evicted above maxmemory, e.g. allkeys-lru; noeviction refuses writes instead"),
    special(
        "latency-tracking-info-percentiles",
        read::percentiles,
        "50 99 99.9",
    ),
    special("notify-keyspace-events", read::event_classes, "")
        .shown(read::shown_event_classes)
        .applies(live::set_event_classes),
    special(
        "client-output-buffer-limit",
        read::output_limits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    )
    .applies(live::set_output_limits),
    number("tracking-table-max-keys", 0, LONG, "1000000").applies(live::set_tracked_keys),
    // From here on: accepted, checked and remembered.
    special("save", read::save_points, "3600 1 300 100 60 10000"),
    special("oom-score-adj-values", read::oom_scores, "0 200 800"),
    special("shutdown-on-sigint", read::shutdown_options, "default"),
    special("shutdown-on-sigterm", read::shutdown_options, "default"),
    special("hz", read::frequency, "10"),
    special("cluster-announce-hostname", read::host_name, ""),
    special(
        "proc-title-template",
        read::process_title,
        "{title} {listen-addr} {server-mode}",
    ),
    one_of(
        "cluster-preferred-endpoint-type",
        &["ip", "hostname", "unknown-endpoint"],
        "ip",
    ),
    one_of("enable-module-command", &["no", "yes", "local"], "no").immutable(),
    one_of("enable-protected-configs", &["no", "yes", "local"], "no").immutable(),
    one_of(
        "oom-score-adj",
        &["no", "yes", "relative", "absolute"],
        "no",
    ),
    one_of(
        "propagation-error-behavior",
        &["ignore", "panic", "panic-on-replicas"],
        "ignore",
    ),
    one_of(
        "repl-diskless-load",
        &["disabled", "on-empty-db", "swapdb"],
        "disabled",
    ),
    one_of("sanitize-dump-payload", &["no", "yes", "clients"], "no"),
    one_of("supervised", &["upstart", "systemd", "auto", "no"], "no").immutable(),
    one_of(
        "syslog-facility",
        &[
            "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
        ],
        "local0",
    )
    .immutable(),
    yes_no("activedefrag", "no"),
    yes_no("activerehashing", "yes"),
    yes_no("always-show-logo", "no").immutable(),
    yes_no("aof-disable-auto-gc", "no"),
    yes_no("aof-load-truncated", "yes"),
    yes_no("aof-rewrite-incremental-fsync", "yes"),
    yes_no("aof-timestamp-enabled", "no"),
    yes_no("aof-use-rdb-preamble", "yes"),
    yes_no("appendonly", "no"),
    yes_no("cluster-allow-pubsubshard-when-down", "yes"),
    yes_no("cluster-allow-reads-when-down", "no"),
    yes_no("cluster-allow-replica-migration", "yes"),
    yes_no("cluster-replica-no-failover", "no").alias("cluster-slave-no-failover"),
    yes_no("cluster-require-full-coverage", "yes"),
    yes_no("crash-log-enabled", "yes"),
    yes_no("crash-memcheck-enabled", "yes"),
    yes_no("daemonize", "no").immutable(),
    yes_no("disable-thp", "yes").immutable(),
    yes_no("dynamic-hz", "yes"),
    yes_no("io-threads-do-reads", "no").immutable(),
    yes_no("jemalloc-bg-thread", "yes"),
    yes_no("lazyfree-lazy-expire", "no").applies(live::set_lazy_expiry),
    yes_no("lazyfree-lazy-server-del", "no"),
    yes_no("lazyfree-lazy-user-del", "no").applies(live::set_lazy_deletion),
    yes_no("lazyfree-lazy-user-flush", "no"),
    yes_no("no-appendfsync-on-rewrite", "no"),
    yes_no("rdb-del-sync-files", "no"),
    yes_no("rdb-save-incremental-fsync", "yes"),
    yes_no("rdbchecksum", "yes").immutable(),
    yes_no("rdbcompression", "yes"),
    yes_no("repl-disable-tcp-nodelay", "no"),
    yes_no("repl-diskless-sync", "yes"),
    yes_no("replica-announced", "yes"),
    yes_no("replica-ignore-disk-write-errors", "no"),
    yes_no("replica-ignore-maxmemory", "yes").alias("slave-ignore-maxmemory"),
    yes_no("replica-lazy-flush", "no").alias("slave-lazy-flush"),
    yes_no("replica-read-only", "yes").alias("slave-read-only"),
    yes_no("replica-serve-stale-data", "yes").alias("slave-serve-stale-data"),
    yes_no("set-proc-title", "yes").immutable(),
    yes_no("stop-writes-on-bgsave-error", "yes"),
    yes_no("syslog-enabled", "no").immutable(),
    yes_no("tls-replication", "no"),
    number("active-defrag-cycle-max", 1, 99, "25"),
    number("active-defrag-cycle-min", 1, 99, "1"),
    number("active-defrag-max-scan-fields", 1, LONG, "1000"),
    number("active-defrag-threshold-lower", 0, 1000, "10"),
    number("active-defrag-threshold-upper", 0, 1000, "100"),
    number("active-expire-effort", 1, 10, "1"),
    number("auto-aof-rewrite-percentage", 0, INT, "100"),
    number("cluster-migration-barrier", 0, INT, "1"),
    number("cluster-node-timeout", 0, LONG, "15000"),
    number("cluster-replica-validity-factor", 0, INT, "10").alias("cluster-slave-validity-factor"),
    number("io-threads", 1, 128, "1").immutable(),
    number("list-compress-depth", 0, INT, "0"),
    number("maxmemory-eviction-tenacity", 0, 100, "10"),
    number("repl-backlog-ttl", 0, LONG, "3600"),
    number("repl-diskless-sync-delay", 0, INT, "5"),
    number("repl-diskless-sync-max-replicas", 0, INT, "0"),
    number("repl-ping-replica-period", 1, INT, "10").alias("repl-ping-slave-period"),
    number("repl-timeout", 1, INT, "60"),
    number("replica-announce-port", 0, PORT, "0").alias("slave-announce-port"),
    number("replica-priority", 0, INT, "100").alias("slave-priority"),
    number("shutdown-timeout", 0, INT, "10"),
    number("socket-mark-id", 0, u32::MAX as i64, "0").immutable(),
    number("stream-node-max-entries", 0, LONG, "100").applies(live::set_stream_entries),
    number("tcp-backlog", 0, INT, "511").immutable(),
    number("tls-session-cache-timeout", 0, INT, "300"),
    size("active-defrag-ignore-bytes", 1, BYTES, "104857600"),
    size("auto-aof-rewrite-min-size", 0, BYTES, "67108864"),
    size("cluster-link-sendbuf-limit", 0, u64::MAX, "0"),
    size_or_percent("maxmemory-clients", "0"),
    size("repl-backlog-size", 1, BYTES, "1048576"),
    size("stream-node-max-bytes", 0, BYTES, "4096"),
    text("aof_rewrite_cpulist", "").immutable(),
    text("appenddirname", "appendonlydir").immutable(),
    text("appendfilename", "appendonly.aof").immutable(),
    text("bgsave_cpulist", "").immutable(),
    text("bind-source-addr", ""),
    text("bio_cpulist", "").immutable(),
    text("cluster-config-file", "nodes.conf").immutable(),
    text("dbfilename", "dump.rdb").protected(),
    text("ignore-warnings", ""),
    text("logfile", "").immutable(),
    text("masterauth", "").flag("The password for the server that is followed"),
    text("masteruser", "").flag("The user that this server is there"),
    text("pidfile", "").immutable(),
    text("replica-announce-ip", "").alias("slave-announce-ip"),
    text("replicaof", "")
        .alias("slaveof")
        .immutable()
        .flag("The server to follow, as in 'host port'"),
    text("server_cpulist", "").immutable(),
    text("syslog-ident", "cairn").immutable(),
    text("tls-client-cert-file", ""),
    text("tls-client-key-file", ""),
    text("tls-client-key-file-pass", ""),
    // Redis has these for its own tests.
    number("key-load-delay", -(1 << 31), INT, "0").hidden(),
    number("rdb-key-save-delay", -(1 << 31), INT, "0").hidden(),
    yes_no("use-exit-on-panic", "no").hidden(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_and_is_shown_as_it_is() {
        for parameter in PARAMETERS {
            let default = parameter.default.as_bytes();
            let read = parameter.kind.read(default, default);
            assert_eq!(read.as_deref(), Ok(default), "{}", parameter.name);
        }
    }

    #[test]
    fn no_two_parameters_share_a_name() {
        for (at, parameter) in PARAMETERS.iter().enumerate() {
            for name in parameter.names() {
                assert_eq!(find(name.as_bytes()), Some(at), "{name}");
                assert_eq!(
                    find(name.to_ascii_uppercase().as_bytes()),
                    Some(at),
                    "{name}"
                );
            }
        }
        assert_eq!(find(b"bogus"), None);
        assert_eq!(find(b"\xff"), None);
    }
}
