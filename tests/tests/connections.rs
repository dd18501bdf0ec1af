//! The ways into a server besides one TCP port: TLS, Unix sockets, several addresses; and who is kept out.
//!
//! redis-cli is the client where an encrypted connection or a Unix socket is needed.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::certificates::{Authority, Certificate};
use cairn_tests::client::{Client, Value};
use cairn_tests::server::{Launch, Server, free_port};

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// What redis-cli prints.
fn redis_cli(connection: &[&str], command: &[&str]) -> String {
    // One that is not answered waits for ever.
    let output = Command::new("timeout")
        .args(["30", "redis-cli"])
        .args(connection)
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli runs");
    let printed = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&printed).trim_end().to_string()
}

struct Encrypted {
    authority: Authority,
    server: Server,
    port: String,
    own: Certificate,
    client: Certificate,
}

impl Encrypted {
    fn start(flags: &[&str]) -> Encrypted {
        let authority = Authority::new();
        let (own, client) = (authority.issue("server"), authority.issue("client"));
        let port = free_port().to_string();
        let server = Launch::cairn()
            .flags(["--tls-port", &port])
            .flags(["--tls-cert-file", text(&own.certificate)])
            .flags(["--tls-key-file", text(&own.key)])
            .flags(["--tls-ca-cert-file", text(&authority.certificate())])
            .flags(flags)
            .start();
        Encrypted {
            authority,
            server,
            port,
            own,
            client,
        }
    }

    fn anonymous(&self, command: &[&str]) -> String {
        self.trusting(&self.authority, command)
    }

    fn trusting(&self, authority: &Authority, command: &[&str]) -> String {
        let authority = authority.certificate();
        let connection = ["--tls", "-p", &self.port, "--cacert", text(&authority)];
        redis_cli(&connection, command)
    }

    fn with_certificate(&self, certificate: &Certificate, command: &[&str]) -> String {
        let authority = self.authority.certificate();
        let (own, key) = (text(&certificate.certificate), text(&certificate.key));
        let connection = [
            "--tls",
            "-p",
            &self.port,
            "--cacert",
            text(&authority),
            "--cert",
            own,
            "--key",
            key,
        ];
        redis_cli(&connection, command)
    }

    fn set(&self, command: &str) -> Value {
        self.server.client().line(command)
    }
}

fn is_refused(printed: &str) -> bool {
    !printed.contains("PONG") && !printed.is_empty()
}

#[test]
fn clients_are_who_their_certificates_say() {
    let encrypted = Encrypted::start(&[]);
    let strangers = Authority::new();
    let stranger = strangers.issue("client");
    let ping = ["ping"];
    assert_eq!(encrypted.with_certificate(&encrypted.client, &ping), "PONG");
    assert!(is_refused(&encrypted.anonymous(&ping)));
    assert!(is_refused(&encrypted.with_certificate(&stranger, &ping)));
    assert_eq!(
        encrypted.set("CONFIG SET tls-auth-clients optional"),
        Value::ok()
    );
    assert_eq!(encrypted.with_certificate(&encrypted.client, &ping), "PONG");
    assert_eq!(encrypted.anonymous(&ping), "PONG");
    assert!(is_refused(&encrypted.with_certificate(&stranger, &ping)));
    // A directory with certificates, and with other things.
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(strangers.certificate(), folder.path().join("one.pem")).expect("a copy");
    fs::write(folder.path().join("README"), "no certificate").expect("a file");
    fs::create_dir(folder.path().join("more")).expect("a folder");
    let set = format!("CONFIG SET tls-ca-cert-dir {}", folder.path().display());
    assert_eq!(encrypted.set(&set), Value::ok());
    assert_eq!(encrypted.with_certificate(&stranger, &ping), "PONG");
    assert_eq!(encrypted.with_certificate(&encrypted.client, &ping), "PONG");
    let nowhere = encrypted.set("CONFIG SET tls-ca-cert-dir /nowhere");
    assert!(matches!(nowhere, Value::Error(_)));
    assert_eq!(encrypted.with_certificate(&stranger, &ping), "PONG");
    assert_eq!(encrypted.set("CONFIG SET tls-auth-clients no"), Value::ok());
    assert_eq!(encrypted.with_certificate(&stranger, &ping), "PONG");
    // Whoever does not encrypt is not understood.
    assert!(is_refused(&redis_cli(&["-p", &encrypted.port], &ping)));
}

#[test]
fn large_and_many_replies_come_through() {
    let encrypted = Encrypted::start(&["--tls-auth-clients", "no"]);
    let long = "x".repeat(5_000_000);
    encrypted.server.client().command(&["SET", "long", &long]);
    let printed = encrypted.anonymous(&["get", "long"]);
    assert!(printed == long, "{} bytes", printed.len());
    let fill = "for i = 1, 100000 do redis.call('rpush', 'list', i) end";
    encrypted.server.client().command(&["EVAL", fill, "0"]);
    let printed = encrypted.anonymous(&["lrange", "list", "0", "-1"]);
    assert_eq!(printed.lines().count(), 100_000);
    assert_eq!(printed.lines().last(), Some("100000"));
    // A pipeline whose replies are far more than the client takes before it has sent all.
    let authority = encrypted.authority.certificate();
    let status = Command::new("redis-benchmark")
        .args(["--tls", "-p", &encrypted.port, "--cacert", text(&authority)])
        .args(["-q", "-n", "200", "-P", "100", "-c", "2", "GET", "long"])
        .stdout(Stdio::null())
        .status()
        .expect("redis-benchmark runs");
    assert!(status.success());
}

#[test]
fn a_client_that_takes_its_time_gets_all_of_a_reply() {
    let encrypted = Encrypted::start(&["--tls-auth-clients", "no"]);
    let long = "x".repeat(5_000_000);
    encrypted.server.client().command(&["SET", "long", &long]);
    let mut openssl = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect"])
        .arg(format!("127.0.0.1:{}", encrypted.port))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let mut input = openssl.stdin.take().expect("its input");
    input.write_all(b"GET long\r\n").expect("a request");
    // Until then all there is room for is full, and so is what the encryption keeps.
    thread::sleep(Duration::from_millis(500));
    let mut output = openssl.stdout.take().expect("its output");
    let (done, received) = mpsc::channel();
    thread::spawn(move || {
        let mut reply = vec![0; "$5000000\r\n".len() + 5_000_000 + "\r\n".len()];
        let read = output.read_exact(&mut reply);
        // Nobody is left to hear it, if it took too long.
        let _ = done.send(read.map(|()| reply));
    });
    let reply = received.recv_timeout(Duration::from_secs(15));
    openssl.kill().expect("openssl can be ended");
    openssl.wait().expect("openssl has ended");
    let reply = reply.expect("all of the reply").expect("a whole reply");
    assert!(reply.ends_with(b"xx\r\n"));
}

#[test]
fn certificates_change_while_the_server_runs() {
    let encrypted = Encrypted::start(&["--tls-auth-clients", "no"]);
    let ping = ["ping"];
    let (first, second) = (&encrypted.authority, Authority::new());
    let replace = |by: &Certificate| {
        fs::copy(&by.certificate, &encrypted.own.certificate).expect("a copy");
        fs::copy(&by.key, &encrypted.own.key).expect("a copy");
    };
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {}",
        encrypted.own.certificate.display(),
        encrypted.own.key.display()
    );
    replace(&second.issue("server"));
    assert_eq!(
        encrypted.trusting(first, &ping),
        "PONG",
        "nobody has said so"
    );
    assert_eq!(encrypted.set(&set), Value::ok());
    assert_eq!(encrypted.trusting(&second, &ping), "PONG");
    assert!(is_refused(&encrypted.trusting(first, &ping)));

    let refused = |command: &str, name: &str| {
        let expected = format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update TLS \
             configuration. Check server logs."
        );
        assert_eq!(encrypted.set(command), Value::error(expected), "{command}");
        assert_eq!(encrypted.trusting(&second, &ping), "PONG", "{command}");
    };
    fs::write(&encrypted.own.key, "no key").expect("a file");
    refused(&set, "tls-cert-file");
    let other = first.issue("other");
    fs::copy(&other.key, &encrypted.own.key).expect("a copy");
    refused(&set, "tls-cert-file");
    refused("CONFIG SET tls-cert-file /nowhere", "tls-cert-file");
    refused(
        "CONFIG SET timeout 7 tls-protocols TLSv1.1",
        "tls-protocols",
    );
    refused("CONFIG SET tls-ciphersuites TLS_NONE", "tls-ciphersuites");
    refused("CONFIG SET tls-key-file-pass secret", "tls-key-file-pass");
    assert_eq!(
        encrypted.set("CONFIG GET timeout"),
        Value::Array(vec![
            Value::Bulk(b"timeout".to_vec()),
            Value::Bulk(b"0".to_vec())
        ]),
        "all or nothing"
    );

    let hang_up = || {
        let pid = encrypted.server.pid().expect("it runs").to_string();
        let status = Command::new("kill").args(["-HUP", &pid]).status();
        assert!(status.expect("kill runs").success());
    };
    hang_up();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !encrypted.server.log().contains("all stays as it was") {
        assert!(Instant::now() < deadline, "{}", encrypted.server.log_tail());
    }
    assert_eq!(encrypted.trusting(&second, &ping), "PONG");
    replace(&first.issue("renewed"));
    hang_up();
    while encrypted.trusting(first, &ping) != "PONG" {
        assert!(Instant::now() < deadline, "{}", encrypted.server.log_tail());
    }
    assert!(is_refused(&encrypted.trusting(&second, &ping)));
}

#[test]
fn versions_and_ciphers_are_those_asked_for() {
    let encrypted = Encrypted::start(&[
        "--tls-auth-clients",
        "no",
        "--tls-protocols",
        "TLSv1.2",
        "--tls-ciphers",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ]);
    let agreed = |flags: &[&str]| {
        let output = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                &format!("127.0.0.1:{}", encrypted.port),
            ])
            .args(flags)
            .stdin(Stdio::null())
            .output()
            .expect("openssl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = agreed(&[]);
    assert!(
        said.contains("TLSv1.2, Cipher is ECDHE-RSA-AES128-GCM-SHA256"),
        "{said}"
    );
    assert!(agreed(&["-tls1_3"]).contains("Cipher is (NONE)"));
    let set = "CONFIG SET tls-protocols TLSv1.3 tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256";
    assert_eq!(encrypted.set(set), Value::ok());
    let said = agreed(&[]);
    assert!(
        said.contains("TLSv1.3, Cipher is TLS_CHACHA20_POLY1305_SHA256"),
        "{said}"
    );
    assert!(agreed(&["-tls1_2"]).contains("Cipher is (NONE)"));
}

#[test]
fn whoever_says_nothing_holds_up_nobody_and_is_dropped() {
    let encrypted = Encrypted::start(&["--threads", "1", "--tls-auth-clients", "no"]);
    let connect = || TcpStream::connect(format!("127.0.0.1:{}", encrypted.port)).expect("a socket");
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..50).map(|_| connect()).collect();
    let mut babbling = connect();
    babbling.write_all(&[0x16, 3, 1]).expect("some bytes");
    let mut client = encrypted.server.client();
    for _ in 0..100 {
        let asked = Instant::now();
        assert_eq!(client.line("PING"), Value::Simple(b"PONG".to_vec()));
        assert!(asked.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(encrypted.anonymous(&["ping"]), "PONG");
    silent.push(babbling);
    for mut socket in silent {
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).expect("a timeout");
        let mut said = Vec::new();
        let read = socket.read_to_end(&mut said);
        assert!(read.is_ok(), "it is not dropped: {read:?}");
    }
    assert!(begun.elapsed() > Duration::from_secs(5), "it had its time");
}

#[test]
fn a_server_may_have_no_plain_port() {
    let encrypted = Encrypted::start(&["--tls-auth-clients", "no"]);
    assert_eq!(encrypted.set("CONFIG SET port 0"), Value::ok());
    assert!(!encrypted.server.is_running());
    assert_eq!(encrypted.anonymous(&["config", "get", "port"]), "port\n0");
    let report = encrypted.anonymous(&["info", "server"]);
    assert!(report.contains(&format!("tcp_port:{}", encrypted.port)));
    let set = [
        "config",
        "set",
        "port",
        &encrypted.server.port().to_string(),
    ];
    assert_eq!(encrypted.anonymous(&set), "OK");
    let taken = Server::cairn(&[]);
    let refusal = "ERR CONFIG SET failed (possibly related to argument 'tls-port') - Unable to listen \
                   on this port. Check server logs.";
    let set = format!("CONFIG SET tls-port {}", taken.port());
    assert_eq!(encrypted.set(&set), Value::error(refusal));
    assert_eq!(encrypted.anonymous(&["ping"]), "PONG");
    assert_eq!(encrypted.set("CONFIG SET tls-port 0"), Value::ok());
    assert!(is_refused(&encrypted.anonymous(&["ping"])));
}

#[test]
fn a_unix_socket_is_a_way_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cairn.sock");
    let mut server = Launch::cairn()
        .flags(["--unixsocket", text(&path), "--unixsocketperm", "770"])
        .start();
    let metadata = fs::metadata(&path).expect("the socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o770);
    let by_socket = |command: &[&str]| redis_cli(&["-s", text(&path)], command);
    assert_eq!(by_socket(&["set", "k", "v"]), "OK");
    assert_eq!(server.client().line("GET k"), Value::Bulk(b"v".to_vec()));
    let line = by_socket(&["client", "info"]);
    let ends = format!("addr={0}:0 laddr={0}:0 ", path.display());
    assert!(line.contains(&ends) && line.contains(" flags=U "), "{line}");
    let mut monitor = server.client();
    monitor.line("MONITOR");
    by_socket(&["get", "k"]);
    let Value::Simple(shown) = monitor.try_receive().expect("what was run") else {
        panic!("a line expected");
    };
    let shown = String::from_utf8(shown).expect("text");
    let origin = format!("[0 unix:{}]", path.display());
    assert!(shown.contains(&origin), "{shown}");
    // A killed server leaves its socket, which the next one replaces.
    server.kill9();
    assert!(path.exists());
    server.start();
    assert_eq!(by_socket(&["get", "k"]), "v");
    server.terminate();
    assert!(!path.exists());
}

/// An address of this machine that others could use; none where there is no network.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent by this.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn several_addresses_are_listened_on() {
    let server = Launch::cairn()
        .flags(["--bind", "127.0.0.1 127.0.0.2 -192.0.2.77"])
        .start();
    let at = |host: &str| Client::connect((host, server.port()));
    let mut client = at("127.0.0.2").expect("the second address");
    assert!(at("127.0.0.3").is_err());
    assert_eq!(
        client.line("CONFIG GET bind"),
        Value::Array(vec![
            Value::Bulk(b"bind".to_vec()),
            Value::Bulk(b"127.0.0.1 127.0.0.2 -192.0.2.77".to_vec())
        ])
    );
    let bind = |client: &mut Client, to: &str| client.command(&["CONFIG", "SET", "bind", to]);
    let refusal = Value::error(
        "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified \
         addresses.",
    );
    assert_eq!(bind(&mut client, "127.0.0.1 192.0.2.77"), refusal);
    assert!(at("127.0.0.2").is_ok(), "nothing has changed");
    assert_eq!(bind(&mut client, "127.0.0.3 127.0.0.1"), Value::ok());
    assert!(at("127.0.0.1").is_ok() && at("127.0.0.3").is_ok() && at("127.0.0.2").is_err());
    assert_eq!(bind(&mut client, "* -::*"), Value::ok());
    assert!(at("127.0.0.1").is_ok() && at("127.0.0.9").is_ok());
    let too_many = vec!["127.0.0.1"; 17].join(" ");
    assert!(matches!(bind(&mut client, &too_many), Value::Error(_)));
}

#[test]
fn strangers_are_turned_away_until_there_is_a_password() {
    let Some(outside) = outside_address() else {
        eprintln!("there is no network to come from");
        return;
    };
    let server = Launch::cairn().flags(["--bind", "*"]).start();
    let ping = || {
        let mut client = Client::connect((outside, server.port())).expect("a connection");
        client.line("PING")
    };
    let denied = |reply: Value| match reply {
        Value::Error(text) => text.starts_with(b"DENIED Redis is running in protected mode"),
        _ => false,
    };
    let mut local = server.client();
    assert!(denied(ping()));
    local.line("ACL SETUSER default >secret");
    assert_eq!(ping(), Value::error("NOAUTH Authentication required."));
    local.line("ACL SETUSER default nopass");
    assert!(denied(ping()));
    local.line("CONFIG SET protected-mode no");
    assert_eq!(ping(), Value::Simple(b"PONG".to_vec()));

    let encrypted = Encrypted::start(&["--bind", "*", "--tls-auth-clients", "no"]);
    let outside = outside.to_string();
    let by_tls = ["--tls", "--insecure", "-h", &outside, "-p", &encrypted.port];
    let said = redis_cli(&by_tls, &["ping"]);
    assert!(said.contains("protected mode"), "{said}");
    encrypted.set("CONFIG SET protected-mode no");
    assert_eq!(redis_cli(&by_tls, &["ping"]), "PONG");
}
