"""Test programs: their lists of tests, their runs, and the results in their output."""

import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass, field

RESULT = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b.*$")
STDOUT_OF = re.compile(r"^---- (.+) stdout ----$")
TOOK = re.compile(r"^took ([0-9.]+) s$")


@dataclass
class Run:
    """Run of a test program: the state of each test, and the problems of the program itself."""

    name: str
    results: dict = field(default_factory=dict)
    skipped: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)
    output: list = field(default_factory=list)
    # Test that the next lines of standard output belong to.
    shown: str = None

    def tests(self, result):
        """Returns the names of the tests with a result: "ok", "FAILED", "ignored" or "missing"."""
        return [test for test, value in self.results.items() if value == result]

    @property
    def is_sound(self):
        """Whether the program itself worked: no signal, no unknown exit code, no missing test."""
        return not self.problems

    def read(self, line):
        """Reads a line of the output."""
        self.output.append(line)
        if found := RESULT.match(line):
            # A test may print such a line itself. Its output follows the results, so the first line counts.
            self.results.setdefault(found[1], found[2])
            return
        if found := STDOUT_OF.match(line):
            self.shown = found[1]
        elif self.shown and line.startswith("skipped: "):
            self.skipped[self.shown] = line.removeprefix("skipped: ")
        elif self.shown and (found := TOOK.match(line)):
            self.seconds[self.shown] = self.seconds.get(self.shown, 0.0) + float(found[1])

    def read_errors(self, lines):
        """Reads what the program and its children write to standard error."""
        self.output.extend(line.rstrip("\n") for line in lines)

    def finish(self, status, listed):
        """Checks the exit status, and compares the results with the list of tests."""
        failed = self.tests("FAILED")
        if status is None:
            self.problems.append("ended by its time limit")
        elif status < 0:
            self.problems.append(f"ended by {signal_name(-status)}")
        elif status not in (0, 101):
            self.problems.append(f"ended with exit code {status}")
        elif (status == 101) != bool(failed):
            self.problems.append(f"ended with exit code {status}, and {len(failed)} tests failed")
        missing = [test for test in listed if test not in self.results]
        unlisted = [test for test in self.results if test not in set(listed)]
        for test in missing:
            self.results[test] = "missing"
        if missing:
            self.problems.append(f"{len(missing)} of {len(listed)} tests have no result: {some(missing)}")
        if unlisted:
            self.problems.append(f"{len(unlisted)} tests are not in the list: {some(unlisted)}")

    def failures(self):
        """Returns the part of the output that describes failed tests."""
        starts = [at for at, line in enumerate(self.output) if line == "failures:"]
        return self.output[starts[0]:] if starts else self.output[-40:]


def some(names):
    """Returns at most five names, and the number of further ones."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def signal_name(number):
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass
class Program:
    """Executable of the libtest harness, or another command with the same output and options."""

    name: str
    command: list
    directory: str
    # Environment variables of cargo that a test reads.
    environment: dict = field(default_factory=dict)

    def _start(self, arguments, **more):
        environment = {**os.environ, **self.environment}
        return subprocess.Popen(
            self.command + arguments, cwd=self.directory, env=environment, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, **more)

    def list(self, filters=()):
        """Returns the names of all tests."""
        process = self._start([*filters, "--list", "--format", "terse"])
        text, _ = process.communicate(timeout=120)
        if process.returncode != 0:
            raise RuntimeError(f"{self.name}: --list ended with {process.returncode}")
        return [line.removesuffix(": test") for line in text.splitlines() if line.endswith(": test")]

    def run(self, options=(), tests=None, limit=3600, echo=None):
        """Runs all tests, or the named ones, for at most `limit` seconds. Passes each result line to `echo`."""
        chosen = ["--exact", *tests] if tests else []
        run = Run(self.name)
        try:
            listed = self.list(chosen)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            run.problems.append(str(error))
            return run
        # The harness writes a result in pieces. What children of the tests write to standard error must not part them.
        with self._start([*chosen, "--show-output", *options], stderr=subprocess.PIPE) as process:
            watch = Watch(process, limit)
            errors = threading.Thread(target=run.read_errors, args=[process.stderr], daemon=True)
            errors.start()
            for line in process.stdout:
                run.read(line.rstrip("\n"))
                if echo and RESULT.match(line):
                    echo(line.rstrip("\n"))
            process.wait()
            errors.join()
        run.finish(None if watch.cancel() else process.returncode, listed)
        return run


class Watch:
    """Watch that kills a process and its children after a time limit."""

    def __init__(self, process, limit):
        self.expired = False
        self.process = process
        self.timer = threading.Timer(limit, self._expire)
        self.timer.daemon = True
        self.timer.start()

    def _expire(self):
        self.expired = True
        # The process leads its own session: its process group has only its children.
        os.killpg(self.process.pid, signal.SIGKILL)

    def cancel(self):
        """Stops the watch. Returns whether the process was killed."""
        self.timer.cancel()
        return self.expired
