// Drives a server through node-redis, over RESP2 and over RESP3.
//
// Usage: node node_redis.js ADDRESS, see address.js
//
// Every check runs on an empty database, once per protocol. The last line says how many passed.

"use strict";

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const { createClient, ErrorReply } = require("redis");
const { tlsOptions, parse } = require("./address.js");

const address = parse(process.argv[2]);
const checks = [];

// Registers a function that takes a client and its protocol, and asserts.
function check(name, run) {
  checks.push({ name, run });
}

function socket() {
  if (address.path) return { path: address.path };
  const { host, port } = address;
  return address.folder ? { host, port, tls: true, ...tlsOptions(address) } : { host, port };
}

async function connect(protocol, options = {}) {
  const client = createClient({ RESP: protocol, socket: socket(), ...options });
  client.on("error", () => {}); // every command reports its own
  await client.connect();
  return client;
}

// A client of its own for part of a check.
async function withClient(protocol, options, use) {
  const client = await connect(protocol, options);
  try {
    await use(client);
  } finally {
    client.destroy();
  }
}

const sorted = (array) => [...array].sort();
const refused = (text) => (error) => error instanceof ErrorReply && error.message.includes(text);

check("strings", async (r) => {
  assert.equal(await r.set("name", "cairn"), "OK");
  assert.equal(await r.get("name"), "cairn");
  assert.equal(await r.get("missing"), null);
  assert.equal(await r.incrBy("n", 5), 5);
  assert.deepEqual(await r.mGet(["name", "missing"]), ["cairn", null]);
  assert.equal(await r.expire("name", 100), 1);
  assert.equal(await r.ttl("name"), 100);
});

check("collections", async (r) => {
  assert.equal(await r.hSet("h", { a: "1", b: "2" }), 2);
  assert.deepEqual({ ...(await r.hGetAll("h")) }, { a: "1", b: "2" });
  assert.equal(await r.rPush("l", ["a", "b", "c"]), 3);
  assert.deepEqual(await r.lRange("l", 0, -1), ["a", "b", "c"]);
  assert.equal(await r.sAdd("s", ["x", "y"]), 2);
  assert.deepEqual(sorted(await r.sMembers("s")), ["x", "y"]);
  assert.equal(await r.zAdd("z", [{ score: 1.5, value: "a" }, { score: 2, value: "b" }]), 2);
  assert.deepEqual(await r.zRangeWithScores("z", 0, -1), [
    { score: 1.5, value: "a" },
    { score: 2, value: "b" },
  ]);
  assert.equal(await r.zScore("z", "a"), 1.5);
});

check("errors", async (r) => {
  await r.set("text", "x");
  await assert.rejects(r.incr("text"), refused("not an integer"));
  await assert.rejects(r.lPush("text", "x"), refused("WRONGTYPE"));
  await assert.rejects(r.sendCommand(["BOGUS"]), refused("unknown command"));
});

check("what is sent together is a pipeline", async (r) => {
  const numbers = Array.from({ length: 1000 }, (_, i) => i + 1);
  assert.deepEqual(await Promise.all(numbers.map(() => r.incr("n"))), numbers);
  const big = "x".repeat(1 << 20);
  await Promise.all(Array.from({ length: 8 }, (_, i) => r.set(`big:${i}`, big)));
  const read = await Promise.all(Array.from({ length: 8 }, (_, i) => r.get(`big:${i}`)));
  assert.ok(read.every((value) => value === big));
});

check("transactions", async (r, protocol) => {
  assert.deepEqual(await r.multi().set("k", "1").incr("k").get("k").exec(), ["OK", 2, "2"]);
  await withClient(protocol, {}, async (own) => {
    await own.watch("k");
    await r.set("k", "changed");
    await assert.rejects(own.multi().get("k").exec());
  });
});

check("pub/sub", async (r, protocol) => {
  await withClient(protocol, {}, async (subscriber) => {
    const heard = [];
    await subscriber.subscribe("news", (message) => heard.push(message));
    await subscriber.pSubscribe("n*", (message, channel) => heard.push(`${channel}:${message}`));
    assert.equal(await r.publish("news", "hello"), 2);
    for (let tries = 0; heard.length < 2 && tries < 100; tries++) await sleep(10);
    assert.deepEqual(sorted(heard), ["hello", "news:hello"]);
    await subscriber.unsubscribe();
    await subscriber.pUnsubscribe();
    assert.equal(await r.publish("news", "hello"), 0);
  });
});

check("blocking", async (r, protocol) => {
  await withClient(protocol, {}, async (waiting) => {
    const popped = waiting.blPop("queue", 5);
    await sleep(20);
    await r.rPush("queue", "job");
    assert.deepEqual({ ...(await popped) }, { key: "queue", element: "job" });
    assert.equal(await waiting.blPop("queue", 0.05), null);
  });
});

check("scripts", async (r) => {
  const script = "return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}";
  assert.deepEqual(await r.eval(script, { keys: ["n"], arguments: ["x"] }), ["n", "x", 1]);
  const sha = await r.scriptLoad("return 7");
  assert.equal(await r.evalSha(sha), 7);
});

check("scanning", async (r) => {
  await Promise.all(Array.from({ length: 300 }, (_, i) => r.set(`key:${i}`, "v")));
  const found = new Set();
  for await (const keys of r.scanIterator({ MATCH: "key:*", COUNT: 50 })) {
    keys.forEach((key) => found.add(key));
  }
  assert.equal(found.size, 300);
});

check("users", async (r, protocol) => {
  assert.equal(await r.aclSetUser("reader", ["on", ">secret", "~shown:*", "+get", "+ping"]), "OK");
  try {
    assert.deepEqual(sorted(await r.aclUsers()), ["default", "reader"]);
    const user = await r.aclGetUser("reader");
    assert.equal(user.keys, "~shown:*");
    assert.equal(await r.aclDryRun("reader", ["GET", "shown:1"]), "OK");
    await r.set("shown:1", "v");
    await withClient(protocol, { username: "reader", password: "secret" }, async (reader) => {
      assert.equal(await reader.get("shown:1"), "v");
      await assert.rejects(reader.get("hidden"), refused("NOPERM"));
      await assert.rejects(reader.set("shown:1", "x"), refused("NOPERM"));
    });
    const once = { ...socket(), reconnectStrategy: false };
    const wrong = { username: "reader", password: "wrong", socket: once };
    await assert.rejects(connect(protocol, wrong), refused("WRONGPASS"));
    const denied = await r.aclLog(1);
    assert.equal(denied[0].reason, "auth");
  } finally {
    assert.equal(await r.aclDelUser("reader"), 1);
  }
});

check("a lost connection is made again", async (r, protocol) => {
  await withClient(protocol, {}, async (victim) => {
    await victim.set("key", "v");
    const id = await victim.clientId();
    await r.clientKill({ filter: "ID", id });
    for (let tries = 0; tries < 100; tries++) {
      const value = await victim.get("key").catch(() => undefined);
      if (value !== undefined) break;
      await sleep(20);
    }
    assert.equal(await victim.get("key"), "v");
    assert.notEqual(await victim.clientId(), id);
  });
});

require("./node_redis_features.js")(check, withClient, refused);

async function main() {
  let passed = 0;
  let failed = 0;
  for (const protocol of [2, 3]) {
    const client = await connect(protocol);
    for (const { name, run } of checks) {
      try {
        await client.flushAll();
        await run(client, protocol);
        passed++;
      } catch (error) {
        failed++;
        console.log(`FAILED ${name}, RESP${protocol}\n${error.stack}\n`);
      }
    }
    client.destroy();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

main();
