// Drives a server through rate-limiter-flexible.
//
// Usage: node rate_limiter.js HOST:PORT

"use strict";

const assert = require("node:assert/strict");
const {
  BurstyRateLimiter,
  RateLimiterQueue,
  RateLimiterRedis,
  RateLimiterRes,
} = require("rate-limiter-flexible");
const { check, connect, main, sleep } = require("./harness");

// Each of these is another process, as far as the server can tell.
const limiter = (options) => new RateLimiterRedis({ storeClient: connect(), ...options });

// How many of so many attempts at once get through.
async function admitted(limiters, attempts, key) {
  const attempt = (_, n) =>
    limiters[n % limiters.length].consume(key).then(
      () => 1,
      (refused) => {
        assert.ok(refused instanceof RateLimiterRes, refused);
        return 0;
      },
    );
  const outcomes = await Promise.all(Array.from({ length: attempts }, attempt));
  return outcomes.reduce((sum, one) => sum + one, 0);
}

check("as many as there are points, whoever asks", async () => {
  const limiters = Array.from({ length: 8 }, () => limiter({ points: 50, duration: 5 }));
  assert.equal(await admitted(limiters, 400, "user"), 50);
  assert.equal(await admitted(limiters, 400, "other"), 50);
  const state = await limiters[0].get("user");
  assert.equal(state.consumedPoints, 400);
  assert.ok(state.msBeforeNext > 0 && state.msBeforeNext <= 5000);
});

check("a new window gives new points", async () => {
  const one = limiter({ points: 5, duration: 1 });
  assert.equal(await admitted([one], 10, "user"), 5);
  await sleep(1050);
  assert.equal(await admitted([one], 10, "user"), 5);
});

check("who asks too often is blocked", async () => {
  const one = limiter({ points: 2, duration: 1, blockDuration: 3 });
  assert.equal(await admitted([one], 5, "user"), 2);
  await sleep(1100);
  assert.equal(await admitted([one], 1, "user"), 0);
  const ttl = await connect().pttl("rlflx:user");
  assert.ok(ttl > 1000 && ttl <= 3000, ttl);
});

check("points are given, taken and forgotten", async () => {
  const one = limiter({ points: 10, duration: 10 });
  await one.penalty("user", 4);
  await one.reward("user", 1);
  assert.equal((await one.get("user")).consumedPoints, 3);
  await one.set("user", 9, 10);
  assert.equal(await admitted([one], 5, "user"), 1);
  await one.block("user", 10);
  assert.equal(await admitted([one], 1, "user"), 0);
  assert.equal(await one.delete("user"), true);
  assert.equal(await one.get("user"), null);
});

check("a burst may go beyond the steady rate", async () => {
  const steady = limiter({ points: 2, duration: 1 });
  const burst = limiter({ keyPrefix: "burst", points: 5, duration: 10 });
  assert.equal(await admitted([new BurstyRateLimiter(steady, burst)], 20, "user"), 7);
});

check("the patient queue up", async () => {
  const queue = new RateLimiterQueue(limiter({ points: 5, duration: 1 }));
  const began = Date.now();
  await Promise.all(Array.from({ length: 12 }, () => queue.removeTokens(1, "user")));
  const took = Date.now() - began;
  assert.ok(took >= 1900 && took < 4000, `${took} ms`);
});

main({ seconds: 60 });
