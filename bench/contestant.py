"""The servers that are compared: those started here, and peers that run already.

Only one of the servers started here runs at a time; the others are stopped (SIGSTOP). So what a server puts
off, a compaction or a rewrite of its log, it does in its own time. The clock goes on while it is stopped: what has become
due by then is done before the next measurement, for which it has a second (`measure.settle`).
"""

import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

from server import Server, ServerError

FILL_SECONDS = 60
REDIS = "redis"
CAIRN = "cairn"


class FillError(Exception):
    """The data for a measurement could not be put in."""


def redis_command(sync: str) -> list[str]:
    return f"redis-server --port {{port}} --dir {{dir}} --appendonly yes --appendfsync {sync}".split() + ["--save", ""]


def cairn_command(binary: str, sync: str) -> list[str]:
    return [binary, *f"serve --port {{port}} --dir {{dir}} --sync {sync}".split()]


class Contestant:
    """A server of this run's own, from its start to its end and the removal of its data."""

    def __init__(self, name: str, command: list[str], directory: Path):
        self.name = name
        self._command = command
        self._log = directory / f"{name}.log"
        self._server = None
        self._lasting = set()

    def start(self):
        self._lasting.clear()
        # All servers and redis-benchmark inherit one niceness.
        self._server = Server(self._command, self._log)
        self._server.__enter__()
        self._signal(signal.SIGSTOP)

    def stop(self):
        if self._server is not None:
            self._signal(signal.SIGCONT)
            self._server.__exit__()
            self._server = None

    def restart(self):
        self.stop()
        self.start()

    @contextmanager
    def awake(self):
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def pid(self) -> int:
        return self._server.pid

    def fill(self, measurement, requests: int):
        fill = measurement.command.fill
        wanted = (fill, measurement.value_bytes)
        if fill is None or wanted in self._lasting:
            return
        send(self.port, fill.commands(measurement, requests))
        if fill.lasting:
            self._lasting = {held for held in self._lasting if held[0] != fill} | {wanted}

    def crashed(self) -> str:
        """How it ended, if it did."""
        return self._server.crashed()

    def _signal(self, number):
        if not self.crashed():
            os.kill(self.pid, number)


class Peer(Contestant):
    """A server that somebody else started and looks after: it is neither stopped nor started again."""

    def __init__(self, name: str, port: int):
        super().__init__(name, [], Path())
        self._port = port
        self._pid = None

    def start(self):
        self._lasting.clear()
        try:
            self._pid = process_id(self._port)
        except OSError as error:
            raise ServerError(f"{self.name} on port {self._port}: {error}") from error

    def stop(self):
        pass

    def restart(self):
        self._lasting.clear()

    def crashed(self) -> str:
        return ""

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int | None:
        return self._pid

    def _signal(self, number):
        pass


def parse_peers(text: str) -> list[Peer]:
    """`name=port,name=port`."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return [Peer(name, int(port)) for name, _, port in pairs]


def encode(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def send(port: int, commands: Iterable[list[bytes]]):
    """Sends commands whose replies have one line each, and waits for all of these."""
    deadline = time.monotonic() + FILL_SECONDS
    try:
        with socket.create_connection(("127.0.0.1", port), FILL_SECONDS) as connection:
            replies = connection.makefile("rb")
            sent = 0
            for sent, words in enumerate(commands, 1):
                connection.settimeout(time_left(deadline))
                connection.sendall(encode(words))
            for _ in range(sent):
                connection.settimeout(time_left(deadline))
                check(replies.readline())
    except OSError as error:
        raise FillError(str(error)) from error


def time_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"not done in {FILL_SECONDS} s")
    return left


def check(reply: bytes):
    if not reply.startswith((b"+", b":")):
        raise FillError(reply.decode(errors="replace").strip() or "the server closed the connection")


def process_id(port: int) -> int | None:
    """Of a server on this machine, as far as it tells."""
    with socket.create_connection(("127.0.0.1", port), FILL_SECONDS) as connection:
        connection.sendall(encode([b"INFO", b"server"]))
        replies = connection.makefile("rb")
        length = int(replies.readline()[1:])
        fields = dict(line.partition(":")[::2] for line in replies.read(length).decode().splitlines())
    return int(fields["process_id"]) if "process_id" in fields else None
