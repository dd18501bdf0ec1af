"""Checks of what goes beyond the plain types: streams, bits, HyperLogLogs, positions, sorting, dumps, introspection."""

import threading
import time

from redis.exceptions import ResponseError

from harness import check, connect, rejects


@check
def streams(r, protocol):
    ids = [r.xadd("s", {"n": n}) for n in range(5)]
    assert r.xlen("s") == 5
    assert [entry for entry, _ in r.xrange("s")] == ids
    assert r.xrevrange("s", count=1) == [(ids[-1], {"n": "4"})]
    assert r.xadd("s", {"n": 5}, maxlen=3, approximate=False) > ids[-1]
    assert r.xlen("s") == 3
    assert r.xdel("s", ids[-1]) == 1
    info = r.xinfo_stream("s")
    assert info["length"] == 2 and info["entries-added"] == 6
    assert r.xtrim("s", maxlen=1, approximate=False) == 1
    rejects(ResponseError, r.xadd, "s", {"n": 1}, id="1-1")


@check
def groups_of_streams(r, protocol):
    ids = [r.xadd("s", {"n": n}) for n in range(4)]
    assert r.xgroup_create("s", "g", id="0")
    assert "BUSYGROUP" in str(rejects(ResponseError, r.xgroup_create, "s", "g"))
    [(stream, entries)] = pairs(r.xreadgroup("g", "alice", {"s": ">"}, count=3))
    assert stream == "s" and [entry for entry, _ in entries] == ids[:3]
    assert r.xack("s", "g", ids[0]) == 1
    summary = r.xpending("s", "g")
    assert summary["pending"] == 2 and summary["min"] == ids[1]
    pending = r.xpending_range("s", "g", "-", "+", 10, consumername="alice")
    assert [entry["message_id"] for entry in pending] == ids[1:3]
    assert [entry for entry, _ in r.xclaim("s", "g", "bob", 0, [ids[1]])] == [ids[1]]
    claimed = r.xautoclaim("s", "g", "carol", 0)
    assert [entry for entry, _ in claimed[1]] == ids[1:3]
    assert {consumer["name"] for consumer in r.xinfo_consumers("s", "g")} == {"alice", "bob", "carol"}
    assert r.xinfo_groups("s")[0]["pending"] == 2
    assert r.xgroup_delconsumer("s", "g", "carol") == 2
    assert r.xgroup_destroy("s", "g") == 1
    assert "NOGROUP" in str(rejects(ResponseError, r.xreadgroup, "g", "alice", {"s": ">"}))


@check
def readers_of_streams_wait(r, protocol):
    r.xgroup_create("s", "g", mkstream=True)
    for read in (
        lambda own: own.xread({"s": "$"}, block=5000),
        lambda own: own.xreadgroup("g", "c", {"s": ">"}, block=5000),
    ):
        own = connect(protocol)
        writer = threading.Thread(target=add_when_awaited, args=(r,))
        writer.start()
        [(stream, [(_, fields)])] = pairs(read(own))
        writer.join()
        assert stream == "s" and fields == {"news": "yes"}
        assert not own.xread({"s": "$"}, block=20)
        r.xgroup_setid("s", "g", "$")


def add_when_awaited(r):
    deadline = time.monotonic() + 5
    while r.info("clients")["blocked_clients"] == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    r.xadd("s", {"news": "yes"})


def pairs(reply):
    """Streams with their entries, which redis-py gives as a list or, by the new protocol, as a dictionary of lists."""
    if isinstance(reply, dict):
        return [(stream, [entry for page in pages for entry in page]) for stream, pages in reply.items()]
    return [tuple(pair) for pair in reply]


@check
def bitmaps(r, protocol):
    assert r.setbit("b", 7, 1) == 0
    assert r.setbit("b", 4_000_000, 1) == 0
    assert (r.getbit("b", 7), r.getbit("b", 8)) == (1, 0)
    assert r.bitcount("b") == 2
    assert r.bitcount("b", 0, 7, "BIT") == 1
    assert r.bitpos("b", 1, 1) == 4_000_000
    r.setbit("c", 7, 1)
    assert r.bitop("AND", "both", "b", "c") == 500_001
    assert r.bitcount("both") == 1
    fields = r.bitfield("f", default_overflow="SAT")
    assert fields.set("u8", 0, 250).incrby("u8", 0, 10).get("u4", 4).execute() == [0, 255, 15]


@check
def hyperloglogs(r, protocol):
    assert r.pfadd("a", *range(1000)) == 1
    assert r.pfadd("a", 1) == 0
    assert r.pfcount("a") == 1001
    r.pfadd("b", *range(500, 1500))
    assert r.pfmerge("all", "a", "b") is True
    assert r.pfcount("all") == r.pfcount("a", "b")
    assert abs(r.pfcount("all") - 1500) < 50


@check
def positions(r, protocol):
    assert r.geoadd("g", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"]) == 2
    assert r.geodist("g", "Palermo", "Catania") == 166274.1516
    assert r.geohash("g", "Palermo", "none") == ["sqc8b49rny0", None]
    [(longitude, latitude), missing] = r.geopos("g", "Palermo", "none")
    assert abs(longitude - 13.361389) < 1e-5 and abs(latitude - 38.115556) < 1e-5 and missing is None
    near = r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC", withdist=True)
    assert [(name, float(distance)) for name, distance in near] == [("Catania", 56.4413), ("Palermo", 190.4424)]
    assert r.geosearchstore("near", "g", longitude=15, latitude=37, radius=100, unit="km") == 1
    assert r.zrange("near", 0, -1) == ["Catania"]


@check
def sorting(r, protocol):
    r.rpush("l", 3, 1, 2)
    for n in (1, 2, 3):
        r.set(f"weight:{n}", -n)
        r.hset(f"object:{n}", "name", f"name {n}")
    assert r.sort("l") == ["1", "2", "3"]
    assert r.sort("l", by="weight:*", get=["#", "object:*->name"], start=0, num=2) == ["3", "name 3", "2", "name 2"]
    assert r.sort("l", desc=True, store="sorted") == 3
    assert r.lrange("sorted", 0, -1) == ["3", "2", "1"]
    rejects(ResponseError, r.sort, "l", by="object:*->name")


@check
def dumps(r, protocol):
    raw = connect(protocol, decode_responses=False)
    r.rpush("list", *range(1000))
    r.hset("hash", mapping={"f": "v"})
    r.xadd("stream", {"f": "v"})
    for name in ("list", "hash", "stream"):
        payload = raw.dump(name)
        assert raw.restore("copy", 0, payload, replace=True) == b"OK"
        assert raw.dump("copy") == payload
    assert "BUSYKEY" in str(rejects(ResponseError, raw.restore, "copy", 0, payload))
    wrong = payload[:-1] + bytes([payload[-1] ^ 1])
    assert "checksum" in str(rejects(ResponseError, raw.restore, "other", 0, wrong))
    assert raw.dump("none") is None


@check
def migration(r, protocol):
    assert r.migrate("127.0.0.1", 1, "none", 0, 100) == "NOKEY"
    r.set("key", "v")
    assert "IOERR" in str(rejects(ResponseError, r.migrate, "127.0.0.1", 1, "key", 0, 100, copy=True))
    assert r.get("key") == "v"


@check
def introspection(r, protocol):
    r.set("n", 1)
    r.rpush("l", "a")
    assert r.object("encoding", "n") == "int"
    assert r.object("encoding", "l") == "quicklist"
    assert r.object("refcount", "n") > 0
    assert r.object("idletime", "n") >= 0
    assert r.memory_usage("l") > 0
    assert r.memory_stats()["keys.count"] == 2
    assert r.command_count() > 200
    assert r.command_getkeys("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", "b", ">", ">") == ["a", "b"]
    assert r.command()["get"]["arity"] == 2
    docs = r.execute_command("COMMAND DOCS", "xadd")
    assert "xadd" in docs
    assert r.info("commandstats")["cmdstat_rpush"]["calls"] >= 1
