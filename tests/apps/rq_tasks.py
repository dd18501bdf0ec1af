"""What RQ's workers do. They import this module; `rq_checks.py` enqueues its functions.

Functions count their runs on the server itself, in another database than RQ's.
"""

import os
import time

import redis

RUNS = redis.Redis.from_url(os.environ["CHECK_RUNS"], decode_responses=True)


def count_run(kind, number):
    return RUNS.hincrby(f"runs:{kind}", number, 1)


def double(number):
    count_run("double", number)
    return 2 * number


def unlucky(number, failures):
    """Fails so many times."""
    run = count_run("unlucky", number)
    if run <= failures:
        raise ValueError(f"run {run}")
    return run


def note(number):
    RUNS.rpush("notes", number)


def moment():
    return time.time()


def forever():
    RUNS.rpush("notes", "begun")
    time.sleep(600)
