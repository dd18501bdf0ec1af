//! A real redis-server follows Cairn while clients write to it, and both hold the same in the end.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value};
use cairn_tests::follower::Follower;
use cairn_tests::server::{Launch, Server};
use fastrand::Rng;

const DATABASES: u32 = 4;
const KEYS: u32 = 40;
const WRITERS: u64 = 4;

/// How long a replica may take to come as far as its master.
const PATIENCE: Duration = Duration::from_secs(60);

/// A redis-server that follows.
fn replica_of(master: &Server, flags: &[&str]) -> Server {
    let port = master.port().to_string();
    let follows = ["--replicaof", "127.0.0.1", &port];
    Launch::redis().flags(follows).flags(flags).start()
}

/// A command about some keys. Some are as long as to be done elsewhere than others, and some are scripts and transactions.
fn write(client: &mut Client, rng: &mut Rng) {
    let key = |kind: &str, rng: &mut Rng| format!("{kind}{}", rng.u32(..KEYS));
    let word = |rng: &mut Rng| {
        let length = match rng.u32(..50) {
            0 => 40_000,
            1..5 => 300,
            _ => 8,
        };
        format!("{:0length$}", rng.u32(..200))
    };
    let number = |rng: &mut Rng| rng.i32(-50..50).to_string();
    let [s, l, set, h, z, x] = ["s", "l", "set", "h", "z", "x"].map(|kind| key(kind, rng));
    let [s2, l2, set2, z2] = ["s", "l", "set", "z"].map(|kind| key(kind, rng));
    let any = [&s, &l, &set, &h, &z, &x][rng.usize(..6)].clone();
    let command: Vec<String> = match rng.u32(..64) {
        0..3 => vec!["SET".into(), s, word(rng)],
        3 => vec![
            "SET".into(),
            s,
            word(rng),
            "PX".into(),
            rng.u32(1..200).to_string(),
        ],
        4 => vec![
            "SET".into(),
            s,
            word(rng),
            "EX".into(),
            "1000".into(),
            "GET".into(),
        ],
        5 => vec!["APPEND".into(), s, word(rng)],
        6 => vec![
            "SETRANGE".into(),
            s,
            rng.u32(..60_000).to_string(),
            word(rng),
        ],
        7 => vec!["INCRBYFLOAT".into(), format!("n{s}"), "1.25".into()],
        8 => vec!["GETEX".into(), s, "PERSIST".into()],
        9 => vec!["GETDEL".into(), s],
        10 => vec!["MSET".into(), s, word(rng), s2, word(rng)],
        11..13 => vec!["RPUSH".into(), l, word(rng), word(rng), word(rng)],
        13 => vec!["LPOP".into(), l, rng.u32(..4).to_string()],
        14 => vec!["LMOVE".into(), l, l2, "LEFT".into(), "RIGHT".into()],
        15 => vec![
            "LMPOP".into(),
            "2".into(),
            l,
            l2,
            "RIGHT".into(),
            "COUNT".into(),
            "3".into(),
        ],
        16 => vec!["BLPOP".into(), l, l2, "0.01".into()],
        17 => vec![
            "BLMOVE".into(),
            l,
            l2,
            "RIGHT".into(),
            "LEFT".into(),
            "0.01".into(),
        ],
        18 => vec!["LTRIM".into(), l, "-20".into(), "-1".into()],
        19 => vec!["LSET".into(), l, "0".into(), word(rng)],
        20..22 => vec!["SADD".into(), set, word(rng), word(rng)],
        22 => vec!["SPOP".into(), set],
        23 => vec!["SPOP".into(), set, rng.u32(1..5).to_string()],
        24 => vec!["SMOVE".into(), set, set2, word(rng)],
        25 => vec!["SUNIONSTORE".into(), set.clone(), set, set2],
        26..28 => vec!["HSET".into(), h, word(rng), word(rng), word(rng), word(rng)],
        28 => vec!["HINCRBYFLOAT".into(), h, "n".into(), "0.5".into()],
        29 => vec!["HDEL".into(), h, word(rng), word(rng)],
        30..32 => vec![
            "ZADD".into(),
            z,
            number(rng),
            word(rng),
            number(rng),
            word(rng),
        ],
        32 => vec!["ZINCRBY".into(), z, number(rng), word(rng)],
        33 => vec!["ZPOPMIN".into(), z, "2".into()],
        34 => vec!["ZMPOP".into(), "2".into(), z, z2, "MAX".into()],
        35 => vec!["ZUNIONSTORE".into(), z.clone(), "2".into(), z, z2],
        36 => vec!["ZREMRANGEBYRANK".into(), z, "0".into(), "1".into()],
        37 => vec!["ZRANGESTORE".into(), z2, z, "0".into(), "5".into()],
        38..40 => vec![
            "XADD".into(),
            x,
            "MAXLEN".into(),
            "~".into(),
            "50".into(),
            "*".into(),
            "f".into(),
            word(rng),
        ],
        40 => vec![
            "XGROUP".into(),
            "CREATE".into(),
            x,
            "g".into(),
            "0".into(),
            "MKSTREAM".into(),
        ],
        41..43 => {
            let consumer = format!("c{}", rng.u32(..3));
            let words = [
                "XREADGROUP",
                "GROUP",
                "g",
                &consumer,
                "COUNT",
                "2",
                "STREAMS",
                &x,
                ">",
            ];
            words.map(String::from).into()
        }
        43 => vec![
            "XAUTOCLAIM".into(),
            x,
            "g".into(),
            "c0".into(),
            "5".into(),
            "0".into(),
        ],
        44 => vec!["XTRIM".into(), x, "MAXLEN".into(), "20".into()],
        45 => vec!["EXPIRE".into(), any, "1000".into()],
        46 => vec!["PEXPIRE".into(), any, rng.u32(1..100).to_string()],
        47 => vec!["PERSIST".into(), any],
        48 => vec!["DEL".into(), any],
        49 => vec!["RENAME".into(), s, s2],
        50 => vec![
            "COPY".into(),
            any.clone(),
            any,
            "DB".into(),
            rng.u32(..DATABASES).to_string(),
            "REPLACE".into(),
        ],
        51 => vec!["MOVE".into(), any, rng.u32(..DATABASES).to_string()],
        52 => vec!["PFADD".into(), format!("pf{s}"), word(rng)],
        53 => vec![
            "GEOADD".into(),
            format!("geo{z}"),
            "13.36".into(),
            "38.1".into(),
            word(rng),
        ],
        54 => vec!["SORT".into(), l, "ALPHA".into(), "STORE".into(), l2],
        55 => vec!["SETBIT".into(), s, rng.u32(..4096).to_string(), "1".into()],
        56 => {
            let script = "redis.call('incr', KEYS[1]) redis.call('rpush', KEYS[2], ARGV[1], ARGV[2]) \
                          redis.call('spop', KEYS[3])";
            let words = ["EVAL", script, "3", &format!("n{s}x"), &l, &set, "a", "b"];
            words.map(String::from).into()
        }
        57 => {
            // Long enough to be done on a thread of its own.
            let script = "for i = 1, 3000 do redis.call('hset', KEYS[1], i, ARGV[1]) end";
            let words = ["EVAL", script, "1", &format!("big{h}"), &number(rng)];
            words.map(String::from).into()
        }
        58 => {
            client.send(&["MULTI"]);
            for _ in 0..3 {
                client.send(&["RPUSH", &l, "t"]);
                client.send(&["INCR", &format!("n{s}y")]);
            }
            client.send(&["SPOP", &set]);
            client.send(&["EXEC"]);
            for _ in 0..9 {
                client.receive();
            }
            return;
        }
        59 => vec!["SELECT".into(), rng.u32(..DATABASES).to_string()],
        60 => vec!["BITOP".into(), "OR".into(), s.clone(), s, s2],
        61 => match rng.u32(..200) {
            0 => vec!["FLUSHALL".into()],
            1 => vec!["FLUSHDB".into()],
            2 => vec!["SWAPDB".into(), "0".into(), "1".into()],
            _ => vec!["HSETNX".into(), h, word(rng), word(rng)],
        },
        62 => vec!["PUBLISH".into(), "channel".into(), word(rng)],
        _ => vec!["ZDIFFSTORE".into(), z2, "2".into(), z, format!("geo{s}")],
    };
    client.command(&command);
}

/// Writes to the server, by several clients, while something else is done; returns what that returned.
fn under_load<T>(server: &Server, seed: u64, work: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (mut client, ends) = (server.client(), &ends);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed * 100 + number);
                while !ends.load(Ordering::Relaxed) {
                    write(&mut client, &mut rng);
                }
            });
        }
        let done = work();
        ends.store(true, Ordering::Relaxed);
        done
    })
}

fn field(client: &mut Client, name: &str) -> Option<String> {
    let info = client.line("INFO replication");
    let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
    let mut lines = info.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_string()))
}

/// Waits until the replica is as far as its master, on which nothing is done meanwhile.
fn wait_for(replica: &Server, master: &Server) {
    let until = Instant::now() + PATIENCE;
    let (mut replica, mut master) = (replica.client(), master.client());
    loop {
        let is_up = field(&mut replica, "master_link_status").as_deref() == Some("up");
        let offset = field(&mut master, "master_repl_offset");
        if is_up && offset.is_some() && field(&mut replica, "slave_repl_offset") == offset {
            return;
        }
        assert!(Instant::now() < until, "the replica does not come so far");
        thread::sleep(Duration::from_millis(20));
    }
}

fn sorted(value: Value, pairs: bool) -> Vec<Vec<Value>> {
    let Value::Array(items) = value else {
        panic!("not an array: {value:?}");
    };
    let mut items: Vec<Vec<Value>> = items
        .chunks(if pairs { 2 } else { 1 })
        .map(<[Value]>::to_vec)
        .collect();
    items.sort();
    items
}

/// What is known of groups, but for how many entries they have read: Redis 7.0 does not tell its replicas, either.
fn groups(value: &Value) -> Vec<Vec<Value>> {
    let groups = value.items().expect("groups").iter();
    groups
        .map(|group| group.items().expect("a group")[..8].to_vec())
        .collect()
}

/// All that a server holds, by database and key.
fn contents(server: &Server) -> BTreeMap<(u32, Vec<u8>), String> {
    let mut client = server.client();
    let mut contents = BTreeMap::new();
    for database in 0..DATABASES {
        client.line(&format!("SELECT {database}"));
        let Value::Array(names) = client.line("KEYS *") else {
            panic!("no names");
        };
        for name in names {
            let name = name.as_bytes().expect("a name").to_vec();
            let mut ask = |words: &[&[u8]]| client.command(words);
            let kind = ask(&[b"TYPE", &name]);
            let value = match kind.as_bytes().unwrap_or_default() {
                b"string" => format!("{:?}", ask(&[b"GET", &name])),
                b"list" => format!("{:?}", ask(&[b"LRANGE", &name, b"0", b"-1"])),
                b"set" => format!("{:?}", sorted(ask(&[b"SMEMBERS", &name]), false)),
                b"hash" => format!("{:?}", sorted(ask(&[b"HGETALL", &name]), true)),
                b"zset" => format!("{:?}", ask(&[b"ZRANGE", &name, b"0", b"-1", b"WITHSCORES"])),
                b"stream" => format!(
                    "{:?} {:?} {:?}",
                    ask(&[b"XRANGE", &name, b"-", b"+"]),
                    groups(&ask(&[b"XINFO", b"GROUPS", &name])),
                    ask(&[b"XPENDING", &name, b"g"]),
                ),
                other => format!("{other:?}"),
            };
            let expires = ask(&[b"PEXPIRETIME", &name]);
            contents.insert((database, name), format!("{value} {expires:?}"));
        }
    }
    contents
}

fn assert_same(replica: &Server, master: &Server) {
    // What is about to expire has done so then.
    thread::sleep(Duration::from_millis(500));
    wait_for(replica, master);
    let (there, here) = (contents(replica), contents(master));
    let is_different = |key: &&(u32, Vec<u8>)| there.get(*key) != here.get(*key);
    let different: Vec<_> = there
        .keys()
        .chain(here.keys())
        .filter(is_different)
        .collect();
    let shown = different.first().map(|key| {
        let cut = |text: Option<&String>| text.map(|text| text[..text.len().min(2000)].to_string());
        (cut(there.get(*key)), cut(here.get(*key)))
    });
    assert!(
        different.is_empty(),
        "{} of {} keys differ: {different:?}\nreplica and master: {shown:?}",
        different.len(),
        here.len(),
    );
}

#[test]
fn a_redis_follows_and_holds_the_same() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    let code = "#!lua name=lib\nredis.register_function('f', function() return 'f' end)";
    client.command(&["FUNCTION", "LOAD", code]);
    client.command(&[
        "EVAL",
        "for i = 1, 20000 do redis.call('rpush', 'long', i) redis.call('zadd', 'many', i, i) end",
        "0",
    ]);
    let early = replica_of(&cairn, &[]);
    under_load(&cairn, 1, || thread::sleep(Duration::from_secs(2)));
    assert_same(&early, &cairn);
    let functions = |server: &Server| server.client().line("FUNCTION LIST WITHCODE");
    assert_eq!(functions(&early), functions(&cairn));

    // One that comes in the middle, and hears of what is done while it gets its snapshot.
    let late = under_load(&cairn, 2, || {
        let late = replica_of(&cairn, &[]);
        thread::sleep(Duration::from_secs(2));
        late
    });
    assert_same(&early, &cairn);
    assert_same(&late, &cairn);
    assert_eq!(field(&mut client, "connected_slaves").as_deref(), Some("2"));
}

#[test]
fn one_that_was_cut_off_goes_on_where_it_was() {
    let mut cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    client.line("CONFIG SET repl-backlog-size 512mb");
    let replica = replica_of(&cairn, &[]);
    under_load(&cairn, 3, || thread::sleep(Duration::from_millis(500)));
    assert_same(&replica, &cairn);
    let syncs = |client: &mut Client| {
        let stats = client.line("INFO stats");
        let stats = String::from_utf8_lossy(stats.as_bytes().unwrap_or_default()).into_owned();
        let lines = stats.lines().filter(|line| line.starts_with("sync_"));
        lines.map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(
        syncs(&mut client),
        ["sync_full:1", "sync_partial_ok:0", "sync_partial_err:1"]
    );
    under_load(&cairn, 4, || {
        let mut killer = cairn.client();
        for _ in 0..3 {
            assert_eq!(killer.line("CLIENT KILL TYPE replica"), Value::Int(1));
            thread::sleep(Duration::from_millis(700));
        }
    });
    assert_same(&replica, &cairn);
    assert_eq!(
        syncs(&mut client)[..2],
        ["sync_full:1", "sync_partial_ok:3"]
    );

    // A server that was restarted is another, and sends everything again.
    cairn.restart();
    under_load(&cairn, 5, || thread::sleep(Duration::from_millis(500)));
    assert_same(&replica, &cairn);
    cairn.kill9();
    cairn.start();
    under_load(&cairn, 6, || thread::sleep(Duration::from_millis(500)));
    assert_same(&replica, &cairn);
}

#[test]
fn replicas_are_shown_waited_for_and_asked_for() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    assert_eq!(client.line("WAIT 0 0"), Value::Int(0));
    assert_eq!(client.line("WAIT 1 50"), Value::Int(0));
    client.line("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 5");
    assert!(client.line("SET a 1").is_error());
    let replica = replica_of(&cairn, &[]);
    wait_for(&replica, &cairn);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(client.line("SET a 1"), Value::ok());
    assert_eq!(client.line("WAIT 1 5000"), Value::Int(1));
    assert_eq!(client.line("WAIT 2 50"), Value::Int(1));
    assert_eq!(replica.client().line("GET a"), Value::bulk("1"));
    let port = replica.port().to_string();
    let shown = field(&mut client, "slave0").expect("a replica");
    let begins = format!("ip=127.0.0.1,port={port},state=online,offset=");
    assert!(shown.starts_with(&begins), "{shown}");
    let Value::Array(role) = client.line("ROLE") else {
        panic!("no role");
    };
    assert_eq!(role[0], Value::bulk("master"));
    assert!(matches!(&role[2], Value::Array(replicas) if replicas.len() == 1));
    let listed = client.line("CLIENT LIST TYPE replica");
    let listed = String::from_utf8_lossy(listed.as_bytes().unwrap_or_default()).into_owned();
    assert!(listed.contains(" flags=S "), "{listed}");
}

#[test]
fn a_cairn_follows_a_redis_and_takes_its_place() {
    let redis = Server::redis(&["--repl-diskless-sync-delay", "0"]);
    let mut there = redis.client();
    let code = "#!lua name=lib\nredis.register_function('f', function() return 'f' end)";
    there.command(&["FUNCTION", "LOAD", code]);
    there.command(&[
        "EVAL",
        "for i = 1, 20000 do redis.call('rpush', 'long', i) redis.call('zadd', 'many', i, i) end",
        "0",
    ]);
    let cairn = Server::cairn(&[]);
    let mut here = cairn.client();
    here.line("SET old value");
    let port = redis.port().to_string();
    under_load(&redis, 7, || {
        thread::sleep(Duration::from_millis(300));
        assert_eq!(
            here.command(&["REPLICAOF", "127.0.0.1", &port]),
            Value::ok()
        );
        thread::sleep(Duration::from_secs(2));
    });
    assert_same(&cairn, &redis);
    assert_eq!(here.line("GET old"), Value::Null);
    let refusal = here.line("SET a 1");
    assert_eq!(
        refusal,
        Value::error("READONLY You can't write against a read only replica.")
    );
    let refusal = here.line("EVAL return(redis.call('set','a',1)) 0");
    assert!(refusal.is_error(), "{refusal:?}");
    assert_eq!(field(&mut here, "role").as_deref(), Some("slave"));
    assert_eq!(there.line("WAIT 1 5000"), Value::Int(1));
    let functions = |client: &mut Client| client.line("FUNCTION LIST WITHCODE");
    assert_eq!(functions(&mut here), functions(&mut there));

    // It was cut off, and goes on where it was.
    under_load(&redis, 8, || {
        let mut killer = redis.client();
        killer.line("CONFIG SET repl-backlog-size 512mb");
        for _ in 0..2 {
            assert_eq!(killer.line("CLIENT KILL TYPE replica"), Value::Int(1));
            thread::sleep(Duration::from_millis(1500));
        }
    });
    assert_same(&cairn, &redis);
    let syncs = there.line("INFO stats");
    let syncs = String::from_utf8_lossy(syncs.as_bytes().unwrap_or_default()).into_owned();
    assert!(
        syncs.contains("sync_full:1\r\nsync_partial_ok:2"),
        "{syncs}"
    );

    // Others may follow it meanwhile; and clients write when it is on its own.
    let follower = replica_of(&cairn, &[]);
    under_load(&redis, 9, || thread::sleep(Duration::from_millis(500)));
    assert_same(&cairn, &redis);
    assert_same(&follower, &cairn);
    assert_eq!(here.line("REPLICAOF NO ONE"), Value::ok());
    under_load(&cairn, 10, || thread::sleep(Duration::from_millis(500)));
    assert_same(&follower, &cairn);
    assert_eq!(field(&mut here, "role").as_deref(), Some("master"));
}

/// What its master has yet to say may be about keys whose time has come: they must be there for as long as it is not said that they are
/// gone, on those who follow the follower, too.
#[test]
fn who_follows_a_follower_has_what_expired_there_until_it_is_deleted() {
    let redis = Server::redis(&["--repl-diskless-sync-delay", "0"]);
    let mut there = redis.client();
    assert_eq!(there.line("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    let port = redis.port().to_string();
    let cairn = Server::cairn(&["--replicaof", &format!("127.0.0.1 {port}")]);
    there.line("SET a 1 PX 50");
    there.line("SET b 1");
    wait_for(&cairn, &redis);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(cairn.client().line("GET a"), Value::Null);
    let follower = replica_of(&cairn, &[]);
    wait_for(&follower, &cairn);
    assert_eq!(follower.client().line("DBSIZE"), Value::Int(2));
    // By this the master finds out.
    assert_eq!(there.line("GET a"), Value::Null);
    wait_for(&cairn, &redis);
    wait_for(&follower, &cairn);
    assert_eq!(follower.client().line("DBSIZE"), Value::Int(1));
}

#[test]
fn a_cairn_follows_a_cairn_by_its_settings() {
    let mut master = Server::cairn(&["--requirepass", "secret"]);
    let mut there = master.client();
    there.line("AUTH secret");
    there.line("SET a 1");
    there.line("HSET h f v g v");
    there.line("HPEXPIREAT h 99999999999 FIELDS 1 f");
    let port = master.port().to_string();
    let replica = Server::cairn(&[
        "--replicaof",
        &format!("127.0.0.1 {port}"),
        "--masterauth",
        "secret",
    ]);
    let mut here = replica.client();
    let until = Instant::now() + PATIENCE;
    while here.line("GET a") != Value::bulk("1") {
        assert!(Instant::now() < until, "it does not follow");
        thread::sleep(Duration::from_millis(20));
    }
    there.line("HEXPIRE h 1000 FIELDS 1 g");
    assert_eq!(there.line("WAIT 1 5000"), Value::Int(1));
    assert_eq!(
        here.line("HPTTL h FIELDS 1 g").items().map(<[Value]>::len),
        Some(1)
    );
    // While it cannot be reached, what there was is read, or refused.
    master.terminate();
    here.line("CONFIG SET replica-serve-stale-data no");
    let until = Instant::now() + PATIENCE;
    while !here.line("GET a").is_error() {
        assert!(Instant::now() < until, "it is still answered");
        thread::sleep(Duration::from_millis(20));
    }
    master.start();
    let mut there = master.client();
    there.line("AUTH secret");
    there.line("SET a 2");
    while here.line("GET a") != Value::bulk("2") {
        assert!(Instant::now() < until, "it does not follow again");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn snapshots_are_sent_to_tools() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    // More than is kept in memory for those who want to know the length first.
    for number in 0..40 {
        client.command(&["SET", &format!("k{number}"), &"x".repeat(100_000)]);
    }
    let follower = Follower::of(&cairn.addr()).expect("a snapshot");
    assert!(follower.snapshot.starts_with(b"REDIS0010"));
    assert!(follower.snapshot.len() > 4_000_000 / 100);
    let file = cairn.dir().join("copy.rdb");
    let port = cairn.port().to_string();
    let status = Command::new("redis-cli")
        .args(["-p", &port, "--rdb"])
        .arg(&file)
        .status();
    assert!(status.expect("redis-cli").success());
    let copy = Launch::redis()
        .flags(["--dbfilename", "copy.rdb"])
        .dir(cairn.dir())
        .start();
    assert_eq!(copy.client().line("DBSIZE"), Value::Int(40));
}

#[test]
fn one_that_takes_nothing_is_given_up_on() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    client.command(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "replica 1mb 1mb 1",
    ]);
    let _follower = Follower::of(&cairn.addr()).expect("a stream");
    let value = "x".repeat(200_000);
    let until = Instant::now() + PATIENCE;
    while field(&mut client, "connected_slaves").as_deref() != Some("0") {
        client.command(&["SET", "a", &value]);
        assert!(Instant::now() < until, "it still follows");
    }
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
}

/// It has nothing that others could begin with, and would load its own snapshot over and over.
#[test]
fn a_server_does_not_follow_itself() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    client.line("SET a 1");
    let mut waiting = cairn.client();
    waiting.send(&["BLPOP", "list", "0"]);
    waiting.flush().expect("it is sent");
    thread::sleep(Duration::from_millis(100));
    let port = cairn.port().to_string();
    client.command(&["REPLICAOF", "127.0.0.1", &port]);
    let told = waiting.receive();
    let is_refused = matches!(&told, Value::Error(text) if text.starts_with(b"UNBLOCKED"));
    assert!(is_refused, "{told:?}");
    thread::sleep(Duration::from_millis(2500));
    let status = field(&mut client, "master_link_status");
    assert_eq!(status.as_deref(), Some("down"));
    assert_eq!(client.line("GET a"), Value::bulk("1"));
    let known = |client: &mut Client| client.line("CONFIG GET replicaof").into_pairs();
    let expected = (
        Value::bulk("replicaof"),
        Value::bulk(format!("127.0.0.1 {port}")),
    );
    assert_eq!(known(&mut client), Some(vec![expected]));
    client.line("REPLICAOF NO ONE");
    let expected = (Value::bulk("replicaof"), Value::bulk(""));
    assert_eq!(known(&mut client), Some(vec![expected]));
    assert_eq!(client.line("SET a 2"), Value::ok());
}

/// A replica tells others what it is told, which is about the database that was selected long ago.
#[test]
fn a_cairn_follows_a_replica_in_the_database_that_it_is_at() {
    let redis = Server::redis(&["--repl-diskless-sync-delay", "0"]);
    let between = replica_of(&redis, &["--repl-diskless-sync-delay", "0"]);
    let mut there = redis.client();
    there.line("SELECT 5");
    there.line("SET before 1");
    wait_for(&between, &redis);
    let cairn = Server::cairn(&[]);
    let port = between.port().to_string();
    cairn.client().command(&["REPLICAOF", "127.0.0.1", &port]);
    wait_for(&cairn, &redis);
    there.line("SET after 1");
    wait_for(&cairn, &redis);
    let mut here = cairn.client();
    here.line("SELECT 5");
    assert_eq!(
        here.line("MGET before after"),
        there.line("MGET before after")
    );
}

/// What the server that is followed says is done, whatever scripts run here.
#[test]
fn a_busy_script_keeps_nothing_from_a_replica() {
    let redis = Server::redis(&["--repl-diskless-sync-delay", "0"]);
    let cairn = Server::cairn(&[]);
    let mut here = cairn.client();
    here.line("CONFIG SET busy-reply-threshold 50");
    let port = redis.port().to_string();
    here.command(&["REPLICAOF", "127.0.0.1", &port]);
    wait_for(&cairn, &redis);
    let mut busy = cairn.client();
    let long = "local n = 0 for i = 1, 300000000 do n = n + 1 end return n";
    busy.send(&["EVAL_RO", long, "0"]);
    busy.flush().expect("it is sent");
    thread::sleep(Duration::from_millis(300));
    assert!(here.line("GET a").is_error(), "it is busy");
    redis.client().line("SET a 1");
    thread::sleep(Duration::from_millis(300));
    here.line("SCRIPT KILL");
    busy.receive();
    wait_for(&cairn, &redis);
    assert_eq!(here.line("GET a"), Value::bulk("1"));
}
