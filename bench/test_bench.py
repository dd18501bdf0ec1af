"""What the bench makes of figures, and that it asks redis-benchmark for the right thing.

    python3 -B -m unittest discover -s bench
"""

import sys
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "conformance"))

import plan
import report
from contestant import CAIRN, REDIS, FillError, check, encode, parse_peers
from measure import Failure, Sample, benchmark_command, cpu_of_stat, parse, requests_for
from plan import BY_NAME, Measurement
from report import Results

CSV = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","55000.00","0.838","0.032","0.695","1.199","4.751","5.063"
"""
SET = Measurement(BY_NAME["SET"], 1)
SPOP = Measurement(BY_NAME["SPOP"], 16)


def sample(rate, p99=1.0):
    return Sample(rate, 0.5, p99, 10.0)


def results(measurement=SET, **rounds):
    """`results(redis=[…], cairn=[…])`, a rate or a failure per round."""
    made = Results()
    for server, values in rounds.items():
        for value in values:
            made.add(server, measurement, value if isinstance(value, Failure) else sample(value))
    return made


class Benchmarking(unittest.TestCase):
    def test_one_result_is_read(self):
        self.assertEqual(parse(CSV), Sample(55000.0, 0.695, 4.751, None))

    def test_none_or_two_results_are_a_failure(self):
        header, row = CSV.splitlines()
        self.assertIsInstance(parse(header), Failure)
        self.assertIsInstance(parse("\n".join([header, row, row])), Failure)

    def test_own_tests_and_command_lines(self):
        line = " ".join(benchmark_command(7000, SPOP, 800))
        self.assertEqual(line, "redis-benchmark -p 7000 -c 50 -n 800 -P 16 -r 100000 -d 100 --csv -t spop")
        line = " ".join(benchmark_command(7000, Measurement(BY_NAME["HGETALL"], 1), 50))
        self.assertTrue(line.endswith("-r 10000 -d 100 --csv hgetall small:__rand_int__"))

    def test_requests_are_whole_pipelines_within_bounds(self):
        self.assertEqual(requests_for(60_020, SET, 0.5), 30_000)
        self.assertEqual(requests_for(1, SPOP, 0.5), 800)
        self.assertLessEqual(requests_for(1e9, SPOP, 1), plan.MOST_POPS)

    def test_what_is_sustained_comes_back_to_the_same_keys_in_some_rounds(self):
        sustained = plan.sustained_plan()[0]
        self.assertEqual(requests_for(1e6, sustained, 15), 15_000_000 // 800 * 800)
        self.assertIn(sustained, plan.whole_plan(plan.SUSTAINED_ROUNDS))
        self.assertNotIn(sustained, plan.whole_plan(plan.SUSTAINED_ROUNDS + 1))

    def test_a_round_has_all_in_an_order_of_its_own(self):
        one, other = (plan.shuffled(plan.everysec_plan(), number) for number in (1, 2))
        self.assertNotEqual(one, other)
        self.assertEqual(sorted(map(str, one)), sorted(map(str, other)))
        self.assertEqual(set(one), set(plan.everysec_plan()))
        self.assertEqual((one.count(SET), one.count(SPOP)), (plan.SAMPLES_IN_A_ROUND[1], 1))

    def test_processor_time_counts_ended_children(self):
        stat = "1 (a) b) S " + " ".join(["0"] * 10) + " 100 50 25 25 20 0"
        self.assertEqual(cpu_of_stat(stat), 2.0)


class Filling(unittest.TestCase):
    def count(self, measurement, requests):
        """Elements, without the deletion that comes first and the words that begin a command."""
        commands = list(measurement.command.fill.commands(measurement, requests))
        self.assertEqual(commands[0][0], b"DEL")
        return sum(len(words) - 2 for words in commands[1:])

    def test_there_is_one_to_pop_for_each_request(self):
        self.assertEqual(self.count(SPOP, 1201), 1201)
        self.assertEqual(self.count(Measurement(BY_NAME["LPOP"], 1), 1201), 1201)
        self.assertEqual(self.count(Measurement(BY_NAME["ZPOPMIN"], 1), 1201), 2 * 1201)

    def test_all_random_keys_are_there(self):
        commands = list(SET.command.fill.commands(SET, 1))
        keys = [word for words in commands for word in words[1::2]]
        self.assertEqual((len(keys), keys[-1]), (plan.KEYS, b"key:000000099999"))

    def test_a_lasting_fill_is_not_popped(self):
        for command in plan.COMMANDS:
            self.assertFalse("POP" in command.name and command.fill.lasting)

    def test_commands_are_encoded_and_errors_seen(self):
        self.assertEqual(encode([b"DEL", b"k"]), b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n")
        check(b":1\r\n")
        for reply in (b"-ERR no\r\n", b""):
            with self.assertRaises(FillError):
                check(reply)

    def test_peers(self):
        self.assertEqual([(p.name, p.port) for p in parse_peers("a=1,b=2")], [("a", 1), ("b", 2)])
        self.assertEqual(parse_peers(""), [])
        with self.assertRaises(ValueError):
            parse_peers("a")


class Judging(unittest.TestCase):
    def test_a_ratio_is_that_of_rounds(self):
        # The machine was busy in the second round.
        made = results(redis=[100, 10, 100], cairn=[90, 9, 90])
        self.assertAlmostEqual(made.ratio(CAIRN, SET), 0.9)
        self.assertEqual(made.median(REDIS, SET, "rate"), 100)

    def test_one_failed_round_hides_the_figures(self):
        made = results(redis=[100, 100], cairn=[90, Failure("timeout: < 4.0k", is_timeout=True)])
        self.assertIsNone(made.ratio(CAIRN, SET))
        self.assertEqual(report.figures(made, [REDIS, CAIRN], SET)[1], "timeout: < 4.0k")
        self.assertEqual(made.errors(), [])

    def test_what_is_not_a_timeout_is_an_error(self):
        made = results(cairn=[Failure("ERR no")])
        self.assertEqual(made.errors(), ["SET P=1 at cairn: ERR no"])

    def test_bars(self):
        met = report.at_least(results(redis=[100], cairn=[100]), SET, "P=1", 1.0)
        missed = report.at_least(results(redis=[100], cairn=[99]), SET, "P=1", 1.0)
        failed = report.at_least(results(redis=[100], cairn=[Failure("timeout")]), SET, "P=1", 1.0)
        self.assertEqual([met.met, missed.met, failed.met], [True, False, False])
        self.assertEqual((missed.needed, missed.got, failed.got), ("≥ 1.00×", "0.99×", "timeout"))

    def test_p64_is_held_to_p16(self):
        made = results(SPOP, redis=[100], cairn=[50])
        made.add(REDIS, Measurement(SPOP.command, 64), sample(100))
        made.add(CAIRN, Measurement(SPOP.command, 64), sample(46))
        bar = next(bar for bar in report.p64_bars(made) if bar.command == "SPOP")
        self.assertEqual((bar.needed, bar.got, bar.met), ("≥ 0.45×", "0.46×", True))

    def test_no_figures_meet_no_bar(self):
        self.assertFalse(any(bar.met for bar in report.bars(Results())))

    def test_every_bar_is_measured(self):
        self.assertLessEqual(set(plan.P16_RATIOS), set(plan.BY_NAME))
        self.assertLessEqual({Measurement(plan.BY_NAME[name], 16) for name in plan.P16_RATIOS}, set(plan.whole_plan(1)))

    def test_tables_have_as_many_cells_as_columns(self):
        text = report.render(Results(), [REDIS, CAIRN, "peer"], 1, 0.2, {"date": "today"})
        for block in text.split("\n\n"):
            rows = [line.count("|") for line in block.splitlines() if line.startswith("|")]
            self.assertLessEqual(len(set(rows)), 1, block)


if __name__ == "__main__":
    unittest.main()
