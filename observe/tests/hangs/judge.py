#!/usr/bin/env python3
"""Judges what the launcher says about jobs that hang.

Each job is one class and seed of hang_rank, hang_pe or hang_mpi over one transport. The program
tells the truth (--plan); the launcher's report is right if it comes in time, names the culprits and
has the words. `--verify` judges the programs instead: with the fault a job hangs, without it ends.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

SENTENCE = re.compile(r"^(?:heddle run|oshrun|heddle-mpirun|mpirun): nothing has moved for [^:]*: *(.*)")
ANY_SENTENCE = re.compile(r"^(?:heddle run|oshrun|heddle-mpirun|mpirun): nothing has moved")
BLAME = re.compile(r"^(?:heddle run|oshrun|heddle-mpirun|mpirun): *to blame: *(.*)")
PROGRESS = re.compile(r"^rank (\d+): step (\d+)")
LATE = 2.5  # seconds that a report may take beyond HEDDLE_HANG_SECONDS
EARLY = 0.7  # seconds that it may lack: the last line is printed a moment after the last movement
START = 60.0  # seconds that a job may take until nothing is printed any more
QUIET = 3.0  # --verify: seconds without progress after which a living job counts as hung
SLOW = 40.0  # the same while ranks have not come to the fault: they may only be slow


@dataclasses.dataclass(frozen=True)
class Case:
    program: str  # path
    kind: str  # rank, pe, mpi
    name: str
    seed: int
    transport: str

    def label(self) -> str:
        return f"{self.kind}.{self.name} seed {self.seed} {self.transport}"


@dataclasses.dataclass
class Outcome:
    case: Case
    plan: dict
    failures: list[str]
    report: str = ""
    delay: float | None = None


class Job:
    """A running job, what it has printed, and when."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        self.lock = threading.Lock()
        self.output: list[str] = []
        self.errors: list[str] = []
        self.steps: dict[int, int] = {}
        self.last_progress = time.monotonic()
        self.sentence_at: float | None = None
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True)
        self.readers = [threading.Thread(target=self.read_output, daemon=True),
                        threading.Thread(target=self.read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def read_output(self) -> None:
        for line in self.process.stdout:
            found = PROGRESS.match(line)
            with self.lock:
                self.output.append(line)
                if found:
                    self.last_progress = time.monotonic()
                    self.steps[int(found[1])] = int(found[2])

    def read_errors(self) -> None:
        for line in self.process.stderr:
            with self.lock:
                self.errors.append(line)
                if self.sentence_at is None and ANY_SENTENCE.match(line):
                    self.sentence_at = time.monotonic()

    def error_lines(self) -> list[str]:
        with self.lock:
            return list(self.errors)

    def quiet_for(self) -> float:
        with self.lock:
            return time.monotonic() - self.last_progress

    def all_at(self, plan: dict) -> bool:
        with self.lock:
            return len(self.steps) == plan["ranks"] and min(self.steps.values()) >= plan["step"]

    def kill(self) -> None:
        # The ranks end with the launcher, stopped ones too.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for reader in self.readers:
            reader.join(timeout=5)


def environment_of(case: Case, seconds: float) -> dict[str, str]:
    environment = dict(os.environ, HEDDLE_TRANSPORT=case.transport)
    environment.pop("HEDDLE_HANG_SECONDS", None)
    if seconds > 0:
        environment["HEDDLE_HANG_SECONDS"] = f"{seconds:g}"
    return environment


def plan_of(case: Case) -> dict:
    command = [case.program, "--class", case.name, "--seed", str(case.seed), "--plan"]
    done = subprocess.run(command, env=environment_of(case, 0), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def command_of(options, case: Case, ranks: int, fault: str) -> list[str]:
    launcher = "oshrun" if case.kind == "pe" else "run"
    return [options.tool, launcher, "-n", str(ranks), "--timeout", f"{START + 60:g}", case.program,
            "--class", case.name, "--seed", str(case.seed), "--fault", fault]


def named_ranks(text: str) -> set[int]:
    named: set[int] = set()
    for low, high in re.findall(r"(\d+)(?:\s*[-–]\s*(\d+))?", text):
        named.update(range(int(low), int(high or low) + 1))
    return named


def find_report(lines: list[str]) -> tuple[str | None, str | None]:
    """The first sentence, and who is to blame by the line that follows it."""
    sentence = None
    for line in lines:
        if sentence is None:
            if ANY_SENTENCE.match(line):
                found = SENTENCE.match(line)
                sentence = found[1] if found else line
        elif found := BLAME.match(line):
            return sentence, found[1].strip()
    return sentence, None


def judge_culprits(plan: dict, blame: str, strict: bool) -> str | None:
    named = named_ranks(blame)
    accepted = [plan["culprits"]] if strict else plan["accept"]
    for culprits in accepted:
        if set(culprits) <= named and len(named) <= max(2, len(culprits)):
            return None
    return f"to blame are {accepted[0]}{' or others' if len(accepted) > 1 else ''}, not {blame!r}"


def judge_words(plan: dict, sentence: str) -> list[str]:
    return [f"none of {patterns} is in the sentence" for patterns in plan["words"]
            if not any(re.search(pattern, sentence, re.IGNORECASE) for pattern in patterns)]


def wait_for_report(job: Job, quiet_seconds: float) -> None:
    started = time.monotonic()
    while job.process.poll() is None:
        if job.sentence_at is not None:
            if find_report(job.error_lines())[1] is not None or time.monotonic() - job.sentence_at > 1:
                return
        elif job.quiet_for() > quiet_seconds or time.monotonic() - started > START:
            return
        time.sleep(0.02)


def judge(options, case: Case) -> Outcome:
    plan = plan_of(case)
    job = Job(command_of(options, case, plan["ranks"], "planted"), environment_of(case, options.seconds))
    try:
        wait_for_report(job, options.seconds + options.late + 2)
    finally:
        ended = job.process.poll()
        job.kill()
    lines = job.error_lines()
    outcome = Outcome(case, plan, [], "".join(lines))
    sentence, blame = find_report(lines)
    if sentence is None:
        how = f"it ended with {ended}" if ended is not None else f"nothing was printed for {job.quiet_for():.1f} s"
        outcome.failures.append(f"no report: {how}")
        return outcome
    outcome.delay = job.sentence_at - job.last_progress
    if outcome.delay > options.seconds + options.late:
        outcome.failures.append(f"the report came {outcome.delay:.1f} s after the last step began")
    if outcome.delay < options.seconds - EARLY:
        outcome.failures.append(f"the report came only {outcome.delay:.1f} s after the last step began")
    if blame is None:
        outcome.failures.append("no line says who is to blame")
    elif wrong := judge_culprits(plan, blame, options.strict):
        outcome.failures.append(wrong)
    outcome.failures += judge_words(plan, sentence)
    return outcome


def verify(options, case: Case) -> Outcome:
    """With the fault the job hangs once all ranks have come to it; without it ends well."""
    plan = plan_of(case)
    outcome = Outcome(case, plan, [])
    job = Job(command_of(options, case, plan["ranks"], "planted"), environment_of(case, 0))
    while job.process.poll() is None and job.quiet_for() < (QUIET if job.all_at(plan) else SLOW):
        time.sleep(0.02)
    ended = job.process.poll()
    job.kill()
    if ended is not None:
        outcome.failures.append(f"with the fault it ended with {ended}")
    if not job.all_at(plan):
        outcome.failures.append(f"ranks hang before step {plan['step']}, the fault: {job.steps}")
    outcome.report = "".join(job.error_lines())
    command = command_of(options, case, plan["ranks"], "none")
    done = subprocess.run(command, env=environment_of(case, 0), capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, start_new_session=True)
    if done.returncode != 0:
        outcome.failures.append(f"without the fault it ended with {done.returncode}")
        outcome.report += done.stderr + "".join(done.stdout.splitlines(keepends=True)[-10:])
    return outcome


def classes_of(options) -> list[tuple[str, str, str]]:
    found = []
    for kind in ("rank", "pe", "mpi"):
        program = getattr(options, kind)
        if not program:
            continue
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
        found += [(program, kind, name) for name in listed]
    wanted = options.classes.split(",") if options.classes else ["*"]
    return [one for one in found
            if any(fnmatch.fnmatch(text, pattern) for pattern in wanted for text in (one[2], f"{one[1]}.{one[2]}"))]


def cases_of(options) -> list[Case]:
    seeds = range(options.first_seed, options.first_seed + options.count)
    return [Case(program, kind, name, seed, transport) for program, kind, name in classes_of(options)
            for seed in seeds for transport in options.transports.split(",")]


def tell_failure(outcome: Outcome) -> None:
    print(f"---- {outcome.case.label()}")
    for failure in outcome.failures:
        print(f"  {failure}")
    print(f"  plan: {json.dumps(outcome.plan)}")
    for line in outcome.report.splitlines():
        print(f"  | {line}")
    sys.stdout.flush()


def tell_table(outcomes: list[Outcome]) -> None:
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(f"{outcome.case.kind}.{outcome.case.name}", []).append(outcome)
    print(f"{'class':32} {'right':>6} {'of':>4}  {'slowest report':>14}")
    for name, some in rows.items():
        right = sum(not outcome.failures for outcome in some)
        delays = [outcome.delay for outcome in some if outcome.delay is not None]
        print(f"{name:32} {right:6} {len(some):4}  {f'{max(delays):.1f} s' if delays else '-':>14}")


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the heddle tool")
    parser.add_argument("--rank", help="hang_rank")
    parser.add_argument("--pe", help="hang_pe")
    parser.add_argument("--mpi", help="hang_mpi")
    parser.add_argument("--classes", help="names or patterns, with commas, such as wrong_tag,mpi.*; default all")
    parser.add_argument("--transports", default="shm,ucx")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5, help="seeds of each class")
    parser.add_argument("--seconds", type=float, default=3, help="HEDDLE_HANG_SECONDS of the jobs")
    parser.add_argument("--late", type=float, default=LATE, help="seconds after which a report comes late, beyond those")
    parser.add_argument("--jobs", type=int, default=1, help="at a time")
    parser.add_argument("--reach", type=float, default=0.95, help="share of the reports that must be right")
    parser.add_argument("--strict", action="store_true", help="accept only those who did wrong, not who may have")
    parser.add_argument("--keep-going", action="store_true", help="do not stop once the reach cannot be met")
    parser.add_argument("--verify", action="store_true", help="judge the programs, not the reports")
    return parser.parse_args()


def main() -> int:
    options = options_of()
    cases = cases_of(options)
    if not cases:
        sys.exit("no such class")
    outcomes: list[Outcome] = []
    reach = 1.0 if options.verify else options.reach
    most_wrong = len(cases) - reach * len(cases)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(verify if options.verify else judge, options, case) for case in cases]
        for future in concurrent.futures.as_completed(running):
            if future.cancelled():
                continue
            outcome = future.result()
            outcomes.append(outcome)
            if outcome.failures:
                tell_failure(outcome)
            if not options.keep_going and sum(bool(one.failures) for one in outcomes) > most_wrong + 1e-9:
                print("stopped: too many are wrong (--keep-going goes on)")
                for other in running:
                    other.cancel()
                break
    outcomes.sort(key=lambda one: cases.index(one.case))
    tell_table(outcomes)
    right = sum(not outcome.failures for outcome in outcomes)
    print(f"{right} of {len(outcomes)} are right ({right / len(outcomes):.1%}); {reach:.0%} are asked for")
    return 0 if len(outcomes) == len(cases) and right >= reach * len(outcomes) - 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
