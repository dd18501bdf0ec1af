"""Drives a server through locks: redis-py's own, and Pottery's Redlock.

Usage: python locks.py HOST:PORT

Nothing but the lock keeps what the holders do from going wrong.
"""

import time

from harness import at_once, check, connect, main, rejects, until
from pottery import NextID, ReleaseUnlockedLock, Redlock, RedisCounter, synchronize
from redis.exceptions import LockError, LockNotOwnedError

HOLDERS = 12
TURNS = 20


def contend(r, lock_of):
    """Lets all holders change one number under a lock, by a read and a write."""
    r.set("balance", 0)

    def hold(number):
        client = connect()
        lock = lock_of(client)
        for _ in range(TURNS):
            with lock:
                balance = int(client.get("balance"))
                time.sleep(0.0005)
                client.set("balance", balance + 1)

    at_once(HOLDERS, hold)
    assert r.get("balance") == str(HOLDERS * TURNS)


@check
def redis_py_locks_out_all_others(r):
    contend(r, lambda client: client.lock("lock", timeout=10, sleep=0.002))
    assert r.exists("lock") == 0


@check
def redis_py_lock_has_a_time(r):
    lock, other = r.lock("lock", timeout=0.3), r.lock("lock", timeout=1)
    assert lock.acquire(blocking=False) is True
    assert other.acquire(blocking=False) is False
    assert lock.owned() and lock.locked() and not other.owned()
    lock.extend(0.3)
    lock.reacquire()
    assert 200 < r.pttl("lock") <= 300
    assert other.acquire(blocking_timeout=5) is True
    rejects(LockNotOwnedError, lock.extend, 1)
    rejects(LockNotOwnedError, lock.release)
    other.release()
    rejects(LockError, other.release)


@check
def pottery_locks_out_all_others(r):
    contend(r, lambda client: Redlock(key="lock", masters={client}, auto_release_time=10))


@check
def pottery_lock_has_a_time(r):
    lock = Redlock(key="lock", masters={r}, auto_release_time=0.3)
    other = Redlock(key="lock", masters={connect()}, auto_release_time=0.3)
    assert lock.acquire()
    assert not other.acquire(blocking=False)
    lock.extend()
    assert lock.locked() > 0
    until(lambda: other.acquire(blocking=False), "the lock has ended")
    rejects(ReleaseUnlockedLock, lock.release)
    other.release()


@check
def pottery_gives_each_number_once(r):
    def draw(number):
        ids = NextID(key="ids", masters={connect()}, num_tries=50)
        return [next(ids) for _ in range(20)]

    drawn = [number for numbers in at_once(8, draw) for number in numbers]
    assert len(set(drawn)) == len(drawn) == 160


@check
def pottery_counts_in_transactions(r):
    """Its containers watch, look and change."""

    def count(number):
        counter = RedisCounter(redis=connect(), key="counter")
        with Redlock(key="counting", masters={connect()}, auto_release_time=10):
            counter.update({"a": 1, "b": 2})

    at_once(8, count)
    assert dict(RedisCounter(redis=r, key="counter")) == {"a": 8, "b": 16}


@check
def pottery_synchronizes_functions(r):
    inside, most = [], []

    @synchronize(key="function", masters={connect()}, auto_release_time=5, blocking=True, timeout=-1)
    def work():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.005)
        inside.pop()

    at_once(6, lambda number: work())
    assert most == [1] * 6


if __name__ == "__main__":
    main(seconds=90)
