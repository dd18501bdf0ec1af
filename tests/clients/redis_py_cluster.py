"""Drives a cluster through redis-py while the node that the client came by dies.

Usage: redis_py_cluster.py PID ADDRESS...: the process of the first node, which is killed, and where all nodes are.

The client is made once, and has to find its way by itself. The last line says how many checks passed.
"""

import os
import signal
import sys
import time
import traceback

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

KEYS = [f"key:{n}" for n in range(200)]
RECOVERY_SECONDS = 20


def serves(r, _):
    for key in KEYS:
        assert r.set(key, key) is True
    assert [r.get(key) for key in KEYS] == KEYS
    assert r.mset_nonatomic({key: "0" for key in KEYS})
    assert set(r.mget_nonatomic(KEYS)) == {"0"}
    assert r.mset({"{tag}a": 1, "{tag}b": 2}) is True
    assert r.mget("{tag}a", "{tag}b") == ["1", "2"]
    pipeline = r.pipeline()
    for key in KEYS:
        pipeline.incr(key)
    assert pipeline.execute() == [1] * len(KEYS)
    assert r.eval("return redis.call('GET', KEYS[1])", 1, KEYS[0]) == "1"
    assert r.dbsize(target_nodes=RedisCluster.PRIMARIES) >= len(KEYS)
    assert sorted(r.keys("{tag}*", target_nodes=RedisCluster.PRIMARIES)) == ["{tag}a", "{tag}b"]


def survives_the_death_of_a_node(r, pid):
    possible = {key: {"1"} for key in KEYS}
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + RECOVERY_SECONDS
    number, errors, in_a_row = 1, 0, 0
    # Until every key was written without an error.
    while in_a_row < len(KEYS):
        assert time.monotonic() < deadline, f"{errors} errors, {in_a_row} writes in a row"
        number += 1
        key = KEYS[number % len(KEYS)]
        try:
            r.set(key, number)
            possible[key] = {str(number)}
            in_a_row += 1
        except (RedisError, RedisClusterException, OSError):
            # It may have been done.
            possible[key].add(str(number))
            errors += 1
            in_a_row = 0
    for key, values in possible.items():
        assert r.get(key) in values, key
    print(f"{number} writes, {errors} errors")


def main():
    pid, addresses = int(sys.argv[1]), [address.rsplit(":", 1) for address in sys.argv[2:]]
    nodes = [ClusterNode(host, int(port)) for host, port in addresses]
    passed = failed = 0
    r = RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=5)
    for check in (serves, survives_the_death_of_a_node):
        try:
            check(r, pid)
            passed += 1
        except Exception:  # an assertion, or whatever the client raises
            failed += 1
            print(f"FAILED {check.__name__}\n{traceback.format_exc()}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
