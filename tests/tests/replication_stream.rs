//! What followers are told, compared with what Redis tells its own: the same commands are sent to both.

use std::thread;
use std::time::Duration;

use cairn_tests::client::Client;
use cairn_tests::follower::Follower;
use cairn_tests::server::Server;

/// A command by line, and what belongs together by step. `2>` is sent by another client, which then waits; `...` lets some
/// time pass; behind a `~` only the first two words of what is told count.
const COMMANDS: &str = r#"
SET a 1
set a 2
SET a 2 NX
SET a 3 XX GET
SET a 4 GET KEEPTTL
SET b 1 EX 100
SET b 1 GET PX 100000
SET b 1 EXAT 33177117420
SETEX b 100 v
PSETEX b 100000 v
SETNX a 1
SETNX n 1
GETSET a 5
APPEND a xy
APPEND a ""
SETRANGE a 1 z
SETRANGE a 1 ""
INCR n
INCRBY n 0
DECRBY n 3
INCRBYFLOAT n 1.5
MSET x 1 y 2
MSETNX x 1 z 2
MSETNX z 1 w 2
GETDEL z
GETDEL nothing
GETEX w
GETEX w EX 100
GETEX w PERSIST
GETEX w PERSIST
GETEX w EXAT 1
SETBIT bits 7 1
SETBIT bits 7 1
BITFIELD bits SET u8 0 255
BITFIELD bits GET u8 0
BITOP NOT dest bits
BITOP AND dest nothing
DEL nothing
DEL x nothing
UNLINK y
EXPIRE a 100
EXPIRE a 200 NX
EXPIRE a 200 XX
PEXPIRE a 100000
EXPIREAT a 33177117420
PEXPIREAT a 33177117420000
PEXPIREAT a 33177117420000 GT
EXPIRE nothing 100
PERSIST a
PERSIST a
EXPIRE a -1
RPUSH l a b c d e f g h
LPUSHX l z
LPUSHX nothing z
LPOP l
RPOP l 2
LPOP l 0
LPOP nothing
LSET l 0 q
LINSERT l BEFORE c x
LINSERT l BEFORE nothing x
LREM l 0 nothing
LREM l 0 x
LTRIM l 0 -1
LTRIM l 0 3
LMOVE l m LEFT RIGHT
RPOPLPUSH l m
LMPOP 2 nothing l LEFT COUNT 10
LMPOP 1 nothing LEFT
RPUSH l a b c
BLPOP l 0
BRPOP nothing l 0
BLMOVE l m left right 0
BRPOPLPUSH m l 0
BLMPOP 0 2 nothing l RIGHT COUNT 1
2> BLPOP waited 0
RPUSH waited a b
2> BLMOVE waited2 m LEFT LEFT 0
RPUSH waited2 a
2> BLMPOP 0 1 waited3 LEFT COUNT 5
MULTI | RPUSH waited3 a | RPUSH waited3 b | EXEC
2> BRPOPLPUSH waited4 m 0
EVAL "redis.call('rpush', KEYS[1], 'x', 'y')" 1 waited4
SADD s a b c d e
SADD s a
SREM s nothing
SREM s a nothing
SMOVE s t b
SMOVE s t nothing
SMOVE s s c
SINTERSTORE u s t
SUNIONSTORE u s t
SDIFFSTORE u nothing
SADD one only
SPOP one
SPOP one
SADD several a b c
SPOP several 3
SPOP several 3
SADD several a b c
~ SPOP several 2
~ SPOP several
HSET h f 1 g 2
HSET h f 1
HSETNX h f 2
HSETNX h i 2
HMSET h f 3
HINCRBY h f 2
HINCRBYFLOAT h f 0.5
HDEL h nothing
HDEL h g
ZADD z 1 a 2 b 3 c 4 d 5 e
ZADD z 1 a
ZADD z XX 1 nothing
ZADD z GT CH 7 a
ZINCRBY z 0.5 b
ZADD z INCR 1 b
ZREM z nothing
ZPOPMIN z
ZPOPMAX z 2
ZPOPMIN nothing
ZADD z 1 a 2 b 3 c 4 d 5 e
ZREMRANGEBYRANK z 0 0
ZREMRANGEBYSCORE z 100 200
ZREMRANGEBYLEX z [zz [zzz
ZMPOP 2 nothing z MAX COUNT 2
BZPOPMIN z 0
BZPOPMAX nothing z 0
ZADD z 1 a 2 b 3 c
BZMPOP 0 1 z MIN COUNT 10
ZADD z 1 a 2 b 3 c 4 d 5 e
2> BZPOPMIN zw 0
ZADD zw 1 a 2 b
2> BZMPOP 0 1 zw2 MAX COUNT 5
ZADD zw2 1 a 2 b
ZUNIONSTORE v 2 z zw
ZINTERSTORE v 2 z nothing
ZRANGESTORE v z 0 1
ZDIFFSTORE v 1 z
GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEOADD geo NX 13.361389 38.115556 Palermo
GEOADD geo CH 13.4 38.1 Palermo
GEORADIUS geo 15 37 200 km STORE near
GEOSEARCHSTORE near geo FROMLONLAT 15 37 BYRADIUS 200 km
PFADD p a b c
PFADD p a
PFCOUNT p
PFCOUNT p
PFMERGE q p
XADD x * f v
XADD x 99999999999999-1 f v
XADD x 99999999999999-* f v
XADD x NOMKSTREAM MAXLEN 2 99999999999999-9 f v
XADD nothing NOMKSTREAM * f v
XADD x MAXLEN ~ 1 99999999999999-10 f v
XTRIM x MAXLEN 2
XTRIM x MAXLEN 2
XTRIM x MINID 99999999999999-10
XDEL x 1-1
XDEL x 99999999999999-10
XADD y 1-1 a 1
XADD y 2-1 a 1
XADD y 3 a 1
XGROUP CREATE y g 0
XGROUP CREATE y g2 $ ENTRIESREAD 3
XGROUP CREATE made g $ MKSTREAM
XGROUP CREATECONSUMER y g alice
XGROUP CREATECONSUMER y g alice
XREADGROUP GROUP g alice COUNT 2 STREAMS y >
XREADGROUP GROUP g alice STREAMS y 0
XREADGROUP GROUP g bob NOACK STREAMS y >
XREADGROUP GROUP g bob STREAMS y >
XACK y g 1-1
XACK y g 1-1
XCLAIM y g carol 0 2-1
XCLAIM y g carol 0 2-1 JUSTID TIME 5 RETRYCOUNT 7
XCLAIM y g carol 100000000 2-1
XCLAIM y g carol 0 9-9 FORCE
XCLAIM y g carol 0 9-9 LASTID 8-1
XDEL y 2-1
XAUTOCLAIM y g dave 0 0
XADD y 10-1 a 1
XADD y 10-2 a 1
XREADGROUP GROUP g alice COUNT 2 STREAMS y >
XAUTOCLAIM y g dave 0 0 COUNT 1
XAUTOCLAIM y g dave 0 0 JUSTID
2> XREADGROUP GROUP g eve BLOCK 0 STREAMS y >
XADD y 11-1 a 1
XSETID y 100-1
XGROUP SETID y g 5-0
XGROUP DELCONSUMER y g alice
XGROUP DELCONSUMER y g nobody
XGROUP DESTROY y g2
XGROUP DESTROY y g2
SET c 1
RENAME c d
RENAME d d
RENAMENX d a
RENAMENX d a
COPY a e
COPY a e
COPY a e REPLACE
COPY a e DB 3 REPLACE
MOVE e 4
MOVE e 4
SORT l STORE sorted
SORT l
SELECT 5
SET in5 1
SELECT 0
SET in0 1
SWAPDB 5 6
MULTI | SET a 1 | EXEC
MULTI | SET a 1 | INCR a | GET a | EXEC
MULTI | GET a | EXEC
MULTI | EXEC
MULTI | DEL nothing | EXEC
MULTI | SET a 1 | SELECT 9 | SET a 2 | SELECT 0 | EXEC
MULTI | SET a 1 | LPUSH a 1 | EXEC
MULTI | SET a 1 | PUBLISH c m | EXPIRE a 100 | EXEC
MULTI | SET a 1 | DISCARD
MULTI | SCRIPT LOAD "return 1" | SET a 1 | EXEC
PUBLISH channel message
SPUBLISH channel message
EVAL "return redis.call('get', 'a')" 0
EVAL "redis.call('set', KEYS[1], 1)" 1 a
EVAL "redis.call('set', KEYS[1], 1); redis.call('incr', KEYS[1]); redis.call('get', KEYS[1])" 1 a
EVAL "redis.call('expire', KEYS[1], 100)" 1 a
EVAL "redis.set_repl(redis.REPL_NONE); redis.call('set', KEYS[1], 2); redis.set_repl(redis.REPL_ALL); redis.call('set', KEYS[1], 3)" 1 a
EVAL "redis.call('select', 7); redis.call('set', KEYS[1], 1)" 1 a
EVAL "redis.call('set', KEYS[1], 1); return redis.error_reply('oops')" 1 a
EVAL "redis.call('set', KEYS[1], 1); redis.call('lpush', KEYS[1], 1)" 1 a
SCRIPT LOAD "return 2"
SCRIPT FLUSH
FUNCTION LOAD "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('set', keys[1], 'f') end)"
FUNCTION LOAD "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('set', keys[1], 'f') end)"
FCALL f 1 a
FUNCTION DELETE lib
FUNCTION FLUSH
SET brief 1 PX 50
... 400
SET brief2 1
DEBUG SET-ACTIVE-EXPIRE 0
PEXPIRE brief2 1
... 30
SET brief2 2
SADD briefs a b
PEXPIRE briefs 1
... 30
SUNIONSTORE unions briefs s
RPUSH briefl a
PEXPIRE briefl 1
... 30
LPUSHX briefl x
SET target 1
MOVE target 8
SET target 2
SELECT 8
PEXPIRE target 1
... 30
SELECT 0
MOVE target 8
DEBUG SET-ACTIVE-EXPIRE 1
FLUSHDB
FLUSHDB ASYNC
FLUSHALL
"#;

/// Words, of which those in quotes may have spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').expect("an end of the quotes"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.replace("\\n", "\n"));
        rest = behind.trim_start();
    }
    words
}

struct Side {
    server: Server,
    client: Client,
    waiting: Vec<Client>,
    follower: Follower,
}

impl Side {
    fn new(server: Server) -> Side {
        let follower = Follower::of(&server.addr()).expect("a stream");
        Side {
            client: server.client(),
            waiting: Vec::new(),
            follower,
            server,
        }
    }

    /// Does a step, and returns what was told of it.
    fn told(&mut self, step: &str, mark: &str) -> Vec<Vec<String>> {
        if let Some(milliseconds) = step.strip_prefix("... ") {
            let milliseconds = milliseconds.parse().expect("a number");
            thread::sleep(Duration::from_millis(milliseconds));
        } else if let Some(command) = step.strip_prefix("2> ") {
            let mut client = self.server.client();
            client.send(&words(command));
            client.flush().expect("it is sent");
            self.waiting.push(client);
            thread::sleep(Duration::from_millis(30));
        } else {
            let lines = step.strip_prefix("~ ").unwrap_or(step).split(" | ");
            for line in lines {
                self.client.command(&words(line));
            }
        }
        self.client.command(&["PUBLISH", "mark", mark]);
        self.follower.until_published(mark).expect("the mark")
    }
}

/// Whether two words are the same, or times that are nearly so.
fn is_same(one: &str, other: &str) -> bool {
    let time = |word: &str| {
        let (ms, seq) = word.split_once('-').unwrap_or((word, ""));
        let ms: Option<u64> = ms.parse().ok().filter(|ms| *ms > 1_500_000_000_000);
        ms.map(|ms| (ms, seq.to_string()))
    };
    match (time(one), time(other)) {
        (Some((one, seq)), Some((other, other_seq))) => {
            one.abs_diff(other) < 5000 && seq == other_seq
        }
        _ => one == other,
    }
}

fn are_same(one: &[Vec<String>], other: &[Vec<String>], most: usize) -> bool {
    let is_same_call = |(one, other): (&Vec<String>, &Vec<String>)| {
        one.len() == other.len() && {
            let mut pairs = one.iter().zip(other).take(most);
            pairs.all(|(one, other)| is_same(one, other))
        }
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same_call)
}

#[test]
fn followers_are_told_what_redis_tells_its_own() {
    let mut redis = Side::new(Server::redis(&["--repl-diskless-sync", "no"]));
    let mut cairn = Side::new(Server::cairn(&["--enable-debug-command", "yes"]));
    let mut different = Vec::new();
    for (number, step) in COMMANDS.lines().enumerate() {
        if step.is_empty() {
            continue;
        }
        let mark = format!("step-{number}");
        let expected = redis.told(step, &mark);
        let told = cairn.told(step, &mark);
        let most = if step.starts_with('~') { 2 } else { usize::MAX };
        if !are_same(&expected, &told, most) {
            different.push(format!("{step}\n  redis {expected:?}\n  cairn {told:?}"));
        }
    }
    assert!(different.is_empty(), "\n{}", different.join("\n"));
}
