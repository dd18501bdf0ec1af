//! A node of a cluster, without the others: commands go to the regions of their keys, each of which is committed by
//! itself; and what names no key goes through all that the node leads.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cairn_engine::{Batch, Commit, Committer, EngineError, LocalCommitter, SyncMode};
use cairn_server::in_process::InProcess;
use cairn_server::route::Directory;
use cairn_store::{Placement, Store, slot};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// What becomes of commits.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Applied,
    /// Another leads by now.
    Refused,
    /// The same, after a while.
    RefusedLate,
    /// Nobody knows.
    Unknown,
    /// Those of more bytes cannot be replicated.
    Limited(usize),
}

type Fates = Arc<Mutex<HashMap<u64, Fate>>>;

struct Log {
    region: u64,
    fates: Fates,
    /// Counts what was proposed.
    proposals: Arc<AtomicUsize>,
    local: Arc<LocalCommitter>,
}

impl Committer for Log {
    fn commit(&self, batch: &mut Batch) -> Commit {
        let (done, outcome) = oneshot::channel();
        let mut batch = batch.take();
        self.proposals.fetch_add(1, Ordering::Relaxed);
        let fate = self.fates.lock().unwrap().get(&self.region).copied();
        let local = self.local.clone();
        std::thread::spawn(move || {
            let late = matches!(fate, Some(Fate::RefusedLate));
            std::thread::sleep(Duration::from_millis(if late { 200 } else { 1 }));
            let _ = done.send(match fate {
                Some(Fate::Limited(most)) if batch.bytes() > most => Err(EngineError::TooLarge),
                None | Some(Fate::Applied | Fate::Limited(_)) => local.commit(&mut batch).wait(),
                Some(Fate::Refused | Fate::RefusedLate) => Err(EngineError::NotLeading),
                Some(Fate::Unknown) => Err(EngineError::InDoubt),
            });
        });
        Commit::Pending(outcome)
    }
}

struct Elsewhere;

impl Directory for Elsewhere {
    fn leader_of(&self, slot: u16, _: bool) -> Option<String> {
        (slot < 8000).then(|| "10.0.0.2:6379".to_string())
    }
}

/// Three regions; the last begins at slot 11000.
const REGIONS: [(u64, u16, u16); 3] = [(5, 0, 5000), (6, 5000, 11_000), (7, 11_000, 16384)];

struct Node {
    // Before its log, whose threads use the engine.
    server: InProcess,
    store: Arc<Store>,
    local: Arc<LocalCommitter>,
    fates: Fates,
    proposals: Arc<AtomicUsize>,
    _directory: TempDir,
}

impl Node {
    fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let options = InProcess::options().unwrap();
        let store = Store::open_replicated(directory.path(), options).unwrap();
        let (engine, clock) = (store.engine().clone(), store.clock().clone());
        let local = LocalCommitter::new(engine, clock, SyncMode::No).unwrap();
        let placed = REGIONS.map(|(id, from, to)| Placement {
            id,
            slots: from..to,
            epoch: 0,
        });
        store.place_regions(&placed, &[]).unwrap();
        let server = InProcess::over(store.clone()).unwrap();
        server.direct(Box::new(Elsewhere));
        let node = Node {
            server,
            store,
            local: Arc::new(local),
            fates: Fates::default(),
            proposals: Arc::default(),
            _directory: directory,
        };
        for (term, (id, ..)) in (1..).zip(REGIONS) {
            node.lead(id, term);
        }
        node
    }

    fn lead(&self, region: u64, term: u64) {
        let log = Log {
            region,
            fates: self.fates.clone(),
            proposals: self.proposals.clone(),
            local: self.local.clone(),
        };
        self.store
            .became_leader(region, term, Box::new(log))
            .unwrap();
    }

    /// How much is proposed by what is done meanwhile.
    fn proposed(&self, work: impl FnOnce()) -> usize {
        let before = self.proposals.load(Ordering::Relaxed);
        work();
        self.proposals.load(Ordering::Relaxed) - before
    }

    fn decide(&self, region: u64, fate: Fate) {
        self.fates.lock().unwrap().insert(region, fate);
    }

    /// What a client is answered that sends all of this at once.
    fn ask(&self, requests: &str) -> String {
        self.talk(async |client: &mut DuplexStream| {
            client.write_all(requests.as_bytes()).await.unwrap();
        })
    }

    /// The same for one that does more than send; then it says goodbye.
    fn talk(&self, talk: impl AsyncFnOnce(&mut DuplexStream)) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (mut client, stream) = tokio::io::duplex(1024 * 1024);
        let talk = async {
            talk(&mut client).await;
            client.write_all(b"QUIT\r\n").await.unwrap();
            let mut replies = Vec::new();
            client.read_to_end(&mut replies).await.unwrap();
            replies
        };
        let both = async { tokio::join!(self.server.serve(stream), talk).1 };
        let limited = async { tokio::time::timeout(Duration::from_secs(20), both).await };
        let replies = LocalSet::new().block_on(&runtime, limited).unwrap();
        let replies = String::from_utf8(replies).unwrap();
        replies.strip_suffix("+OK\r\n").unwrap().to_string()
    }
}

/// The `n`-th name of a region.
fn name(region: u64, n: usize) -> String {
    let (_, from, to) = REGIONS.into_iter().find(|(id, ..)| *id == region).unwrap();
    let names = (0..).map(|n| format!("key{n}"));
    let mut inside = names.filter(|name| (from..to).contains(&slot(name.as_bytes())));
    inside.nth(n).unwrap()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn a_pipeline_goes_to_the_regions_of_its_keys() {
    let node = Node::new();
    let (mut requests, mut replies) = (String::new(), String::new());
    for n in 0..20 {
        for region in [5, 6, 7] {
            let name = name(region, n);
            requests += &format!("SET {name} {n}\r\nGET {name}\r\nHSET {{{name}}}h field {n}\r\n");
            replies += &format!("+OK\r\n{}:1\r\n", bulk(&n.to_string()));
        }
    }
    assert_eq!(node.ask(&requests), replies);
    assert_eq!(node.ask("DBSIZE\r\n"), ":120\r\n");
    let lua = format!(
        "EVAL \"return redis.call('incr', KEYS[1])\" 1 {}\r\n",
        name(6, 3)
    );
    assert_eq!(node.ask(&lua), ":4\r\n");
    let exec = format!("MULTI\r\nINCR {0}\r\nDBSIZE\r\nEXEC\r\n", name(7, 5));
    let queued = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:6\r\n:120\r\n";
    assert_eq!(node.ask(&exec), queued);
}

#[test]
fn a_commit_that_fails_takes_its_own_replies_only() {
    let node = Node::new();
    let [five, six, seven] = [5, 6, 7].map(|region| name(region, 0));
    node.decide(6, Fate::Refused);
    node.decide(7, Fate::Unknown);
    let requests = format!(
        "SET {five} a\r\nSET {six} b\r\nGET {six}\r\nSET {seven} c\r\nGET {five}\r\nPING\r\nDEL {seven}\r\n"
    );
    let refused = "-TRYAGAIN another node leads these slots\r\n";
    let unknown =
        "-INDOUBT it is not known whether the changes were made, and whether they will be\r\n";
    let replies = format!("+OK\r\n{refused}{refused}{unknown}$1\r\na\r\n+PONG\r\n{unknown}");
    assert_eq!(node.ask(&requests), replies);
    // Nothing is left of what was refused.
    node.decide(6, Fate::Applied);
    assert_eq!(
        node.ask(&format!("GET {six}\r\nGET {five}\r\n")),
        "$-1\r\n$1\r\na\r\n"
    );
    // Nor of a unit, or of a command on a thread of its own.
    node.decide(6, Fate::Refused);
    let exec = format!("MULTI\r\nSET {six} d\r\nEXEC\r\n");
    assert_eq!(node.ask(&exec), format!("+OK\r\n+QUEUED\r\n{refused}"));
    node.decide(6, Fate::Applied);
    assert_eq!(node.ask(&format!("EXISTS {six}\r\n")), ":0\r\n");
}

/// All who are asked at once, each by a client of its own; what they are answered.
fn ask_all(node: &Rc<Node>, requests: Vec<String>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = LocalSet::new();
    let ask = |request: String| {
        let node = node.clone();
        local.spawn_local(async move {
            let (mut client, stream) = tokio::io::duplex(1024);
            let request = request + "QUIT\r\n";
            client.write_all(request.as_bytes()).await.unwrap();
            let mut replies = String::new();
            let heard = client.read_to_string(&mut replies);
            tokio::join!(node.server.serve(stream), heard).1.unwrap();
            replies.strip_suffix("+OK\r\n").unwrap().to_string()
        })
    };
    let asked: Vec<_> = requests.into_iter().map(ask).collect();
    let replies = asked.into_iter();
    replies
        .map(|replies| local.block_on(&runtime, replies).unwrap())
        .collect()
}

/// A batch for each would be a round trip for each.
#[test]
fn what_waits_for_the_same_is_proposed_together() {
    let node = Rc::new(Node::new());
    let counter = name(6, 0);
    let incr = format!("INCR {counter}\r\n");
    let proposed = node.proposed(|| {
        let replies: String = (1..=100).map(|n| format!(":{n}\r\n")).collect();
        assert_eq!(node.ask(&incr.repeat(100)), replies);
    });
    assert!(proposed <= 2, "{proposed} batches for one pipeline");
    let proposed = node.proposed(|| {
        let mut replies = ask_all(&node, vec![incr.clone(); 50]);
        replies.sort();
        let mut counted: Vec<_> = (101..=150).map(|n| format!(":{n}\r\n")).collect();
        counted.sort();
        assert_eq!(replies, counted);
    });
    assert!(proposed <= 5, "{proposed} batches for one key");
    // Clients that come again and again share them, too.
    let proposed = node.proposed(|| {
        let replies = ask_all(&node, vec![incr.repeat(20); 50]);
        assert_eq!(replies.len(), 50);
    });
    assert!(proposed <= 60, "{proposed} batches for one key");
    assert_eq!(node.ask(&format!("GET {counter}\r\n")), bulk("1150"));
}

/// Makes a list of one element of so many bytes.
fn push_long(node: &Node, list: &str, length: usize) {
    let push = "return redis.call('rpush', KEYS[1], string.rep('x', ARGV[1]))";
    let script = format!("EVAL \"{push}\" 1 {list} {length}\r\n");
    assert_eq!(node.ask(&script), ":1\r\n");
}

#[test]
fn what_is_too_large_takes_no_others_along() {
    let node = Node::new();
    let [list, small] = [0, 1].map(|n| name(6, n));
    push_long(&node, &list, 18_000_000);
    let refused = "-ERR the changes are too large to be replicated at once\r\n";
    let to = format!("{{{list}}}to");
    let mut counted = 0;
    // A command, one that could have waited, a transaction and a script.
    for (large, before) in [
        (format!("LMOVE {list} {to} LEFT LEFT"), ""),
        (format!("BLMOVE {list} {to} LEFT LEFT 1"), ""),
        (
            format!("MULTI\r\nLMOVE {list} {to} LEFT LEFT\r\nEXEC"),
            "+OK\r\n+QUEUED\r\n",
        ),
        (
            format!(
                "EVAL \"return redis.call('lmove', KEYS[1], KEYS[2], 'LEFT', 'LEFT')\" 2 {list} {to}"
            ),
            "",
        ),
    ] {
        let requests = format!("INCR {small}\r\n{large}\r\nINCR {small}\r\n");
        node.decide(6, Fate::Limited(17_500_000));
        let (one, two) = (counted + 1, counted + 2);
        let replies = format!(":{one}\r\n{before}{refused}:{two}\r\n");
        assert_eq!(node.ask(&requests), replies);
        // What is not too large is done as ever.
        node.decide(6, Fate::Limited(19_000_000));
        assert!(
            node.ask(&requests)
                .ends_with(&format!("xx\r\n:{}\r\n", counted + 4))
        );
        let back = format!("LMOVE {to} {list} LEFT LEFT\r\n");
        assert!(node.ask(&back).starts_with("$18000000\r\n"));
        counted += 4;
    }
}

/// What many write in one turn is not gathered without a limit.
#[test]
fn what_many_write_at_once_is_cut_into_batches() {
    let node = Rc::new(Node::new());
    (0..8).for_each(|n| push_long(&node, &name(6, n), 10_000_000));
    node.decide(6, Fate::Limited(40_000_000));
    let requests = (0..8).map(|n| {
        let list = name(6, n);
        format!("LMOVE {list} {{{list}}}to LEFT LEFT\r\n")
    });
    for reply in ask_all(&node, requests.collect()) {
        assert!(reply.starts_with("$10000000\r\n"), "{reply}");
    }
}

#[test]
fn what_is_led_elsewhere_is_refused() {
    let node = Node::new();
    let [five, six, seven] = [5, 6, 7].map(|region| name(region, 0));
    node.store.lost_leadership(5);
    node.store.lost_leadership(7);
    let moved = format!("-MOVED {} 10.0.0.2:6379\r\n", slot(five.as_bytes()));
    let down = "-CLUSTERDOWN Hash slot not served\r\n";
    let requests =
        format!("SET {six} a\r\nGET {five}\r\nGET {seven}\r\nMGET {five} {six}\r\nGET {six}\r\n");
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    assert_eq!(
        node.ask(&requests),
        format!("+OK\r\n{moved}{down}{crossed}$1\r\na\r\n")
    );
    let script = format!("EVAL \"return redis.call('get', '{five}')\" 1 {six}\r\n");
    assert!(node.ask(&script).contains("non local key"));
    let exec = format!("MULTI\r\nGET {six}\r\nGET {seven}\r\nEXEC\r\n");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(
        node.ask(&exec),
        format!("+OK\r\n+QUEUED\r\n{down}{aborted}")
    );
    let exec = format!("MULTI\r\nGET {six}\r\nGET {}\r\nEXEC\r\n", name(6, 1));
    assert!(node.ask(&exec).ends_with(crossed));
    let sort = format!("SORT {six} BY w_*\r\n");
    assert!(node.ask(&sort).contains("denied in Cluster mode"));
    node.lead(7, 9);
    assert_eq!(node.ask(&format!("GET {seven}\r\n")), "$-1\r\n");
    // Reads leave nothing behind that is older than the next term.
    node.store.lost_leadership(7);
    node.lead(7, 10);
    assert_eq!(node.ask(&format!("SET {seven} a\r\n")), "+OK\r\n");
}

#[test]
fn commands_over_all_keys_go_region_by_region() {
    let node = Node::new();
    let mut names = Vec::new();
    for region in [5, 6, 7] {
        names.extend((0..40).map(|n| name(region, n)));
    }
    let sets: String = names
        .iter()
        .map(|name| format!("SET {name} v\r\n"))
        .collect();
    assert_eq!(node.ask(&sets), "+OK\r\n".repeat(120));
    let all = node.ask("KEYS *\r\n");
    assert!(all.starts_with("*120\r\n"));
    assert!(names.iter().all(|name| all.contains(&bulk(name))));
    let (mut cursor, mut found, mut steps) = ("0".to_string(), String::new(), 0);
    loop {
        let step = node.ask(&format!("SCAN {cursor} COUNT 7\r\n"));
        let mut lines = step.split("\r\n").skip(2);
        cursor = lines.next().unwrap().to_string();
        found += &step;
        steps += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(steps >= 18, "{steps} steps");
    assert!(names.iter().all(|name| found.contains(&bulk(name))));
    assert_ne!(node.ask("RANDOMKEY\r\n"), "$-1\r\n");
    // Those that are led elsewhere are not this node's.
    node.store.lost_leadership(6);
    assert_eq!(node.ask("DBSIZE\r\n"), ":80\r\n");
    assert!(node.ask("KEYS *\r\n").starts_with("*80\r\n"));
    assert_eq!(
        node.ask("FLUSHALL\r\nDBSIZE\r\nRANDOMKEY\r\n"),
        "+OK\r\n:0\r\n$-1\r\n"
    );
    // Of some it is not known who leads them: they may be nobody else's.
    node.store.lost_leadership(7);
    for walk in ["DBSIZE", "KEYS *", "SCAN 0", "RANDOMKEY"] {
        let told = node.ask(&format!("{walk}\r\n"));
        assert_eq!(told, "-CLUSTERDOWN Hash slot not served\r\n", "{walk}");
    }
    node.lead(7, 9);
    assert_eq!(node.ask("FLUSHALL NONSENSE\r\n"), "-ERR syntax error\r\n");
    node.lead(6, 9);
    assert_eq!(node.ask("DBSIZE\r\n"), ":40\r\n");
}

#[test]
fn what_was_refused_since_others_lead_is_sent_there_by_its_own_slot() {
    let node = Node::new();
    let names = (0..20).map(|n| name(6, n));
    let names: Vec<String> = names.filter(|name| slot(name.as_bytes()) < 8000).collect();
    node.decide(6, Fate::RefusedLate);
    let replies = node.talk(async |client: &mut DuplexStream| {
        let sets = names.iter().map(|name| format!("SET {name} v\r\n"));
        let sets: String = sets.collect();
        client.write_all(sets.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.store.lost_leadership(6);
    });
    let moved = names
        .iter()
        .map(|name| format!("-MOVED {} 10.0.0.2:6379\r\n", slot(name.as_bytes())));
    assert!(names.len() > 1);
    assert_eq!(replies, moved.collect::<String>());
}

#[test]
fn a_unit_empties_the_one_region_that_the_node_leads() {
    let node = Node::new();
    let [five, seven] = [5, 7].map(|region| name(region, 0));
    let sets = format!("SET {five} a\r\nSET {seven} b\r\n");
    assert_eq!(node.ask(&sets), "+OK\r\n+OK\r\n");
    let exec = "MULTI\r\nFLUSHALL\r\nEXEC\r\n";
    let refused = "ERR FLUSHALL inside a transaction or script empties the slots of one region, and this \
                   node leads 3: send it by itself";
    assert!(node.ask(exec).contains(refused));
    let script = "EVAL \"return redis.call('flushdb')\" 0\r\n";
    assert!(node.ask(script).contains("this node leads 3"));
    node.store.lost_leadership(5);
    node.store.lost_leadership(6);
    assert_eq!(node.ask("DBSIZE\r\n"), ":1\r\n");
    assert_eq!(node.ask(exec), "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    assert_eq!(node.ask("DBSIZE\r\n"), ":0\r\n");
    // So does one that does more, about keys or not.
    let around = format!(
        "MULTI\r\nSET {seven} before\r\nFLUSHALL\r\nSET {{{seven}}}x after\r\nEXEC\r\nDBSIZE\r\n"
    );
    assert!(
        node.ask(&around)
            .ends_with("*3\r\n+OK\r\n+OK\r\n+OK\r\n:1\r\n")
    );
    assert_eq!(node.ask(script), "+OK\r\n");
    assert_eq!(node.ask("DBSIZE\r\n"), ":0\r\n");
    let swapped = "-ERR SWAPDB is not allowed in cluster mode\r\n";
    assert_eq!(node.ask("SWAPDB 0 0\r\n"), swapped);
    node.lead(5, 9);
    assert_eq!(node.ask(&format!("GET {five}\r\n")), "$1\r\na\r\n");
}

#[test]
fn what_is_wrong_with_a_command_is_told_before_its_slots_are() {
    let node = Node::new();
    let [five, six] = [5, 6].map(|region| name(region, 0));
    let syntax = "-ERR syntax error\r\n";
    assert_eq!(node.ask(&format!("ZUNION 5 {five} {six}\r\n")), syntax);
    assert_eq!(node.ask(&format!("LMPOP 9 {five} {six} LEFT\r\n")), syntax);
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    assert_eq!(node.ask(&format!("ZUNION 2 {five} {six}\r\n")), crossed);
    // Who only listens is sent to where the slot is led before it is told that it only listens.
    node.store.lost_leadership(5);
    let heard = node.ask(&format!("SUBSCRIBE c\r\nGET {five}\r\nGET {six}\r\n"));
    let moved = format!(
        "-MOVED {} 10.0.0.2:6379\r\n-ERR Can't execute 'get'",
        slot(five.as_bytes())
    );
    assert!(heard.contains(&moved), "{heard}");
}

/// A client that tried again would empty what others have written since.
#[test]
fn a_flush_that_was_done_in_part_is_not_told_to_be_undone() {
    let node = Node::new();
    let [five, seven] = [5, 7].map(|region| name(region, 0));
    assert_eq!(
        node.ask(&format!("SET {five} a\r\nSET {seven} b\r\n")),
        "+OK\r\n+OK\r\n"
    );
    node.decide(7, Fate::Refused);
    assert_eq!(
        node.ask("FLUSHALL\r\n"),
        "-INDOUBT it was done for some slots and not for others: another node leads these slots\r\n"
    );
    node.decide(7, Fate::Applied);
    assert_eq!(
        node.ask(&format!("EXISTS {five}\r\nGET {seven}\r\n")),
        ":0\r\n$1\r\nb\r\n"
    );
    // Nothing was done at all.
    node.decide(5, Fate::Refused);
    assert!(node.ask("FLUSHALL\r\n").starts_with("-TRYAGAIN "));
}

#[test]
fn who_waits_for_a_key_is_served_by_its_region() {
    let node = Node::new();
    let [five, seven] = [5, 7].map(|region| name(region, 0));
    // Both wait for keys of the same index. A flush of one region must not hand out what is in another.
    let (mut waiting, stream) = tokio::io::duplex(1024);
    let serve = node.server.serve(stream);
    let waiter = async {
        let request = format!("BLPOP {seven} 10\r\n");
        waiting.write_all(request.as_bytes()).await.unwrap();
        let mut reply = vec![0; 1024];
        let length = waiting.read(&mut reply).await.unwrap();
        drop(waiting);
        String::from_utf8_lossy(&reply[..length]).to_string()
    };
    let (mut client, other) = tokio::io::duplex(1024);
    let serve_other = node.server.serve(other);
    let pusher = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let requests =
            format!("RPUSH {five} x\r\nFLUSHALL\r\nRPUSH {five} y\r\nRPUSH {seven} z\r\nQUIT\r\n");
        client.write_all(requests.as_bytes()).await.unwrap();
        let mut replies = String::new();
        client.read_to_string(&mut replies).await.unwrap();
        replies
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let all = async { tokio::join!(serve, waiter, serve_other, pusher) };
    let (_, popped, _, pushed) = LocalSet::new().block_on(&runtime, all);
    assert_eq!(pushed, ":1\r\n+OK\r\n:1\r\n:1\r\n+OK\r\n");
    assert_eq!(popped, format!("*2\r\n{}{}", bulk(&seven), bulk("z")));
    assert_eq!(node.ask("DBSIZE\r\n"), ":1\r\n");
}

#[test]
fn a_watch_does_not_outlive_the_lead_of_its_region() {
    let node = Node::new();
    let name = name(6, 0);
    let transaction = |node: &Node, between: &dyn Fn(&Node)| {
        node.talk(async |client: &mut DuplexStream| {
            client
                .write_all(format!("WATCH {name}\r\n").as_bytes())
                .await
                .unwrap();
            let mut reply = [0; 5];
            client.read_exact(&mut reply).await.unwrap();
            between(node);
            let rest = format!("MULTI\r\nSET {name} v\r\nEXEC\r\n");
            client.write_all(rest.as_bytes()).await.unwrap();
        })
    };
    let done = "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n";
    assert_eq!(transaction(&node, &|_| ()), done);
    // Others may have changed the key meanwhile.
    let undone = "+OK\r\n+QUEUED\r\n*-1\r\n";
    let changed_hands = |node: &Node| {
        node.store.lost_leadership(6);
        node.lead(6, 9);
    };
    assert_eq!(transaction(&node, &changed_hands), undone);
    // What was in doubt may have been applied before it is led anew in the same term.
    assert_eq!(transaction(&node, &|node| node.lead(6, 9)), undone);
    let another = |node: &Node| {
        node.store.lost_leadership(7);
        node.lead(7, 9);
    };
    assert_eq!(transaction(&node, &another), done);
}

#[test]
fn who_waits_for_a_key_is_told_when_it_is_led_elsewhere() {
    let node = Node::new();
    let name = name(5, 0);
    let reply = node.talk(async |client: &mut DuplexStream| {
        let request = format!("BLPOP {name} 10\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.store.lost_leadership(5);
    });
    assert!(reply.starts_with("-MOVED "), "{reply}");
}

#[test]
fn scripts_that_name_no_keys_run_where_those_are_that_they_touch() {
    let node = Node::new();
    let [five, six] = [5, 6].map(|region| name(region, 0));
    let incr = |key: &str| format!("EVAL \"return redis.call('incr', '{key}')\" 0\r\n");
    assert_eq!(
        node.ask(&(incr(&five) + &incr(&six) + &incr(&six))),
        ":1\r\n:1\r\n:2\r\n"
    );
    let exec = format!("MULTI\r\nPING\r\n{}EXEC\r\n", incr(&six));
    let done = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+PONG\r\n:3\r\n";
    assert_eq!(node.ask(&exec), done);
    // A script becomes one batch, so it is about one region.
    let both =
        format!("EVAL \"redis.call('incr', '{six}') return redis.call('incr', '{five}')\" 0\r\n");
    assert!(node.ask(&both).contains("non local key"));
    assert_eq!(node.ask("EVAL \"return 7\" 0\r\n"), ":7\r\n");
    node.store.lost_leadership(5);
    let local = "-ERR Script attempted to access a non local key in a cluster node script:";
    assert!(node.ask(&incr(&five)).starts_with(local));
    let caught = format!("EVAL \"return redis.pcall('get', '{five}')['err'] ~= nil\" 0\r\n");
    assert_eq!(node.ask(&caught), ":1\r\n");
}

#[test]
fn channels_of_a_slot_lie_where_its_keys_do() {
    let node = Node::new();
    let [five, six] = [5, 6].map(|region| name(region, 0));
    node.store.lost_leadership(5);
    let moved = format!("-MOVED {} 10.0.0.2:6379\r\n", slot(five.as_bytes()));
    for command in ["SSUBSCRIBE", "SUNSUBSCRIBE"] {
        assert_eq!(node.ask(&format!("{command} {five}\r\n")), moved);
    }
    assert_eq!(node.ask(&format!("SPUBLISH {five} hello\r\n")), moved);
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    let other = name(6, 1);
    assert_eq!(node.ask(&format!("SSUBSCRIBE {six} {other}\r\n")), crossed);
    assert_eq!(node.ask(&format!("SPUBLISH {six} hello\r\n")), ":0\r\n");
    assert_eq!(
        node.ask("SUNSUBSCRIBE\r\n"),
        "*3\r\n$12\r\nsunsubscribe\r\n$-1\r\n:0\r\n"
    );
}

#[test]
fn who_listens_to_a_channel_of_a_slot_is_told_when_it_is_led_elsewhere() {
    let node = Node::new();
    let [five, six] = [5, 6].map(|region| name(region, 0));
    let told = |word: &str, name: &str, left: usize| {
        format!("*3\r\n{}{}:{left}\r\n", bulk(word), bulk(name))
    };
    let heard = node.talk(async |client: &mut DuplexStream| {
        let requests = format!("SSUBSCRIBE {five}\r\nSSUBSCRIBE {six}\r\n");
        client.write_all(requests.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.store.lost_leadership(5);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let requests = format!("SSUBSCRIBE {five}\r\nSUNSUBSCRIBE\r\nGET {six}\r\n");
        client.write_all(requests.as_bytes()).await.unwrap();
    });
    let moved = format!("-MOVED {} 10.0.0.2:6379\r\n", slot(five.as_bytes()));
    let expected = [
        told("ssubscribe", &five, 1),
        told("ssubscribe", &six, 2),
        told("sunsubscribe", &five, 1),
        moved,
        told("sunsubscribe", &six, 0),
        "$-1\r\n".to_string(),
    ];
    assert_eq!(heard, expected.concat());
}
