// Drives a cluster through node-redis while a node dies: see cluster_story.js.

"use strict";

const assert = require("node:assert/strict");
const { createCluster } = require("redis");
const { tell } = require("./cluster_story.js");

tell(async (nodes) => {
  const cluster = createCluster({
    rootNodes: nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` })),
    defaults: { socket: { connectTimeout: 2000 } },
  });
  cluster.on("error", () => {}); // every command reports its own
  await cluster.connect();
  return {
    set: (key, value) => cluster.set(key, value),
    get: (key) => cluster.get(key),
    serves: async () => {
      assert.equal(await cluster.mSet({ "{tag}a": "1", "{tag}b": "2" }), "OK");
      assert.deepEqual(await cluster.mGet(["{tag}a", "{tag}b"]), ["1", "2"]);
      assert.deepEqual(await cluster.multi().incr("{tag}a").incr("{tag}b").exec(), [2, 3]);
      const script = { keys: ["{tag}a"], arguments: [] };
      assert.equal(await cluster.eval("return redis.call('GET', KEYS[1])", script), "2");
      assert.equal(cluster.masters.length, 3);
    },
  };
});
