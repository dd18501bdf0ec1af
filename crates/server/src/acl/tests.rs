#![allow(clippy::unwrap_used)]

use super::*;
use crate::command;

fn set(acl: &Acl, name: &str, rules: &str) -> Result<(), String> {
    let words: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    acl.set(name.as_bytes(), &words)
        .map(|_| ())
        .map_err(|error| String::from_utf8(error).unwrap())
}

fn check(acl: &Acl, name: &str, call: &str) -> Result<(), Denial> {
    let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    let args = Args::new(&words);
    let command = command::named(&args).unwrap();
    acl.find(name.as_bytes()).unwrap().check(command, &args)
}

fn reason(acl: &Acl, call: &str) -> Option<(Reason, usize)> {
    let denial = check(acl, "u", call).err()?;
    Some((denial.reason, denial.at))
}

#[test]
fn each_rule_decides_over_what_it_names() {
    let acl = Acl::default();
    set(&acl, "u", "on nopass").unwrap();
    assert_eq!(reason(&acl, "get k"), Some((Reason::Command, 0)));
    assert_eq!(
        reason(&acl, "auth x"),
        None,
        "who one is can always be said"
    );
    set(&acl, "u", "+get +mset %R~r* %W~w* ~both").unwrap();
    assert_eq!(reason(&acl, "get r1"), None);
    assert_eq!(reason(&acl, "get w1"), Some((Reason::Key, 1)));
    assert_eq!(reason(&acl, "mset w1 x both x"), None);
    assert_eq!(reason(&acl, "mset w1 x r1 x"), Some((Reason::Key, 3)));
    set(&acl, "u", "+publish +psubscribe &news.*").unwrap();
    assert_eq!(reason(&acl, "publish news.1 x"), None);
    assert_eq!(reason(&acl, "publish new x"), Some((Reason::Channel, 1)));
    assert_eq!(reason(&acl, "psubscribe news.*"), None);
    let narrower = reason(&acl, "psubscribe news.* news.1*");
    assert_eq!(
        narrower,
        Some((Reason::Channel, 2)),
        "patterns are compared, not matched"
    );
    set(&acl, "u", "+select|0 -config +config|get").unwrap();
    assert_eq!(reason(&acl, "select 0"), None);
    assert_eq!(reason(&acl, "select 1"), Some((Reason::Command, 0)));
    assert_eq!(reason(&acl, "config get x"), None);
    assert_eq!(reason(&acl, "config set x y"), Some((Reason::Command, 0)));
}

#[test]
fn no_key_is_overlooked() {
    let acl = Acl::default();
    set(&acl, "u", "+@all ~a ~mine*").unwrap();
    // Redis looks at the first destination, and the command takes the last.
    let stores = "georadius a 0 0 1 m store mine store other";
    assert_eq!(reason(&acl, stores), Some((Reason::Key, 9)));
    assert_eq!(
        reason(&acl, "georadius a 0 0 1 m store mine store mine2"),
        None
    );
    assert_eq!(
        reason(&acl, "sort a store other store mine limit store 1"),
        None
    );
    assert_eq!(
        reason(&acl, "sort a store mine store other"),
        Some((Reason::Key, 5))
    );
    // A password that looks like an option.
    let migrate = "migrate host 1 other 0 100 auth keys copy";
    assert_eq!(reason(&acl, migrate), Some((Reason::Key, 3)));
    assert_eq!(
        reason(&acl, "xread count 1 streams a other 0 0"),
        Some((Reason::Key, 5))
    );
    // What cannot be run needs no permission.
    assert_eq!(reason(&acl, "eval x 3 a other"), None);
    assert_eq!(reason(&acl, "eval x 2 a other"), Some((Reason::Key, 4)));
    assert_eq!(reason(&acl, "zunionstore other x a"), None);
    assert_eq!(
        reason(&acl, "zunionstore mine 2 a other"),
        Some((Reason::Key, 4))
    );
}

#[test]
fn sort_reads_keys_that_it_does_not_name() {
    let acl = Acl::default();
    set(&acl, "u", "+sort ~list").unwrap();
    assert_eq!(reason(&acl, "sort list by nosort alpha"), None);
    assert_eq!(reason(&acl, "sort list by w*"), Some((Reason::Unnamed, 2)));
    assert_eq!(
        reason(&acl, "sort list limit 0 1 get #"),
        Some((Reason::Unnamed, 5))
    );
    set(&acl, "u", "%W~*").unwrap();
    assert_eq!(reason(&acl, "sort list by w*"), Some((Reason::Unnamed, 2)));
    set(&acl, "u", "%R~*").unwrap();
    assert_eq!(reason(&acl, "sort list by w* get #"), None);
    set(&acl, "u", "resetkeys ~list (+get %R~*)").unwrap();
    let split = reason(&acl, "sort list by w*");
    assert_eq!(
        split,
        Some((Reason::Unnamed, 2)),
        "it takes one selector that permits both"
    );
}

#[test]
fn selectors_permit_each_by_itself() {
    let acl = Acl::default();
    set(&acl, "u", "+get ~a (+set ~b) (+mget ~c ~d)").unwrap();
    assert_eq!(reason(&acl, "get a"), None);
    assert_eq!(reason(&acl, "set b 1"), None);
    assert_eq!(reason(&acl, "get b"), Some((Reason::Key, 1)));
    assert_eq!(reason(&acl, "mget c d e"), Some((Reason::Key, 3)));
    assert_eq!(reason(&acl, "del a"), Some((Reason::Command, 0)));
}

#[test]
fn rules_about_commands_that_are_not_there_are_taken() {
    let acl = Acl::default();
    set(
        &acl,
        "u",
        "on +ping +psync +cluster|info -replicaof -module",
    )
    .unwrap();
    assert_eq!(reason(&acl, "ping"), None);
    assert_eq!(reason(&acl, "get a"), Some((Reason::Command, 0)));
}

#[test]
fn rules_say_what_is_wrong_and_change_nothing_then() {
    let acl = Acl::default();
    set(&acl, "u", "on ~* &*").unwrap();
    let before = acl.find(b"u").unwrap().rules();
    for (rules, wrong) in [
        ("+bogus", "Unknown command or category name in ACL"),
        ("-select|0", "Unknown command or category name in ACL"),
        ("+get|a|b", "Unknown command or category name in ACL"),
        ("+@bogus", "Unknown command or category name in ACL"),
        (
            "+config|get|x",
            "Allowing first-arg of a subcommand is not supported",
        ),
        ("+select|", "Syntax error"),
        ("bogus", "Syntax error"),
        ("%~x", "pattern after the * pattern (or the 'allkeys' flag)"),
        ("resetkeys %~x", "Syntax error"),
        (
            "&x",
            "pattern after the * pattern (or the 'allchannels' flag)",
        ),
        (
            "<x",
            "The password you are trying to remove from the user does not exist",
        ),
        ("#12", "The password hash must be exactly 64 characters"),
        (
            "(+get",
            "Unmatched parenthesis in acl selector starting at '(+get'.",
        ),
    ] {
        let error = set(&acl, "u", &format!("off {rules}")).unwrap_err();
        assert!(error.contains(wrong), "{rules}: {error}");
        assert_eq!(*acl.find(b"u").unwrap().rules(), *before, "{rules}");
    }
}

#[test]
fn a_description_makes_the_same_user() {
    let acl = Acl::default();
    for rules in [
        "on nopass +@all ~* &*",
        "on >x >y -@all +get +config|get %R~a %W~b ~c &d",
        "+@all -@dangerous +keys -debug +debug|sleep +select|1",
        "reset +@string -incr +acl (+set ~x* &*) (-@all +@hash %W~w)",
        "skip-sanitize-payload +client|id -client|list",
    ] {
        set(&acl, "u", &format!("reset {rules}")).unwrap();
        let user = acl.find(b"u").unwrap().rules();
        let text = String::from_utf8(user.describe()).unwrap();
        set(&acl, "again", &format!("reset {text}")).unwrap();
        let again = acl.find(b"again").unwrap().rules();
        assert_eq!(again.describe(), user.describe(), "{rules}");
        for command in command::every() {
            let allows = |rules: &Rules| {
                let words = command.full_name.split('|').map(str::as_bytes);
                let words: Vec<&[u8]> = words.collect();
                rules.root().commands.allows(command, &Args::new(&words))
            };
            assert_eq!(
                allows(&again),
                allows(&user),
                "{rules}: {}",
                command.full_name
            );
        }
    }
}

#[test]
fn whoever_may_do_everything_is_known_at_once() {
    let acl = Acl::default();
    let everything = |rules: &str| {
        set(&acl, "u", &format!("reset {rules}")).unwrap();
        acl.find(b"u").unwrap().may_do_everything()
    };
    assert!(acl.default_user().may_do_everything());
    assert!(everything("+@all ~* &*"));
    assert!(everything("+@all -get +get ~* &*"));
    assert!(everything("(+@all ~* &*)"));
    assert!(!everything("+@all ~*"));
    assert!(!everything("+@all ~* &* -get"));
    assert!(!everything("+@all ~a ~b &*"));
}

#[test]
fn whoever_is_deleted_may_do_nothing() {
    let acl = Acl::default();
    set(&acl, "u", "on nopass +@all ~* &*").unwrap();
    let user = acl.authenticate(b"u", b"any").unwrap();
    assert_eq!(acl.delete(&[b"u", b"absent"]).len(), 1);
    assert!(!user.may_do_everything());
    let words: [&[u8]; 2] = [b"get", b"k"];
    let args = Args::new(&words);
    let get = command::find(b"get").unwrap();
    assert!(user.check(get, &args).is_err());
    assert!(acl.authenticate(b"u", b"any").is_none());
}

#[test]
fn a_file_is_taken_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let acl = Acl::default();
    set(&acl, "old", "on >secret +get ~*").unwrap();
    acl.save(&path).unwrap();
    let saved = std::fs::read_to_string(&path).unwrap();
    set(&acl, "other", "on").unwrap();
    let before = acl.find(b"old").unwrap();
    assert_eq!(acl.load(&path, "users.acl").unwrap().len(), 2);
    assert!(acl.find(b"other").is_none());
    let old = acl.find(b"old").unwrap();
    assert!(!Arc::ptr_eq(&before, &old), "its clients have to go");
    assert!(old.rules().accepts(b"secret"));
    acl.save(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), saved);

    std::fs::write(
        &path,
        format!("{saved}\nbogus\nuser old on\nuser a b\nuser c (+get\n"),
    )
    .unwrap();
    let errors = acl.load(&path, "users.acl").unwrap_err();
    for error in [
        "users.acl:4 should start with user keyword followed by the username. ",
        "WARNING: Duplicate user 'old' found on line 5. ",
        "users.acl:6: Syntax error. ",
        "users.acl:7: Unmatched parenthesis in selector definition.",
        "no change to the previously active ACL rules was performed",
    ] {
        assert!(errors.contains(error), "{errors}");
    }
    assert!(acl.find(b"a").is_none());
}

#[test]
fn the_default_user_gets_its_password_from_requirepass() {
    let acl = Acl::default();
    assert!(!acl.default_needs_password());
    acl.set_default_password(b"secret");
    assert!(acl.default_needs_password() && !acl.is_open());
    assert!(acl.authenticate(DEFAULT, b"wrong").is_none());
    assert!(acl.authenticate(DEFAULT, b"secret").is_some());
    acl.set_default_password(b"");
    assert!(acl.is_open() && acl.default_user().may_do_everything());
}

#[test]
fn the_configuration_names_each_user_once() {
    let acl = Acl::default();
    let configure = |users: &[&str]| {
        let users: Vec<String> = users.iter().map(|user| (*user).to_string()).collect();
        acl.configure(&users)
    };
    configure(&[
        "default on nopass ~* +@all -flushdb",
        "alice on >x ( +get ~a )",
    ])
    .unwrap();
    let words: [&[u8]; 1] = [b"flushdb"];
    let flushdb = command::find(b"flushdb").unwrap();
    let denied = acl.default_user().check(flushdb, &Args::new(&words));
    assert!(denied.is_err());
    assert_eq!(acl.find(b"alice").unwrap().rules().others().len(), 1);
    let error = configure(&["bob on", "bob off"]).unwrap_err();
    assert!(error.contains("Duplicate user found"), "{error}");
    assert!(
        configure(&["bob +bogus"])
            .unwrap_err()
            .contains("Unknown command")
    );
}
