// Drives a server through Bottleneck: token buckets and limits that several processes share.
//
// Usage: node bottleneck.js HOST:PORT
//
// All of a limiter's state is on the server and changed by scripts; who waits is told by pub/sub.

"use strict";

const assert = require("node:assert/strict");
const Bottleneck = require("bottleneck");
const Redis = require("ioredis");
const { check, connect, connection, main, until } = require("./harness");

// Lets `use` have so many limiters of one name, each with connections of its own.
async function withLimiters(count, options, use) {
  const create = () => {
    const limiter = new Bottleneck({
      id: "limit",
      datastore: "ioredis",
      Redis,
      clientOptions: connection,
      clearDatastore: false,
      ...options,
    });
    limiter.on("error", () => {}); // every job reports its own
    return limiter;
  };
  const limiters = Array.from({ length: count }, create);
  try {
    await Promise.all(limiters.map((limiter) => limiter.ready()));
    await use(limiters);
  } finally {
    await Promise.all(limiters.map((limiter) => limiter.disconnect(false)));
  }
}

check("a bucket gives what it holds, and then what flows in", () => {
  const bucket = {
    reservoir: 10,
    reservoirIncreaseAmount: 5,
    reservoirIncreaseInterval: 250,
    reservoirIncreaseMaximum: 10,
    heartbeatInterval: 25,
  };
  return withLimiters(4, bucket, async (limiters) => {
    const began = Date.now();
    const times = [];
    const job = async () => void times.push(Date.now() - began);
    await Promise.all(Array.from({ length: 30 }, (_, n) => limiters[n % 4].schedule(job)));
    times.sort((a, b) => a - b);
    assert.equal(times.length, 30);
    // Ten at once, and the others five by five.
    assert.ok(times[9] < 240, `the tenth after ${times[9]} ms`);
    for (let n = 15; n < 30; n++) {
      assert.ok(times[n] - times[n - 5] >= 200, `number ${n} of ${times} ms`);
    }
    assert.equal(await limiters[0].currentReservoir(), 0);
  });
});

check("no more at once than allowed, and nothing twice", () =>
  withLimiters(4, { maxConcurrent: 3 }, async (limiters) => {
    let inside = 0;
    let most = 0;
    const done = [];
    const job = async (n) => {
      most = Math.max(most, ++inside);
      await new Promise((resolve) => setTimeout(resolve, 2));
      inside -= 1;
      done.push(n);
    };
    await Promise.all(Array.from({ length: 200 }, (_, n) => limiters[n % 4].schedule(job, n)));
    assert.equal(most, 3);
    assert.deepEqual(done.sort((a, b) => a - b), [...Array(200).keys()]);
    await until(async () => (await limiters[0].running()) === 0, "the server knows that none runs");
    assert.equal(await limiters[0].done(), 200);
  }),
);

check("jobs keep their distance", () =>
  withLimiters(2, { minTime: 30 }, async (limiters) => {
    const times = [];
    const job = async () => void times.push(Date.now());
    await Promise.all(Array.from({ length: 20 }, (_, n) => limiters[n % 2].schedule(job)));
    const took = Math.max(...times) - Math.min(...times);
    assert.ok(took >= 19 * 30 - 20, `twenty in ${took} ms`);
  }),
);

check("settings and messages reach all", () =>
  withLimiters(2, { maxConcurrent: 1 }, async ([one, other]) => {
    await one.updateSettings({ reservoir: 7 });
    assert.equal(await other.currentReservoir(), 7);
    assert.equal(await other.incrementReservoir(3), 10);
    const received = [];
    other.on("message", (message) => received.push(message));
    await one.publish("hello");
    await until(() => received.includes("hello"), "the message arrives");
  }),
);

check("nothing is left when a limiter's time is over", async () => {
  await withLimiters(1, { maxConcurrent: 1, timeout: 200 }, async ([limiter]) => {
    assert.equal(await limiter.schedule(async () => "done"), "done");
  });
  const client = connect();
  await until(async () => (await client.keys("b_limit*")).length === 0, "all keys have expired");
});

main({ seconds: 60 });
