"""Drives a server through redis-py's scripts and functions, over RESP2 and over RESP3.

Usage: python redis_py_scripts.py HOST:PORT
"""

import threading
import time

from harness import at_once, check_both, connect, main, rejects
from redis.exceptions import NoScriptError, ResponseError


@check_both
def scripts(r, protocol):
    add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert add(keys=["n"], args=[5]) == 5
    assert r.script_exists(add.sha, "0" * 40) == [True, False]
    assert r.script_flush() is True
    rejects(NoScriptError, r.evalsha, add.sha, 1, "n", 5)
    assert add(keys=["n"], args=[5]) == 10  # it is loaded again
    pipe = r.pipeline()
    add(keys=["n"], args=[1], client=pipe)
    add(keys=["n"], args=[1], client=pipe)
    assert pipe.execute() == [11, 12]
    assert r.script_load("return 1") == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


@check_both
def what_scripts_return(r, protocol):
    mixed = "return {1, 2.9, 'three', false, {4, {5}}, true}"
    assert r.eval(mixed, 0) == [1, 2, "three", None, [4, [5]], 1]
    assert r.eval("return redis.status_reply('FINE')", 0) == "FINE"
    assert str(rejects(ResponseError, r.eval, "return redis.error_reply('MY no')", 0)) == "MY no"
    assert r.eval("return {KEYS[1], ARGV[1], #KEYS, #ARGV}", 1, "k", "a") == ["k", "a", 1, 1]
    assert r.eval("return cjson.encode({a = {1, 2}})", 0) == '{"a":[1,2]}'
    assert r.eval("return cmsgpack.unpack(cmsgpack.pack('x'))", 0) == "x"
    assert r.eval("return redis.sha1hex('')", 0) == "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert r.eval("return #struct.pack('>I4', 7) + bit.band(7, 3)", 0) == 7
    assert r.eval("return redis.call('HGETALL', KEYS[1])", 1, "none") == []
    r.hset("h", "f", "v")
    map_of_resp3 = r.eval("redis.setresp(3); return redis.call('HGETALL', KEYS[1])", 1, "h")
    assert map_of_resp3 == ({"f": "v"} if protocol == 3 else ["f", "v"])


@check_both
def scripts_that_fail(r, protocol):
    script = "redis.call('SET', KEYS[1], 1); return redis.call('LPUSH', KEYS[1], 1)"
    error = rejects(ResponseError, r.eval, script, 1, "k")
    assert str(error).startswith("WRONGTYPE Operation against a key")
    assert r.get("k") == "1"  # what was done stays done
    assert r.eval("return redis.pcall('LPUSH', KEYS[1], 1).err", 1, "k").startswith("WRONGTYPE")
    error = rejects(ResponseError, r.eval, "return x", 0)
    assert "Script attempted to access nonexistent global variable 'x'" in str(error)
    assert "user_script:1" in str(rejects(ResponseError, r.eval, "error('oh')", 0))
    rejects(ResponseError, r.eval, "not lua", 0)
    rejects(ResponseError, r.eval_ro, "return redis.call('SET', KEYS[1], 2)", 1, "k")
    assert r.eval_ro("return redis.call('GET', KEYS[1])", 1, "k") == "1"
    assert r.get("k") == "1"


@check_both
def scripts_are_atomic(r, protocol):
    move = r.register_script(
        """
        local amount = tonumber(ARGV[1])
        if tonumber(redis.call('GET', KEYS[1])) < amount then return 0 end
        redis.call('DECRBY', KEYS[1], amount)
        redis.call('INCRBY', KEYS[2], amount)
        return 1
        """
    )
    r.mset({"a": 100, "b": 0, "c": 0})
    keys = ["a", "b", "c"]

    def work(number):
        own = connect(protocol=protocol)
        moved = 0
        for turn in range(100):
            giver, taker = keys[(number + turn) % 3], keys[(number + turn + 1) % 3]
            moved += move(keys=[giver, taker], args=[7], client=own)
            assert sum(map(int, own.mget(keys))) == 100
        return moved

    assert sum(at_once(8, work)) > 0
    assert min(map(int, r.mget(keys))) >= 0


@check_both
def a_script_may_touch_keys_it_did_not_name(r, protocol):
    def work(number):
        own = connect(protocol=protocol)
        for _ in range(50):
            own.eval("for n = 1, 5 do redis.call('INCR', 'k' .. n) end", 0)

    at_once(4, work)
    assert r.mget(f"k{n}" for n in range(1, 6)) == ["200"] * 5


@check_both
def functions(r, protocol):
    library = """#!lua name=shop
        redis.register_function('buy', function(keys, args)
            if redis.call('HINCRBY', keys[1], args[1], -1) < 0 then
                redis.call('HINCRBY', keys[1], args[1], 1)
                return redis.error_reply('ERR sold out')
            end
            return redis.call('HGET', keys[1], args[1])
        end)
        redis.register_function{
            function_name = 'left', flags = {'no-writes'},
            callback = function(keys, args) return redis.call('HGET', keys[1], args[1]) end}
    """
    r.function_flush()
    assert r.function_load(library) == "shop"
    rejects(ResponseError, r.function_load, library)
    assert r.function_load(library, replace=True) == "shop"
    r.hset("stock", "apple", 2)
    assert r.fcall("buy", 1, "stock", "apple") == "1"
    assert r.fcall_ro("left", 1, "stock", "apple") == "1"
    assert r.fcall("buy", 1, "stock", "apple") == "0"
    assert str(rejects(ResponseError, r.fcall, "buy", 1, "stock", "apple")).startswith("sold out")
    rejects(ResponseError, r.fcall_ro, "buy", 1, "stock", "apple")
    dump = connect(protocol=protocol, decode_responses=False).function_dump()
    assert r.function_delete("shop")
    assert r.function_list() == []
    assert r.function_restore(dump)
    assert len(r.function_list(library="shop")) == 1
    assert r.fcall_ro("left", 1, "stock", "apple") == "0"
    r.function_flush()


@check_both
def a_script_that_does_not_end_is_killed(r, protocol):
    before = r.config_get("lua-time-limit")["lua-time-limit"]
    r.config_set("lua-time-limit", 50)
    own = connect(protocol=protocol)
    errors = []

    def run():
        errors.append(rejects(ResponseError, own.eval, "while true do end", 0))

    endless = threading.Thread(target=run)
    endless.start()
    try:
        time.sleep(0.2)
        assert r.script_kill()
        endless.join(10)
        assert "Script killed by user" in str(errors[0])
        assert "No scripts in execution right now" in str(rejects(ResponseError, r.script_kill))
        assert r.ping() is True
    finally:
        r.config_set("lua-time-limit", before)


if __name__ == "__main__":
    main(seconds=60)
