// Drives a cluster through ioredis while a node dies: see cluster_story.js.

"use strict";

const assert = require("node:assert/strict");
const { Cluster } = require("ioredis");
const { tell } = require("./cluster_story.js");

tell(async (nodes) => {
  const cluster = new Cluster(nodes, { redisOptions: { commandTimeout: 5000 } });
  cluster.on("error", () => {}); // every command reports its own
  return {
    set: (key, value) => cluster.set(key, value),
    get: (key) => cluster.get(key),
    serves: async () => {
      assert.equal(await cluster.mset("{tag}a", 1, "{tag}b", 2), "OK");
      assert.deepEqual(await cluster.mget("{tag}a", "{tag}b"), ["1", "2"]);
      const replies = await cluster.multi().incr("{tag}a").incr("{tag}b").exec();
      assert.deepEqual(replies, [[null, 2], [null, 3]]);
      assert.equal(await cluster.eval("return redis.call('GET', KEYS[1])", 1, "{tag}a"), "2");
      assert.equal(cluster.nodes("master").length, 3);
    },
  };
});
