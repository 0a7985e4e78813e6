"""Tests of the fuzz targets as a test program, with a fake tools/fuzz. Run `python3 -B -m unittest` in tools."""

import os
import subprocess
import tempfile
import unittest

from runner import fuzzing
from runner.closing import Sum

FAKE = """#!/bin/bash
if [ "$1" = --list ]; then printf '%s\\n' {targets}; exit 0; fi
{body}
"""
PASSED = "echo 'fuzz: {}: 1200 inputs in 15 s, 80/s, 9000 edges, no failure'"


class Fuzzing(unittest.TestCase):
    def run_of(self, targets, body):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fuzz")
            with open(path, "w", encoding="utf-8") as file:
                file.write(FAKE.format(targets=" ".join(targets), body=body))
            os.chmod(path, 0o755)
            self.echoed = []
            return fuzzing.run(15, 2, command=path, echo=self.echoed.append)

    def sum_of(self, run, skips_fail=False):
        total = Sum(skips_fail)
        total.add(run)
        return total

    def test_each_target_is_a_test(self):
        run = self.run_of(["a", "b"], f"{PASSED.format('a')}; {PASSED.format('b')}; echo 'fuzz: 2 of 2 targets passed'")
        self.assertEqual(self.sum_of(run).sum(), "2 passed, 0 failed")

    def test_a_find_fails_the_run_and_its_input_is_printed(self):
        body = f"{PASSED.format('a')}; echo 'fuzz: b: failed with exit code 77'; echo 'fuzz: b: run it again: x'; exit 1"
        run = self.run_of(["a", "b"], body)
        self.assertEqual(self.sum_of(run).sum(), "1 passed, 1 failed")
        self.assertIn("fuzz: b: run it again: x", self.echoed)

    def test_a_skipped_target_stands_in_the_closing_lines(self):
        run = self.run_of(["a", "offload"], f"{PASSED.format('a')}; echo 'fuzz: offload: skipped: not root'")
        total = self.sum_of(run)
        self.assertIn("skipped: fuzz: offload: not root", total.lines())
        self.assertEqual(total.sum(), "1 passed, 0 failed, 1 skipped")
        self.assertIn("1 failed", self.sum_of(run, skips_fail=True).sum())

    def test_a_target_without_a_result_is_a_failure(self):
        run = self.run_of(["a", "b"], PASSED.format("a"))
        self.assertIn("1 of 2 tests have no result: b", run.problems[0])

    def test_targets_that_do_not_compile_are_a_failure(self):
        run = self.run_of(["a"], "echo \"fuzz: the targets don't compile (see above)\"; exit 1")
        self.assertEqual(self.sum_of(run).sum(), "0 passed, 1 failed")

    def test_each_target_has_a_committed_corpus(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
        listed = subprocess.run([os.path.join(root, "tools/fuzz"), "--list"], stdout=subprocess.PIPE, text=True, check=True)
        targets = sorted(os.listdir(os.path.join(root, "fuzz/corpus")))
        self.assertEqual(listed.stdout.split(), targets)


if __name__ == "__main__":
    unittest.main()
