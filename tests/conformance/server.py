"""A server of its own for every run of the suite.

A unit that fails half-way leaves keys, settings and blocked clients behind, so no server is used twice.
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path

from child import Child

READY = b"ready to accept connections"
STARTUP_SECONDS = 30
ATTEMPTS = 3


class ServerError(Exception):
    """The server under test did not come up."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Runs for the length of a `with` block; `command` has the places {port}, {dir} and {bus} to fill in, and so has `found`, by
    which a node is made a cluster."""

    def __init__(self, command, log: Path, found=None):
        self._command = command
        self._found = found
        self._log = log
        self._data = log.with_suffix(".data")
        self._child = None
        self.port = 0

    def __enter__(self):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start()
                return self
            except ServerError:
                self._stop()
                # Between probing a port and binding it, anyone can take it.
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def __exit__(self, *_):
        self._stop()

    @property
    def pid(self) -> int:
        return self._child.pid

    def crashed(self) -> str:
        """How it ended, if it did so before it was asked to."""
        status = self._child.exit_status()
        return "" if status is None else f"the server ended with status {status}, see {self._log}"

    def _start(self):
        self.port = free_port()
        self._data.mkdir(parents=True)
        fill = {"port": str(self.port), "dir": str(self._data), "bus": str(free_port())}
        try:
            self._child = Child([word.format(**fill) for word in self._command], self._log)
        except OSError as error:
            raise ServerError(f"the server cannot be started: {error}") from error
        deadline = time.monotonic() + STARTUP_SECONDS
        while READY not in self._log.read_bytes().lower():
            if self._child.exit_status() is not None:
                raise ServerError(f"the server ended before it was ready, see {self._log}")
            if time.monotonic() > deadline:
                raise ServerError(f"the server was not ready in {STARTUP_SECONDS} s, see {self._log}")
            time.sleep(0.01)
        if self._found:
            self._become_a_cluster([word.format(**fill) for word in self._found], deadline)

    def _become_a_cluster(self, found, deadline):
        founded = subprocess.run(found, capture_output=True, text=True)
        if founded.returncode != 0:
            raise ServerError(f"it is no cluster: {founded.stdout}{founded.stderr}, see {self._log}")
        state = ["redis-cli", "-p", str(self.port), "CLUSTER", "INFO"]
        while "cluster_state:ok" not in subprocess.run(state, capture_output=True, text=True).stdout:
            if time.monotonic() > deadline:
                raise ServerError(f"the cluster was not well in {STARTUP_SECONDS} s, see {self._log}")
            time.sleep(0.05)

    def _stop(self):
        if self._child is not None:
            self._child.stop()
        shutil.rmtree(self._data, ignore_errors=True)
