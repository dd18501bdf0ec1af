"""Drives a server through redis-py, over RESP2 and over RESP3.

Usage: redis_py.py ADDRESS, see address.js

Every check runs on an empty database, once per protocol. The last line says how many passed. What goes beyond the
plain types is in redis_py_features.py.
"""

import sys
import threading
import time

import redis
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    DataError,
    NoPermissionError,
    ResponseError,
)

import harness
import redis_py_features  # noqa: F401, registers its checks
from harness import ONCE, check, connect, rejects


def flat(reply):
    """Redis-py hands pairs out flat, as tuples or as lists, depending on command and protocol."""
    return [item for part in reply for item in (part if isinstance(part, (list, tuple)) else [part])]


def scored(reply):
    """Members with their scores."""
    items = flat(reply)
    return [(member, float(score)) for member, score in zip(items[::2], items[1::2])]


# Strings


@check
def strings(r, protocol):
    assert r.set("name", "cairn") is True
    assert r.get("name") == "cairn"
    assert r.get("missing") is None
    assert r.set("name", "other", nx=True) is None
    assert r.set("name", "other", xx=True, get=True) == "cairn"
    assert r.getset("name", "third") == "other"
    assert r.setnx("fresh", "v") is True
    assert r.setnx("fresh", "w") is False
    assert r.append("name", "!") == 6
    assert r.strlen("name") == 6
    assert r.getrange("name", 0, 2) == "thi"
    assert r.setrange("name", 5, "?!") == 7
    assert r.get("name") == "third?!"
    assert r.getdel("name") == "third?!"
    assert r.exists("name") == 0
    assert r.mset({"a": 1, "b": 2}) is True
    assert r.mget("a", "missing", "b") == ["1", None, "2"]
    assert r.msetnx({"b": 3, "c": 3}) is False
    assert r.exists("c") == 0


@check
def numbers(r, protocol):
    assert r.incr("n") == 1
    assert r.incrby("n", 41) == 42
    assert r.decr("n") == 41
    assert r.decrby("n", 50) == -9
    assert r.incrbyfloat("f", 1.5) == 1.5
    assert r.incrbyfloat("f", "0.1") == 1.6
    r.set("edge", 2**63 - 1)
    error = rejects(ResponseError, r.incr, "edge")
    assert str(error) == "increment or decrement would overflow"
    r.set("text", "abc")
    error = rejects(ResponseError, r.incr, "text")
    assert str(error) == "value is not an integer or out of range"


@check
def longest_common_subsequence(r, protocol):
    r.mset({"a": "limestone", "b": "milestones"})
    assert r.lcs("a", "b") == "mestone"
    assert r.lcs("a", "b", len=True) == 7


# Hashes


@check
def hashes(r, protocol):
    assert r.hset("h", mapping={"a": 1, "b": 2, "c": ""}) == 3
    assert r.hset("h", "a", 3) == 0
    assert r.hget("h", "a") == "3"
    assert r.hget("h", "missing") is None
    assert r.hgetall("h") == {"a": "3", "b": "2", "c": ""}
    assert r.hgetall("missing") == {}
    assert r.hmget("h", "a", "missing") == ["3", None]
    assert sorted(r.hkeys("h")) == ["a", "b", "c"]
    assert sorted(r.hvals("h")) == ["", "2", "3"]
    assert r.hlen("h") == 3
    assert r.hexists("h", "b") is True
    assert r.hexists("h", "x") is False
    assert r.hstrlen("h", "a") == 1
    assert r.hsetnx("h", "a", 9) == 0
    assert r.hincrby("h", "n", 5) == 5
    assert r.hincrbyfloat("h", "n", 0.5) == 5.5
    assert r.hdel("h", "a", "b", "x") == 2
    assert sorted(r.hrandfield("h", 10)) == ["c", "n"]
    assert r.hrandfield("missing") is None
    assert dict(r.hscan_iter("h")) == {"c": "", "n": "5.5"}
    assert r.hdel("h", "c", "n") == 2
    assert r.type("h") == "none"


@check
def random_fields_with_values(r, protocol):
    r.hset("h", mapping={"a": 1})
    assert flat(r.hrandfield("h", -2, withvalues=True)) == ["a", "1", "a", "1"]


@check
def large_hash_is_scanned_whole(r, protocol):
    fields = {f"field:{i}": str(i) for i in range(3000)}
    for start in range(0, 3000, 500):
        r.hset("h", mapping=dict(list(fields.items())[start : start + 500]))
    assert r.hlen("h") == 3000
    assert r.hgetall("h") == fields
    assert dict(r.hscan_iter("h", count=100)) == fields
    matching = dict(r.hscan_iter("h", match="field:29*", count=100))
    assert matching == {f: v for f, v in fields.items() if f.startswith("field:29")}


# Lists


@check
def lists(r, protocol):
    assert r.rpush("l", "a", "b", "c") == 3
    assert r.lpush("l", "z") == 4
    assert r.lrange("l", 0, -1) == ["z", "a", "b", "c"]
    assert r.llen("l") == 4
    assert r.lindex("l", 1) == "a"
    assert r.lindex("l", 10) is None
    assert r.lset("l", 0, "y") is True
    assert r.linsert("l", "BEFORE", "b", "x") == 5
    assert r.lpos("l", "b") == 3
    assert r.lpos("l", "b", count=0) == [3]
    assert r.lpos("l", "missing") is None
    assert r.lrem("l", 0, "x") == 1
    assert r.lpop("l") == "y"
    assert r.rpop("l", 2) == ["c", "b"]
    assert r.lpushx("missing", "a") == 0
    assert r.lpop("missing") is None
    assert r.lpop("missing", 2) is None
    assert r.lmove("l", "m", "LEFT", "RIGHT") == "a"
    assert r.rpoplpush("m", "m") == "a"
    assert r.exists("l") == 0
    r.rpush("l", *range(10))
    assert r.ltrim("l", 2, 4) is True
    assert r.lmpop(2, "none", "l", direction="LEFT", count=2) == ["l", ["2", "3"]]
    assert r.lmpop(1, "none", direction="LEFT") is None
    assert str(rejects(ResponseError, r.lset, "none", 0, "a")) == "no such key"
    assert str(rejects(ResponseError, r.lset, "l", 9, "a")) == "index out of range"


# Sets


@check
def sets(r, protocol):
    assert r.sadd("a", 1, 2, 3) == 3
    assert r.sadd("b", 2, 3, 4) == 3
    assert set(r.smembers("a")) == {"1", "2", "3"}
    assert set(r.smembers("missing")) == set()
    assert r.scard("a") == 3
    assert r.sismember("a", 1) == 1
    assert r.sismember("a", 9) == 0
    assert r.smismember("a", [1, 9]) == [1, 0]
    assert set(r.sinter("a", "b")) == {"2", "3"}
    assert set(r.sunion("a", "b")) == {"1", "2", "3", "4"}
    assert set(r.sdiff("a", "b")) == {"1"}
    assert r.sinterstore("c", "a", "b") == 2
    assert r.sunionstore("c", "a", "b") == 4
    assert r.sdiffstore("c", "a", "b") == 1
    assert r.sintercard(2, ["a", "b"], limit=1) == 1
    assert r.smove("a", "b", 1) is True
    assert r.srem("a", 2, 9) == 1
    assert r.srandmember("a") == "3"
    assert r.srandmember("a", -2) == ["3", "3"]
    assert r.spop("a") == "3"
    assert r.spop("a") is None
    assert len(r.spop("b", 3)) == 3
    assert r.scard("b") == 1


@check
def large_set_is_scanned_whole(r, protocol):
    members = {f"member:{i}" for i in range(3000)}
    r.sadd("s", *members)
    assert set(r.sscan_iter("s", count=100)) == members
    assert set(r.smembers("s")) == members
    assert set(r.srandmember("s", 3000)) == members
    assert len(set(r.srandmember("s", 100))) == 100


# Sorted sets


@check
def sorted_sets(r, protocol):
    assert r.zadd("z", {"a": 1, "b": 2, "c": 3.5}) == 3
    assert r.zadd("z", {"a": 5}, nx=True) == 0
    assert r.zadd("z", {"a": 0.5, "d": 4}, ch=True) == 2
    assert r.zadd("z", {"a": 0.5}, incr=True) == 1.0
    assert r.zadd("z", {"a": 9}, gt=True, ch=True) == 1
    assert r.zadd("z", {"a": 1}, lt=True, ch=True) == 1
    assert r.zcard("z") == 4
    assert r.zscore("z", "c") == 3.5
    assert r.zscore("z", "x") is None
    assert r.zmscore("z", ["a", "x"]) == [1.0, None]
    assert r.zincrby("z", 0.25, "c") == 3.75
    assert r.zrank("z", "c") == 2
    assert r.zrevrank("z", "c") == 1
    assert r.zrank("z", "x") is None
    assert r.zcount("z", "(1", "+inf") == 3
    assert r.zlexcount("z", "-", "+") == 4
    assert r.zrange("z", 0, -1) == ["a", "b", "c", "d"]
    assert scored(r.zrange("z", 0, 1, withscores=True)) == [("a", 1.0), ("b", 2.0)]
    assert r.zrange("z", 0, 1, desc=True) == ["d", "c"]
    assert r.zrange("z", "(1", 4, byscore=True, offset=1, num=2) == ["c", "d"]
    assert r.zrangebyscore("z", 2, 4) == ["b", "c", "d"]
    assert r.zrevrangebyscore("z", 4, 2, start=0, num=1) == ["d"]
    assert scored(r.zrevrange("z", 0, 0, withscores=True)) == [("d", 4.0)]
    assert dict(r.zscan_iter("z")) == {"a": 1.0, "b": 2.0, "c": 3.75, "d": 4.0}
    assert scored(r.zpopmin("z")) == [("a", 1.0)]
    assert r.zrangestore("stored", "z", 0, -1) == 3
    assert r.zrem("z", "d", "x") == 1
    assert r.zremrangebyscore("z", "-inf", "+inf") == 2
    assert r.exists("z") == 0
    r.zadd("z", {"top": float("inf"), "bottom": float("-inf")})
    assert r.zscore("z", "top") == float("inf")
    assert r.zscore("z", "bottom") == float("-inf")


@check
def sorted_set_pops(r, protocol):
    r.zadd("z", {"a": 1, "b": 2, "c": 3, "d": 4})
    assert scored(r.zpopmin("z", 2)) == [("a", 1.0), ("b", 2.0)]
    assert scored(r.zpopmax("z", 1)) == [("d", 4.0)]
    key, popped = r.zmpop(1, ["z"], min=True)
    assert (key, scored(popped)) == ("z", [("c", 3.0)])
    assert r.zmpop(1, ["z"], min=True) is None
    assert r.zpopmin("z") == []


@check
def sorted_set_algebra(r, protocol):
    r.zadd("a", {"x": 1, "y": 2})
    r.zadd("b", {"y": 10, "z": 20})
    assert r.zinter(["a", "b"]) == ["y"]
    assert scored(r.zunion(["a", "b"], withscores=True)) == [("x", 1), ("y", 12), ("z", 20)]
    assert scored(r.zdiff(["a", "b"], withscores=True)) == [("x", 1)]
    assert r.zunionstore("c", {"a": 2, "b": 1}, aggregate="MAX") == 3
    assert scored(r.zrange("c", 0, -1, withscores=True)) == [("x", 2), ("y", 10), ("z", 20)]
    assert r.zinterstore("c", ["a", "b"]) == 1
    assert r.zdiffstore("c", ["a", "b"]) == 1
    assert r.zintercard(2, ["a", "b"]) == 1
    r.zadd("lex", {m: 0 for m in "abcdef"})
    assert r.zrangebylex("lex", "[b", "(e") == ["b", "c", "d"]
    assert r.zrevrangebylex("lex", "+", "[e") == ["f", "e"]
    assert r.zremrangebylex("lex", "-", "[c") == 3
    assert r.zremrangebyrank("lex", 0, 0) == 1
    assert sorted(r.zrandmember("lex", 5)) == ["e", "f"]


@check
def ranks_of_a_large_sorted_set(r, protocol):
    r.zadd("z", {f"m{i}": i for i in range(5000)})
    for i in (0, 1, 2499, 4998, 4999):
        assert r.zrank("z", f"m{i}") == i
        assert r.zrevrank("z", f"m{i}") == 4999 - i
        assert r.zrange("z", i, i) == [f"m{i}"]
    assert r.zcount("z", 1000, "(2000") == 1000
    assert len(dict(r.zscan_iter("z", count=500))) == 5000


# Keys


@check
def keys(r, protocol):
    r.mset({f"key:{i}": i for i in range(500)})
    r.sadd("set", "a")
    assert r.dbsize() == 501
    assert r.type("set") == "set"
    assert r.exists("set", "key:1", "missing") == 2
    assert sorted(r.keys("key:1?")) == sorted(f"key:{i}" for i in range(10, 20))
    assert set(r.scan_iter(count=50)) == {f"key:{i}" for i in range(500)} | {"set"}
    assert set(r.scan_iter(match="key:49*")) == {"key:49"} | {f"key:{i}" for i in range(490, 500)}
    assert list(r.scan_iter(_type="set")) == ["set"]
    assert r.rename("key:1", "renamed") is True
    assert r.renamenx("renamed", "key:2") is False
    assert str(rejects(ResponseError, r.rename, "missing", "x")) == "no such key"
    assert r.copy("renamed", "copied") == 1
    assert r.get("copied") == "1"
    assert r.touch("renamed", "copied") == 2
    assert r.delete("renamed", "copied", "missing") == 2
    assert r.unlink("set") == 1
    assert r.randomkey().startswith("key:")
    assert r.flushdb() is True
    assert r.randomkey() is None
    assert r.object("REFCOUNT", "missing") is None


@check
def expiry(r, protocol):
    assert r.set("key", "v", px=40) is True
    assert 0 < r.pttl("key") <= 40
    time.sleep(0.08)
    assert r.get("key") is None
    assert r.ttl("key") == -2
    r.set("key", "v")
    assert r.ttl("key") == -1
    assert r.expire("key", 100) is True
    assert r.expire("key", 50, gt=True) is False
    assert 95 <= r.ttl("key") <= 100
    assert r.persist("key") == 1
    assert r.expireat("key", 33177117420) is True
    assert r.expiretime("key") == 33177117420
    assert r.pexpireat("key", 33177117420123) == 1
    assert r.pexpiretime("key") == 33177117420123
    assert r.getex("key", persist=True) == "v"
    assert r.ttl("key") == -1
    assert r.execute_command("SETEX", "key", 100, "v")
    assert r.execute_command("PSETEX", "key", 100000, "v")
    assert r.expire("missing", 10) is False
    r.rpush("list", "a")
    r.pexpire("list", 30)
    time.sleep(0.06)
    assert r.lrange("list", 0, -1) == []


@check
def databases(r, protocol):
    r.set("key", "zero")
    other = connect(protocol, db=5)
    other.flushdb()
    assert other.get("key") is None
    other.set("key", "five")
    assert r.get("key") == "zero"
    assert r.swapdb(0, 5) is True
    assert r.get("key") == "five"
    assert other.get("key") == "zero"
    r.set("moved", 1)
    assert r.move("moved", 5) == 1
    assert other.get("moved") == "1"
    assert r.flushall() is True
    assert other.dbsize() == 0


# The client itself


@check
def bytes_and_text(r, protocol):
    raw = connect(protocol, decode_responses=False)
    every_byte = bytes(range(256))
    assert raw.set(every_byte, every_byte) is True
    assert raw.get(every_byte) == every_byte
    assert raw.keys("*") == [every_byte]
    raw.hset("h", every_byte, every_byte)
    assert raw.hgetall("h") == {every_byte: every_byte}
    raw.rpush("l", b"", every_byte)
    assert raw.lrange("l", 0, -1) == [b"", every_byte]
    r.set("snow", "snöwflåke ❄")
    assert r.get("snow") == "snöwflåke ❄"
    assert raw.get("snow") == "snöwflåke ❄".encode()


@check
def large_values(r, protocol):
    for size in (16383, 16384, 16385, 1 << 20, 5_000_001):
        value = "x" * (size - 1) + "y"
        assert r.set("big", value) is True
        assert r.strlen("big") == size
        assert r.get("big") == value
        assert r.getrange("big", -2, -1) == "xy"


@check
def pipelines(r, protocol):
    pipe = r.pipeline(transaction=False)
    for i in range(1000):
        pipe.set(f"key:{i}", i)
        pipe.incr("counter")
        pipe.rpush("list", i)
    replies = pipe.execute()
    assert len(replies) == 3000
    assert replies[-2:] == [1000, 1000]
    pipe.get("key:999").lrange("list", 0, 1).hgetall("missing").get("missing")
    assert pipe.execute() == ["999", ["0", "1"], {}, None]


@check
def an_error_in_a_pipeline_leaves_the_rest_alone(r, protocol):
    r.set("text", "abc")
    pipe = r.pipeline(transaction=False)
    pipe.set("before", 1).incr("text").set("after", 2)
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and replies[2] is True
    assert isinstance(replies[1], ResponseError)
    assert r.mget("before", "after") == ["1", "2"]
    pipe.incr("text")
    rejects(ResponseError, pipe.execute)


@check
def errors_have_their_class(r, protocol):
    r.rpush("list", "a")
    error = rejects(ResponseError, r.get, "list")
    assert str(error).startswith("WRONGTYPE Operation against a key")
    error = rejects(ResponseError, r.execute_command, "BOGUS", "a")
    assert str(error).startswith("unknown command 'BOGUS', with args beginning with: 'a'")
    error = rejects(ResponseError, r.execute_command, "GET")
    assert str(error) == "wrong number of arguments for 'get' command"
    error = rejects(ResponseError, r.execute_command, "SET", "a", "b", "bogus")
    assert str(error) == "syntax error"
    rejects(DataError, r.set, "a", None)
    rejects(ResponseError, r.select, 99)
    assert r.ping() is True


@check
def connections(r, protocol):
    assert r.ping() is True
    assert r.echo("hello") == "hello"
    named = connect(protocol, client_name="cairn-check", single_connection_client=True)
    assert named.client_getname() == "cairn-check"
    assert named.client_setname("renamed") is True
    info = named.client_info()
    assert info["name"] == "renamed" and str(info["resp"]) == str(protocol)
    assert info["id"] == str(named.client_id()) or info["id"] == named.client_id()
    assert "renamed" in [client["name"] for client in r.client_list()]
    assert r.client_kill_filter(_id=named.client_id()) == 1
    rejects(ResponseError, r.client_setname, "with space")
    seconds, microseconds = r.time()
    assert abs(seconds - time.time()) < 60 and 0 <= microseconds < 1_000_000
    assert r.config_get("databases") == {"databases": "16"}
    assert "redis_version" in r.info("server")


@check
def a_wrong_password_is_refused(r, protocol):
    user = connect(protocol, username="nobody", password="wrong", retry=ONCE)
    rejects(AuthenticationError, user.ping)


@check
def nobody_listens(r, protocol):
    rejects(ConnectionError, redis.Redis(host="127.0.0.1", port=1, retry=ONCE).ping)


@check
def a_pool_serves_many_threads(r, protocol):
    failures = []

    def work(number):
        try:
            for i in range(200):
                r.incr("shared")
                r.set(f"own:{number}", i)
                assert r.get(f"own:{number}") == str(i)
        except Exception as error:  # reported below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert r.get("shared") == "1600"


@check
def users(r, protocol):
    assert r.acl_setuser("reader", enabled=True, passwords=["+secret"], commands=["+@read", "+set"], keys=["shown:*"])
    try:
        assert sorted(r.acl_users()) == ["default", "reader"]
        user = r.acl_getuser("reader")
        assert user["keys"] == ["~shown:*"]
        assert r.acl_dryrun("reader", "GET", "shown:1") == "OK"
        own = connect(protocol, username="reader", password="secret")
        assert own.set("shown:1", "v") is True
        assert own.get("shown:1") == "v"
        assert "keys" in str(rejects(NoPermissionError, own.get, "hidden"))
        assert "del" in str(rejects(NoPermissionError, own.delete, "shown:1"))
        wrong = connect(protocol, username="reader", password="wrong", retry=ONCE)
        rejects(AuthenticationError, wrong.ping)
        assert r.acl_log()[0]["reason"] == "auth"
        assert r.acl_log_reset()
        assert len(r.acl_genpass()) == 64
    finally:
        assert r.acl_deluser("reader") == 1


@check
def a_bounded_pool_hands_connections_on(r, protocol):
    plain = connect(protocol).connection_pool
    pool = redis.BlockingConnectionPool(
        connection_class=plain.connection_class, max_connections=2, timeout=5, **plain.connection_kwargs
    )
    client = redis.Redis(connection_pool=pool)
    ids = {client.client_id() for _ in range(10)}
    assert len(ids) == 1
    client.set("key", "v")
    pool.disconnect()
    assert client.get("key") == "v"
    pool.disconnect()


if __name__ == "__main__":
    sys.exit(harness.run(sys.argv[1]))
