"""Closing lines: skips, retries, problems, and the sum that continuous integration reads."""


class Sum:
    """Sum over all test programs."""

    def __init__(self, skips_fail):
        self.skips_fail = skips_fail
        self.runs = []
        self.retried = []
        self.problems = []

    def add(self, run):
        """Adds a run of a test program."""
        self.runs.append(run)

    def failed_tests(self):
        """Returns the failed tests, each with its run."""
        return [(run, test) for run in self.runs for test in run.tests("FAILED")]

    def retryable(self, program, most):
        """Returns the tests of `program` to run again: its failed tests, if they are few and nothing else has failed."""
        failed = self.failed_tests()
        alone = all(run.name == program for run, _ in failed)
        sound = all(run.is_sound for run in self.runs) and not self.problems
        return [test for _, test in failed] if sound and alone and 0 < len(failed) <= most else []

    def retry(self, run, again):
        """Adds the second run of failed tests. A test that passed there counts as passed."""
        for test in again.results:
            state = "skipped" if test in again.skipped else again.results[test]
            self.retried.append((test, state))
            if state == "ok" and again.is_sound:
                run.results[test] = "ok"
        self.problems += [f"{run.name}, second run: {problem}" for problem in again.problems]

    def lines(self):
        """Returns the closing lines; the sum is the last."""
        lines = []
        slow = [(seconds, test) for run in self.runs for test, seconds in run.seconds.items()]
        for seconds, test in sorted(slow, reverse=True)[:10]:
            lines.append(f"slow: {seconds:.1f} s {test}")
        for run in self.runs:
            lines += [f"skipped: {run.name}: {test}: {why}" for test, why in run.skipped.items()]
        lines += [f"ignored: {run.name}: {test}" for run in self.runs for test in run.tests("ignored")]
        lines += [f"failed: {run.name}: {test}" for run, test in self.failed_tests()]
        for test, state in self.retried:
            lines.append(f"retried: {test}: {'passed' if state == 'ok' else 'failed'} in a second run, alone")
        lines += [f"failed: {run.name}: {problem}" for run in self.runs for problem in run.problems]
        lines += [f"failed: {problem}" for problem in self.problems]
        if not any(run.results for run in self.runs):
            lines.append("failed: no test has run")
        return [*lines, self.sum()]

    def counts(self):
        """Returns the numbers of passed, failed and skipped tests. Missing tests and other problems are failures."""
        skipped = sum(len(run.skipped) for run in self.runs)
        passed = sum(1 for run in self.runs for test in run.tests("ok") if test not in run.skipped)
        failed = len(self.failed_tests()) + sum(len(run.tests("missing")) for run in self.runs)
        failed += sum(len(run.problems) for run in self.runs if not run.tests("missing")) + len(self.problems)
        if not passed and not failed and not skipped:
            failed = 1
        if self.skips_fail:
            failed += skipped
        return passed, failed, skipped

    def sum(self):
        """Returns the last line: "N passed, M failed", then skips and second runs."""
        passed, failed, skipped = self.counts()
        text = f"{passed} passed, {failed} failed"
        if skipped:
            text += f", {skipped} skipped" + (" (counted as failed: CI=true)" if self.skips_fail else "")
        again = sum(1 for _, state in self.retried if state == "ok")
        if again:
            text += f", {again} passed in a second run"
        return text
