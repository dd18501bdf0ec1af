// What happens to a client of a cluster: it is served, and then the node that it came by dies.
//
// `client` has set(key, value), get(key), and serves(keys), which checks what is special about it; all of the one client
// library, made once. The last line says how many checks passed.

"use strict";

const assert = require("node:assert/strict");

const KEYS = Array.from({ length: 200 }, (_, n) => `key:${n}`);
const RECOVERY_MS = 20_000;

async function serves(client) {
  for (const key of KEYS) assert.equal(await client.set(key, "0"), "OK");
  const found = await Promise.all(KEYS.map((key) => client.get(key)));
  assert.ok(found.every((value) => value === "0"));
  await client.serves(KEYS);
}

async function survivesTheDeathOfANode(client, pid) {
  const possible = new Map(KEYS.map((key) => [key, new Set(["0"])]));
  process.kill(pid, "SIGKILL");
  const deadline = Date.now() + RECOVERY_MS;
  let [number, errors, inARow] = [0, 0, 0];
  // Until every key was written without an error.
  while (inARow < KEYS.length) {
    assert.ok(Date.now() < deadline, `${errors} errors, ${inARow} writes in a row`);
    number += 1;
    const key = KEYS[number % KEYS.length];
    try {
      await client.set(key, String(number));
      possible.set(key, new Set([String(number)]));
      inARow += 1;
    } catch {
      // It may have been done.
      possible.get(key).add(String(number));
      errors += 1;
      inARow = 0;
      await new Promise((done) => setTimeout(done, 10));
    }
  }
  for (const [key, values] of possible) assert.ok(values.has(await client.get(key)), key);
  console.log(`${number} writes, ${errors} errors`);
}

// Usage: node FILE PID ADDRESS...: the process of the first node, which is killed, and where all nodes are.
async function tell(connect) {
  const [pid, ...addresses] = process.argv.slice(2);
  const nodes = addresses.map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
  });
  let [passed, failed] = [0, 0];
  const client = await connect(nodes);
  for (const check of [serves, survivesTheDeathOfANode]) {
    try {
      await check(client, Number(pid));
      passed += 1;
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${check.name}\n${error.stack}`);
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

module.exports = { tell };
