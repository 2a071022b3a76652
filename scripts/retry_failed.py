#!/usr/bin/env python3
"""Runs the tests that failed in the last ctest of a tree again, each alone and at most twice.

    retry_failed.py TREE [FLAKY]

Exit 0: each passed in the end; those are flaky, a defect to mend: they are printed, with the end of what the failed run said, and appended
to the file FLAKY. Exit 1: one failed three times, or by a sanitizer's report, which is true however seldom it comes; or so many failed that it
is no accident; or ctest did not leave a list of what failed (then it was not a test that failed). ctest's list has those that failed, thereafter."""

import pathlib
import re
import subprocess
import sys

RETRIES = 2
# More are not tried again.
MOST = 20
# A race or a wrong access that was seen once is there.
REPORT_LINES = 60
LAST_LINES = 15
REPORT = re.compile(r"WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|: runtime error: ")


def list_of(tree):
    return tree / "Testing" / "Temporary" / "LastTestsFailed.log"


def failed_tests(tree):
    """The numbers by the names of ctest's list, whose lines are NUMBER:NAME."""
    lines = list_of(tree).read_text().splitlines() if list_of(tree).is_file() else []
    return {line.split(":", 1)[1]: line.split(":", 1)[0] for line in lines if ":" in line}


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


def passes_alone(tree, name, say, show):
    for attempt in range(1, RETRIES + 1):
        say(f"retry_failed: {name}, alone, attempt {attempt} of {RETRIES}")
        command = ["ctest", "--test-dir", str(tree), "--output-on-failure", "--no-tests=error", "-R", f"^{re.escape(name)}$"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        show(done.stdout.rstrip("\n"))
        if done.returncode == 0 and "***Skipped" not in done.stdout:  # one that looks away has not passed
            return True
    return False


def retry(tree, names, say, show):
    """Those of the tests that have failed for good, and those that are flaky; tells by say(TEXT) how it went, by show(TEXT) what ctest said."""
    numbers = failed_tests(tree)  # these three are read before a ctest below writes them anew
    logs = {name: log_of(tree, name) for name in names}
    reports = {name: report_of(logs[name]) for name in names}
    reported = [name for name in names if reports[name]]
    many = len(names) > MOST
    failed = [name for name in names if reports[name] or many or not passes_alone(tree, name, say, show)]
    flaky = [name for name in names if name not in failed]
    for name in flaky:
        say("\n".join([line[:200] for line in end_of(logs[name])] + [f"FLAKY    {name} in {tree}: failed once as above, passed alone"]))
    for name in failed:
        # The report once more, where a log's end is all that somebody sees.
        why = "a sanitizer has reported; it is not tried again" if name in reported else f"{RETRIES + 1} times"
        if many and name not in reported:
            why = f"so have {len(names) - 1} others; none is tried again"
        say("\n".join([line[:200] for line in reports[name]] + [f"FAILED   {name} in {tree}: {why}"]))
    kept = [f"{number}:{name}\n" for name, number in numbers.items() if name not in flaky]
    if kept:
        list_of(tree).write_text("".join(kept))
    else:
        list_of(tree).unlink(missing_ok=True)
    return failed, flaky


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    tree = pathlib.Path(arguments[0])
    names = list(failed_tests(tree))
    if not names:
        print(f"retry_failed: {tree} has no list of failed tests: it was not a test that failed", file=sys.stderr)
        return 1
    say = lambda text: print(text, flush=True)
    failed, flaky = retry(tree, names, say, say)
    if flaky and len(arguments) == 2:
        with open(arguments[1], "a", encoding="utf-8") as file:
            file.writelines(f"{name} in {tree}\n" for name in flaky)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
