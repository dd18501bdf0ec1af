// Jobs for a queue, and what must become of each: when it may run, how often it fails, and so how often
// it runs. The queues differ; what they promise does not.

"use strict";

const assert = require("node:assert/strict");

const COUNT = 10_000;
const ATTEMPTS = 3;
const BATCH = 500;
// A worker may read its clock a little before the producer's millisecond is over.
const SLACK_MS = 2;

// What is known of a job before it runs.
function plan(number) {
  return {
    number,
    // One in ten is for later.
    delay: number % 10 === 0 ? 100 + ((number * 7) % 2000) : 0,
    // One in twenty fails once, another one twice, and a few always do.
    failures: number % 20 === 3 ? 1 : number % 20 === 13 ? 2 : number % 1000 === 999 ? ATTEMPTS : 0,
    priority: number % 7 === 0 ? 1 + (number % 3) : 0,
  };
}

const plans = Array.from({ length: COUNT }, (_, number) => plan(number));
const hopeless = plans.filter((job) => job.failures === ATTEMPTS).length;

// The plans as a producer adds them: some hundred at a time.
function* batches() {
  for (let first = 0; first < COUNT; first += BATCH) yield plans.slice(first, first + BATCH);
}

// What the workers did, job by job.
class Ledger {
  runs = new Array(COUNT).fill(0);
  running = new Set();
  trouble = [];

  // One run of a job, as a worker sees it: it takes a moment, and fails as often as it is meant to.
  async work({ number, delay, failures }, addedAt) {
    if (this.running.has(number)) this.trouble.push(`job ${number} runs twice at once`);
    if (Date.now() + SLACK_MS < addedAt + delay) this.trouble.push(`job ${number} runs too early`);
    this.running.add(number);
    this.runs[number] += 1;
    await new Promise((resolve) => setImmediate(resolve));
    this.running.delete(number);
    if (this.runs[number] <= failures) throw new Error(`failure ${this.runs[number]} of ${number}`);
    return number * 2;
  }

  // That every job ran as often as it had to, and not once more.
  settle() {
    assert.deepEqual(this.trouble.slice(0, 10), []);
    const wrong = plans.filter((job) => this.runs[job.number] !== Math.min(job.failures + 1, ATTEMPTS));
    const told = wrong.slice(0, 10).map((job) => `job ${job.number}: ${this.runs[job.number]} runs`);
    assert.deepEqual(told, [], `${wrong.length} jobs ran too often or too seldom`);
  }
}

module.exports = { ATTEMPTS, COUNT, Ledger, batches, hopeless };
