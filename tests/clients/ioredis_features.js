// Checks of what goes beyond the plain types: streams, bits, HyperLogLogs, positions, sorting, dumps, introspection.

"use strict";

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");

// The fields of an entry.
const fields = (entry) => entry[1];
const ids = (entries) => entries.map(([id]) => id);

module.exports = (check, withClient) => {
  check("streams", async (r) => {
    const added = [];
    for (let n = 0; n < 5; n++) added.push(await r.xadd("s", "*", "n", n));
    assert.equal(await r.xlen("s"), 5);
    assert.deepEqual(ids(await r.xrange("s", "-", "+")), added);
    assert.deepEqual(await r.xrevrange("s", "+", "-", "COUNT", 1), [[added[4], ["n", "4"]]]);
    assert.equal(await r.xdel("s", added[1]), 1);
    assert.equal(await r.xtrim("s", "MAXLEN", 2), 2);
    const [[stream, entries]] = await r.xread("COUNT", 10, "STREAMS", "s", "0");
    assert.equal(stream, "s");
    assert.deepEqual(entries.map(fields), [["n", "3"], ["n", "4"]]);
    await assert.rejects(r.xadd("s", "1-1", "n", 1), /equal or smaller/);
  });

  check("groups of streams", async (r, protocol) => {
    assert.equal(await r.xgroup("CREATE", "s", "g", "$", "MKSTREAM"), "OK");
    await assert.rejects(r.xgroup("CREATE", "s", "g", "$"), /BUSYGROUP/);
    await withClient(protocol, {}, async (waiting) => {
      const read = waiting.xreadgroup("GROUP", "g", "alice", "BLOCK", 5000, "STREAMS", "s", ">");
      await sleep(30);
      const id = await r.xadd("s", "*", "job", "1");
      const [[stream, entries]] = await read;
      assert.deepEqual([stream, ids(entries)], ["s", [id]]);
      assert.deepEqual(await r.xpending("s", "g"), [1, id, id, [["alice", "1"]]]);
      assert.deepEqual(ids(await r.xclaim("s", "g", "bob", 0, id)), [id]);
      const [cursor, claimed] = await r.xautoclaim("s", "g", "carol", 0, "0");
      assert.deepEqual([cursor, ids(claimed)], ["0-0", [id]]);
      assert.equal(await r.xack("s", "g", id), 1);
      const empty = await waiting.xreadgroup("GROUP", "g", "alice", "BLOCK", 20, "STREAMS", "s", ">");
      assert.equal(empty, null);
    });
    assert.equal(await r.xgroup("DESTROY", "s", "g"), 1);
  });

  check("bitmaps", async (r) => {
    assert.equal(await r.setbit("b", 4000000, 1), 0);
    assert.equal(await r.getbit("b", 4000000), 1);
    assert.equal(await r.bitcount("b"), 1);
    assert.equal(await r.bitpos("b", 1), 4000000);
    await r.set("x", "abc");
    await r.set("y", "abd");
    assert.equal(await r.bitop("XOR", "z", "x", "y"), 3);
    assert.equal(await r.bitcount("z"), 3);
    const counted = await r.bitfield("f", "SET", "i5", 100, 1, "INCRBY", "u2", 0, 3, "GET", "u2", 0);
    assert.deepEqual(counted, [0, 3, 3]);
  });

  check("HyperLogLogs", async (r) => {
    assert.equal(await r.pfadd("a", "x", "y", "z"), 1);
    assert.equal(await r.pfcount("a"), 3);
    await r.pfadd("b", "z", "w");
    assert.equal(await r.pfmerge("all", "a", "b"), "OK");
    assert.equal(await r.pfcount("all"), 4);
  });

  check("positions", async (r) => {
    assert.equal(await r.geoadd("g", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"), 2);
    assert.equal(await r.geodist("g", "Palermo", "Catania", "km"), "166.2742");
    const near = await r.geosearch("g", "FROMLONLAT", 15, 37, "BYBOX", 400, 400, "km", "ASC", "WITHDIST");
    assert.deepEqual(near, [["Catania", "56.4413"], ["Palermo", "190.4424"]]);
    assert.deepEqual(await r.geohash("g", "Catania"), ["sqdtr74hyu0"]);
  });

  check("sorting", async (r) => {
    await r.sadd("s", 3, 1, 2);
    await r.mset("w:1", 30, "w:2", 20, "w:3", 10);
    assert.deepEqual(await r.sort("s", "DESC"), ["3", "2", "1"]);
    assert.deepEqual(await r.sort("s", "BY", "w:*", "GET", "#", "GET", "w:*"), ["3", "10", "2", "20", "1", "30"]);
    assert.equal(await r.sort("s", "STORE", "sorted"), 3);
  });

  check("dumps", async (r) => {
    await r.zadd("z", 1, "a", 2.5, "b");
    const payload = await r.dumpBuffer("z");
    assert.equal(await r.restore("copy", 100000, payload), "OK");
    assert.deepEqual(await r.zrange("copy", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5"]);
    assert.ok((await r.pttl("copy")) > 90000);
    await assert.rejects(r.restore("copy", 0, payload), /BUSYKEY/);
    payload[0] ^= 1;
    await assert.rejects(r.restore("other", 0, payload), /checksum/);
    assert.equal(await r.migrate("127.0.0.1", 1, "none", 0, 100), "NOKEY");
    await assert.rejects(r.migrate("127.0.0.1", 1, "z", 0, 100), /IOERR/);
  });

  check("introspection", async (r) => {
    await r.hset("h", "f", "v");
    assert.equal(await r.object("ENCODING", "h"), "listpack");
    assert.ok((await r.object("IDLETIME", "h")) >= 0);
    assert.ok((await r.memory("USAGE", "h")) > 0);
    assert.ok((await r.command("COUNT")) > 200);
    const [get] = await r.command("INFO", "get");
    assert.deepEqual(get.slice(0, 2), ["get", 2]);
    assert.deepEqual(await r.command("GETKEYS", "EVAL", "return 1", "2", "a", "b", "c"), ["a", "b"]);
    assert.match(await r.info("commandstats"), /cmdstat_hset:calls=/);
  });
};
