"""One invocation of Redis' `runtest` against a server that runs already, and what it said.

In this mode (`--host`) the suite starts no server. It empties the one it is given at the start of every
`start_server` block of a unit, and reports each test on a line:

    [ok]: NAME (12 ms)
    [err]: NAME in tests/unit/scan.tcl      and lines of detail
    [skip]: NAME                            by --skipfile or --only
    [ignore]: NAME: Tag: needs:debug denied
    [exception]: ...                        an error that is no failed assertion: the unit ends here
"""

import itertools
import os
import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from child import Child

OPTIONS = ["--tags", "-needs:debug -slow -large-memory", "--ignore-encoding", "--ignore-digest"]
# Keys of a command that lie in different slots are refused, and so is SELECT: the suite leaves such tests out.
CLUSTER_OPTIONS = ["--cluster-mode", "--singledb"]

PASSED = re.compile(r"\[ok\]: (.*) \(\d+ ms\)")
FAILED = re.compile(r"\[err\]: (.*?)(?: in tests/\S+\.tcl)?")
ABORTED = re.compile(r"\[(?:exception|TIMEOUT)\]: (.*)")
STARTED = re.compile(r"Testing unit/.*")
OTHER = re.compile(r"\[.*?\]: .*|\s*The End")
DETAIL_LINES = 6

# Each invocation listens on a port of [base - 32, base), which it picks by itself. Two that run at the same
# time must not pick the same, and another run of this program may be under way: hence the random start.
PORTS_EACH = 32
_slots = itertools.count(random.randrange(200))
_slots_lock = threading.Lock()


def _base_port() -> int:
    with _slots_lock:
        return 20_000 + next(_slots) % 200 * PORTS_EACH + PORTS_EACH


@dataclass
class Outcome:
    """What an invocation reported. A name may occur more than once in a unit."""

    passed: list = field(default_factory=list)
    failed: list = field(default_factory=list)  # (name, detail)
    aborted: str = ""  # why the unit did not come to its end
    started: bool = False  # else nothing here says anything about a test
    crash: str = ""  # how the server ended, if it did: never a way in which a test may fail

    def counts(self) -> Counter:
        return Counter(self.passed)


def parse(report: str) -> Outcome:
    outcome = Outcome()
    detail = None
    for line in report.splitlines():
        if match := PASSED.fullmatch(line):
            outcome.passed.append(match[1].strip())
            detail = None
        elif match := FAILED.fullmatch(line):
            detail = []
            outcome.failed.append((match[1].strip(), detail))
        elif match := ABORTED.fullmatch(line):
            detail = [match[1]]
            outcome.aborted = detail
        elif STARTED.fullmatch(line):
            outcome.started = True
        elif OTHER.fullmatch(line):
            detail = None
        elif detail is not None and line.strip() and len(detail) < DETAIL_LINES:
            detail.append(line.strip())
    outcome.failed = [(name, "\n".join(lines)) for name, lines in outcome.failed]
    outcome.aborted = "\n".join(outcome.aborted)
    return outcome


def run(suite: Path, unit: str, port: int, log: Path, seconds: float, extra=()) -> Outcome:
    """Runs a unit to its end, or to the end of its time."""
    command = ["./runtest", "--host", "127.0.0.1", "--port", str(port), "--baseport", str(_base_port())]
    # Without a terminal that shows colours, the suite prints none.
    environment = {**os.environ, "TERM": "dumb"}
    child = Child([*command, "--single", unit, *OPTIONS, *extra], log, cwd=suite, env=environment)
    try:
        ended = child.wait(seconds)
    finally:
        child.stop(grace=1)
    outcome = parse(log.read_text(errors="replace"))
    if not ended:
        outcome.aborted = f"stopped: not done in {seconds:.0f} s"
    elif child.exit_status() != 0 and not (outcome.failed or outcome.aborted):
        outcome.aborted = f"runtest ended with status {child.exit_status()}, see {log}"
    return outcome
