"""The runner's own judgement: what it reads from the suite, and when it says no.

    python3 -B -m unittest discover -s tests/conformance
"""

import tempfile
import unittest
from pathlib import Path

import suite
from expectations import Entry, Expectations, ListError, passed_by_itself, read_catalogue, read_entries
from suite import Outcome

REPORT = """\
Testing unit/demo
[ok]: SET and GET (3 ms)
[err]: COPY (2) in tests/unit/demo.tcl
Expected '1' to equal or match '0'
[skip]: BLPOP
[ok]: twice (0 ms)
[ok]: twice (1 ms)
[ignore]: DEBUG: Tag: needs:debug denied
"""

ABORTED = REPORT + """\
[exception]: Executing test client: ERR unknown command 'multi'.
    while executing
"""


def demo(catalogue=("SET and GET", "COPY (2)", "BLPOP", "twice", "twice"), listed=("BLPOP",), alone=()):
    entries = [[Entry("unit/demo", "because", name) for name in names] for names in (listed, alone)]
    return Expectations({"unit/demo": list(catalogue)}, *entries)


def judge(report, **lists):
    return demo(**lists).judge_unit("unit/demo", suite.parse(report))


class Parsing(unittest.TestCase):
    def test_reads_names_with_brackets_and_details(self):
        outcome = suite.parse(REPORT)
        self.assertTrue(outcome.started)
        self.assertEqual(outcome.passed, ["SET and GET", "twice", "twice"])
        self.assertEqual(outcome.failed, [("COPY (2)", "Expected '1' to equal or match '0'")])
        self.assertEqual(outcome.aborted, "")

    def test_sees_an_abort(self):
        self.assertIn("unknown command 'multi'", suite.parse(ABORTED).aborted)

    def test_a_suite_that_never_began_is_not_a_run(self):
        self.assertFalse(suite.parse("couldn't open socket: address already in use").started)


class Judging(unittest.TestCase):
    def test_all_is_well(self):
        verdict = judge(REPORT.replace("[err]: COPY (2) in tests/unit/demo.tcl", "[ok]: COPY (2) (1 ms)"))
        self.assertEqual((verdict.passed, verdict.failures, verdict.notes), (4, [], []))

    def test_a_failed_test_fails(self):
        self.assertEqual([name for name, _ in judge(REPORT).failures], ["COPY (2)"])

    def test_a_missing_test_fails(self):
        verdict = judge(REPORT, catalogue=("SET and GET", "COPY (2)", "BLPOP", "twice", "twice", "twice"))
        self.assertIn(("twice", "did not run"), verdict.failures)

    def test_an_abort_fails_and_names_the_test(self):
        verdict = judge(ABORTED, catalogue=("SET and GET", "COPY (2)", "BLPOP", "twice", "twice", "EXEC", "last"))
        self.assertEqual(
            [name for name, _ in verdict.failures], ["COPY (2)", "the unit ended in: EXEC", "last"]
        )

    def test_an_abort_after_the_last_test_fails(self):
        self.assertEqual(judge(ABORTED).failures[-1][0], "the unit did not end well")

    def test_a_test_that_is_new_is_only_noted(self):
        verdict = judge(REPORT + "[ok]: new (1 ms)\n")
        self.assertEqual(verdict.notes, ["not in the catalogue: new"])

    def test_by_itself(self):
        entry = Entry("unit/demo", "because", "BLPOP")
        self.assertTrue(passed_by_itself(entry, Outcome(passed=["BLPOP"])))
        self.assertFalse(passed_by_itself(entry, Outcome(passed=["BRPOP"])))
        self.assertFalse(passed_by_itself(entry, Outcome(passed=["BLPOP"], failed=[("BLPOP", "")])))
        self.assertFalse(passed_by_itself(entry, Outcome(passed=["BLPOP"], aborted="the server ended")))


class Lists(unittest.TestCase):
    def written(self, text):
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "list.txt"
        path.write_text(text)
        return path

    def test_an_entry_has_unit_reason_and_predecessors(self):
        path = self.written("# why\nunit/a\n  MULTI\n    one\n    two\n      one\n")
        self.assertEqual(
            read_entries(path), [Entry("unit/a", "MULTI", "one"), Entry("unit/a", "MULTI", "two", ["one"])]
        )

    def test_wrong_indentation_is_refused(self):
        for text in ("unit/a\n    one\n", "unit/a\n  MULTI\n     one\n", "  MULTI\n"):
            with self.assertRaises(ListError):
                read_entries(self.written(text))
        with self.assertRaises(ListError):
            read_catalogue(self.written("unit/a\n    one\n"))

    def test_unknown_and_doubled_names_are_refused(self):
        for lists in ({"listed": ["BLPO"]}, {"listed": ["BLPOP", "BLPOP"]}, {"alone": ["BLPOP"]}):
            with self.assertRaises(ListError):
                demo(**lists)

    def test_the_lists_beside_this_file_agree(self):
        self.assertTrue(Expectations.read().listed)


if __name__ == "__main__":
    unittest.main()
