// Drives a server through what ioredis offers beyond single commands, over RESP2 and over RESP3:
// transactions, scripts, blocking pops, pub/sub, keyspace events, MONITOR.
//
// Usage: node ioredis.js HOST:PORT

"use strict";

const assert = require("node:assert/strict");
const { checkBoth, connect, main, sleep, until } = require("./harness");

const range = (count) => [...Array(count).keys()];

// Transactions

checkBoth("transactions", async (protocol) => {
  const r = connect({ protocol });
  assert.deepEqual(await r.multi().set("a", 1).incr("a").rpush("l", "x", "y").lrange("l", 0, -1).exec(), [
    [null, "OK"],
    [null, 2],
    [null, 2],
    [null, ["x", "y"]],
  ]);
  // Each command on its own way to the server.
  assert.equal(await r.multi({ pipeline: false }), "OK");
  assert.equal(await r.incr("a"), "QUEUED");
  assert.equal(await r.get("a"), "QUEUED");
  assert.deepEqual(await r.exec(), [[null, 3], [null, "3"]]);
  assert.equal(await r.multi({ pipeline: false }), "OK");
  assert.equal(await r.incr("a"), "QUEUED");
  assert.equal(await r.discard(), "OK");
  assert.equal(await r.get("a"), "3");
  await assert.rejects(r.exec(), /EXEC without MULTI/);
});

checkBoth("errors in transactions", async (protocol) => {
  const r = connect({ protocol });
  await r.set("text", "abc");
  const replies = await r.multi().set("before", 1).incr("text").set("after", 2).exec();
  assert.match(replies[1][0].message, /not an integer/);
  assert.deepEqual(await r.mget("before", "after"), ["1", "2"]);
  const aborted = r.multi().set("never", 1);
  aborted.call("SET", "only-a-key");
  await assert.rejects(aborted.exec(), /EXECABORT Transaction discarded because of previous errors/);
  assert.equal(await r.exists("never"), 0);
});

checkBoth("transactions inside a pipeline", async (protocol) => {
  const r = connect({ protocol });
  const pipeline = r.pipeline();
  pipeline.set("a", 1).multi().incr("a").incr("a").exec().get("a");
  const replies = await pipeline.exec();
  assert.deepEqual(replies.at(-2), [null, [2, 3]]);
  assert.deepEqual(replies.at(-1), [null, "3"]);
});

checkBoth("counting by watching", async (protocol) => {
  const r = connect({ protocol });
  await r.set("counter", 0);
  let conflicts = 0;
  const count = async () => {
    const own = connect({ protocol });
    for (let done = 0; done < 20; ) {
      await own.watch("counter");
      const value = Number(await own.get("counter"));
      const replies = await own.multi().set("counter", value + 1).exec();
      if (replies) done += 1;
      else conflicts += 1;
    }
  };
  await Promise.all(range(6).map(count));
  assert.equal(await r.get("counter"), "120");
  assert.ok(conflicts > 0, "nobody met anybody");
});

// Scripts

checkBoth("commands of one's own", async (protocol) => {
  const lua = "redis.call('SET', KEYS[1], ARGV[1]); return {KEYS[1], ARGV[1], redis.call('GET', KEYS[2])}";
  const scripts = { store: { lua, numberOfKeys: 2 }, any: { lua: "return #KEYS * 10 + #ARGV" } };
  const r = connect({ protocol, scripts });
  await r.set("other", "value");
  assert.deepEqual(await r.store("k", "other", "v"), ["k", "v", "value"]);
  assert.equal(await r.any(2, "a", "b", "c"), 21);
  await r.script("FLUSH");
  // What the server has forgotten, it is told again.
  const replies = await r.pipeline().store("k", "other", "w").any(0).exec();
  assert.deepEqual(replies, [[null, ["k", "w", "value"]], [null, 0]]);
  assert.equal(await r.get("k"), "w");
  const inside = await r.multi().store("k", "other", "x").get("k").exec();
  assert.deepEqual(inside, [[null, ["k", "x", "value"]], [null, "x"]]);
  r.defineCommand("bytes", { numberOfKeys: 0, lua: "return '\\255\\0\\n'" });
  assert.deepEqual(await r.bytesBuffer(), Buffer.from([255, 0, 10]));
});

checkBoth("scripts and their errors", async (protocol) => {
  const r = connect({ protocol });
  assert.equal(await r.eval("return ARGV[1]", 0, "x"), "x");
  const sha = await r.script("LOAD", "return redis.call('INCR', KEYS[1])");
  const counted = await Promise.all(range(50).map(() => r.evalsha(sha, 1, "n")));
  assert.deepEqual(counted, range(50).map((n) => n + 1));
  await assert.rejects(r.evalsha("0".repeat(40), 0), /NOSCRIPT No matching script/);
  await assert.rejects(r.eval("return redis.call('BOGUS')", 0), /Unknown Redis command called from script/);
  await assert.rejects(r.eval("return {err = 'MINE alone'}", 0), /^ReplyError: MINE alone$/);
  await assert.rejects(r.eval("return 1", "x"), /value is not an integer/);
});

checkBoth("a stock that is never oversold", async (protocol) => {
  const lua = `
    local left = tonumber(redis.call('GET', KEYS[1]) or 0)
    if left <= 0 then return false end
    redis.call('DECR', KEYS[1])
    return redis.call('RPUSH', KEYS[2], ARGV[1])`;
  const r = connect({ protocol });
  await r.set("stock", 100);
  const buy = async (buyer) => {
    const own = connect({ protocol, scripts: { buy: { lua, numberOfKeys: 2 } } });
    const replies = await Promise.all(range(30).map((n) => own.buy("stock", "sold", `${buyer}:${n}`)));
    return replies.filter((reply) => reply !== null).length;
  };
  const bought = await Promise.all(range(8).map(buy));
  assert.equal(bought.reduce((sum, n) => sum + n, 0), 100);
  assert.equal(await r.get("stock"), "0");
  assert.equal(new Set(await r.lrange("sold", 0, -1)).size, 100);
});

// Blocking pops

checkBoth("who waits is served in order", async (protocol) => {
  const r = connect({ protocol });
  const waiting = [];
  for (const n of range(5)) {
    waiting.push(connect({ protocol }).blpop("none", "queue", 10));
    await until(async () => (await blocked(r)) === n + 1, `${n + 1} are blocked`);
  }
  await r.rpush("queue", ...range(5));
  const served = await Promise.all(waiting);
  assert.deepEqual(served, range(5).map((n) => ["queue", String(n)]));
  assert.equal(await connect({ protocol }).brpop("queue", 0.05), null);
});

checkBoth("a chain of moves", async (protocol) => {
  const r = connect({ protocol });
  const stations = range(4).map((n) => `station:${n}`);
  const move = (to, n) => connect({ protocol }).blmove(stations[n], to, "LEFT", "RIGHT", 10);
  const moves = stations.slice(1).map(move);
  await until(async () => (await blocked(r)) === 3, "all movers are blocked");
  await r.rpush("station:0", "parcel");
  assert.deepEqual(await Promise.all(moves), ["parcel", "parcel", "parcel"]);
  assert.deepEqual(await r.lrange("station:3", 0, -1), ["parcel"]);
});

checkBoth("pops of sorted sets, transactions and scripts that wake", async (protocol) => {
  const r = connect({ protocol });
  const waiter = connect({ protocol });
  const woken = async (pop, wake) => {
    const reply = pop();
    await until(async () => (await blocked(r)) === 1, "one is blocked");
    await wake();
    return reply;
  };
  const lowest = await woken(() => waiter.bzpopmin("z", 5), () => r.zadd("z", 2, "b", 1, "a"));
  assert.deepEqual(lowest.flat(), ["z", "a", "1"]);
  await r.del("z");
  // Within a transaction, or a script, the last word counts.
  const reply = await woken(
    () => waiter.blpop("l", 5),
    () => r.multi().rpush("l", "early").del("l").rpush("l", "late").exec(),
  );
  assert.deepEqual(reply, ["l", "late"]);
  const pushes = "redis.call('RPUSH', KEYS[1], 'x'); redis.call('LPUSH', KEYS[1], 'y')";
  assert.deepEqual(await woken(() => waiter.blpop("l", 5), () => r.eval(pushes, 1, "l")), ["l", "y"]);
});

async function blocked(client) {
  return Number(/blocked_clients:(\d+)/.exec(await client.info("clients"))[1]);
}

// Pub/sub

checkBoth("channels, patterns and shards", async (protocol) => {
  const [subscriber, r] = [connect({ protocol }), connect({ protocol })];
  const received = [];
  subscriber.on("message", (...message) => received.push(["message", ...message]));
  subscriber.on("pmessage", (...message) => received.push(["pmessage", ...message]));
  subscriber.on("smessage", (...message) => received.push(["smessage", ...message]));
  assert.equal(await subscriber.subscribe("news", "other"), 2);
  assert.equal(await subscriber.psubscribe("n?ws"), 3);
  assert.equal(await subscriber.ssubscribe("shard"), 1);
  assert.equal(await r.publish("news", "one"), 2);
  assert.equal(await r.spublish("shard", "two"), 1);
  await until(() => received.length === 3, () => JSON.stringify(received));
  assert.deepEqual(received, [
    ["message", "news", "one"],
    ["pmessage", "n?ws", "news", "one"],
    ["smessage", "shard", "two"],
  ]);
  const pong = await subscriber.ping("still there");
  assert.deepEqual(pong, protocol === 3 ? "still there" : ["pong", "still there"]);
  if (protocol === 3) assert.equal(await subscriber.get("none"), null); // a subscriber may go on talking
  assert.equal(await subscriber.unsubscribe("news", "other"), 1);
  assert.equal(await subscriber.punsubscribe(), 0);
  assert.equal(await subscriber.sunsubscribe(), 0);
  assert.equal(await r.publish("news", "nobody"), 0);
});

checkBoth("every message in order", async (protocol) => {
  const r = connect({ protocol });
  const received = range(3).map(() => []);
  for (const list of received) {
    const subscriber = connect({ protocol });
    subscriber.on("messageBuffer", (_, message) => list.push(message.toString()));
    await subscriber.subscribe("numbers");
  }
  const pipeline = r.pipeline();
  for (const n of range(3000)) pipeline.publish("numbers", n);
  await pipeline.exec();
  await until(() => received.every((list) => list.length === 3000), "all messages");
  for (const list of received) assert.deepEqual(list, range(3000).map(String));
});

checkBoth("a lost subscription is made again", async (protocol) => {
  const [subscriber, r] = [connect({ protocol }), connect({ protocol })];
  const received = [];
  subscriber.on("message", (channel, message) => received.push(message));
  const id = await subscriber.client("ID");
  await subscriber.subscribe("news");
  await subscriber.psubscribe("p*");
  assert.equal(await r.client("KILL", "ID", id), 1);
  await until(async () => (await r.publish("news", "again")) === 1, "the subscription is there again");
  await until(() => received.includes("again"), "its message arrives");
  await until(async () => (await r.pubsub("NUMPAT")) === 1, "the pattern is there again");
});

checkBoth("keyspace events", async (protocol) => {
  const [subscriber, r] = [connect({ protocol }), connect({ protocol })];
  const before = (await r.config("GET", "notify-keyspace-events")).flat()[1];
  await r.config("SET", "notify-keyspace-events", "Kgxln");
  try {
    const received = [];
    subscriber.on("pmessage", (_, channel, event) => received.push(`${channel.split(":")[1]} ${event}`));
    await subscriber.psubscribe("__keyspace@0__:*");
    await r.set("brief", 1, "PX", 20);
    await until(() => received.includes("brief expired"), () => `expired among ${received}`);
    await r.multi().rpush("l", 1, 2).lpop("l").lpop("l").exec();
    await until(() => received.includes("l del"), () => `del among ${received}`);
    assert.deepEqual(received, [
      "brief new",
      "brief expire",
      "brief expired",
      "l new",
      "l rpush",
      "l lpop",
      "l lpop",
      "l del",
    ]);
  } finally {
    await r.config("SET", "notify-keyspace-events", before);
  }
});

checkBoth("MONITOR shows what others do", async (protocol) => {
  const r = connect({ protocol });
  // ioredis takes no line for one that comes together with the reply to MONITOR.
  await r.ping();
  const monitor = await r.monitor();
  try {
    const seen = [];
    monitor.on("monitor", (_, args) => seen.push(args.join(" ")));
    await sleep(20);
    await r.multi().set("k", "v").exec();
    await r.eval("return redis.call('GET', KEYS[1])", 1, "k");
    const expected = ["multi", "set k v", "exec", "eval return redis.call('GET', KEYS[1]) 1 k", "GET k"];
    const relevant = () => seen.filter((line) => !/^(hello|client|info)/i.test(line));
    await until(() => relevant().length >= expected.length, () => seen.join("; "));
    assert.deepEqual(relevant(), expected);
  } finally {
    monitor.disconnect();
  }
});

main({ seconds: 60 });
