//! RDB files between Cairn and a real redis-server: what one has saved the other loads, and then they hold the same.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cairn_tests::bank::movers::Way;
use cairn_tests::bank::statement::Reading;
use cairn_tests::bank::{Bank, Report};
use cairn_tests::client::Client;
use cairn_tests::differential::duel::{End, Lane};
use cairn_tests::differential::grammar;
use cairn_tests::differential::peer::{Address, Peer};
use cairn_tests::differential::round::round;
use cairn_tests::differential::walk::walk;
use cairn_tests::server::{Launch, Server, cairn_binary};
use cairn_tests::value::Value;
use fastrand::Rng;
use tempfile::TempDir;

/// A redis-server that has begun with a file, and the directory where it keeps it.
struct Loaded {
    redis: Server,
    dir: TempDir,
}

impl Loaded {
    fn from(file: &Path) -> Loaded {
        let dir = TempDir::with_prefix("cairn-rdb-").expect("a directory");
        fs::copy(file, dir.path().join("dump.rdb")).expect("a copy");
        let redis = Launch::redis().dir(dir.path()).start();
        Loaded { redis, dir }
    }

    /// Has it save all that it has.
    fn save(&self) -> std::path::PathBuf {
        assert_eq!(self.redis.client().line("SAVE"), Value::ok());
        self.dir.path().join("dump.rdb")
    }
}

/// Has Cairn save a file.
fn save(cairn: &Server, name: &str) -> std::path::PathBuf {
    let mut client = cairn.client();
    client
        .set_read_timeout(Duration::from_secs(120))
        .expect("a socket");
    assert_eq!(client.command(&["DEBUG", "RDB-SAVE", name]), Value::ok());
    cairn.dir().join(name)
}

/// Has it load one, over what it has.
fn load(cairn: &Server, file: &Path, name: &str) -> Value {
    fs::copy(file, cairn.dir().join(name)).expect("a copy");
    let mut client = cairn.client();
    client
        .set_read_timeout(Duration::from_secs(120))
        .expect("a socket");
    client.command(&["DEBUG", "RDB-LOAD", name])
}

/// Both hold the same: every database, every key, its time to live and all of its content.
fn compare(cairn: &Server, redis: &Server, what: &str) {
    let connect = |server: &Server| Address(server.addr()).connect().expect("a server");
    let mut lane = Lane {
        target: connect(cairn),
        reference: connect(redis),
    };
    match walk(&mut lane, 0) {
        Ok(()) => {}
        Err(End::Difference(difference)) => panic!("{what}: {difference:?}"),
        Err(End::Broken(error)) => panic!("{what}: {error}"),
    }
}

/// `cairn check` finds nothing wrong with the database of a server that has ended.
fn check(mut cairn: Server) {
    cairn.terminate();
    let output = std::process::Command::new(cairn_binary())
        .args(["check", "--dir"])
        .arg(cairn.dir())
        .output()
        .expect("cairn check runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// Random commands of all families, whatever comes of them.
fn play(cairn: &Server, seed: u64, commands: usize) {
    let mut clients: Vec<Client> = (0..3).map(|_| cairn.client()).collect();
    for step in round(&grammar(), seed, commands) {
        let client = &mut clients[step.connection];
        client.command(&step.argv);
    }
}

#[test]
fn whatever_random_commands_have_made_passes_both_ways() {
    let cairn = Server::cairn(&[]);
    for seed in 0..12 {
        let what = format!("seed {seed}");
        cairn.client().line("FLUSHALL");
        play(&cairn, seed, 3000);
        let loaded = Loaded::from(&save(&cairn, &format!("ours-{seed}.rdb")));
        compare(&cairn, &loaded.redis, &what);
        let theirs = loaded.save();
        cairn.client().line("FLUSHALL");
        let keys = load(&cairn, &theirs, &format!("theirs-{seed}.rdb"));
        assert!(keys.as_int().is_some(), "{what}: {keys:?}");
        compare(&cairn, &loaded.redis, &what);
    }
    check(cairn);
}

/// Collections about which the forms change, and some that are not put together in memory.
fn fill(client: &mut Client, prefix: &str) {
    for size in [1, 2, 127, 128, 129, 512, 513, 20_000] {
        for start in (0..size).step_by(500) {
            let numbers = start..size.min(start + 500);
            let mut add = |command: &str, name: &str, element: &dyn Fn(usize) -> Vec<String>| {
                let mut words = vec![command.to_owned(), format!("{prefix}{name}:{size}")];
                words.extend(numbers.clone().flat_map(element));
                let reply = client.command(&words);
                assert!(!reply.is_error(), "{reply:?}");
            };
            add("RPUSH", "list", &|n| vec![format!("element:{n}")]);
            add("RPUSH", "longs", &|n| vec![n.to_string().repeat(n % 90)]);
            add("SADD", "numbers", &|n| vec![(n * 1_000_003).to_string()]);
            add("SADD", "set", &|n| vec![format!("member:{n}")]);
            add("HSET", "hash", &|n| {
                vec![format!("field:{n}"), n.to_string()]
            });
            add("HSET", "wide", &|n| {
                vec![format!("f{n}"), "v".repeat(n % 80)]
            });
            add("ZADD", "zset", &|n| {
                vec![format!("{}", n as f64 / 3.0), format!("m:{n}")]
            });
        }
        for n in 1..=size.min(3000) {
            let entry = format!(
                "XADD {prefix}stream:{size} {n}-{} field{} v:{n} n {n}",
                n % 3,
                n % 2
            );
            assert!(!client.line(&entry).is_error());
        }
        for line in [
            format!("XGROUP CREATE {prefix}stream:{size} g 0"),
            format!("XGROUP CREATE {prefix}stream:{size} h $"),
            format!("XREADGROUP GROUP g alice COUNT 900 STREAMS {prefix}stream:{size} >"),
            format!("XREADGROUP GROUP g bob COUNT 100 STREAMS {prefix}stream:{size} >"),
            format!("XGROUP CREATECONSUMER {prefix}stream:{size} g idle"),
            format!("XACK {prefix}stream:{size} g 3-0 4-1"),
            format!("XDEL {prefix}stream:{size} 5-2 6-0"),
            format!("PEXPIREAT {prefix}zset:{size} 4102444800{size:03}"),
        ] {
            assert!(!client.line(&line).is_error(), "{line}");
        }
    }
    let long = "0123456789abcdef".repeat(200_000);
    for words in [
        ["SET", &format!("{prefix}long"), &long],
        ["SET", &format!("{prefix}empty"), ""],
        ["SET", &format!("{prefix}chunk"), &long[..16 * 1024 + 1]],
    ] {
        assert_eq!(client.command(&words), Value::ok());
    }
    client.line(&format!("SETBIT {prefix}sparse 8000000 1"));
}

#[test]
fn large_values_and_functions_pass_both_ways() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    fill(&mut client, "");
    client.line("SELECT 7");
    client.line("SET other database");
    let code =
        "#!lua name=stones\nredis.register_function('pile', function(keys, args) return #args end)";
    assert_eq!(
        client.command(&["FUNCTION", "LOAD", code]),
        Value::bulk("stones")
    );
    let loaded = Loaded::from(&save(&cairn, "ours.rdb"));
    compare(&cairn, &loaded.redis, "saved by Cairn");
    let mut theirs = loaded.redis.client();
    assert_eq!(theirs.line("FCALL pile 0 a b c"), Value::Int(3));
    for name in [
        "list:20000",
        "numbers:512",
        "numbers:513",
        "set:2",
        "hash:512",
        "hash:513",
        "wide:2",
        "zset:128",
        "zset:129",
    ] {
        client.line("SELECT 0");
        let encoding = format!("OBJECT ENCODING {name}");
        assert_eq!(theirs.line(&encoding), client.line(&encoding), "{name}");
    }
    let file = loaded.save();
    client.line("FLUSHALL");
    client.line("FUNCTION FLUSH");
    assert!(load(&cairn, &file, "theirs.rdb").as_int().is_some());
    compare(&cairn, &loaded.redis, "saved by Redis");
    assert_eq!(client.line("FCALL pile 0 a b c"), Value::Int(3));
    // Over what is there, and into another that has nothing.
    assert!(load(&cairn, &file, "again.rdb").as_int().is_some());
    compare(&cairn, &loaded.redis, "loaded twice");
    check(cairn);
}

/// Redis 7.0 knows nothing of fields that expire. Those that are due are not in the file, and the others for good.
#[test]
fn fields_that_expire_are_written_without_their_time() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0");
    client.line("HSET hash a 1 b 2 c 3 d 4");
    client.line("HPEXPIRE hash 1 FIELDS 2 a c");
    client.line("HPEXPIRE hash 100000 FIELDS 1 b");
    client.line("HSET gone a 1");
    client.line("HPEXPIRE gone 1 FIELDS 1 a");
    client.line("SET short x PX 1");
    thread::sleep(Duration::from_millis(20));
    let loaded = Loaded::from(&save(&cairn, "fields.rdb"));
    let mut theirs = loaded.redis.client();
    assert_eq!(theirs.line("DBSIZE"), Value::Int(1));
    let mut fields = theirs.line("HGETALL hash").into_items().expect("fields");
    fields.sort_by_key(|field| format!("{field:?}"));
    assert_eq!(fields, ["2", "4", "b", "d"].map(Value::bulk));
    // A later Redis is told, and so is Cairn.
    let times = "HPEXPIRETIME hash FIELDS 4 a b c d";
    let before = client.line(times);
    let words = ["DEBUG", "RDB-SAVE", "times.rdb", "VERSION", "12"];
    assert_eq!(client.command(&words), Value::ok());
    client.line("FLUSHALL");
    let file = cairn.dir().join("times.rdb");
    assert_eq!(load(&cairn, &file, "copy.rdb"), Value::Int(1));
    assert_eq!(client.line(times), before);
    assert_eq!(client.line("HLEN hash"), Value::Int(2));
    client.line("DEBUG SET-ACTIVE-EXPIRE 1");
    check(cairn);
}

#[test]
fn damaged_files_are_refused_and_said_why() {
    let cairn = Server::cairn(&[]);
    let mut client = cairn.client();
    fill(&mut client, "");
    let file = save(&cairn, "whole.rdb");
    let whole = fs::read(&file).expect("a file");
    client.line("FLUSHALL");
    let broken = cairn.dir().join("source");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let mut unsummed = whole.clone();
    *unsummed.last_mut().expect("bytes") ^= 1;
    for (bytes, expected) in [
        (&whole[..whole.len() / 2], "cut off after"),
        (&changed, "RDB file"),
        (&unsummed, "checksum"),
        (b"no such thing", "no RDB file"),
        (b"", "cut off after 0 bytes"),
    ] {
        fs::write(&broken, bytes).expect("a file");
        let Value::Error(text) = load(&cairn, &broken, "broken.rdb") else {
            panic!("{expected}: loaded");
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(expected), "{text}");
    }
    for name in ["../out.rdb", "CURRENT", "whole.rdb"] {
        let reply = client.command(&["DEBUG", "RDB-SAVE", name]);
        assert!(reply.is_error(), "{name}: {reply:?}");
    }
    check(cairn);
}

/// Changes all kinds of values in databases 1 to 3, so that at each moment some of them agree.
fn churn(cairn: &Server, worker: usize, is_over: &AtomicBool) {
    let mut rng = Rng::with_seed(worker as u64);
    let mut client = cairn.client();
    client.line("SELECT 1");
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // The same number in keys that lie far from each other, of four types.
        let pair = rng.usize(..20);
        let number = format!("{worker}:{round}");
        let mut lines = vec![
            "MULTI".to_owned(),
            format!("SET one:{pair} {number}"),
            format!("HSET two:{pair} a {number} b {number}"),
            format!("DEL three:{pair}"),
            format!("RPUSH three:{pair} {number}"),
            format!("XADD four:{pair} MAXLEN 1 * n {number}"),
            // As many elements as are counted.
            format!("SADD members {number}"),
            format!("ZADD scores {round} {number}"),
            "INCR counted".to_owned(),
            "EXEC".to_owned(),
            format!("SET brief:{} x PX {}", rng.usize(..50), rng.usize(1..50)),
        ];
        if worker == 0 && round % 50 == 0 {
            lines.extend([
                "MULTI".to_owned(),
                "DEL members scores counted".to_owned(),
                "EXEC".to_owned(),
                "SELECT 2".to_owned(),
                "FLUSHDB".to_owned(),
                "SWAPDB 2 3".to_owned(),
                "SELECT 1".to_owned(),
            ]);
        }
        for line in lines {
            let reply = client.line(&line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
    }
}

/// What a file shows of the keys that [`churn`] changes is one moment.
fn check_moment(redis: &Server) {
    let mut client = redis.client();
    client.line("SELECT 1");
    for pair in 0..20 {
        let one = client.line(&format!("GET one:{pair}"));
        let two = client.line(&format!("HMGET two:{pair} a b"));
        let three = client.line(&format!("LRANGE three:{pair} 0 -1"));
        let four = client.line(&format!("XRANGE four:{pair} - +"));
        if one == Value::Null {
            continue;
        }
        assert_eq!(two, Value::Array(vec![one.clone(), one.clone()]));
        assert_eq!(three, Value::Array(vec![one.clone()]));
        assert!(
            format!("{four:?}").contains(&format!("{one:?}")),
            "{four:?} {one:?}"
        );
    }
    let counted = client.line("GET counted");
    let counted = counted
        .as_bytes()
        .map_or("0".into(), String::from_utf8_lossy);
    let counted: i64 = counted.parse().expect("a number");
    assert_eq!(client.line("SCARD members").as_int(), Some(counted));
    assert_eq!(client.line("ZCARD scores").as_int(), Some(counted));
}

#[test]
fn a_file_shows_one_moment_while_clients_go_on() {
    let cairn = Server::cairn(&[]);
    let mut rng = Rng::with_seed(3);
    let mut client = cairn.client();
    let ways = [
        Way::Watching,
        Way::Script,
        Way::Minting,
        Way::Cashing,
        Way::BlockingMove,
    ];
    let mut bank = Bank::open(&mut client, &ways, &[], &mut rng);
    client.line("SELECT 5");
    fill(&mut client, "still:");
    let is_over = AtomicBool::new(false);
    let files = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (cairn, is_over) = (&cairn, &is_over);
            scope.spawn(move || churn(cairn, worker, is_over));
        }
        let report = bank.work(&cairn.addr(), || {
            for number in 0..6 {
                thread::sleep(Duration::from_millis(300));
                save(&cairn, &format!("moment-{number}.rdb"));
                files.fetch_add(1, Ordering::Relaxed);
            }
            None
        });
        is_over.store(true, Ordering::Relaxed);
        let Report { moved, .. } = report.expect("an honest bank");
        assert!(
            moved.iter().all(|moved| moved.acknowledged > 0),
            "{moved:?}"
        );
    });
    assert_eq!(files.load(Ordering::Relaxed), 6);
    let empty = |server: &Server| {
        let mut client = server.client();
        for database in 0..5 {
            client.line(&format!("SELECT {database}"));
            client.line("FLUSHDB");
        }
    };
    empty(&cairn);
    for number in 0..6 {
        let loaded = Loaded::from(&cairn.dir().join(format!("moment-{number}.rdb")));
        let statement = Reading::Transaction.read(&mut loaded.redis.client());
        statement
            .expect("accounts")
            .check()
            .expect("all of the money");
        check_moment(&loaded.redis);
        // What stood still is all there.
        empty(&loaded.redis);
        compare(&cairn, &loaded.redis, &format!("file {number}"));
    }
    check(cairn);
}
