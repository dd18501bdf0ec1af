"""The three lists beside this file, and the judgement of a unit by them.

`catalogue.txt`           every test that Redis 7.0.15 passes, by unit, in the order of the suite. A test
                          that is here and did not pass has failed, whatever became of it: a unit that ends
                          half-way cannot look like one that is done.
`expected-failures.txt`   the tests that cannot pass yet, and why.
`alone.txt`               tests that are right only after a listed one, whose traces they count on. They run
                          by themselves, and must pass.

The files are outlines, two spaces a level: unit, reason (the catalogue has none), test. A line below a test
names another that has to run before it, when the tests of a list are run by themselves.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from suite import Outcome

HERE = Path(__file__).resolve().parent
INDENT = 2

# Tests of the source package that Redis 7.0.15 itself does not pass: they came with a patch from a later version.
NOT_OF_THIS_VERSION = {
    # A payload of version 12, which 7.0 refuses before it comes to the length that is meant.
    "unit/dump": {"RESTORE fail with invalid payload size"},
}


class ListError(Exception):
    """A list that contradicts itself or the catalogue."""


@dataclass
class Entry:
    unit: str
    reason: str
    name: str
    after: list = field(default_factory=list)

    def __str__(self):
        return f"{self.unit}: {self.name}"


@dataclass
class Verdict:
    """How a unit, or the tests of a list, did. A failure is a title and lines of detail."""

    passed: int = 0
    failures: list = field(default_factory=list)
    notes: list = field(default_factory=list)


class Expectations:
    def __init__(self, catalogue: dict, listed: list, alone: list):
        self.catalogue = catalogue
        self.listed = listed
        self.alone = alone
        self._check()

    @classmethod
    def read(cls, directory: Path = HERE):
        return cls(
            read_catalogue(directory / "catalogue.txt"),
            read_entries(directory / "expected-failures.txt"),
            read_entries(directory / "alone.txt"),
        )

    def restrict(self, units: list):
        """Only these units, in this order."""
        if unknown := [unit for unit in units if unit not in self.catalogue]:
            raise ListError(f"not in the catalogue: {', '.join(unknown)}")
        self.catalogue = {unit: self.catalogue[unit] for unit in units}
        self.listed = [entry for entry in self.listed if entry.unit in units]
        self.alone = [entry for entry in self.alone if entry.unit in units]

    def set_aside(self, unit: str) -> set:
        """What the run of the whole unit leaves out."""
        aside = {entry.name for entry in self.listed + self.alone if entry.unit == unit}
        return aside | NOT_OF_THIS_VERSION.get(unit, set())

    def occurrences(self, entries: list) -> int:
        return sum(self.catalogue[entry.unit].count(entry.name) for entry in entries)

    def judge_unit(self, unit: str, outcome: Outcome) -> Verdict:
        aside = self.set_aside(unit)
        expected = [name for name in self.catalogue[unit] if name not in aside]
        reported = outcome.counts() + Counter(name for name, _ in outcome.failed)
        missing = in_order(Counter(expected) - reported, expected)

        verdict = Verdict(passed=len(outcome.passed), failures=list(outcome.failed))
        if outcome.aborted:
            # The suite does not say where it was, but the first test that is missing is where it stopped.
            title = f"the unit ended in: {missing.pop(0)}" if missing else "the unit did not end well"
            verdict.failures.append((title, outcome.aborted))
        verdict.failures += [(name, "did not run") for name in missing]
        verdict.notes = [f"not in the catalogue: {name}" for name in reported - Counter(expected)]
        return verdict

    def _check(self):
        """Every listed test exists, and no test is listed twice."""
        seen = set()
        for entry in self.listed + self.alone:
            for name in [entry.name, *entry.after]:
                if name not in self.catalogue.get(entry.unit, []):
                    raise ListError(f"{entry.unit} has no test: {name}")
            # By what their logs are called, so that no two runs share a file.
            if file_name(str(entry)) in seen:
                raise ListError(f"listed twice: {entry}")
            seen.add(file_name(str(entry)))


def file_name(title: str) -> str:
    return re.sub(r"[^\w.+]+", "-", title)


def in_order(counts: Counter, order: list) -> list:
    """The elements of `counts` as they come in `order`."""
    left = counts.copy()
    picked = []
    for name in order:
        if left[name] > 0:
            left[name] -= 1
            picked.append(name)
    return picked


def passed_by_itself(entry: Entry, outcome: Outcome) -> bool:
    failed = any(name == entry.name for name, _ in outcome.failed)
    return entry.name in outcome.passed and not failed and not outcome.aborted


def outline(path: Path):
    """The level, from 0, and the text of each line that says something."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or line.startswith("#"):
            continue
        level, rest = divmod(len(line) - len(line.lstrip()), INDENT)
        if rest:
            raise ListError(f"{path.name}:{number}: indented by an odd number of spaces")
        yield level, text, f"{path.name}:{number}"


def read_catalogue(path: Path) -> dict:
    units = {}
    for level, text, where in outline(path):
        if level == 0:
            tests = units.setdefault(text, [])
        elif level == 1 and units:
            tests.append(text)
        else:
            raise ListError(f"{where}: expected a unit, and its tests below it")
    return units


def write_catalogue(units: dict, path: Path = HERE / "catalogue.txt"):
    head = "# The tests that Redis 7.0.15 passes. Written by `run --record`.\n"
    blocks = ["\n".join([unit, *(" " * INDENT + name for name in tests)]) for unit, tests in units.items()]
    path.write_text(head + "\n" + "\n\n".join(blocks) + "\n")


def read_entries(path: Path) -> list:
    entries = []
    parents = []
    for level, text, where in outline(path):
        if level > len(parents):
            raise ListError(f"{where}: indented too far")
        parents = [*parents[:level], text]
        if level == 2:
            entries.append(Entry(unit=parents[0], reason=parents[1], name=text))
        elif level == 3:
            entries[-1].after.append(text)
        elif level > 3:
            raise ListError(f"{where}: indented too far")
    return entries
