// Drives a server through ioredis, over RESP2 and over RESP3.
//
// Usage: node ioredis.js ADDRESS, see address.js
//
// Every check runs on an empty database, once per protocol. The last line says how many passed.
// Replies look the same in both: ioredis maps those of RESP3 back, unless told otherwise.

"use strict";

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { ReplyError } = require("redis-errors");

const { parse, tlsOptions } = require("./address.js");

const address = parse(process.argv[2]);
const where = address.path ? { path: address.path } : { host: address.host, port: address.port };
if (address.folder) where.tls = tlsOptions(address);
const checks = [];

// Registers a function that takes a client and its protocol, and asserts.
function check(name, run) {
  checks.push({ name, run });
}

function connect(protocol, options = {}) {
  const client = new Redis({ ...where, protocol, maxRetriesPerRequest: 1, ...options });
  client.on("error", () => {}); // every command reports its own
  return client;
}

// A client of its own for part of a check.
async function withClient(protocol, options, use) {
  const client = connect(protocol, options);
  try {
    await use(client);
  } finally {
    client.disconnect();
  }
}

const sorted = (array) => [...array].sort();

async function collect(stream) {
  const all = [];
  for await (const page of stream) all.push(...page);
  return all;
}

check("strings", async (r) => {
  assert.equal(await r.set("name", "cairn"), "OK");
  assert.equal(await r.get("name"), "cairn");
  assert.equal(await r.get("missing"), null);
  assert.equal(await r.set("name", "other", "NX"), null);
  assert.equal(await r.set("name", "other", "EX", 100, "GET"), "cairn");
  assert.equal(await r.ttl("name"), 100);
  assert.equal(await r.getset("name", "third"), "other");
  assert.equal(await r.append("name", "!"), 6);
  assert.equal(await r.strlen("name"), 6);
  assert.equal(await r.getrange("name", 0, 2), "thi");
  assert.equal(await r.setrange("name", 5, "?!"), 7);
  assert.equal(await r.getdel("name"), "third?!");
  assert.equal(await r.mset({ a: 1, b: 2 }), "OK");
  assert.deepEqual(await r.mget("a", "missing", "b"), ["1", null, "2"]);
  assert.equal(await r.msetnx("b", 3, "c", 3), 0);
  assert.equal(await r.setnx("c", 1), 1);
  assert.equal(await r.lcs("a", "b"), "");
});

check("numbers", async (r) => {
  assert.equal(await r.incr("n"), 1);
  assert.equal(await r.incrby("n", 41), 42);
  assert.equal(await r.decrby("n", 50), -8);
  assert.equal(await r.incrbyfloat("f", "1.5"), "1.5");
  assert.equal(await r.incrbyfloat("f", 0.1), "1.6");
  await r.set("edge", "9223372036854775807");
  await assert.rejects(r.incr("edge"), /increment or decrement would overflow/);
});

check("hashes", async (r) => {
  assert.equal(await r.hset("h", { a: 1, b: 2, c: "" }), 3);
  assert.equal(await r.hset("h", "a", 3), 0);
  assert.equal(await r.hget("h", "a"), "3");
  assert.equal(await r.hget("h", "missing"), null);
  assert.deepEqual({ ...(await r.hgetall("h")) }, { a: "3", b: "2", c: "" });
  assert.deepEqual({ ...(await r.hgetall("missing")) }, {});
  assert.deepEqual(await r.hmget("h", "a", "missing"), ["3", null]);
  assert.deepEqual(sorted(await r.hkeys("h")), ["a", "b", "c"]);
  assert.deepEqual(sorted(await r.hvals("h")), ["", "2", "3"]);
  assert.equal(await r.hlen("h"), 3);
  assert.equal(await r.hexists("h", "b"), 1);
  assert.equal(await r.hstrlen("h", "a"), 1);
  assert.equal(await r.hsetnx("h", "a", 9), 0);
  assert.equal(await r.hincrby("h", "n", 5), 5);
  assert.equal(await r.hincrbyfloat("h", "n", 0.5), "5.5");
  assert.equal(await r.hdel("h", "a", "b", "x"), 2);
  assert.deepEqual(sorted(await r.hrandfield("h", 10)), ["c", "n"]);
  assert.equal(await r.hdel("h", "c", "n"), 2);
  assert.equal(await r.exists("h"), 0);
});

check("lists", async (r) => {
  assert.equal(await r.rpush("l", "a", "b", "c"), 3);
  assert.equal(await r.lpush("l", "z"), 4);
  assert.deepEqual(await r.lrange("l", 0, -1), ["z", "a", "b", "c"]);
  assert.equal(await r.lindex("l", 10), null);
  assert.equal(await r.lset("l", 0, "y"), "OK");
  assert.equal(await r.linsert("l", "BEFORE", "b", "x"), 5);
  assert.equal(await r.lpos("l", "b"), 3);
  assert.equal(await r.lrem("l", 0, "x"), 1);
  assert.equal(await r.lpop("l"), "y");
  assert.deepEqual(await r.rpop("l", 2), ["c", "b"]);
  assert.equal(await r.lpop("missing", 2), null);
  assert.equal(await r.lmove("l", "m", "LEFT", "RIGHT"), "a");
  assert.equal(await r.rpoplpush("m", "m"), "a");
  assert.equal(await r.exists("l"), 0);
  await r.rpush("l", ...Array(10).keys());
  assert.equal(await r.ltrim("l", 2, 4), "OK");
  assert.deepEqual(await r.lmpop(2, "none", "l", "LEFT", "COUNT", 2), ["l", ["2", "3"]]);
  await assert.rejects(r.lset("none", 0, "a"), /no such key/);
});

check("sets", async (r) => {
  assert.equal(await r.sadd("a", 1, 2, 3), 3);
  assert.equal(await r.sadd("b", 2, 3, 4), 3);
  assert.deepEqual(sorted(await r.smembers("a")), ["1", "2", "3"]);
  assert.deepEqual(await r.smembers("missing"), []);
  assert.deepEqual(await r.smismember("a", 1, 9), [1, 0]);
  assert.deepEqual(sorted(await r.sinter("a", "b")), ["2", "3"]);
  assert.deepEqual(sorted(await r.sunion("a", "b")), ["1", "2", "3", "4"]);
  assert.deepEqual(await r.sdiff("a", "b"), ["1"]);
  assert.equal(await r.sunionstore("c", "a", "b"), 4);
  assert.equal(await r.sintercard(2, "a", "b"), 2);
  assert.equal(await r.smove("a", "b", 1), 1);
  assert.equal(await r.srem("a", 2, 9), 1);
  assert.deepEqual(await r.srandmember("a", -2), ["3", "3"]);
  assert.equal(await r.spop("a"), "3");
  assert.equal(await r.spop("a"), null);
  assert.equal((await r.spop("b", 3)).length, 3);
  assert.equal(await r.scard("b"), 1);
});

check("sorted sets", async (r) => {
  assert.equal(await r.zadd("z", 1, "a", 2, "b", 3.5, "c"), 3);
  assert.equal(await r.zadd("z", "NX", 5, "a"), 0);
  assert.equal(await r.zadd("z", "CH", 0.5, "a", 4, "d"), 2);
  assert.equal(await r.zadd("z", "INCR", 0.5, "a"), "1");
  assert.equal(await r.zscore("z", "c"), "3.5");
  assert.equal(await r.zscore("z", "x"), null);
  assert.deepEqual(await r.zmscore("z", "a", "x"), ["1", null]);
  assert.equal(await r.zincrby("z", 0.25, "c"), "3.75");
  assert.equal(await r.zrank("z", "c"), 2);
  assert.equal(await r.zrevrank("z", "c"), 1);
  assert.equal(await r.zcount("z", "(1", "+inf"), 3);
  assert.deepEqual(await r.zrange("z", 0, -1), ["a", "b", "c", "d"]);
  assert.deepEqual((await r.zrange("z", 0, 1, "WITHSCORES")).flat(), ["a", "1", "b", "2"]);
  assert.deepEqual(await r.zrange("z", 0, 1, "REV"), ["d", "c"]);
  assert.deepEqual(await r.zrange("z", "(1", 4, "BYSCORE", "LIMIT", 1, 2), ["c", "d"]);
  assert.deepEqual(await r.zrevrangebyscore("z", 4, 2), ["d", "c", "b"]);
  assert.deepEqual((await r.zpopmin("z")).flat(), ["a", "1"]);
  assert.equal(await r.zrangestore("stored", "z", 0, -1), 3);
  assert.equal(await r.zremrangebyscore("z", "-inf", "+inf"), 3);
  await r.zadd("z", "inf", "top", "-inf", "bottom");
  assert.deepEqual(await r.zmscore("z", "top", "bottom"), ["inf", "-inf"]);
});

check("sorted set algebra", async (r) => {
  await r.zadd("a", 1, "x", 2, "y");
  await r.zadd("b", 10, "y", 20, "z");
  assert.deepEqual(await r.zinter(2, "a", "b"), ["y"]);
  const union = await r.zunion(2, "a", "b", "WITHSCORES");
  assert.deepEqual(union.flat(), ["x", "1", "y", "12", "z", "20"]);
  assert.equal(await r.zunionstore("c", 2, "a", "b", "WEIGHTS", 2, 1, "AGGREGATE", "MAX"), 3);
  assert.equal(await r.zdiffstore("c", 2, "a", "b"), 1);
  assert.equal(await r.zintercard(2, "a", "b"), 1);
  await r.zadd("lex", 0, "a", 0, "b", 0, "c", 0, "d");
  assert.deepEqual(await r.zrangebylex("lex", "[b", "(d"), ["b", "c"]);
  assert.equal(await r.zremrangebylex("lex", "-", "[b"), 2);
});

check("keys", async (r) => {
  const pairs = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`key:${i}`, i]));
  await r.mset(pairs);
  await r.sadd("set", "a");
  assert.equal(await r.dbsize(), 501);
  assert.equal(await r.type("set"), "set");
  assert.equal(await r.exists("set", "key:1", "missing"), 2);
  assert.equal((await r.keys("key:1?")).length, 10);
  const scanned = await collect(r.scanStream({ count: 50 }));
  assert.deepEqual(sorted(new Set(scanned)), sorted([...Object.keys(pairs), "set"]));
  assert.deepEqual([...new Set(await collect(r.scanStream({ type: "set" })))], ["set"]);
  assert.equal(await r.rename("key:1", "renamed"), "OK");
  assert.equal(await r.renamenx("renamed", "key:2"), 0);
  await assert.rejects(r.rename("missing", "x"), /no such key/);
  assert.equal(await r.copy("renamed", "copied"), 1);
  assert.equal(await r.del("renamed", "copied", "missing"), 2);
  assert.equal(await r.unlink("set"), 1);
  assert.equal(await r.flushdb(), "OK");
  assert.equal(await r.randomkey(), null);
});

check("collections are scanned whole", async (r) => {
  const members = Array.from({ length: 2000 }, (_, i) => `m${i}`);
  await r.sadd("s", ...members);
  await r.zadd("z", ...members.flatMap((m, i) => [i, m]));
  await r.hset("h", Object.fromEntries(members.map((m, i) => [m, i])));
  const unique = async (stream) => sorted(new Set(await collect(stream)));
  assert.deepEqual(await unique(r.sscanStream("s", { count: 100 })), sorted(members));
  const hash = await collect(r.hscanStream("h", { count: 100 }));
  assert.deepEqual(sorted(new Set(hash.filter((_, i) => i % 2 === 0))), sorted(members));
  const zset = await collect(r.zscanStream("z", { match: "m199*", count: 100 }));
  assert.equal(new Set(zset.filter((_, i) => i % 2 === 0)).size, 11);
});

check("expiry", async (r) => {
  await r.set("key", "v", "PX", 40);
  assert.ok((await r.pttl("key")) > 0);
  await sleep(80);
  assert.equal(await r.get("key"), null);
  assert.equal(await r.ttl("key"), -2);
  await r.set("key", "v");
  assert.equal(await r.ttl("key"), -1);
  assert.equal(await r.expire("key", 100), 1);
  assert.equal(await r.expire("key", 50, "GT"), 0);
  assert.equal(await r.persist("key"), 1);
  assert.equal(await r.pexpireat("key", 33177117420123), 1);
  assert.equal(await r.pexpiretime("key"), 33177117420123);
  assert.equal(await r.getex("key", "PERSIST"), "v");
  assert.equal(await r.ttl("key"), -1);
});

check("databases", async (r, protocol) => {
  await r.set("key", "zero");
  await withClient(protocol, { db: 5 }, async (other) => {
    assert.equal(await other.get("key"), null);
    await other.set("key", "five");
    assert.equal(await r.get("key"), "zero");
    assert.equal(await r.swapdb(0, 5), "OK");
    assert.equal(await r.get("key"), "five");
    assert.equal(await r.move("key", 5), 0);
    await other.del("key");
    assert.equal(await r.move("key", 5), 1);
    assert.equal(await other.get("key"), "five");
  });
});

check("every byte", async (r) => {
  const bytes = Buffer.from([...Array(256).keys()]);
  await r.set(bytes, bytes);
  assert.deepEqual(await r.getBuffer(bytes), bytes);
  await r.rpush("l", bytes, Buffer.alloc(0));
  assert.deepEqual(await r.lrangeBuffer("l", 0, -1), [bytes, Buffer.alloc(0)]);
  await r.set("snow", "snöwflåke ❄");
  assert.equal(await r.get("snow"), "snöwflåke ❄");
});

check("large values", async (r) => {
  for (const size of [16383, 16384, 16385, 1 << 20, 5000001]) {
    const value = "x".repeat(size - 1) + "y";
    await r.set("big", value);
    assert.equal(await r.strlen("big"), size);
    assert.ok((await r.get("big")) === value);
  }
});

check("pipelines", async (r) => {
  await r.set("text", "abc");
  const pipeline = r.pipeline();
  for (let i = 0; i < 1000; i++) pipeline.set(`key:${i}`, i).incr("counter");
  pipeline.incr("text").get("key:999").hgetall("missing");
  const replies = await pipeline.exec();
  assert.equal(replies.length, 2003);
  assert.deepEqual(replies[1999], [null, 1000]);
  assert.ok(replies[2000][0] instanceof ReplyError);
  assert.deepEqual(replies[2001], [null, "999"]);
  assert.deepEqual({ ...replies[2002][1] }, {});
});

check("pipelining of itself", async (r, protocol) => {
  await withClient(protocol, { enableAutoPipelining: true }, async (auto) => {
    const numbers = Array.from({ length: 500 }, (_, i) => i);
    const replies = await Promise.all(numbers.map((i) => auto.set(`key:${i}`, i)));
    assert.ok(replies.every((reply) => reply === "OK"));
    const values = await Promise.all(numbers.map((i) => auto.get(`key:${i}`)));
    assert.deepEqual(values, numbers.map(String));
  });
});

check("errors", async (r) => {
  await r.rpush("list", "a");
  const failed = (call, text) =>
    assert.rejects(call, (error) => error instanceof ReplyError && error.message.startsWith(text));
  await failed(r.get("list"), "WRONGTYPE Operation against a key");
  await failed(r.call("BOGUS", "a"), "ERR unknown command 'BOGUS', with args beginning with: 'a'");
  await failed(r.call("GET"), "ERR wrong number of arguments for 'get' command");
  await failed(r.set("a", "b", "bogus"), "ERR syntax error");
  await failed(r.select(99), "ERR DB index is out of range");
  assert.equal(await r.ping(), "PONG");
});

check("connections", async (r, protocol) => {
  assert.equal(await r.ping("hello"), "hello");
  assert.equal(await r.echo("hello"), "hello");
  await withClient(protocol, { connectionName: "cairn-check" }, async (named) => {
    assert.equal(await named.client("GETNAME"), "cairn-check");
    const info = await named.client("INFO");
    assert.match(info, /name=cairn-check /);
    assert.match(info, new RegExp(`resp=${protocol}`));
    assert.match(await r.client("LIST"), /name=cairn-check /);
    assert.ok(Number.isInteger(await named.client("ID")));
    assert.equal(await named.quit(), "OK");
  });
  assert.deepEqual((await r.config("GET", "databases")).flat(), ["databases", "16"]);
});

check("users", async (r, protocol) => {
  const rules = ["on", ">secret", "~shown:*", "%R~read:*", "+@read", "+set", "+ping"];
  assert.equal(await r.acl("SETUSER", "reader", ...rules), "OK");
  try {
    assert.deepEqual(await r.acl("USERS"), ["default", "reader"]);
    assert.equal(await r.acl("DRYRUN", "reader", "GET", "read:1"), "OK");
    const login = { username: "reader", password: "secret", enableReadyCheck: false };
    await withClient(protocol, login, async (reader) => {
      assert.equal(await reader.set("shown:1", "v"), "OK");
      assert.equal(await reader.get("shown:1"), "v");
      assert.equal(await reader.get("read:1"), null);
      await assert.rejects(reader.set("read:1", "x"), /NOPERM/);
      await assert.rejects(reader.del("shown:1"), /NOPERM/);
      await assert.rejects(reader.multi().set("shown:1", "x").del("shown:1").exec(), /EXECABORT/);
    });
    assert.ok((await r.acl("LOG")).length > 0);
    assert.equal(await r.acl("LOG", "RESET"), "OK");
  } finally {
    assert.equal(await r.acl("DELUSER", "reader"), 1);
  }
});

check("a lost connection is made again", async (r, protocol) => {
  await withClient(protocol, {}, async (victim) => {
    await victim.set("key", "v");
    const id = await victim.client("ID");
    assert.equal(await r.client("KILL", "ID", id), 1);
    await sleep(50);
    assert.equal(await victim.get("key"), "v");
    assert.notEqual(await victim.client("ID"), id);
  });
});

check("maps and doubles of RESP3", async (r, protocol) => {
  if (protocol !== 3) return;
  await withClient(3, { replyMapping: "resp3" }, async (client) => {
    await client.hset("h", "a", 1);
    await client.zadd("z", 1.5, "a");
    assert.deepEqual({ ...(await client.hgetall("h")) }, { a: "1" });
    assert.equal(await client.zscore("z", "a"), 1.5);
    assert.deepEqual(await client.zrange("z", 0, -1, "WITHSCORES"), [["a", 1.5]]);
  });
});

require("./ioredis_features.js")(check, withClient);

async function main() {
  let passed = 0;
  let failed = 0;
  for (const protocol of [2, 3]) {
    const client = connect(protocol);
    for (const { name, run } of checks) {
      try {
        await client.flushall();
        await run(client, protocol);
        passed++;
      } catch (error) {
        failed++;
        console.log(`FAILED ${name}, RESP${protocol}\n${error.stack}\n`);
      }
    }
    client.disconnect();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

main();
