#!/usr/bin/env python3
"""Runs the tests that failed in the last ctest of a tree again, each alone and at most twice.

    retry_failed.py TREE [FLAKY]

Exit 0: each passed in the end; those are flaky, a defect to mend: they are printed, and appended to the file FLAKY. Exit 1: one failed
three times, or ctest did not leave a list of what failed (then it was not a test that failed)."""

import pathlib
import re
import subprocess
import sys

RETRIES = 2


def failed_tests(tree):
    """The names in ctest's list, whose lines are NUMBER:NAME."""
    log = tree / "Testing" / "Temporary" / "LastTestsFailed.log"
    if not log.is_file():
        return []
    return [line.split(":", 1)[1] for line in log.read_text().splitlines() if ":" in line]


def passes_alone(tree, name):
    for attempt in range(1, RETRIES + 1):
        print(f"retry_failed: {name}, alone, attempt {attempt} of {RETRIES}", flush=True)
        command = ["ctest", "--test-dir", str(tree), "--output-on-failure", "--no-tests=error", "-R", f"^{re.escape(name)}$"]
        if subprocess.run(command, check=False).returncode == 0:
            return True
    return False


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    tree = pathlib.Path(arguments[0])
    names = failed_tests(tree)  # read whole: each ctest below writes the list anew
    if not names:
        print(f"retry_failed: {tree} has no list of failed tests: it was not a test that failed", file=sys.stderr)
        return 1
    failed = [name for name in names if not passes_alone(tree, name)]
    flaky = [name for name in names if name not in failed]
    for name in flaky:
        print(f"FLAKY    {name} in {tree}: failed once, passed alone")
    if flaky and len(arguments) == 2:
        with open(arguments[1], "a", encoding="utf-8") as file:
            file.writelines(f"{name} in {tree}\n" for name in flaky)
    for name in failed:
        print(f"FAILED   {name} in {tree}: {RETRIES + 1} times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
