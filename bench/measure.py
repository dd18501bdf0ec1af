"""One measurement: redis-benchmark against one server, and the processor time that the server took for it."""

import csv
import io
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from contestant import Contestant, FillError
from plan import CLIENTS, Measurement

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MICROSECONDS = 1_000_000

# How long a server that was woken up may do what has become due while it was stopped, and what is no work.
SETTLE_SECONDS = 1.0
LOOK_SECONDS = 0.1
IDLE_SECONDS = 0.01


@dataclass(frozen=True)
class Sample:
    rate: float
    p50_ms: float
    p99_ms: float
    # Processor time of all the server's threads and ended children; None if it cannot be read.
    cpu_us: float | None


@dataclass(frozen=True)
class Failure:
    why: str
    # Too slow to be waited for is a result; anything else is an error.
    is_timeout: bool = False


def benchmark_command(port: int, measurement: Measurement, requests: int) -> list[str]:
    options = {
        "-p": port,
        "-c": CLIENTS,
        "-n": requests,
        "-P": measurement.depth,
        "-r": measurement.keys,
        "-d": measurement.value_bytes,
    }
    words = [str(word) for option in options.items() for word in option]
    return ["redis-benchmark", *words, "--csv", *measurement.command.arguments]


def parse(output: str) -> Sample | Failure:
    rows = list(csv.DictReader(io.StringIO(output)))
    if len(rows) != 1:
        return Failure(f"redis-benchmark gave {len(rows)} results")
    row = rows[0]
    rate, p50, p99 = (float(row[name]) for name in ("rps", "p50_latency_ms", "p99_latency_ms"))
    return Sample(rate, p50, p99, None)


def cpu_seconds(pid: int | None) -> float | None:
    try:
        return cpu_of_stat(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None


def cpu_of_stat(stat: str) -> float:
    """utime, stime, cutime and cstime. The program's name before them may contain anything but ends the last ')'."""
    fields = stat.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND


def measure(server: Contestant, measurement: Measurement, requests: int, seconds: float) -> Sample | Failure:
    """Never takes much longer than `seconds`. A server that did not finish may still be busy: it is started anew."""
    try:
        with server.awake():
            settle(server.pid)
            server.fill(measurement, requests)
            result = benchmark(server, measurement, requests, seconds)
    except subprocess.TimeoutExpired:
        server.restart()
        return Failure(f"timeout: < {requests / seconds / 1000:.1f}k", is_timeout=True)
    except FillError as error:
        server.restart()
        return Failure(f"not filled: {error}")
    if server.crashed():
        server.restart()
        return Failure("the server crashed")
    return result


def settle(pid: int | None):
    """Waits until a server does nothing of its own accord. Had it not been stopped, it would have done that earlier."""
    until = time.monotonic() + SETTLE_SECONDS
    before = cpu_seconds(pid)
    while before is not None and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        now = cpu_seconds(pid)
        if now is None or now - before <= IDLE_SECONDS:
            return
        before = now


def benchmark(server: Contestant, measurement: Measurement, requests: int, seconds: float) -> Sample | Failure:
    before = cpu_seconds(server.pid)
    done = subprocess.run(
        benchmark_command(server.port, measurement, requests),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    after = cpu_seconds(server.pid)
    if done.returncode != 0:
        return Failure((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    sample = parse(done.stdout)
    if isinstance(sample, Failure) or before is None or after is None:
        return sample
    return Sample(sample.rate, sample.p50_ms, sample.p99_ms, (after - before) / requests * MICROSECONDS)


def probe_requests(measurement: Measurement) -> int:
    return min(measurement.most_requests, 2000 * min(measurement.depth, 8))


def requests_for(rate: float, measurement: Measurement, seconds: float) -> int:
    """As many as take that long at this rate, in whole pipelines of all clients."""
    gulp = CLIENTS * measurement.depth
    wanted = min(rate * seconds, measurement.most_requests)
    return max(1, int(wanted) // gulp) * gulp
