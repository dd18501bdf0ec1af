// Drives a server through Bull: 10,000 jobs with delays, priorities and retries.
//
// Usage: node bull.js HOST:PORT

"use strict";

const assert = require("node:assert/strict");
const Queue = require("bull");
const { check, connection, main, sleep, until } = require("./harness");
const { ATTEMPTS, COUNT, Ledger, batches, hopeless } = require("./jobs");

const WORKERS = 2;
const AT_ONCE = 25;

// A queue that is closed when `use` is done with it.
async function withQueue(name, options, use) {
  const queue = new Queue(name, { redis: connection, ...options });
  queue.on("error", () => {}); // whoever waits for a job reports that it does not come
  try {
    await use(queue);
  } finally {
    await queue.close(true);
  }
}

async function produce(queue) {
  for (const batch of batches()) {
    await queue.addBulk(
      batch.map((data) => ({
        data,
        opts: {
          delay: data.delay,
          priority: data.priority || undefined,
          attempts: ATTEMPTS,
          backoff: { type: "fixed", delay: 50 },
        },
      })),
    );
  }
}

check("every job runs as often as it must", () =>
  withQueue("jobs", {}, async (producer) => {
    const ledger = new Ledger();
    const told = { completed: 0, failed: 0 };
    producer.on("global:completed", () => told.completed++);
    producer.on("global:failed", () => told.failed++);
    const workers = Array.from({ length: WORKERS }, () => new Queue("jobs", { redis: connection }));
    for (const worker of workers) {
      worker.on("error", () => {});
      worker.process(AT_ONCE, (job) => ledger.work(job.data, job.timestamp));
    }
    try {
      await produce(producer);
      const ended = () => told.completed + told.failed;
      await until(() => ended() === COUNT, () => `${ended()} of ${COUNT} jobs have ended`, 240);
      ledger.settle();
      assert.deepEqual(told, { completed: COUNT - hopeless, failed: hopeless });
      const counts = await producer.getJobCounts();
      assert.deepEqual(counts, {
        waiting: 0,
        active: 0,
        completed: COUNT - hopeless,
        failed: hopeless,
        delayed: 0,
        paused: 0,
      });
      const [last] = await producer.getCompleted(0, 0);
      assert.equal(last.returnvalue, last.data.number * 2);
      const [failed] = await producer.getFailed(0, 0);
      assert.equal(failed.attemptsMade, ATTEMPTS);
    } finally {
      for (const worker of workers) await worker.close(true);
    }
  }),
);

check("the urgent come first, and the paused wait", () =>
  withQueue("urgency", {}, async (queue) => {
    await queue.pause();
    for (const priority of [3, 1, 2, 1, 3, 2]) await queue.add({ priority }, { priority });
    const order = [];
    queue.process((job) => void order.push(job.data.priority));
    await sleep(100);
    assert.deepEqual(order, []);
    await queue.resume();
    await until(() => order.length === 6, () => `the order so far: ${order}`);
    assert.deepEqual(order, [1, 1, 2, 2, 3, 3]);
  }),
);

check("no more jobs run than the limit says", () =>
  withQueue("limited", { limiter: { max: 5, duration: 500 } }, async (queue) => {
    const times = [];
    queue.process(10, () => void times.push(Date.now()));
    await queue.addBulk(Array.from({ length: 15 }, (_, n) => ({ data: { n } })));
    await until(() => times.length === 15, () => `${times.length} jobs have run`);
    // The sixth begins with the second window, and the eleventh with the third.
    assert.ok(times[5] - times[0] >= 400 && times[10] - times[5] >= 400, times.join(" "));
  }),
);

check("a job whose worker has gone is taken up by another", () =>
  withQueue("stalled", {}, async (queue) => {
    const settings = { lockDuration: 500, stalledInterval: 300 };
    const leaving = new Queue("stalled", { redis: connection, settings });
    leaving.on("error", () => {});
    let begun = 0;
    leaving.process(() => {
      begun += 1;
      return new Promise(() => {});
    });
    const job = await queue.add({});
    await until(() => begun === 1, "the job begins");
    await leaving.close(true);
    await withQueue("stalled", { settings }, async (staying) => {
      staying.process(() => "done");
      assert.equal(await job.finished(), "done");
      assert.equal(begun, 1);
    });
  }),
);

check("a job repeats", () =>
  withQueue("repeated", {}, async (queue) => {
    let runs = 0;
    queue.process(() => void (runs += 1));
    await queue.add({}, { repeat: { every: 100, limit: 3 } });
    await until(() => runs === 3, () => `it ran ${runs} times`);
    await sleep(250);
    assert.equal(runs, 3);
  }),
);

main({ seconds: 300 });
