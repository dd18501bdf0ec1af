"""What the programs here share: checks that run one after the other, each on an empty server, and a
time limit, since what goes wrong with a queue or a lock is most often that nothing happens.

A program registers its checks and calls `main`. The last line says how many passed.
"""

import faulthandler
import functools
import os
import subprocess
import sys
import threading
import time
import traceback

import redis

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKS = []
STARTED = []


def address():
    host, _, port = sys.argv[1].rpartition(":")
    return host, int(port)


def url(database=0):
    host, port = address()
    return f"redis://{host}:{port}/{database}"


def connect(**options):
    host, port = address()
    options.setdefault("decode_responses", True)
    options.setdefault("socket_timeout", 20)
    return redis.Redis(host=host, port=port, **options)


def check(function):
    """Registers a function that takes a client, and asserts."""
    CHECKS.append(function)
    return function


def check_both(function):
    """Registers a function that takes a client and its protocol, and asserts: for RESP2 and for RESP3."""
    for protocol in (2, 3):

        @functools.wraps(function)
        def run(_, protocol=protocol):
            function(connect(protocol=protocol), protocol)

        run.__name__ = f"{function.__name__}, RESP{protocol}"
        CHECKS.append(run)
    return function


def until(holds, message, seconds=10):
    """Waits until `holds` returns something true, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {message}")
        time.sleep(0.005)
    return found


def rejects(error, call, *args, **kwargs):
    """The exception that the call must raise."""
    try:
        result = call(*args, **kwargs)
    except error as raised:
        return raised
    raise AssertionError(f"{result!r} instead of {error.__name__}")


def at_once(count, work):
    """Runs `work(number)` in so many threads, and returns what they returned."""
    results, failures = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except Exception as error:  # raised again below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def start(program, *args, **environment):
    """Starts a program that was installed with this Python. It is ended when its check ends."""
    path = os.path.join(os.path.dirname(sys.executable), program)
    environment = {**os.environ, "PYTHONPATH": HERE, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    process = subprocess.Popen(
        [path, *args],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    STARTED.append((process, read_along(process)))
    return process


def read_along(process):
    """What the process says, line by line: it is shown if its check fails."""
    said = []
    threading.Thread(target=lambda: said.extend(process.stdout), daemon=True).start()
    return said


def end_all(show):
    for process, _ in STARTED:
        process.terminate()
    for process, said in STARTED:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if show:
            print(f"{process.args[0]} said:\n{''.join(said[-40:])}")
    STARTED.clear()


def run_one(function):
    failed = True
    try:
        client = connect()
        client.flushall()
        function(client)
        failed = False
    except Exception:  # an assertion, or whatever a library raises
        print(f"FAILED {function.__name__}\n{traceback.format_exc()}")
    finally:
        end_all(show=failed)
    return failed


def main(seconds):
    """Runs all checks within `seconds`."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    failed = 0
    for function in CHECKS:
        failed += run_one(function)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    # Threads of a library that failed must not keep the program.
    sys.stdout.flush()
    os._exit(1 if failed else 0)
