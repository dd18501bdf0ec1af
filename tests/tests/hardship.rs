//! Clients that misbehave and disks that fill up: the server stays up, bounded, and says what is wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, encode};
use cairn_tests::disk::SmallDisk;
use cairn_tests::figures;
use cairn_tests::server::{Launch, Server, cairn_binary, free_port};
use cairn_tests::value::Value;

fn pid(server: &Server) -> u32 {
    server.pid().expect("the server runs")
}

/// Resident memory of a process in MiB.
fn resident_mib(pid: u32) -> u64 {
    figures::resident(pid) >> 20
}

#[test]
fn announced_sizes_take_no_memory() {
    let server = Server::cairn(&[]);
    let before = resident_mib(pid(&server));
    let mut connections = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.addr()).expect("a connection");
        stream
            .write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc")
            .expect("sent");
        connections.push(stream);
    }
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.addr()).expect("a connection");
        stream
            .write_all(b"*2000000000\r\n$1\r\na\r\n")
            .expect("sent");
        connections.push(stream);
    }
    assert_eq!(
        server.client().line("PING"),
        Value::Simple(b"PONG".to_vec())
    );
    let grown = resident_mib(pid(&server)).saturating_sub(before);
    assert!(grown < 64, "grew by {grown} MiB");
}

#[test]
fn a_client_that_does_not_read_costs_little() {
    let server = Server::cairn(&[]);
    let mut client = server.client();
    let value = "x".repeat(10_000);
    for number in 0..2000 {
        client.command(&["HSET", "big", &format!("field{number}"), &value]);
    }
    let before = resident_mib(pid(&server));
    let mut lazy: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(server.addr()).expect("a connection"))
        .collect();
    for stream in &mut lazy {
        // Twenty megabytes each, asked for ten times, and never taken.
        stream
            .write_all(&b"HGETALL big\r\n".repeat(10))
            .expect("sent");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
    let grown = resident_mib(pid(&server)).saturating_sub(before);
    assert!(grown < 150, "grew by {grown} MiB");
    // One of them wakes up, and gets everything.
    let stream = &mut lazy[0];
    let mut left = 10 * 2000 * 10_000_u64;
    let mut piece = vec![0; 1 << 20];
    while left > 0 {
        let count = stream.read(&mut piece).expect("the reply goes on") as u64;
        assert!(count > 0, "the reply broke off");
        left = left.saturating_sub(count);
    }
}

/// Nothing is queued for a client that does not read: the server stops answering it, and then stops
/// taking what it sends.
#[test]
fn replies_that_nobody_takes_are_not_made() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut client = server.client();
    client.command(&["SET", "value", &"x".repeat(10_000)]);
    let before = resident_mib(pid(&server));
    let requests = b"GET value\r\n".repeat(10_000);
    let mut lazy: Vec<TcpStream> = (0..10)
        .map(|_| TcpStream::connect(server.addr()).expect("a connection"))
        .collect();
    for stream in &mut lazy {
        // A gigabyte of replies in all.
        stream.write_all(&requests).expect("sent");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
    let grown = resident_mib(pid(&server)).saturating_sub(before);
    assert!(grown < 64, "grew by {grown} MiB");
    let list = client.line("CLIENT LIST");
    let list = String::from_utf8_lossy(list.as_bytes().expect("text"));
    let output = |line: &str| -> u64 {
        let mut words = line.split(' ');
        let word = words.find_map(|word| word.strip_prefix("omem="));
        word.and_then(|size| size.parse().ok()).expect("a size")
    };
    let most = list.lines().map(output).max().expect("clients");
    assert!(most < 4 << 20, "{most} bytes wait for one client");
}

#[test]
fn a_pipeline_that_is_sent_before_it_is_read_is_answered_in_full() {
    const COMMANDS: usize = 100_000;
    let server = Server::cairn(&[]);
    let mut sending = TcpStream::connect(server.addr()).expect("a connection");
    let mut reading = BufReader::new(sending.try_clone().expect("a second handle"));
    let word = |number: usize| format!("{number:08}{}", "x".repeat(1000));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COMMANDS {
                let mut command = Vec::new();
                encode(&["ECHO", &word(number)], &mut command);
                sending.write_all(&command).expect("sent");
            }
        });
        // Long enough for the server to have taken as much as it takes.
        std::thread::sleep(Duration::from_secs(3));
        let mut line = String::new();
        for number in 0..COMMANDS {
            for expected in ["$1008".to_owned(), word(number)] {
                line.clear();
                reading.read_line(&mut line).expect("a reply");
                assert_eq!(line.trim_end(), expected, "reply {number}");
            }
        }
    });
}

#[test]
fn a_request_that_never_ends_is_given_up_at_the_limit() {
    let server = Server::cairn(&["--client-query-buffer-limit", "2mb"]);
    let mut client = server.client();
    let fits = "x".repeat(1 << 20);
    assert_eq!(client.command(&["SET", "key", &fits]), Value::ok());
    let mut endless = TcpStream::connect(server.addr()).expect("a connection");
    let mut sent = 0;
    endless
        .write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n")
        .expect("sent");
    while endless.write_all(&[b'x'; 1 << 16]).is_ok() {
        sent += 1 << 16;
        assert!(sent < 64 << 20, "the server takes everything");
    }
    let log = server.log();
    assert!(log.contains("max query buffer length: id="), "{log}");
    assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn a_client_that_reads_slowly_is_held_back() {
    let server = Server::cairn(&[]);
    let value = "x".repeat(1 << 20);
    server.client().command(&["SET", "big", &value]);
    let before = resident_mib(pid(&server));
    let mut stream = TcpStream::connect(server.addr()).expect("a connection");
    let mut sending = stream.try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let requests = b"GET big\r\n".repeat(10_000);
            while sending.write_all(&requests).is_ok() {}
        });
        let started = Instant::now();
        let mut piece = vec![0; 1 << 19];
        while started.elapsed() < Duration::from_secs(5) {
            assert!(stream.read(&mut piece).expect("more replies") > 0);
            std::thread::sleep(Duration::from_millis(100));
        }
        let grown = resident_mib(pid(&server)).saturating_sub(before);
        stream
            .shutdown(std::net::Shutdown::Both)
            .expect("the end of it");
        assert!(grown < 64, "grew by {grown} MiB");
    });
}

/// A client that takes a few bytes now and then would hold on to files of the database for an hour.
#[test]
fn a_streamed_reply_has_to_be_taken_at_some_rate() {
    let server = Server::cairn(&[]);
    let value = "x".repeat(50 << 20);
    server.client().command(&["SET", "big", &value]);
    let mut stream = TcpStream::connect(server.addr()).expect("a connection");
    stream.write_all(b"GET big\r\n").expect("sent");
    let started = Instant::now();
    let mut piece = [0; 2048];
    while !server.log().contains("too slowly") {
        assert!(started.elapsed() < Duration::from_secs(40), "still served");
        std::thread::sleep(Duration::from_millis(100));
        // Enough to keep the socket moving now and then.
        if stream.read(&mut piece).is_err() {
            break;
        }
    }
    assert!(started.elapsed() > Duration::from_secs(15));
    assert!(server.log().contains("too slowly"));
}

#[test]
fn there_is_a_limit_to_connections() {
    let server = Server::cairn(&["--maxclients", "5"]);
    let kept: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = server.client();
            client.line("PING");
            client
        })
        .collect();
    let mut sixth = TcpStream::connect(server.addr()).expect("a connection");
    let mut answer = Vec::new();
    sixth.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, b"-ERR max number of clients reached\r\n");
    drop(kept);
}

#[test]
fn connections_leave_file_descriptors_to_the_database() {
    let server = Launch::cairn()
        .flags(["--memory", "64mb"])
        .file_limit(300)
        .start();
    let mut client = server.client();
    let reply = format!("{:?}", client.line("CONFIG SET maxclients 1000"));
    assert!(reply.contains("try with 129"), "{reply}");
    let log = server.log();
    assert!(log.contains("reduced from 10000 to 129"), "{log}");
    let many: Vec<TcpStream> = (0..400)
        .filter_map(|_| TcpStream::connect(server.addr()).ok())
        .collect();
    // More tables than there are descriptors for.
    for number in 0..3000 {
        let value: String = (0..16_000).map(|_| fastrand::alphanumeric()).collect();
        let reply = client.command(&["SET", &format!("key:{number}"), &value]);
        assert_eq!(reply, Value::ok());
    }
    drop(many);
    assert_eq!(client.line("STRLEN key:0"), Value::Int(16_000));
}

#[test]
fn idle_connections_are_closed_in_time() {
    let server = Server::cairn(&["--timeout", "1"]);
    let mut idle = TcpStream::connect(server.addr()).expect("a connection");
    idle.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    let started = Instant::now();
    let count = idle.read(&mut [0; 16]).expect("the end of the stream");
    assert_eq!(count, 0);
    assert!(started.elapsed() >= Duration::from_millis(900));
}

#[test]
fn a_long_command_does_not_hold_up_others() {
    let server = Server::cairn(&["--threads", "1"]);
    let mut client = server.client();
    for start in (0..400_000).step_by(1000) {
        let mut command = vec!["RPUSH".to_owned(), "long".to_owned()];
        command.extend((start..start + 1000).map(|n| format!("element:{n}")));
        client.command(&command);
    }
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            let mut client = server.client();
            let started = Instant::now();
            // Walks the whole list, since nothing is found.
            assert_eq!(client.line("LPOS long nothing"), Value::Null);
            started.elapsed()
        });
        std::thread::sleep(Duration::from_millis(5));
        let mut others = 0;
        while !long.is_finished() {
            client.line("SET other value");
            others += 1;
        }
        let long = long.join().expect("a reply");
        println!("{others} other commands ran in the {long:?} of the long one");
        // Had it held up its thread, the first of them would have waited for its end.
        assert!(others > 5 || long < Duration::from_millis(40));
    });
}

fn refuses_to_start(dir: &Path) -> String {
    let output = Command::new(cairn_binary())
        .args(["serve", "--port", &free_port().to_string(), "--dir"])
        .arg(dir)
        .output()
        .expect("cairn runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_directory_in_use_is_refused() {
    let server = Server::cairn(&[]);
    let message = refuses_to_start(server.dir());
    assert!(message.contains("in use by another process"), "{message}");
    assert_eq!(
        server.client().line("PING"),
        Value::Simple(b"PONG".to_vec())
    );
}

#[test]
fn a_newer_format_is_refused() {
    let mut server = Server::cairn(&[]);
    server.terminate();
    std::fs::write(server.dir().join("CAIRN"), "cairn format 99\n").expect("written");
    let message = refuses_to_start(server.dir());
    assert!(message.contains("newer version"), "{message}");
}

#[test]
fn a_clean_stop_loses_nothing() {
    for stop in ["SHUTDOWN", "SIGTERM"] {
        let mut server = Server::cairn(&[]);
        let mut client = server.client();
        for number in 0..1000 {
            client.line(&format!("SET key:{number} {number}"));
        }
        if stop == "SHUTDOWN" {
            client.send(&["SHUTDOWN"]);
            client.flush().expect("sent");
        }
        server.terminate();
        let started = Instant::now();
        server.start();
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut client = server.client();
        assert_eq!(client.line("DBSIZE"), Value::Int(1000));
        assert_eq!(client.line("GET key:999"), Value::bulk("999"));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_reading() {
    let Some(disk) = SmallDisk::mount("200m") else {
        return;
    };
    let mut server = Launch::cairn()
        .flags(["--memory", "64mb"])
        .dir(disk.path().join("data"))
        .start();
    let mut client = server.client();
    let mut acknowledged = 0;
    let refusal = loop {
        let value: String = (0..50_000).map(|_| fastrand::alphanumeric()).collect();
        match client.command(&["SET", &format!("key:{acknowledged}"), &value]) {
            reply if reply == Value::ok() => acknowledged += 1,
            refusal => break refusal,
        }
        assert!(acknowledged < 100_000, "the disk does not fill up");
    };
    println!("refused after {acknowledged} writes: {refusal:?}");
    assert!(format!("{refusal:?}").contains("disk"), "{refusal:?}");
    for number in [0, acknowledged / 2, acknowledged - 1] {
        let reply = client.line(&format!("STRLEN key:{number}"));
        assert_eq!(reply, Value::Int(50_000));
    }
    // Deleting is allowed, and makes room.
    assert_eq!(client.line("FLUSHALL"), Value::ok());
    let started = Instant::now();
    while client.line("SET again yes") != Value::ok() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no room after FLUSHALL"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(client);
    server.terminate();
}

#[test]
fn a_reply_that_nobody_wants_is_not_sent_when_the_write_fails() {
    let Some(disk) = SmallDisk::mount("100m") else {
        return;
    };
    let mut server = Launch::cairn()
        .flags(["--memory", "64mb", "--min-free-disk", "0"])
        .dir(disk.path().join("data"))
        .start();
    let mut client = server.client();
    assert_eq!(client.line("SET before yes"), Value::ok());
    // The file system becomes full under the server's feet.
    let filler = disk.path().join("filler");
    let mut file = std::fs::File::create(&filler).expect("a file");
    while file.write_all(&[0; 4096]).is_ok() {}
    let value = "x".repeat(1 << 20);
    let mut refusal = None;
    for number in 0..100 {
        let reply = client.command(&["SET", &format!("key:{number}"), &value]);
        if reply != Value::ok() {
            refusal = Some(reply);
            break;
        }
    }
    assert!(refusal.is_some(), "no write failed");
    let quiet = [
        vec!["CLIENT", "REPLY", "OFF"],
        vec!["SET", "unwanted", &value],
        vec!["CLIENT", "REPLY", "ON"],
        vec!["PING"],
        vec!["CLIENT", "REPLY", "SKIP"],
        vec!["SET", "unwanted", &value],
        vec!["PING"],
        vec!["SET", "wanted", &value],
        vec!["GET", "before"],
    ];
    for command in &quiet {
        client.send(command);
    }
    let replies: Vec<Value> = (0..5).map(|_| client.receive()).collect();
    let pong = Value::Simple(b"PONG".to_vec());
    assert_eq!(
        replies[..3],
        [Value::ok(), pong.clone(), pong],
        "{replies:?}"
    );
    assert!(matches!(replies[3], Value::Error(_)), "{replies:?}");
    assert_eq!(replies[4], Value::bulk("yes"));
    drop(client);
    std::fs::remove_file(&filler).expect("removed");
    server.terminate();
}
