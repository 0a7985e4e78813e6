"""Fuzz targets as a test program: one test for each target."""

import re
import subprocess

from .program import Run

RESULT = re.compile(r"^fuzz: (\w+): (?:\d+ inputs\b.* no failure|failed with exit code|ran no input|(skipped): (.+))")


def run(seconds, jobs, command="tools/fuzz", echo=print):
    """Fuzzes each target for some seconds. Passes each line of the output to `echo`."""
    result = Run("fuzz")
    listed = subprocess.run([command, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    fuzz = [command, "--seconds", str(seconds), "--jobs", str(jobs)]
    with subprocess.Popen(fuzz, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            echo(line.rstrip("\n"))
            read(result, line)
    if not result.results and process.returncode != 0:
        result.problems.append("no target has run (see above)")
        return result
    # With CI=true a skipped target fails the command; the sum counts the target itself.
    status = 101 if result.tests("FAILED") else 0 if result.skipped else process.returncode
    result.finish(status, listed)
    return result


def read(result, line):
    """Reads a line of the output into a run."""
    if not (found := RESULT.match(line)):
        return
    target = found[1]
    passed = "no failure" in found[0] or found[2]
    result.results[target] = "ok" if passed else "FAILED"
    if found[2]:
        result.skipped[target] = found[3].strip()
