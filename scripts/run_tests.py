#!/usr/bin/env python3
"""Runs the tests of a tree by ctest, says meanwhile what is left, tries those that failed again (retry_failed.py), and ends with one line.

    run_tests.py TREE [--say-every SECONDS] [ARGS…]      ARGS go to ctest, such as -L unit or -R ring

Exit 0: all have passed, a flaky one when it was tried again alone; those are named in that line and in TREE/flaky.txt. Otherwise ctest's status.
TREE/tests.log has all that ctest said. What lists tests instead of running them is ctest's own."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import retry_failed

# Of a test that has not run in this tree: 740 take a quarter of an hour on two processors.
GUESS_S = 2.4
SAY_EVERY_S = 20
# From so many on their own pace corrects the estimate.
PACE_FROM = 30
OUTPUT_LINES = 60
NAMED = 10
# Asked for one of these, ctest runs nothing, or shows nothing that could be read here.
CTESTS_OWN = re.compile(r"-N|--show-only(=.*)?|--print-labels|--list-presets|-Q|--quiet|-h|--help.*|--version|-[DSM]|--build-and-test")
# Set by a user, they leave out cases of the tests, or all.
NARROWING = ("GTEST_FILTER", "GTEST_LIST_TESTS", "GTEST_TOTAL_SHARDS", "TEST_SHARE")
VERBOSE = {"-V", "-VV", "--verbose", "--extra-verbose"}
RESULT = re.compile(r"^ *(?:(\d+)/(\d+) +)?Test +#\d+: (\S+) \.*(?: +|\*\*\*)(.*)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def jobs_of(arguments):
    """How many tests run at once: ctest takes the last -j."""
    jobs = len(os.sched_getaffinity(0))
    for at, word in enumerate(arguments):
        match = re.fullmatch(r"(?:-j|--parallel=?) *(\d*)", word)
        number = match and (match.group(1) or (arguments[at + 1 : at + 2] or [""])[0])
        if number and number.isdigit():
            jobs = max(1, int(number))
    return jobs


def known_costs(tree):
    """Seconds that each test took in this tree, in the mean, by ctest's own notes; without those that have never passed."""
    file = tree / "Testing" / "Temporary" / "CTestCostData.txt"
    costs = {}
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        if line == "---":  # behind it: what failed the last time
            break
        name, runs, cost = line.rsplit(" ", 2)
        if int(runs):
            costs[name] = float(cost)
    return costs


class Estimate:
    def __init__(self, tree, tests, jobs):
        costs = known_costs(tree)
        self.jobs = jobs
        self.costs = {test["name"]: costs.get(test["name"], GUESS_S) for test in tests}
        self.unknown = sum(name not in costs for name in self.costs)
        serial = {"name": "RUN_SERIAL", "value": True}
        self.serial = {test["name"] for test in tests if serial in test.get("properties", [])}

    def seconds(self, names):
        """What these take: nothing runs beside a serial one, and no test is shared out."""
        beside = [self.costs[name] for name in names if name not in self.serial]
        alone = sum(self.costs[name] for name in names if name in self.serial)
        return alone + max([sum(beside) / self.jobs, *beside])

    def left(self, done, elapsed):
        rest = self.seconds([name for name in self.costs if name not in done])
        expected = self.seconds(done)
        return rest * elapsed / expected if len(done) >= PACE_FROM and expected > 0 else rest

    def text(self):
        count = f"{len(self.costs)} test{'s' * (len(self.costs) != 1)}"
        took = duration(self.seconds(self.costs))
        if not self.unknown:
            return f"{count}, about {took}"
        have = "has" if self.unknown == 1 else "have"
        return f"{count}, roughly {took} ({self.unknown} of them {have} not run here before: {GUESS_S} s assumed for each)"


class Told:
    """Standard output, and the file that has more."""

    def __init__(self, file):
        self.path = file
        self.log = open(file, "w", encoding="utf-8")
        self.terminal = sys.stdout.isatty()
        self.shown = False  # a line of progress, which the next line replaces

    def note(self, line):
        self.log.write(line + "\n")

    def say(self, line):
        self.note(line)
        self.clear()
        print(line, flush=True)

    def progress(self, line):
        if not self.terminal:
            print(f"heddle: {line}", flush=True)
            return
        self.clear()
        print(line, end="", flush=True)
        self.shown = True

    def clear(self):
        if self.shown:
            print("\r\033[K", end="")
        self.shown = False


class Run:
    """Reads what ctest says: results as they come, and of those that fail what they said."""

    def __init__(self, told, estimate, verbose, say_every):
        self.told = told
        self.estimate = estimate
        self.verbose = verbose
        self.say_every = 0 if told.terminal else say_every
        self.began = self.said = time.monotonic()
        self.results = {}  # name: the first word of ctest's
        self.failing = None  # the lines of one that failed

    def read(self, line):
        self.told.note(line)
        if self.verbose:
            print(line, flush=True)
        plain = COLOUR.sub("", line)
        result = self.result_in(plain)
        if result:
            self.end_failing()
            name, word = result
            self.results[name] = word
            if word not in ("Passed", "Skipped", "Disabled"):
                self.failing = [plain.strip()]
            else:
                self.progress()
        elif re.match(r" +Start +\d+: |\d+% tests passed, ", plain):
            self.end_failing()
        elif self.failing is not None:
            self.failing.append(plain)

    def result_in(self, line):
        """Name and word, or None: a test that prints such a line does not know how many have ended."""
        match = RESULT.match(line)
        if not match or match.group(3) not in self.estimate.costs:
            return None
        number, total, name, word = match.groups()
        if number is None:
            expected = name in self.results  # --repeat
        else:
            expected = (int(number), int(total)) == (len(self.results) + 1, len(self.estimate.costs))
        return (name, "Disabled" if "(Disabled)" in word else word.split(" ")[0]) if expected else None

    def end_failing(self):
        lines, self.failing = self.failing, None
        if not lines or self.verbose:
            return
        self.told.clear()
        output = lines[1:]
        while output and not output[-1].strip():
            output.pop()
        left_out = len(output) - OUTPUT_LINES
        print(lines[0])
        if left_out > 0:
            print(f"    ({left_out} lines are only in {self.told.path})")
        print("".join(f"    {text}\n" for text in output[-OUTPUT_LINES:]), end="", flush=True)
        self.progress()

    def progress(self):
        now = time.monotonic()
        if self.verbose or now - self.said < self.say_every:
            return
        self.said = now
        failed = len(self.of("failed"))
        left = self.estimate.left(self.results, now - self.began)
        self.told.progress(f"{len(self.results)} of {len(self.estimate.costs)} tests{f', {failed} failed' * bool(failed)}, about {duration(left)} left")

    def of(self, kind):
        kinds = {"Passed": "passed", "Skipped": "skipped", "Disabled": "skipped"}
        return [name for name, word in self.results.items() if kinds.get(word, "failed") == kind]

    def missing(self):
        return [name for name in self.estimate.costs if name not in self.results]


def reason_of(tree, name, word):
    """Why a test was skipped: what it says behind "skipped:", or else last."""
    if word == "Disabled":
        return "disabled"
    output = re.search(r"^Output:\n-+\n(.*?)^<end of output>$", retry_failed.log_of(tree, name), re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in output.group(1).splitlines() if line.strip()] if output else []
    marked = [line.partition("skipped:")[2].strip() for line in lines if "skipped:" in line]
    return ([text for text in marked if text] or lines[-1:] or ["it does not say why"])[0]


def say_skipped(tree, run):
    reasons = {}
    for name in run.of("skipped"):
        reasons.setdefault(reason_of(tree, name, run.results[name]), []).append(name)
    for reason, names in sorted(reasons.items()):
        run.told.say(f"skipped  {reason}: {', '.join(sorted(names))}")


def few(names):
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def again(names):
    """The words after which `./heddle test` runs these tests."""
    if len(names) > NAMED:
        return "--rerun-failed"
    return "-R " + shlex.quote(f"^({'|'.join(re.escape(name) for name in names)})$")


def conclude(run, status, failed, flaky):
    """Says the last line; returns the exit status."""
    total = len(run.estimate.costs)
    missing = run.missing()
    notes = [f"{len(run.of('skipped'))} skipped: reasons above"] * bool(run.of("skipped")) + [f"{len(flaky)} flaky: {', '.join(flaky)}"] * bool(flaky)
    notes += [f"{name} is set: not all cases of the tests" for name in NARROWING if os.environ.get(name)]
    brackets = f" ({'; '.join(notes)})" if notes else ""
    where = f"output in {run.told.path}"
    if failed:
        run.told.say(f"heddle: {len(failed)} of {total} tests failed: {few(failed)}{brackets}; {where}; again: ./heddle test {again(failed)}")
    elif missing:
        run.told.say(f"heddle: {len(missing)} of {total} tests did not run: {few(missing)}{brackets}; {where}; again: ./heddle test {again(missing)}")
    elif status and not flaky:
        run.told.say(f"heddle: ctest ended with status {status}, and no test failed; {where}")
    else:
        passed = len(run.of("passed")) + len(flaky)
        run.told.say(f"heddle: {passed} test{'s' * (passed != 1)} passed in {time.monotonic() - run.began:.0f} s{brackets}")
        return 0
    return status or 1


def try_again(tree, run):
    """Those that fail alone, too, and those that do not. One whose program is missing cannot do better."""
    absent = sorted(name for name in run.of("failed") if run.results[name] == "Not")
    names = sorted(set(run.of("failed")) - set(absent))
    if not names:
        if not absent and not run.missing():
            retry_failed.list_of(tree).unlink(missing_ok=True)  # ctest leaves the list that --rerun-failed was about
        return absent, []
    failed, flaky = retry_failed.retry(tree, names, run.told.say, run.told.note)
    (tree / "flaky.txt").write_text("".join(f"{name} in {tree.parent.name}/{tree.name}\n" for name in flaky), encoding="utf-8")
    return sorted(failed + absent), flaky


def main(arguments):
    sys.stdout.reconfigure(errors="replace")  # whatever a test prints
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    tree, arguments = pathlib.Path(arguments[0]).resolve(), arguments[1:]
    say_every = SAY_EVERY_S
    if arguments[:1] == ["--say-every"]:
        say_every, arguments = float(arguments[1]), arguments[2:]
    ctest = ["ctest", "--test-dir", str(tree)]
    if any(CTESTS_OWN.fullmatch(word) for word in arguments):
        return subprocess.call([*ctest, *arguments])
    listed = subprocess.run([*ctest, *arguments, "--show-only=json-v1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    tests = json.loads(listed.stdout)["tests"] if listed.stdout.startswith("{") else []
    jobs = jobs_of(arguments)
    command = [*ctest, "--output-on-failure", "--no-tests=error", "-j", str(jobs), *arguments]
    if not tests:
        status = subprocess.call(command)
        print("heddle: no test was run", flush=True)
        return status or 1
    (tree / "flaky.txt").unlink(missing_ok=True)
    estimate = Estimate(tree, tests, jobs)
    run = Run(Told(tree / "tests.log"), estimate, any(word in VERBOSE for word in arguments), say_every)
    run.told.say(f"heddle: {estimate.text()}")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        for line in process.stdout:
            run.read(line.rstrip("\n"))
        run.end_failing()
        status = process.wait()
        say_skipped(tree, run)
        failed, flaky = try_again(tree, run)
    except KeyboardInterrupt:  # ctest and its tests have had it, too
        process.wait()
        run.told.say(f"heddle: interrupted after {len(run.results)} of {len(estimate.costs)} tests, {len(run.of('failed'))} failed; output in {run.told.path}")
        return 130
    return conclude(run, status, failed, flaky)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
