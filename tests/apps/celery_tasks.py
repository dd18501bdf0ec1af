"""What Celery's workers do. They import this module; `celery_checks.py` calls its tasks.

Tasks count their runs on the server itself, in another database than Celery's.
"""

import os
import time

import redis
from celery import Celery

BROKER = os.environ["CHECK_BROKER"]
RUNS = redis.Redis.from_url(os.environ["CHECK_RUNS"], decode_responses=True)

app = Celery("checks", broker=BROKER, backend=BROKER)
app.conf.update(
    broker_connection_retry_on_startup=True,
    # Urgent tasks overtake only those that no worker has taken yet.
    worker_prefetch_multiplier=1,
    broker_transport_options={"queue_order_strategy": "priority"},
    result_extended=True,
    worker_hijack_root_logger=False,
)


class Unlucky(Exception):
    pass


def count_run(kind, number):
    return RUNS.hincrby(f"runs:{kind}", number, 1)


@app.task
def add(number, other):
    count_run("add", number)
    return number + other


@app.task(bind=True, max_retries=3)
def unlucky(self, number, failures):
    """Fails so many times, and is tried again up to three times."""
    run = count_run("unlucky", number)
    if run <= failures:
        raise self.retry(exc=Unlucky(f"run {run}"), countdown=0.1)
    return run


@app.task
def moment(number):
    """When it ran."""
    count_run("moment", number)
    return time.time()


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def note(number):
    RUNS.rpush("notes", number)
