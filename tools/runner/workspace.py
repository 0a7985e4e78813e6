"""Workspace: its test programs as cargo builds them, and the age and size of the router's binary."""

import json
import os
import subprocess

from .program import Program

# Folders without sources of the router's binary.
NOT_IN_BINARY = {"tests", "testkit", "fuzz", "docs", "examples", "clients", "tools", "packaging", "target", "out"}
# Prefixes of files at the root that affect the binary: dependencies and the compiler.
AT_ROOT = ("Cargo.", "rust-toolchain")
# Maximum size of the router's binary in bytes, without debug information.
LARGEST_BINARY = 44_600_000


def build():
    """Builds all test programs. Returns them in cargo's order, or None where they don't compile."""
    command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        return None
    return programs(built.stdout.splitlines())


def programs(messages):
    """Returns the test programs that cargo's JSON messages name."""
    found = []
    for line in messages:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if not message.get("executable"):
            continue
        directory = os.path.dirname(message["manifest_path"])
        target = message["target"]
        kind = "unit tests" if "test" not in target["kind"] else "tests"
        name = f"{os.path.relpath(directory)} {kind} {target['name']}"
        environment = {"CARGO_MANIFEST_DIR": directory, "CARGO": os.environ.get("CARGO", "cargo")}
        found.append(Program(name, [message["executable"]], directory, environment))
    return found


def newest_source(root="."):
    """Returns the modification time and path of the newest source file of the router's binary."""
    newest = (0.0, None)
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name == ".cargo" or not name.startswith(".") and name not in NOT_IN_BINARY]
        for name in files:
            if name.endswith(".md") or (folder == root and not name.startswith(AT_ROOT)):
                continue
            path = os.path.join(folder, name)
            newest = max(newest, (os.stat(path).st_mtime, path))
    return newest


def stale(binary, root="."):
    """Returns the reason why a binary can't be tested; None where it can."""
    if not os.access(binary, os.X_OK):
        return f"{binary} is missing: make build"
    changed, path = newest_source(root)
    if path is not None and os.stat(binary).st_mtime < changed:
        return f"{binary} is older than {path}: make build"
    return None


def oversized(binary, largest=LARGEST_BINARY):
    """Returns the reason why a binary is too large; None where it isn't."""
    size = os.stat(binary).st_size
    if size > largest:
        return f"{binary} has {size:,} bytes, {largest:,} at most: docs/performance.md, section Binary size, finds the cause"
    return None
