//! Users where files, restarts and several threads come in. What single commands answer is in the golden scripts.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::client::{Client, Value, is_closed};
use cairn_tests::ending::Ending;
use cairn_tests::figures;
use cairn_tests::server::{Launch, Server, free_port};

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

fn run(client: &mut Client, line: &str) -> Value {
    let reply = client.line(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    reply
}

fn no_permission(command: &str) -> Value {
    error(&format!(
        "NOPERM this user has no permissions to run the '{command}' command"
    ))
}

fn is_gone(client: &mut Client) -> bool {
    client
        .try_command(&["PING"])
        .is_err_and(|error| is_closed(&error))
}

fn lines(value: Value) -> Vec<String> {
    let Value::Array(lines) = value else {
        panic!("lines expected, got {value:?}");
    };
    let line = |value: Value| match value {
        Value::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("text expected, got {other:?}"),
    };
    lines.into_iter().map(line).collect()
}

fn start_with_file(path: &Path, text: &str) -> Server {
    fs::write(path, text).expect("a file");
    let path = path.to_str().expect("a plain path");
    Launch::cairn().flags(["--aclfile", path]).start()
}

#[test]
fn users_of_a_file_are_loaded_saved_and_loaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    let mut server = start_with_file(&path, "\nuser alice on >alice +@all ~*\n\n");
    let mut admin = server.client();
    let mut alice = server.client();
    assert_eq!(alice.line("AUTH alice alice"), Value::ok());
    assert_eq!(admin.line("ACL SETUSER bob on >bob +get ~b*"), Value::ok());
    assert_eq!(admin.line("ACL SAVE"), Value::ok());
    let users = lines(admin.line("ACL LIST"));
    assert_eq!(
        fs::read_to_string(&path).expect("the file"),
        users.join("\n") + "\n"
    );
    assert!(!users.join("").contains(">bob"), "passwords are hashed");

    assert_eq!(admin.line("ACL LOAD"), Value::ok());
    assert!(
        is_gone(&mut alice),
        "users are replaced, and their clients closed"
    );
    let mut bob = server.client();
    assert_eq!(bob.line("AUTH bob bob"), Value::ok());
    assert_eq!(bob.line("GET b1"), Value::Null);

    let broken = format!("{}\nuser alice on\nuser carol +bogus\n", users.join("\n"));
    fs::write(&path, broken).expect("a file");
    let refused = admin.line("ACL LOAD");
    let expected = format!(
        "ERR WARNING: Duplicate user 'alice' found on line 4. {}:5: Error in applying operation '+bogus': \
         Unknown command or category name in ACL. WARNING: ACL errors detected, no change to the \
         previously active ACL rules was performed",
        path.display()
    );
    assert_eq!(refused, error(&expected));
    assert_eq!(lines(admin.line("ACL LIST")), users);
    assert_eq!(bob.line("GET b1"), Value::Null, "nothing has changed");

    assert_eq!(admin.line("ACL SAVE"), Value::ok());
    server.restart();
    assert_eq!(lines(server.client().line("ACL LIST")), users);
}

#[test]
fn whoever_loads_the_file_is_answered_before_being_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    let server = start_with_file(&path, "user alice on nopass +@all\n");
    let mut alice = server.client();
    assert_eq!(alice.line("AUTH alice x"), Value::ok());
    assert_eq!(alice.line("ACL LOAD"), Value::ok());
    assert!(is_gone(&mut alice));
}

#[test]
fn users_of_the_configuration_survive_a_rewrite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cairn.toml");
    let source = "user = [\n  'default on nopass ~* &* +@all -flushdb',\n]\ntimeout = 5\n";
    fs::write(&path, source).expect("a file");
    let config = path.to_str().expect("a plain path");
    let mut server = Launch::cairn().flags(["--config", config]).start();
    let mut client = server.client();
    assert_eq!(client.line("FLUSHDB"), no_permission("flushdb"));
    assert_eq!(client.line("ACL SETUSER bob on >secret +ping"), Value::ok());
    let raw: [&[u8]; 6] = [
        b"ACL",
        b"SETUSER",
        b"raw\xfe",
        b"on",
        b"~\xff*",
        b"(~\xc3( +get)",
    ];
    assert_eq!(client.command(&raw), Value::ok());
    let raw = client.command(&[b"ACL".as_slice(), b"GETUSER", b"raw\xfe"]);
    assert_eq!(client.line("CONFIG REWRITE"), Value::ok());
    let written = fs::read_to_string(&path).expect("the file");
    assert!(
        !written.contains(">secret") && written.contains("timeout = 5\n"),
        "{written}"
    );
    server.restart();
    let mut client = server.client();
    assert_eq!(client.line("FLUSHDB"), no_permission("flushdb"));
    let again = client.command(&[b"ACL".as_slice(), b"GETUSER", b"raw\xfe"]);
    assert_eq!(again, raw);
    assert_eq!(client.line("AUTH bob secret"), Value::ok());
    assert_eq!(client.line("GET k"), no_permission("get"));
}

#[test]
fn a_change_reaches_the_clients_of_all_threads_at_once() {
    let server = Launch::cairn().flags(["--threads", "4"]).start();
    let mut admin = server.client();
    assert_eq!(
        admin.line("ACL SETUSER u on nopass +@all ~* &*"),
        Value::ok()
    );
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.line("AUTH u x"), Value::ok());
    }
    for round in 0..200 {
        let (rule, is_permitted) = match round % 2 {
            0 => ("-get", false),
            _ => ("+get", true),
        };
        assert_eq!(admin.line(&format!("ACL SETUSER u {rule}")), Value::ok());
        for client in &mut clients {
            let expected = if is_permitted {
                Value::Null
            } else {
                no_permission("get")
            };
            assert_eq!(client.line("GET k"), expected);
        }
    }
}

#[test]
fn nobody_stays_subscribed_who_may_not_listen() {
    let server = Launch::cairn().flags(["--threads", "4"]).start();
    let mut admin = server.client();
    let is_over = AtomicBool::new(false);
    // So many take a moment to be looked at, in which the permission may go.
    let channels = (0..5000).map(|number| format!("news:{number}"));
    let mut subscribe = vec!["SUBSCRIBE".to_string()];
    subscribe.extend(channels);
    thread::scope(|scope| {
        let _end = Ending(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut client = server.client();
                    // It is deleted and made again all the time, so each of these may fail.
                    let _ = client.try_command(&["AUTH", "u", "x"]);
                    let _ = client.try_command(&subscribe);
                }
            });
        }
        for round in 0..150 {
            admin.line("ACL SETUSER u on nopass +subscribe resetchannels &news:*");
            thread::sleep(Duration::from_millis(round % 5));
            admin.line("ACL SETUSER u resetchannels");
            // Those who were let in before have gone, or go in a moment; nobody comes any more.
            let deadline = Instant::now() + Duration::from_secs(5);
            while admin.line("PUBSUB CHANNELS") != Value::Array(Vec::new()) {
                assert!(Instant::now() < deadline, "somebody still listens");
                thread::sleep(Duration::from_millis(2));
            }
            admin.line("ACL DELUSER u");
        }
    });
}

#[test]
fn what_is_denied_is_counted() {
    let server = Server::cairn(&[]);
    let mut admin = server.client();
    let mut client = server.client();
    admin.line("ACL SETUSER u on >x +get +publish ~a");
    client.line("AUTH u wrong");
    client.line("AUTH u x");
    client.line("GET b");
    client.line("GET b");
    client.line("SET a 1");
    client.line("PUBLISH c x");
    let log = format!("{:?}", admin.line("ACL LOG"));
    for command in ["auth", "get", "set", "publish"] {
        assert!(
            log.contains(&format!(" cmd={command} ")),
            "{command}: {log}"
        );
    }
    let Value::Bulk(report) = admin.line("INFO stats") else {
        panic!("a report expected");
    };
    let report = String::from_utf8(report).expect("text");
    for line in [
        "acl_access_denied_auth:1",
        "acl_access_denied_cmd:1",
        "acl_access_denied_key:2",
        "acl_access_denied_channel:1",
    ] {
        assert!(
            report.lines().any(|other| other == line),
            "{line}\n{report}"
        );
    }
}

#[test]
fn a_server_with_broken_users_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |flags: &[&str]| {
        let output = std::process::Command::new(cairn_tests::server::cairn_binary())
            .args(["serve", "--port", &free_port().to_string(), "--dir"])
            .arg(folder.path())
            .args(flags)
            .output()
            .expect("the program runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let said = start(&["--user", "foo on", "--user", "foo off"]);
    assert!(said.contains("Duplicate user found"), "{said}");
    let said = start(&["--user", "foo +bogus"]);
    assert!(said.contains("Unknown command or category name"), "{said}");
    let said = start(&["--aclfile", "absent.acl"]);
    let reason = "Error loading ACLs, opening file 'absent.acl': No such file or directory";
    assert!(said.contains(reason), "{said}");
    let said = start(&["--aclfile", "absent.acl", "--user", "foo on"]);
    assert!(said.contains("choose one"), "{said}");
}

/// What a user may do is asked again after a wait.
#[test]
fn whoever_waits_is_asked_again() {
    let server = Server::cairn(&["--threads", "2"]);
    let mut admin = server.client();
    let mut user = server.client();
    run(&mut admin, "ACL SETUSER u on nopass +set +eval ~a");
    run(&mut user, "AUTH u x");

    run(&mut admin, "CLIENT PAUSE 60000 WRITE");
    user.send(&["SET", "a", "1"]);
    user.flush().expect("sent");
    until_blocked(&mut admin);
    run(&mut admin, "ACL SETUSER u resetkeys");
    run(&mut admin, "CLIENT UNPAUSE");
    assert!(user.receive().is_error());
    assert_eq!(run(&mut admin, "EXISTS a"), Value::Int(0));

    run(&mut admin, "ACL SETUSER u ~a");
    let mut holder = server.client();
    let busy =
        "local t = redis.call('time')[1] while redis.call('time')[1] - t < 2 do end return 1";
    holder.send(&["EVAL", busy, "1", "a"]);
    holder.flush().expect("sent");
    thread::sleep(Duration::from_millis(300));
    user.send(&["SET", "a", "1"]);
    user.flush().expect("sent");
    thread::sleep(Duration::from_millis(300));
    run(&mut admin, "ACL SETUSER u resetkeys");
    assert_eq!(holder.receive(), Value::Int(1));
    assert!(user.receive().is_error());
    assert_eq!(run(&mut admin, "EXISTS a"), Value::Int(0));
}

fn until_blocked(admin: &mut Client) {
    let started = Instant::now();
    while figures::info(admin, "clients", "blocked_clients") == 0 {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody waits");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Many arguments hold up nobody, whatever the rules are.
#[test]
fn a_call_of_many_keys_is_checked_in_no_time() {
    let server = Server::cairn(&[]);
    let mut admin = server.client();
    run(&mut admin, "ACL SETUSER u on nopass +touch ~k*");
    run(&mut admin, "ACL SETUSER v on nopass +ping");
    for (name, is_permitted) in [("u", true), ("v", false)] {
        let mut user = server.client();
        run(&mut user, &format!("AUTH {name} x"));
        let mut call = vec!["TOUCH"];
        call.resize(200_000, "key");
        let started = Instant::now();
        user.send(&call);
        assert_eq!(!user.receive().is_error(), is_permitted);
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
    }
}
