#!/usr/bin/env python3
"""Runs the tests that failed in the last ctest of a tree again, each alone and at most twice.

    retry_failed.py TREE [FLAKY]

Exit 0: each passed in the end; those are flaky, a defect to mend: they are printed, with the end of what the failed run said, and appended
to the file FLAKY. Exit 1: one failed three times, or by a sanitizer's report, which is true however seldom it comes; or ctest did not leave
a list of what failed (then it was not a test that failed)."""

import pathlib
import re
import subprocess
import sys

RETRIES = 2
# A race or a wrong access that was seen once is there.
REPORT_LINES = 60
LAST_LINES = 15
REPORT = re.compile(r"WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|: runtime error: ")


def failed_tests(tree):
    """The names in ctest's list, whose lines are NUMBER:NAME."""
    log = tree / "Testing" / "Temporary" / "LastTestsFailed.log"
    if not log.is_file():
        return []
    return [line.split(":", 1)[1] for line in log.read_text().splitlines() if ":" in line]


def log_of(tree, name):
    """The test's part of ctest's last log; empty if there is none."""
    log = tree / "Testing" / "Temporary" / "LastTest.log"
    text = log.read_text(errors="replace") if log.is_file() else ""
    part = re.search(rf"^\d+/\d+ Test: {re.escape(name)}\n.*?(?=^\d+/\d+ Test: |\Z)", text, re.MULTILINE | re.DOTALL)
    return part.group(0) if part else ""


def report_of(log):
    """The first lines of what a sanitizer has said in a test's log; empty if it has said nothing."""
    report = REPORT.search(log)
    return log[report.start() :].splitlines()[:REPORT_LINES] if report else []


def end_of(log):
    """The last lines of what the test has said, and its time: of one that a signal or a time-out has ended there is nothing else."""
    output = re.search(r"^Output:\n-+\n(.*)^<end of output>\n(Test time = [^\n]*)$", log, re.MULTILINE | re.DOTALL)
    if output is None:
        return []
    return [*output.group(1).splitlines()[-LAST_LINES:], f"<its end> {output.group(2).strip()}"]


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
    logs = {name: log_of(tree, name) for name in names}  # read before a ctest below writes the log anew
    reports = {name: report_of(logs[name]) for name in names}
    reported = [name for name in names if reports[name]]
    failed = reported + [name for name in names if name not in reported and not passes_alone(tree, name)]
    flaky = [name for name in names if name not in failed]
    for name in flaky:
        print("\n".join(line[:200] for line in end_of(logs[name])))
        print(f"FLAKY    {name} in {tree}: failed once as above, passed alone")
    if flaky and len(arguments) == 2:
        with open(arguments[1], "a", encoding="utf-8") as file:
            file.writelines(f"{name} in {tree}\n" for name in flaky)
    for name in failed:
        if name not in reported:
            print(f"FAILED   {name} in {tree}: {RETRIES + 1} times")
            continue
        print("\n".join(line[:200] for line in reports[name]))  # here once more, where a log's end is all that somebody sees
        print(f"FAILED   {name} in {tree}: a sanitizer has reported; it is not tried again")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
