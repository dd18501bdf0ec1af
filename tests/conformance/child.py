"""Processes that never outlive the run.

Everything the runner starts, servers and suites alike, leads a process group of its own and is kept in
one register. Whatever ends the run (its end, a failure, Ctrl-C, SIGTERM), `Child.stop_all` ends what is
in the register and nothing else.
"""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path


class Interrupted(Exception):
    """The run is being ended: nothing more is started."""


class Child:
    """A process group whose output goes to a log file."""

    _register = set()
    _lock = threading.Lock()
    _closed = False

    def __init__(self, command, log: Path, cwd=None, env=None):
        with Child._lock:
            if Child._closed:
                raise Interrupted
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                )
            self._stopping = threading.Lock()
            Child._register.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self):
        """None while it runs, negative when a signal ended it.

        An ended leader is looked at and not yet reaped: until then no other process can get its number, and
        `stop` cannot hit a stranger.
        """
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            ended = os.waitid(os.P_PID, self._process.pid, look)
        except ChildProcessError:
            return self._process.returncode
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait(self, seconds: float) -> bool:
        """Whether it ended by itself in that time."""
        deadline = time.monotonic() + seconds
        while self.exit_status() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self, grace: float = 10):
        """Asks the group to end, and after the grace makes it. Again is harmless."""
        with self._stopping:
            if self._process.returncode is not None:
                return
            self._signal(signal.SIGTERM)
            self.wait(grace)
            # Members of the group may have survived its leader.
            self._signal(signal.SIGKILL)
            self._process.wait()
        with Child._lock:
            Child._register.discard(self)

    def _signal(self, number):
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    @classmethod
    def stop_all(cls):
        with cls._lock:
            cls._closed = True
            running = list(cls._register)
        for child in running:
            child.stop(grace=1)
