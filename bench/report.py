"""From the samples of all rounds to bench/RESULTS.md.

A rate or latency is the median of its samples. A ratio is the median of the samples' ratios, not the ratio of
the medians: for each the servers are measured right after one another, so that what else the machine
does at the time strikes both.
"""

import statistics
from collections import defaultdict
from dataclasses import dataclass

import plan
from contestant import CAIRN, REDIS
from measure import Failure, Sample
from plan import Measurement

NOTHING = "–"


class Results:
    """The samples and failures of each server and measurement, in the order in which they came."""

    def __init__(self):
        self._samples = defaultdict(list)

    def add(self, server: str, measurement: Measurement, result: Sample | Failure):
        self._samples[server, measurement].append(result)

    def count(self, server: str, measurement: Measurement) -> int:
        return len(self._samples[server, measurement])

    def failure(self, server: str, measurement: Measurement) -> str | None:
        """Of one sample or more: then no figure of this measurement is shown."""
        failures = (r.why for r in self._samples[server, measurement] if isinstance(r, Failure))
        return next(failures, None)

    def values(self, server: str, measurement: Measurement, metric: str) -> list[float]:
        if self.failure(server, measurement):
            return []
        values = [getattr(sample, metric) for sample in self._samples[server, measurement]]
        return [] if None in values else values

    def median(self, server: str, measurement: Measurement, metric: str) -> float | None:
        values = self.values(server, measurement, metric)
        return statistics.median(values) if values else None

    def ratio(self, server: str, measurement: Measurement, metric: str = "rate") -> float | None:
        """To redis-server."""
        pairs = list(zip(self.values(server, measurement, metric), self.values(REDIS, measurement, metric)))
        # A latency or processor time below the clock's resolution cannot be divided by.
        if not pairs or any(redis == 0 for _, redis in pairs):
            return None
        return statistics.median(own / redis for own, redis in pairs)

    def errors(self) -> list[str]:
        return [
            f"{measurement} at {server}: {result.why}"
            for (server, measurement), results in self._samples.items()
            for result in results
            if isinstance(result, Failure) and not result.is_timeout
        ]

    def spread(self, server: str) -> float | None:
        """How far the rates of a measurement lie apart, of their median: the median of all measurements."""
        all_rates = [self.values(name, m, "rate") for name, m in list(self._samples) if name == server]
        spreads = [(max(rates) - min(rates)) / statistics.median(rates) for rates in all_rates if rates]
        return statistics.median(spreads) if spreads else None


@dataclass(frozen=True)
class Bar:
    where: str
    command: str
    needed: str
    got: str
    met: bool


def at_least(results: Results, measurement: Measurement, where: str, needed: float | None) -> Bar:
    ratio = results.ratio(CAIRN, measurement)
    met = ratio is not None and needed is not None and ratio >= needed
    got = show_ratio(ratio) if ratio is not None else results.failure(CAIRN, measurement) or NOTHING
    return Bar(where, measurement.command.name, f"≥ {show_ratio(needed)}", got, met)


def bars(results: Results) -> list[Bar]:
    return p1_bars(results) + p16_bars(results) + p64_bars(results) + always_bars(results) + p99_bars(results)


def p1_bars(results):
    return [at_least(results, Measurement(command, 1), "P=1", plan.P1_RATIO) for command in plan.COMMANDS]


def p16_bars(results):
    return [
        at_least(results, Measurement(plan.BY_NAME[name], 16), "P=16", needed)
        for name, needed in plan.P16_RATIOS.items()
    ]


def p64_bars(results):
    def bar(command):
        at_16 = results.ratio(CAIRN, Measurement(command, 16))
        return at_least(results, Measurement(command, 64), "P=64", at_16 and at_16 * plan.P64_OF_P16)

    return [bar(command) for command in plan.COMMANDS]


def always_bars(results):
    return [at_least(results, m, f"always, P={m.depth}", plan.ALWAYS_RATIO) for m in plan.always_plan()]


def p99_bars(results):
    def bar(command):
        measurement = Measurement(command, 1)
        ratio = results.ratio(CAIRN, measurement, "p99_ms")
        met = ratio is not None and ratio <= plan.P1_P99_RATIO
        return Bar("p99 at P=1", command.name, f"≤ {show_ratio(plan.P1_P99_RATIO)}", show_ratio(ratio), met)

    return [bar(command) for command in plan.COMMANDS]


def show_ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}×"


def show_rate(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate / 1000:.1f}k"


def show_milliseconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def show_microseconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def table(header: list[str], rows: list[list[str]], names: int = 1) -> str:
    """The first columns are names, the others figures."""
    rule = ["---"] * names + ["--:"] * (len(header) - names)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *rows])


def figures_header(servers: list[str]) -> list[str]:
    others = [name for name in servers if name != REDIS]
    return (
        [f"{name}/s" for name in servers]
        + [f"{name} ratio" for name in others]
        + [f"p50 {name}" for name in servers]
        + [f"p99 {name}" for name in servers]
        + [f"CPU µs {name}" for name in servers]
    )


def figures(results: Results, servers: list[str], measurement: Measurement) -> list[str]:
    def each(show, metric):
        return [show(results.median(name, measurement, metric)) for name in servers]

    rates = [results.failure(name, measurement) or rate for name, rate in zip(servers, each(show_rate, "rate"))]
    ratios = [show_ratio(results.ratio(name, measurement)) for name in servers if name != REDIS]
    latencies = each(show_milliseconds, "p50_ms") + each(show_milliseconds, "p99_ms")
    return rates + ratios + latencies + each(show_microseconds, "cpu_us")


def depth_section(results: Results, servers: list[str], depth: int) -> str:
    rows = [[c.name, *figures(results, servers, Measurement(c, depth))] for c in plan.COMMANDS]
    return f"## P={depth}\n\n" + table(["command", *figures_header(servers)], rows)


def size_section(results: Results, servers: list[str]) -> str:
    rows = [
        [f"{name}, {size} B, P={depth}", *figures(results, servers, Measurement(plan.BY_NAME[name], depth, size))]
        for name in ("SET", "GET")
        for depth in plan.SIZE_DEPTHS
        for size in plan.SIZES
    ]
    keys = Measurement(plan.BY_NAME["SET"], 1, max(plan.SIZES)).keys
    return f"""## Sizes of values

{plan.KEYS:,} keys, or {keys:,} of {max(plan.SIZES)} B.

{table(["command", *figures_header(servers)], rows)}"""


def sustained_section(results: Results, servers: list[str]) -> str:
    rows = [[m.command.name, *figures(results, servers, m)] for m in plan.sustained_plan()]
    return f"""## Sustained writes

P={plan.SUSTAINED_DEPTH}, as many requests as take redis-server about {plan.SUSTAINED_SECONDS} s, in up to {plan.SUSTAINED_ROUNDS} rounds: what a
server puts off falls into these, and it is not stopped meanwhile.

{table(["command", *figures_header(servers)], rows)}"""


def always_section(results: Results) -> str:
    servers = [REDIS, CAIRN]
    rows = [[f"{m.command.name}, P={m.depth}", *figures(results, servers, m)] for m in plan.always_plan()]
    return f"""## `--sync always` against `appendfsync always`

When other servers make their writes durable is their owners' choice: they take no part in this.

{table(["command", *figures_header(servers)], rows)}"""


def bars_section(results: Results, rounds: int) -> str:
    all_bars = bars(results)
    rows = [[bar.where, bar.command, bar.needed, bar.got, "yes" if bar.met else "**no**"] for bar in all_bars]
    few = f" They ask for at least {plan.BAR_ROUNDS} rounds; this run had {rounds}."
    caution = few if rounds < plan.BAR_ROUNDS else ""
    return f"""## Bars

Cairn relative to redis-server. {sum(bar.met for bar in all_bars)} of {len(all_bars)} are met.{caution}

{table(["", "command", "needed", "got", "met"], rows, names=2)}"""


def machine_section(machine: dict[str, str]) -> str:
    return table(["", ""], [[name, value] for name, value in machine.items()], names=2)


def spread_line(results: Results, servers: list[str]) -> str:
    spreads = ((name, results.spread(name)) for name in servers)
    return ", ".join(f"{name} {spread:.0%}" for name, spread in spreads if spread is not None)


def samples_line() -> str:
    more = "".join(f", and {times} times at P={depth}" for depth, times in plan.SAMPLES_IN_A_ROUND.items())
    return f"once{more}"


def render(results: Results, servers: list[str], rounds: int, seconds: float, machine: dict[str, str]) -> str:
    title = f"""# Cairn beside Redis

Made by `make bench`: redis-benchmark with {plan.CLIENTS} clients on loopback, values of {plan.VALUE_BYTES} B,
{plan.KEYS:,} random keys. Cairn runs with `--sync everysec`, redis-server with an append-only file synced every second, unless
said otherwise. Rounds: {rounds}. In each, a measurement is made {samples_line()}, in an order of the round's own, but
for those of sustained writes and of sizes, which come once, in one order; the servers alternate in which comes first. Of each there
are as many requests as take redis-server {seconds} s (pops at most {plan.MOST_POPS:,}). Rates and
latencies (ms) are medians; ratios are medians of the ratios to redis-server that was measured just before or after. While
one server is measured, the other is stopped, and then has up to a second to do what has become due meanwhile. CPU µs is the
server's processor time per command, its background work at that time included. A timeout shows the rate that was not
reached. MSET and MGET take 10 keys; HGETALL reads one of {plan.SMALL_HASHES:,} hashes of {plan.SMALL_HASH_FIELDS} fields.
"""
    sections = [
        title,
        machine_section({**machine, "rates of the samples lie apart by": spread_line(results, servers)}),
        *(depth_section(results, servers, depth) for depth in plan.DEPTHS),
        sustained_section(results, servers),
        size_section(results, servers),
        always_section(results),
        bars_section(results, rounds),
    ]
    return "\n".join(sections)
