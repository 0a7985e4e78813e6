"""Tests of the test runner, with fake test programs. Run `python3 -B -m unittest` in tools."""

import os
import tempfile
import time
import unittest

from runner import workspace
from runner.closing import Sum
from runner.program import Program

# Fake test program: answers --list as libtest does, and otherwise runs the body of a case.
FAKE = """#!/bin/bash
for word in "$@"; do
    if [ "$word" = --list ]; then printf '%s: test\\n' {tests}; exit 0; fi
done
{body}
"""


class Fake(unittest.TestCase):
    """Test case with a folder of fake test programs."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def program(self, tests, body, name="fake"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(FAKE.format(tests=" ".join(tests), body=body))
        os.chmod(path, 0o755)
        return Program(name, [path], self.folder.name)

    def run_of(self, tests, body, **options):
        return self.program(tests, body).run(**options)

    def sum_of(self, *runs, skips_fail=False):
        total = Sum(skips_fail)
        for run in runs:
            total.add(run)
        return total


class Programs(Fake):
    def test_passed_tests_are_counted(self):
        run = self.run_of(["a::one", "two"], "echo 'test a::one ... ok'; echo 'test two - should panic ... ok'")
        self.assertTrue(run.is_sound, run.problems)
        self.assertEqual(self.sum_of(run).sum(), "2 passed, 0 failed")

    def test_a_signal_is_a_failure_although_all_results_were_good(self):
        run = self.run_of(["one"], "echo 'test one ... ok'; kill -SEGV $$")
        self.assertEqual(run.problems, ["ended by SIGSEGV"])
        self.assertEqual(self.sum_of(run).sum(), "1 passed, 1 failed")

    def test_a_test_without_a_result_is_a_failure(self):
        run = self.run_of(["one", "two"], "echo 'test one ... ok'")
        self.assertEqual(run.results["two"], "missing")
        self.assertEqual(self.sum_of(run).sum(), "1 passed, 1 failed")
        self.assertIn("1 of 2 tests have no result: two", run.problems[0])

    def test_errors_of_a_child_part_no_result(self):
        run = self.run_of(["one"], "printf 'test one ... '; echo 'a child: 5 packets' >&2; echo ok")
        self.assertTrue(run.is_sound, run.problems)
        self.assertEqual(run.tests("ok"), ["one"])
        self.assertIn("a child: 5 packets", run.output)

    def test_a_result_that_is_not_in_the_list_is_a_failure(self):
        run = self.run_of(["one"], "echo 'test one ... ok'; echo 'test other ... ok'")
        self.assertFalse(run.is_sound)

    def test_an_exit_code_that_contradicts_the_results_is_a_failure(self):
        for code, line in [(101, "ok"), (0, "FAILED"), (3, "ok")]:
            run = self.run_of(["one"], f"echo 'test one ... {line}'; exit {code}")
            self.assertFalse(run.is_sound, (code, line))

    def test_a_program_that_hangs_is_ended(self):
        began = time.monotonic()
        run = self.run_of(["one"], "sleep 60", limit=0.3)
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(run.problems[0], "ended by its time limit")
        self.assertEqual(run.results["one"], "missing")

    def test_a_list_that_fails_is_a_failure(self):
        broken = Program("broken", ["/bin/false"], self.folder.name)
        absent = Program("absent", ["/nowhere/at/all"], self.folder.name)
        for program in (broken, absent):
            self.assertEqual(self.sum_of(program.run()).sum(), "0 passed, 1 failed")


SKIP = """echo 'test one ... ok'; echo 'test two ... ok'
printf 'successes:\\n\\n---- one stdout ----\\nskipped: needs root\\n\\n---- two stdout ----\\ntook 2.5 s\\n'"""


class Closing(Fake):
    def test_a_skip_is_printed_and_counted_and_fails_under_ci(self):
        run = self.run_of(["one", "two"], SKIP)
        lines = self.sum_of(run).lines()
        self.assertIn("skipped: fake: one: needs root", lines)
        self.assertIn("slow: 2.5 s two", lines)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 1 skipped")
        self.assertTrue(self.sum_of(run, skips_fail=True).sum().startswith("1 passed, 1 failed, 1 skipped"))

    def failing(self, body="echo 'test one ... FAILED'; exit 101", name="scenarios"):
        return self.program(["one"], body, name)

    def test_a_failed_scenario_runs_again_alone_and_is_listed(self):
        marker = os.path.join(self.folder.name, "again")
        program = self.failing(
            f"if [ -e {marker} ]; then echo 'test one ... ok'; else touch {marker}; echo 'test one ... FAILED'; exit 101; fi")
        run = program.run()
        total = self.sum_of(run)
        self.assertEqual(total.retryable("scenarios", 3), ["one"])
        total.retry(run, program.run(tests=["one"]))
        self.assertIn("retried: one: passed in a second run, alone", total.lines())
        self.assertEqual(total.sum(), "1 passed, 0 failed, 1 passed in a second run")

    def test_a_scenario_that_fails_twice_has_failed(self):
        program = self.failing()
        run = program.run()
        total = self.sum_of(run)
        total.retry(run, program.run(tests=["one"]))
        self.assertEqual(total.sum(), "0 passed, 1 failed")

    def test_a_failed_scenario_that_skips_in_its_second_run_has_failed(self):
        run = self.run_of(["one"], "echo 'test one ... FAILED'; exit 101")
        total = self.sum_of(run)
        again = "echo 'test one ... ok'; echo '---- one stdout ----'; echo 'skipped: no root'"
        total.retry(run, self.run_of(["one"], again))
        self.assertEqual(total.sum(), "0 passed, 1 failed")

    def test_output_that_looks_like_a_result_changes_none(self):
        run = self.run_of(["one"], "echo 'test one ... FAILED'; echo 'test one ... ok'; exit 101")
        self.assertEqual(run.results["one"], "FAILED")

    def test_a_sum_of_no_tests_is_a_failure(self):
        self.assertEqual(self.sum_of().sum(), "0 passed, 1 failed")
        self.assertEqual(self.sum_of(self.run_of([], "true")).sum(), "0 passed, 1 failed")

    def test_nothing_runs_again_when_a_program_ended_by_a_signal(self):
        total = self.sum_of(self.failing().run(), self.run_of(["b"], "echo 'test b ... ok'; kill -ABRT $$"))
        self.assertEqual(total.retryable("scenarios", 3), [])
        scenarios = self.failing("echo 'test one ... FAILED'; kill -KILL $$").run()
        self.assertEqual(self.sum_of(scenarios).retryable("scenarios", 3), [])

    def test_nothing_runs_again_when_another_program_failed_or_the_gate_did(self):
        failed = self.failing().run()
        other = self.failing(name="other").run()
        self.assertEqual(self.sum_of(failed, other).retryable("scenarios", 3), [])
        total = self.sum_of(failed)
        total.problems.append("the gate could not run")
        self.assertEqual(total.retryable("scenarios", 3), [])
        self.assertEqual(total.sum(), "0 passed, 2 failed")

    def test_nothing_runs_again_when_many_failed(self):
        tests = ["a", "b", "c", "d"]
        body = "for t in a b c d; do echo \"test $t ... FAILED\"; done; exit 101"
        run = self.program(tests, body, "scenarios").run()
        self.assertEqual(self.sum_of(run).retryable("scenarios", 3), [])


class Workspace(Fake):
    def write(self, path, age):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("x")
        os.chmod(path, 0o755)
        os.utime(path, (time.time() - age,) * 2)
        return path

    def test_a_binary_older_than_its_sources_is_refused(self):
        binary = self.write("out/millrace", 100)
        self.write("cli/src/main.rs", 200)
        self.write("tests/tests/new.rs", 0)
        self.write("README.md", 0)
        self.assertIsNone(workspace.stale(binary, self.folder.name))
        self.write("dataplane/port/src/lib.rs", 50)
        self.assertIn("older than", workspace.stale(binary, self.folder.name))
        self.assertIn("missing", workspace.stale(binary + "2", self.folder.name))

    def test_a_binary_above_the_limit_is_oversized(self):
        binary = self.write("out/millrace", 0)
        os.truncate(binary, workspace.LARGEST_BINARY)
        self.assertIsNone(workspace.oversized(binary))
        os.truncate(binary, workspace.LARGEST_BINARY + 1)
        self.assertIn("44,600,001 bytes, 44,600,000 at most", workspace.oversized(binary))

    def test_settings_of_cargo_and_the_compiler_are_sources_of_the_binary(self):
        for name in [".cargo/config.toml", "rust-toolchain.toml", "Cargo.lock"]:
            binary = self.write("out/millrace", 100)
            self.write(".github/any", 0)
            path = self.write(name, 50)
            self.assertIn(name, workspace.stale(binary, self.folder.name) or "")
            os.remove(path)
            self.assertIsNone(workspace.stale(binary, self.folder.name))

    def test_cargos_messages_name_the_test_programs(self):
        def message(kind, executable, test="true"):
            return (f'{{"reason":"compiler-artifact","manifest_path":"{os.getcwd()}/tests/Cargo.toml",'
                    f'"target":{{"kind":["{kind}"],"name":"n"}},"profile":{{"test":{test}}},"executable":{executable}}}')
        lines = ["text", message("test", '"/a"'), message("lib", '"/b"'), message("bin", '"/c"', "false"),
                 message("lib", "null"), '{"reason":"build-finished"}']
        found = workspace.programs(lines)
        self.assertEqual([(p.name, p.command) for p in found],
                         [("tests tests n", ["/a"]), ("tests unit tests n", ["/b"])])


if __name__ == "__main__":
    unittest.main()
