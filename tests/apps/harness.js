// What the programs here share: checks that run one after the other, each on an empty server, and a
// time limit, since what goes wrong with a queue or a lock is most often that nothing happens.
//
// A program registers its checks and calls `main`. The last line says how many passed.

"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");

const [host, port] = process.argv[2].split(":");
const connection = { host, port: Number(port) };
const checks = [];
const opened = new Set();

// Registers a function that asserts.
function check(name, run) {
  checks.push({ name, run });
}

// Registers a function that takes the protocol, and asserts: for RESP2 and for RESP3.
function checkBoth(name, run) {
  for (const protocol of [2, 3]) check(`${name}, RESP${protocol}`, () => run(protocol));
}

// A client that is disconnected when its check ends.
function connect(options = {}) {
  const client = new Redis({ ...connection, maxRetriesPerRequest: 1, ...options });
  client.on("error", () => {}); // every command reports its own
  opened.add(client);
  return client;
}

// Waits until `holds` returns something true, and returns it. The message may be a function.
async function until(holds, message, seconds = 10) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > deadline) {
      const text = typeof message === "function" ? message() : message;
      throw new Error(`not within ${seconds} s: ${text}`);
    }
    await sleep(5);
  }
}

// A check that failed leaves behind what it would have waited for.
process.on("unhandledRejection", (error) => console.log(`and then: ${error.message}`));

async function runOne({ name, run }) {
  try {
    await connect().flushall();
    await run();
    return true;
  } catch (error) {
    console.log(`FAILED ${name}\n${error.stack}`);
    return false;
  } finally {
    for (const client of opened) client.disconnect();
    opened.clear();
  }
}

// Runs all checks within `seconds`.
async function main({ seconds }) {
  setTimeout(() => {
    console.log(`FAILED: not done within ${seconds} s`);
    process.exit(1);
  }, seconds * 1000).unref();

  let passed = 0;
  for (const one of checks) passed += await runOne(one);
  const failed = checks.length - passed;
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

module.exports = { check, checkBoth, connect, connection, main, sleep, until };
