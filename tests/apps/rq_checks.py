"""Drives a server through RQ: some hundred jobs and several workers.

Usage: python rq_checks.py HOST:PORT
"""

import os
import sys
import time
from datetime import timedelta

from harness import check, connect, main, start, until, url

os.environ["CHECK_RUNS"] = url(1)

import rq  # noqa: E402
import rq_tasks as tasks  # noqa: E402  its server comes from the environment
from rq import Queue, Retry  # noqa: E402
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry  # noqa: E402

WAIT = 30


def queue(name="default"):
    """A queue; what RQ stores is compressed, so its connection must not decode."""
    return Queue(name, connection=connect(decode_responses=False))


def worker(*args):
    return start("rq", "worker", "--url", url(0), "--quiet", *args, PYTHONWARNINGS="ignore")


def work_off(workers=1, *args):
    """Lets so many workers run until the queue is empty."""
    for process in [worker("--burst", *args) for _ in range(workers)]:
        assert process.wait(WAIT) == 0


def result_of(job):
    return job.return_value()


def awaited(job):
    """A job's result, once it is there. Old versions show the job as finished a little earlier."""
    return until(lambda: result_of(job), "the job has a result", WAIT)


def runs(kind):
    return {int(number): int(times) for number, times in tasks.RUNS.hgetall(f"runs:{kind}").items()}


@check
def every_job_runs_once(r):
    q = queue()
    jobs = [q.enqueue(tasks.double, number) for number in range(200)]
    work_off(3)
    assert runs("double") == {number: 1 for number in range(200)}
    assert [result_of(job) for job in jobs] == [2 * number for number in range(200)]
    assert len(q) == 0 and len(FinishedJobRegistry(queue=q)) == 200
    assert len(FailedJobRegistry(queue=q)) == 0


@check
def failing_jobs_are_tried_again(r):
    q = queue()
    jobs = [q.enqueue(tasks.unlucky, n, n % 4, retry=Retry(max=2)) for n in range(20)]
    work_off(2)
    assert runs("unlucky") == {n: min(1 + n % 4, 3) for n in range(20)}
    failed = {job.id for n, job in enumerate(jobs) if n % 4 == 3}
    registry = FailedJobRegistry(queue=q)
    assert set(registry.get_job_ids()) == failed
    for n, job in enumerate(jobs):
        assert job.get_status(refresh=True) == ("failed" if job.id in failed else "finished")
        if job.id not in failed:
            assert result_of(job) == 1 + n % 4
    # The fourth run is the first that succeeds.
    for job_id in failed:
        registry.requeue(job_id)
    work_off()
    assert len(registry) == 0
    assert {result_of(job) for job in jobs if job.id in failed} == {4}


@check
def jobs_depend_on_others(r):
    q = queue()
    first = q.enqueue(tasks.note, 1)
    branches = [q.enqueue(tasks.note, n, depends_on=first) for n in (2, 3, 4)]
    last = q.enqueue(tasks.note, 5, depends_on=branches)
    failing = q.enqueue(tasks.unlucky, 0, 9)
    never = q.enqueue(tasks.note, 6, depends_on=failing)
    work_off(2)
    noted = tasks.RUNS.lrange("notes", 0, -1)
    assert noted[0] == "1" and sorted(noted[1:4]) == ["2", "3", "4"] and noted[4:] == ["5"], noted
    assert last.get_status() == "finished"
    assert never.get_status() == "deferred"


@check
def queues_have_an_order(r):
    for n in range(5):
        queue("low").enqueue(tasks.note, f"low{n}")
        queue("high").enqueue(tasks.note, f"high{n}")
    queue("high").enqueue(tasks.note, "front", at_front=True)
    work_off(1, "high", "low")
    expected = ["front", *(f"high{n}" for n in range(5)), *(f"low{n}" for n in range(5))]
    assert tasks.RUNS.lrange("notes", 0, -1) == expected


@check
def jobs_wait_for_their_time(r):
    q = queue()
    # Times are cut to whole seconds.
    worker("--with-scheduler")
    began = time.time()
    later = [q.enqueue_in(timedelta(seconds=2), tasks.moment) for _ in range(20)]
    again = q.enqueue(tasks.unlucky, 0, 1, retry=Retry(max=1, interval=1))
    for job in later:
        assert awaited(job) >= began + 1
    assert awaited(again) == 2
    assert runs("unlucky") == {0: 2}
    assert len(ScheduledJobRegistry(queue=q)) == 0


@check
def a_worker_waits_for_jobs_and_is_told_to_stop_one(r):
    from rq.command import send_shutdown_command, send_stop_job_command

    q = queue()
    process = worker()
    raw = connect(decode_responses=False)
    name = until(lambda: rq.Worker.all(connection=raw), "the worker has registered", WAIT)[0].name
    assert awaited(q.enqueue(tasks.double, 21)) == 42
    # Commands come to it by pub/sub.
    stopped = q.enqueue(tasks.forever)
    until(lambda: tasks.RUNS.llen("notes") == 1, "the job has begun", WAIT)
    send_stop_job_command(raw, stopped.id)
    until(lambda: stopped.get_status(refresh=True) == "stopped", "the job is stopped", WAIT)
    send_shutdown_command(raw, name)
    assert process.wait(WAIT) == 0
    assert rq.Worker.all(connection=raw) == []


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main(seconds=150)
