"""What is measured, as data: the commands, what must be there before each, and the bars.

A command is sent by redis-benchmark, by its own test of that name where it has one. Those that read or pop
find the data they need: it is filled in before the clock starts, enough for every request, since a pop from
an empty set measures nothing.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CLIENTS = 50
KEYS = 100_000
VALUE_BYTES = 100
DEPTHS = (1, 16, 64)
# One request at a time all servers are nearly alike, since redis-benchmark is as busy as they are: to tell them apart takes more samples.
SAMPLES_IN_A_ROUND = {1: 3}
SIZES = (100, 1024, 16 * 1024)
SIZE_DEPTHS = (1, 16)
# All that write.
ALWAYS_COMMANDS = (
    *("SET", "INCR", "LPUSH", "RPUSH", "LPOP", "RPOP"),
    *("SADD", "HSET", "SPOP", "ZADD", "ZPOPMIN", "MSET"),
)
ALWAYS_DEPTHS = (1, 16)
# So long that whatever a server puts off falls into it.
SUSTAINED_COMMANDS = ("SET", "INCR", "HSET", "ZADD")
SUSTAINED_DEPTH = 16
SUSTAINED_SECONDS = 15
SUSTAINED_ROUNDS = 3

# What large values, and elements to be popped, cost in time to fill and in disk.
MOST_BYTES = 256 << 20
MOST_POPS = 300_000
SMALL_HASHES = 10_000
SMALL_HASH_FIELDS = 10
LIST_LENGTH = 1000
ELEMENTS_PER_COMMAND = 500


@dataclass(frozen=True)
class Fill:
    """What must be in the server. `commands(measurement, requests)` brings it there."""

    commands: Callable
    # Not made again for the next measurement: nothing here removes it or changes its size.
    lasting: bool = False


@dataclass(frozen=True)
class Command:
    name: str
    # redis-benchmark's arguments that say what is sent.
    arguments: tuple
    fill: Fill | None = None
    keys: int = KEYS
    most_requests: int | None = None


@dataclass(frozen=True)
class Measurement:
    command: Command
    depth: int
    value_bytes: int = VALUE_BYTES
    sync: str = "everysec"
    # How long it takes redis-server, if that is not as short as all the others.
    sustained_seconds: float | None = None

    @property
    def keys(self) -> int:
        return min(self.command.keys, MOST_BYTES // self.value_bytes)

    @property
    def most_requests(self) -> int | float:
        if self.sustained_seconds:
            # It comes back to the same keys.
            return float("inf")
        of_bytes = MOST_BYTES // self.value_bytes
        return min(of_bytes, self.command.most_requests or of_bytes)

    def __str__(self):
        size = "" if self.value_bytes == VALUE_BYTES else f" {self.value_bytes} B"
        sync = "" if self.sync == "everysec" else f" sync {self.sync}"
        sustained = f" for {self.sustained_seconds} s" if self.sustained_seconds else ""
        return f"{self.command.name} P={self.depth}{size}{sync}{sustained}"


def key(number: int) -> bytes:
    return b"key:%012d" % number


def element(number: int) -> bytes:
    return b"element:%012d" % number


def in_commands(start: list, groups: Iterator[list]) -> Iterator[list]:
    """Commands that begin with `start` and take many groups of arguments each."""
    words = list(start)
    for number, group in enumerate(groups, 1):
        words += group
        if number % ELEMENTS_PER_COMMAND == 0:
            yield words
            words = list(start)
    if len(words) > len(start):
        yield words


def strings(measurement, _requests):
    value = b"x" * measurement.value_bytes
    return in_commands([b"MSET"], ([key(n), value] for n in range(measurement.keys)))


def small_hashes(measurement, _requests):
    value = b"x" * measurement.value_bytes
    fields = [word for n in range(SMALL_HASH_FIELDS) for word in (b"field:%d" % n, value)]
    return ([b"HSET", b"small:%012d" % n, *fields] for n in range(SMALL_HASHES))


def no_key(name: bytes):
    return lambda _measurement, _requests: [[b"DEL", name]]


def hash_of_all_fields(measurement, _requests):
    value = b"x" * measurement.value_bytes
    yield [b"DEL", b"myhash"]
    yield from in_commands([b"HSET", b"myhash"], ([element(n), value] for n in range(measurement.keys)))


def list_of(length: int, measurement):
    value = b"x" * measurement.value_bytes
    yield [b"DEL", b"mylist"]
    yield from in_commands([b"RPUSH", b"mylist"], ([value] for _ in range(length)))


def list_to_read(measurement, _requests):
    return list_of(LIST_LENGTH, measurement)


def list_to_pop(measurement, requests):
    return list_of(requests, measurement)


def set_to_pop(_measurement, requests):
    yield [b"DEL", b"myset"]
    yield from in_commands([b"SADD", b"myset"], ([element(n)] for n in range(requests)))


def zset_to_pop(_measurement, requests):
    yield [b"DEL", b"myzset"]
    yield from in_commands([b"ZADD", b"myzset"], ([b"%d" % n, element(n)] for n in range(requests)))


def own_test(name: str, fill: Fill | None = None, **more) -> Command:
    return Command(name, ("-t", name.lower()), fill, **more)


def command_line(name: str, line: str, fill: Fill, **more) -> Command:
    return Command(name, tuple(line.split()), fill, **more)


STRINGS = Fill(strings, lasting=True)
EMPTY_LIST = Fill(no_key(b"mylist"))
READ_LIST = Fill(list_to_read)
POPPED_LIST = Fill(list_to_pop)

COMMANDS = (
    own_test("PING_INLINE"),
    own_test("PING_MBULK"),
    own_test("SET", STRINGS),
    own_test("GET", STRINGS),
    own_test("INCR"),
    own_test("LPUSH", EMPTY_LIST),
    own_test("RPUSH", EMPTY_LIST),
    own_test("LPOP", POPPED_LIST, most_requests=MOST_POPS),
    own_test("RPOP", POPPED_LIST, most_requests=MOST_POPS),
    own_test("SADD", Fill(no_key(b"myset"))),
    own_test("HSET", Fill(no_key(b"myhash"))),
    command_line("HGET", "hget myhash element:__rand_int__", Fill(hash_of_all_fields)),
    command_line(
        "HGETALL", "hgetall small:__rand_int__", Fill(small_hashes, lasting=True), keys=SMALL_HASHES
    ),
    own_test("SPOP", Fill(set_to_pop), most_requests=MOST_POPS),
    own_test("ZADD", Fill(no_key(b"myzset"))),
    own_test("ZPOPMIN", Fill(zset_to_pop), most_requests=MOST_POPS),
    # redis-benchmark's own tests of these would first push as many elements as they send requests.
    command_line("LRANGE_100", "lrange mylist 0 99", READ_LIST),
    command_line("LRANGE_300", "lrange mylist 0 299", READ_LIST),
    command_line("LRANGE_500", "lrange mylist 0 499", READ_LIST),
    command_line("LRANGE_600", "lrange mylist 0 599", READ_LIST),
    own_test("MSET", STRINGS),
    command_line("MGET", "mget" + 10 * " key:__rand_int__", STRINGS),
)
BY_NAME = {command.name: command for command in COMMANDS}


def everysec_plan() -> list[Measurement]:
    return [Measurement(command, depth) for depth in DEPTHS for command in COMMANDS]


def size_plan() -> list[Measurement]:
    """100 bytes are measured already. Sizes come one after the other: each overwrites the last one's keys."""
    return [
        Measurement(BY_NAME[name], depth, value_bytes)
        for value_bytes in SIZES
        if value_bytes != VALUE_BYTES
        for depth in SIZE_DEPTHS
        for name in ("SET", "GET")
    ]


def sustained_plan() -> list[Measurement]:
    return [
        Measurement(BY_NAME[name], SUSTAINED_DEPTH, sustained_seconds=SUSTAINED_SECONDS)
        for name in SUSTAINED_COMMANDS
    ]


def always_plan() -> list[Measurement]:
    return [
        Measurement(BY_NAME[name], depth, sync="always") for depth in ALWAYS_DEPTHS for name in ALWAYS_COMMANDS
    ]


def shuffled(measurements: list[Measurement], number: int) -> list[Measurement]:
    """In an order of this round's own, which is the same in every run. What a server puts off, as redis-server the rewriting
    of its file, comes at the same place of a sequence each time: it would always fall on the same commands."""
    samples = [m for m in measurements for _ in range(SAMPLES_IN_A_ROUND.get(m.depth, 1))]
    random.Random(number).shuffle(samples)
    return samples


def whole_plan(number: int) -> list[Measurement]:
    """Of a round by its number; the first is 1."""
    sustained = sustained_plan() if number <= SUSTAINED_ROUNDS else []
    return shuffled(everysec_plan(), number) + sustained + size_plan() + shuffled(always_plan(), number)


# At P=1 every command has the one bar; at P=64 its bar is its own ratio at P=16, less a tenth.
P1_RATIO = 1.0
P16_RATIOS = {
    **dict.fromkeys(("GET", "MGET", "HGET", "LRANGE_100"), 1.0),
    **dict.fromkeys(("SET", "INCR", "MSET", "LPOP", "RPOP"), 0.8),
    **dict.fromkeys(("LPUSH", "RPUSH", "SADD", "HSET", "ZADD", "SPOP", "ZPOPMIN"), 0.6),
}
P64_OF_P16 = 0.9
ALWAYS_RATIO = 1.0
P1_P99_RATIO = 1.5
BAR_ROUNDS = 5
