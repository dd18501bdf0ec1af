// Drives a server through redlock: many holders, one lock.
//
// Usage: node redlock.js HOST:PORT

"use strict";

const assert = require("node:assert/strict");
const Redlock = require("redlock");
const { check, connect, main, sleep, until } = require("./harness");

const patient = { retryCount: -1, retryDelay: 10, retryJitter: 10 };
const impatient = { retryCount: 0 };

// A lock of its own, over a connection of its own.
const locks = (options) => new Redlock([connect()], options);

check("one at a time", async () => {
  const HOLDERS = 20;
  const TURNS = 10;
  const plain = connect();
  await plain.set("balance", 0);
  let inside = 0;
  const holder = async () => {
    const redlock = locks(patient);
    for (let turn = 0; turn < TURNS; turn++) {
      const lock = await redlock.lock("account", 5000);
      assert.equal(++inside, 1, "two hold the lock");
      // Nothing but the lock keeps this from losing updates.
      const balance = Number(await plain.get("balance"));
      await new Promise((resolve) => setImmediate(resolve));
      await plain.set("balance", balance + 1);
      inside -= 1;
      await lock.unlock();
    }
  };
  await Promise.all(Array.from({ length: HOLDERS }, holder));
  assert.equal(await plain.get("balance"), String(HOLDERS * TURNS));
  assert.equal(await plain.exists("account"), 0);
});

check("several resources are locked together or not at all", async () => {
  const [one, other] = [locks(impatient), locks(impatient)];
  const held = await one.lock(["a", "b"], 5000);
  await assert.rejects(other.lock(["c", "b"], 5000), Redlock.LockError);
  assert.equal(await connect().exists("c"), 0);
  await held.unlock();
  await (await other.lock(["c", "b"], 5000)).unlock();
});

check("a lock ends by itself, and is extended in time", async () => {
  const [one, other] = [locks(impatient), locks(impatient)];
  let lock = await one.lock("resource", 150);
  await sleep(100);
  lock = await lock.extend(300);
  await sleep(150);
  await assert.rejects(other.lock("resource", 100), Redlock.LockError);
  const next = await until(() => other.lock("resource", 1000).catch(() => null), "the lock has ended");
  // Whoever held it before may not let it go now.
  await assert.rejects(lock.unlock(), Redlock.LockError);
  await assert.rejects(lock.extend(100), Redlock.LockError);
  await next.unlock();
});

check("scripts that the server has forgotten are sent again", async () => {
  const redlock = locks(impatient);
  await (await redlock.lock("resource", 1000)).unlock();
  await connect().script("FLUSH");
  await (await redlock.lock("resource", 1000)).unlock();
});

main({ seconds: 60 });
