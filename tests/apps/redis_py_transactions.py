"""Drives a server through redis-py's transactions and blocking pops, over RESP2 and over RESP3.

Usage: python redis_py_transactions.py HOST:PORT
"""

import threading
import time

import redis
from harness import at_once, check_both, connect, main, rejects, until
from redis.exceptions import ExecAbortError, ResponseError, WatchError

# Transactions


@check_both
def transactions(r, protocol):
    pipe = r.pipeline()
    pipe.set("a", 1).incr("a").rpush("l", "x", "y").lrange("l", 0, -1).hgetall("none")
    assert pipe.execute() == [True, 2, 2, ["x", "y"], {}]
    for i in range(1000):
        pipe.incr("counter").zadd("z", {f"m{i}": i})
    replies = pipe.execute()
    assert replies[-2:] == [1000, 1] and r.zcard("z") == 1000


@check_both
def an_error_inside_does_not_undo_the_rest(r, protocol):
    r.set("text", "abc")
    pipe = r.pipeline().set("before", 1).incr("text").set("after", 2)
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and replies[2] is True and isinstance(replies[1], ResponseError)
    assert r.mget("before", "after") == ["1", "2"]


@check_both
def an_error_while_queueing_undoes_all(r, protocol):
    pipe = r.pipeline().set("before", 1)
    pipe.execute_command("SET", "only-a-key")
    rejects(ResponseError, pipe.execute)
    assert r.exists("before") == 0
    single = connect(protocol=protocol, single_connection_client=True)
    assert single.execute_command("MULTI")
    rejects(ResponseError, single.execute_command, "BOGUS")
    error = rejects(ExecAbortError, single.execute_command, "EXEC")
    assert "discarded because of previous errors" in str(error)
    error = rejects(ResponseError, single.execute_command, "EXEC")
    assert str(error) == "EXEC without MULTI"


@check_both
def a_watched_key_that_changes_stops_the_transaction(r, protocol):
    other = connect(protocol=protocol)
    changes = [
        lambda: other.set("watched", 2),
        lambda: other.set("watched", 1),
        lambda: other.delete("watched"),
        lambda: other.expire("watched", 100),
        lambda: other.rename("spare", "watched"),
        lambda: other.flushdb(),
        lambda: other.eval("redis.call('APPEND', KEYS[1], 'x')", 1, "watched"),
        lambda: other.pipeline().incr("watched").execute(),
        lambda: other.swapdb(0, 1),
    ]
    for change in changes:
        other.mset({"watched": 1, "spare": 3})
        with r.pipeline() as pipe:
            pipe.watch("watched", "absent")
            assert pipe.get("watched") == "1"
            change()
            pipe.multi()
            pipe.set("result", 1)
            rejects(WatchError, pipe.execute)
        assert r.exists("result") == 0


@check_both
def an_unwatched_change_does_not(r, protocol):
    r.mset({"watched": 1, "other": 1})
    with r.pipeline() as pipe:
        pipe.watch("watched")
        connect().set("other", 2)
        connect().delete("absent")
        pipe.multi()
        assert pipe.get("other").execute() == ["2"]
        pipe.watch("watched")
        connect().set("watched", 2)
        pipe.unwatch()
        pipe.multi()
        assert pipe.get("watched").execute() == ["2"]


@check_both
def a_key_that_expires_while_watched(r, protocol):
    with r.pipeline() as pipe:
        r.set("watched", 1, px=30)
        pipe.watch("watched")
        time.sleep(0.06)
        pipe.multi()
        pipe.set("result", 1)
        rejects(WatchError, pipe.execute)
    assert r.exists("result") == 0


@check_both
def transfers_by_watching_lose_nothing(r, protocol):
    accounts = [f"account:{n}" for n in range(3)]
    r.mset({account: 1000 for account in accounts})
    sums = set()
    done = threading.Event()

    def read():
        own = connect(protocol=protocol)
        while not done.is_set():
            sums.add(sum(map(int, own.pipeline().mget(accounts).execute()[0])))

    def transfer(number):
        own = connect(protocol=protocol)
        for turn in range(60):
            giver, taker = accounts[(number + turn) % 3], accounts[(number + 2 * turn + 1) % 3]

            def move(pipe):
                balance, target = int(pipe.get(giver)), int(pipe.get(taker))
                pipe.multi()
                if giver != taker:
                    pipe.set(giver, balance - 1).set(taker, target + 1)

            own.transaction(move, giver, taker)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        at_once(8, transfer)
    finally:
        done.set()
        reader.join()
    assert sums == {3000}


# Blocking pops


@check_both
def blocking_pops(r, protocol):
    def after(delay, *command):
        timer = threading.Timer(delay, connect().execute_command, command)
        timer.start()

    r.rpush("l", "a", "b", "c")
    assert list(r.blpop("l", 1)) == ["l", "a"]
    assert list(r.brpop(["none", "l"], 1)) == ["l", "c"]
    assert r.blmove("l", "m", 1, "LEFT", "RIGHT") == "b"
    began = time.monotonic()
    assert r.blpop("l", 0.1) is None
    assert 0.1 <= time.monotonic() - began < 1
    after(0.05, "RPUSH", "second", "x", "y")
    assert list(r.blpop(["first", "second"], 5)) == ["second", "x"]
    after(0.05, "LPUSH", "source", "moved")
    assert r.brpoplpush("source", "target", 5) == "moved"
    assert r.lrange("target", 0, -1) == ["moved"]
    after(0.05, "ZADD", "z", "2", "b", "1", "a")
    assert list(r.bzpopmin("z", 5)) == ["z", "a", 1.0]
    assert list(r.bzpopmax("z", 5)) == ["z", "b", 2.0]
    after(0.05, "RPUSH", "l", "1", "2", "3")
    assert r.blmpop(5, 2, "none", "l", direction="LEFT", count=2) == ["l", ["1", "2"]]
    after(0.05, "ZADD", "z", "1", "a")
    key, popped = r.bzmpop(5, 1, ["z"], min=True)
    assert key == "z" and [[m, float(s)] for m, s in popped] == [["a", 1.0]]
    after(0.05, "RENAME", "target", "renamed")
    assert list(r.blpop("renamed", 5)) == ["renamed", "moved"]


@check_both
def each_element_wakes_one(r, protocol):
    def wait(number):
        return connect(protocol=protocol).blpop("queue", 10)[1]

    def push():
        until(lambda: r.info("clients")["blocked_clients"] == 10, "ten are blocked")
        r.rpush("queue", *range(5))
        pipe = r.pipeline()
        for n in range(5, 10):
            pipe.lpush("queue", n)
        pipe.execute()

    pusher = threading.Thread(target=push)
    pusher.start()
    assert sorted(map(int, at_once(10, wait))) == list(range(10))
    pusher.join()
    assert r.exists("queue") == 0


@check_both
def nothing_is_popped_for_one_who_has_gone(r, protocol):
    gone = connect(protocol=protocol, socket_timeout=0.1, retry=None)
    rejects(redis.exceptions.TimeoutError, gone.blpop, "queue", 0)
    gone.close()
    until(lambda: r.info("clients")["blocked_clients"] == 0, "nobody is blocked")
    r.rpush("queue", "kept")
    time.sleep(0.05)
    assert r.lrange("queue", 0, -1) == ["kept"]


@check_both
def a_blocked_client_is_set_free(r, protocol):
    own = connect(protocol=protocol, single_connection_client=True)
    number = own.client_id()
    replies = []
    waiting = threading.Thread(target=lambda: replies.append(own.blpop("queue", 0)))
    waiting.start()
    until(lambda: r.info("clients")["blocked_clients"] == 1, "one is blocked")
    assert r.client_unblock(number) == 1
    waiting.join(5)
    assert replies == [None]
    assert r.client_unblock(number) == 0


if __name__ == "__main__":
    main(seconds=60)
