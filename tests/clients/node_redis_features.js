// Checks of what goes beyond the plain types: streams, bits, HyperLogLogs, positions, sorting, dumps, introspection.

"use strict";

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const { RESP_TYPES } = require("redis");

const ids = (entries) => entries.map(({ id }) => id);

module.exports = (check, withClient, refused) => {
  check("streams", async (r) => {
    const added = [];
    for (let n = 0; n < 4; n++) added.push(await r.xAdd("s", "*", { n: String(n) }));
    assert.equal(await r.xLen("s"), 4);
    assert.deepEqual(ids(await r.xRange("s", "-", "+")), added);
    assert.equal((await r.xRevRange("s", "+", "-", { COUNT: 1 }))[0].message.n, "3");
    assert.equal(await r.xDel("s", added[0]), 1);
    assert.equal(await r.xTrim("s", "MAXLEN", 2), 1);
    assert.equal((await r.xInfoStream("s")).length, 2);
    await assert.rejects(r.xAdd("s", "1-1", { n: "1" }), refused("equal or smaller"));
  });

  check("groups of streams", async (r, protocol) => {
    assert.equal(await r.xGroupCreate("s", "g", "$", { MKSTREAM: true }), "OK");
    await withClient(protocol, {}, async (waiting) => {
      // The client does not give all of this reply a form by the new protocol: the words will do.
      const words = ["XREADGROUP", "GROUP", "g", "alice", "BLOCK", "5000", "STREAMS", "s", ">"];
      const read = waiting.sendCommand(words);
      await sleep(30);
      const id = await r.xAdd("s", "*", { job: "1" });
      assert.ok(JSON.stringify(await read).includes(id));
      const pending = await r.xPending("s", "g");
      assert.equal(pending.pending, 1);
      assert.deepEqual(ids(await r.xClaim("s", "g", "bob", 0, id)), [id]);
      assert.deepEqual(ids((await r.xAutoClaim("s", "g", "carol", 0, "0")).messages), [id]);
      assert.equal(await r.xAck("s", "g", id), 1);
    });
    assert.equal((await r.xInfoGroups("s"))[0].name, "g");
    assert.equal(await r.xGroupDestroy("s", "g"), 1);
  });

  check("bitmaps", async (r) => {
    assert.equal(await r.setBit("b", 100000, 1), 0);
    assert.equal(await r.getBit("b", 100000), 1);
    assert.equal(await r.bitCount("b"), 1);
    assert.equal(await r.bitPos("b", 1), 100000);
    assert.equal(await r.bitOp("NOT", "inverted", "b"), 12501);
    assert.equal(await r.bitCount("inverted"), 100007);
    const operation = { operation: "INCRBY", encoding: "u8", offset: 0, increment: 300 };
    assert.deepEqual(await r.bitField("f", [operation]), [44]);
  });

  check("HyperLogLogs", async (r) => {
    assert.equal(await r.pfAdd("a", ["x", "y"]), 1);
    await r.pfAdd("b", ["y", "z"]);
    assert.equal(await r.pfCount(["a", "b"]), 3);
    assert.equal(await r.pfMerge("all", ["a", "b"]), "OK");
    assert.equal(await r.pfCount("all"), 3);
  });

  check("positions", async (r) => {
    const places = [
      { longitude: 13.361389, latitude: 38.115556, member: "Palermo" },
      { longitude: 15.087269, latitude: 37.502669, member: "Catania" },
    ];
    assert.equal(await r.geoAdd("g", places), 2);
    assert.equal(await r.geoDist("g", "Palermo", "Catania", "km"), 166.2742);
    const around = { radius: 100, unit: "km" };
    assert.deepEqual(await r.geoSearch("g", { longitude: 15, latitude: 37 }, around), ["Catania"]);
    assert.deepEqual(await r.geoHash("g", "Palermo"), ["sqc8b49rny0"]);
  });

  check("sorting", async (r) => {
    await r.rPush("l", ["3", "1", "2"]);
    assert.deepEqual(await r.sort("l", { DIRECTION: "DESC" }), ["3", "2", "1"]);
    assert.equal(await r.sortStore("l", "sorted", { LIMIT: { offset: 0, count: 2 } }), 2);
    assert.deepEqual(await r.lRange("sorted", 0, -1), ["1", "2"]);
  });

  check("dumps", async (r) => {
    await r.sAdd("s", ["a", "b"]);
    const payload = await r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).dump("s");
    assert.equal(await r.restore("copy", 0, payload), "OK");
    assert.deepEqual([...(await r.sMembers("copy"))].sort(), ["a", "b"]);
    await assert.rejects(r.restore("copy", 0, payload), refused("BUSYKEY"));
    await assert.rejects(r.restore("other", 0, payload.subarray(1)), refused("checksum"));
    assert.equal(await r.migrate("127.0.0.1", 1, "none", 0, 100), "NOKEY");
    await assert.rejects(r.migrate("127.0.0.1", 1, "s", 0, 100), refused("IOERR"));
  });

  check("introspection", async (r) => {
    await r.set("n", "1");
    assert.equal(await r.objectEncoding("n"), "int");
    assert.ok((await r.objectIdleTime("n")) >= 0);
    assert.ok((await r.memoryUsage("n")) > 0);
    assert.ok((await r.commandCount()) > 200);
    assert.equal((await r.commandInfo(["get"]))[0].arity, 2);
    assert.deepEqual(await r.commandGetKeys(["MSET", "a", "1", "b", "2"]), ["a", "b"]);
  });
};
