// Drives a server through BullMQ: 10,000 jobs with delays, priorities and retries.
//
// Usage: node bullmq.js HOST:PORT
//
// BullMQ writes an event for everything that happens to a job into a stream.

"use strict";

const assert = require("node:assert/strict");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const { check, connection, main, sleep, until } = require("./harness");
const { ATTEMPTS, COUNT, Ledger, batches, hopeless } = require("./jobs");

const WORKERS = 2;
const AT_ONCE = 25;

// Opens queues, workers and the like, and closes them all when `use` is done.
async function withOpened(use) {
  const opened = [];
  const open = (Kind, ...args) => {
    const options = { connection, ...(Kind === FlowProducer ? args[0] : args.pop()) };
    const one = Kind === FlowProducer ? new Kind(options) : new Kind(...args, options);
    one.on("error", () => {}); // whoever waits for a job reports that it does not come
    opened.push(one);
    return one;
  };
  try {
    await use(open);
  } finally {
    for (const one of opened.reverse()) await one.close(true);
  }
}

async function produce(queue) {
  for (const batch of batches()) {
    await queue.addBulk(
      batch.map((data) => ({
        name: "job",
        data,
        opts: {
          delay: data.delay,
          priority: data.priority,
          attempts: ATTEMPTS,
          backoff: { type: "fixed", delay: 50 },
        },
      })),
    );
  }
}

check("every job runs as often as it must", () =>
  withOpened(async (open) => {
    const ledger = new Ledger();
    const told = { completed: 0, failed: 0 };
    const events = open(QueueEvents, "jobs", {});
    events.on("completed", () => told.completed++);
    events.on("failed", () => told.failed++);
    await events.waitUntilReady();
    for (let n = 0; n < WORKERS; n++) {
      open(Worker, "jobs", (job) => ledger.work(job.data, job.timestamp), { concurrency: AT_ONCE });
    }
    const queue = open(Queue, "jobs", {});
    await produce(queue);
    const ended = () => told.completed + told.failed;
    await until(() => ended() === COUNT, () => `${ended()} of ${COUNT} jobs have ended`, 240);
    ledger.settle();
    assert.deepEqual(told, { completed: COUNT - hopeless, failed: hopeless });
    const kinds = ["wait", "active", "completed", "failed", "delayed", "prioritized"];
    assert.deepEqual(await queue.getJobCounts(...kinds), {
      wait: 0,
      active: 0,
      completed: COUNT - hopeless,
      failed: hopeless,
      delayed: 0,
      prioritized: 0,
    });
    const [last] = await queue.getCompleted(0, 0);
    assert.equal(last.returnvalue, last.data.number * 2);
    const [failed] = await queue.getFailed(0, 0);
    assert.equal(failed.attemptsMade, ATTEMPTS);
  }),
);

check("the urgent come first, and the paused wait", () =>
  withOpened(async (open) => {
    const queue = open(Queue, "urgency", {});
    await queue.pause();
    for (const priority of [3, 1, 2, 1, 3, 2]) await queue.add("job", { priority }, { priority });
    const order = [];
    open(Worker, "urgency", async (job) => void order.push(job.data.priority), {});
    await sleep(100);
    assert.deepEqual(order, []);
    await queue.resume();
    await until(() => order.length === 6, () => `the order so far: ${order}`);
    assert.deepEqual(order, [1, 1, 2, 2, 3, 3]);
  }),
);

check("no more jobs run than the limit says", () =>
  withOpened(async (open) => {
    const times = [];
    const limiter = { max: 5, duration: 500 };
    open(Worker, "limited", async () => void times.push(Date.now()), { limiter, concurrency: 10 });
    const jobs = Array.from({ length: 15 }, (_, n) => ({ name: "job", data: { n } }));
    await open(Queue, "limited", {}).addBulk(jobs);
    await until(() => times.length === 15, () => `${times.length} jobs have run`);
    // The sixth begins with the second window, and the eleventh with the third.
    assert.ok(times[5] - times[0] >= 400 && times[10] - times[5] >= 400, times.join(" "));
  }),
);

check("a parent waits for its children", () =>
  withOpened(async (open) => {
    const order = [];
    const work = async (job) => {
      order.push(job.name);
      if (job.name !== "parent") return job.data.value;
      const values = Object.values(await job.getChildrenValues());
      return values.reduce((sum, value) => sum + value, 0);
    };
    const events = open(QueueEvents, "family", {});
    await events.waitUntilReady();
    open(Worker, "family", work, { concurrency: 5 });
    const children = Array.from({ length: 20 }, (_, value) => {
      return { name: "child", queueName: "family", data: { value } };
    });
    const { job } = await open(FlowProducer, {}).add({ name: "parent", queueName: "family", children });
    assert.equal(await job.waitUntilFinished(events, 10_000), 190);
    assert.deepEqual(order.indexOf("parent"), 20);
  }),
);

check("a job whose worker has gone is taken up by another", () =>
  withOpened(async (open) => {
    let begun = 0;
    const settings = { lockDuration: 500, stalledInterval: 300 };
    const forever = () => {
      begun += 1;
      return new Promise(() => {});
    };
    const events = open(QueueEvents, "stalled", {});
    await events.waitUntilReady();
    const leaving = open(Worker, "stalled", forever, settings);
    const job = await open(Queue, "stalled", {}).add("job", {});
    await until(() => begun === 1, "the job begins");
    await leaving.close(true);
    open(Worker, "stalled", async () => "done", settings);
    assert.equal(await job.waitUntilFinished(events, 10_000), "done");
    assert.equal(begun, 1);
  }),
);

check("a job repeats", () =>
  withOpened(async (open) => {
    let runs = 0;
    open(Worker, "repeated", async () => void (runs += 1), {});
    await open(Queue, "repeated", {}).upsertJobScheduler("often", { every: 100, limit: 3 });
    await until(() => runs === 3, () => `it ran ${runs} times`);
    await sleep(250);
    assert.equal(runs, 3);
  }),
);

main({ seconds: 300 });
