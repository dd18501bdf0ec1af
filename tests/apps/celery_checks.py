"""Drives a server through Celery: some hundred tasks, and what Celery builds of them.

Usage: python celery_checks.py HOST:PORT

The server is both broker and result backend. Results and remote control come by pub/sub.
"""

import os
import sys
import time
from datetime import datetime, timedelta, timezone

from harness import check, main, rejects, start, until, url

os.environ["CHECK_BROKER"] = url(0)
os.environ["CHECK_RUNS"] = url(1)

import celery_tasks as tasks  # noqa: E402  its broker comes from the environment
from celery import chain, chord, group  # noqa: E402

WAIT = 30


def worker(*flags):
    """A worker with two processes, once it is ready."""
    flags = ["--concurrency", "2", "--loglevel", "WARNING", "--without-mingle", *flags]
    name = f"worker{time.monotonic_ns()}@check"
    process = start("celery", "-A", "celery_tasks", "worker", "--hostname", name, *flags)
    until(lambda: tasks.app.control.ping([name], timeout=0.5), "a worker answers a ping", WAIT)
    return process


def runs(kind):
    return {int(number): int(times) for number, times in tasks.RUNS.hgetall(f"runs:{kind}").items()}


def once_each(count):
    return {number: 1 for number in range(count)}


@check
def results_come_back(r):
    worker()
    worker()
    results = [tasks.add.delay(number, 1000) for number in range(300)]
    assert [result.get(timeout=WAIT) for result in results] == [n + 1000 for n in range(300)]
    assert runs("add") == once_each(300)
    assert all(result.successful() for result in results)
    results[0].forget()
    assert r.exists(f"celery-task-meta-{results[0].id}") == 0


@check
def retries_are_counted(r):
    worker()
    results = [tasks.unlucky.delay(number, number % 3) for number in range(30)]
    hopeless = tasks.unlucky.delay(30, 9)
    assert [result.get(timeout=WAIT) for result in results] == [1 + n % 3 for n in range(30)]
    error = rejects(Exception, hopeless.get, timeout=WAIT)
    assert type(error).__name__ == "Unlucky" and str(error) == "run 4", repr(error)
    assert hopeless.state == "FAILURE"
    assert runs("unlucky") == {**{n: 1 + n % 3 for n in range(30)}, 30: 4}


@check
def tasks_wait_for_their_time(r):
    worker()
    began = time.time()
    later = [tasks.moment.apply_async([n], countdown=0.5 + n / 20) for n in range(20)]
    eta = datetime.now(timezone.utc) + timedelta(seconds=1)
    at = tasks.moment.apply_async([20], eta=eta)
    for number, result in enumerate(later):
        assert result.get(timeout=WAIT) >= began + 0.5 + number / 20, number
    assert at.get(timeout=WAIT) >= eta.timestamp()
    assert runs("moment") == once_each(21)


@check
def tasks_are_composed(r):
    worker()
    worker()
    assert group(tasks.add.s(n, n) for n in range(50))().get(timeout=WAIT) == [2 * n for n in range(50)]
    assert chain(tasks.add.s(1, 2), tasks.add.s(3), tasks.add.s(4))().get(timeout=WAIT) == 10
    # The last of the header's tasks calls the body: by a counter on the server.
    for size in (1, 10, 100):
        header = [tasks.add.s(1000 * size + n, 1) for n in range(size)]
        expected = sum(1000 * size + n + 1 for n in range(size))
        assert chord(header)(tasks.total.s()).get(timeout=WAIT) == expected
    nested = chain(
        group(tasks.add.s(5000 + n, 0) for n in range(5)), tasks.total.s(), tasks.add.s(-25010)
    )
    assert nested().get(timeout=WAIT) == 0


@check
def urgent_tasks_overtake(r):
    for number in range(12):
        tasks.note.apply_async([number], priority=(9, 0, 3)[number % 3])
    worker("--concurrency", "1")
    until(lambda: tasks.RUNS.llen("notes") == 12, "all tasks have run", WAIT)
    noted = [(1, 2, 0).index(int(number) % 3) for number in tasks.RUNS.lrange("notes", 0, -1)]
    assert noted == sorted(noted), noted


@check
def workers_are_controlled(r):
    worker()
    control = tasks.app.control
    revoked = tasks.note.apply_async([1], countdown=2)
    until(lambda: any(control.inspect(timeout=1).scheduled().values()), "the task is scheduled", WAIT)
    revoked.revoke()
    name = next(iter(control.inspect(timeout=1).stats()))
    assert revoked.id in control.inspect([name], timeout=1).revoked()[name]
    kept = tasks.note.apply_async([2], countdown=2.5)
    kept.get(timeout=WAIT)
    assert tasks.RUNS.lrange("notes", 0, -1) == ["2"]
    assert [list(answer) for answer in control.ping([name], timeout=1)] == [[name]]
    tasks.add.apply_async([1, 1], queue="nobody-takes-it")
    assert r.llen("nobody-takes-it") == 1


@check
def what_a_worker_leaves_behind_goes_on(r):
    first = worker()
    results = [tasks.moment.apply_async([n], countdown=3) for n in range(20)]
    until(lambda: r.hlen("unacked") >= 1, "the worker has taken tasks", WAIT)
    first.terminate()  # a warm shutdown: what it holds goes back to the queue
    first.wait(WAIT)
    assert r.hlen("unacked") == 0 and r.llen("celery") == 20
    worker()
    for result in results:
        result.get(timeout=WAIT)
    assert runs("moment") == once_each(20)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main(seconds=180)
