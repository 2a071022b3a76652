#!/usr/bin/env python3
"""Stops ranks of many small jobs again and again, each for 1 to 30 ms, while their threads are in every kind of wait; kills one in some of them.

    wait_storm.py TOOL KIND=PROGRAM… [--runs N] [--first N] [--seed N] [--rounds FACTOR] [--limit S]

TOOL is the heddle command. KIND: native (wait_rank), mpi (mpi_wait_rank), shmem (shmem_wait_rank). The seed and the number of a run decide how many
ranks and threads it has, in which mode they share workers, who makes progress, whether memory is mapped, whether all are on one core, whether
a process computes beside them, who is stopped and for how long, and who is killed. Only the instructions at which this happens differ when the
command of a failed run repeats it.
"""

import argparse
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from kill_storm import KILLED, PROGRESS, SHARING, marked, processes_left, unknown_lines

MOST_THREADS = 32  # of all ranks together
MOST_SLEEP_MS = 30
MOST_GAP_MS = 20
HANG_S = 20  # then the launcher says what the ranks wait for
DEATHS = 0.25  # of the runs of a kind whose functions return errors
CALM_AFTER_S = 30  # so that reports of a job that hangs are not about a rank that is stopped
HELD_UP_S = 5
STACKS_BEFORE_S = 8  # before the launcher ends a job
MAY_DIE_AFTER_MS = 400
# Of messages that a survivor has not taken as it had given up.
GIVEN_UP = re.compile(r"heddle\[\d+\] warn: worker \d+ was closed with \d+ USER messages? that no heddle_run_tasks had taken")
# It ends with this process, however that ends.
BURNER = "import ctypes, os; ctypes.CDLL(None).prctl(1, 9)\nwhile os.getppid() != 1: pass"


class Kind:
    """What a program is, and how many of its rounds all its threads together make in a second on one core."""

    def __init__(self, rounds_a_second, told, variables):
        self.rounds_a_second = rounds_a_second
        self.told = told  # functions return errors: survivors end by themselves
        self.variables = variables  # those that it heeds, and their values


KINDS = {
    "native": Kind(10_000, True, {"HEDDLE_SHARING": SHARING, "HEDDLE_PROGRESS": PROGRESS, "HEDDLE_SHM_DIRECT": ("1", "0")}),
    "mpi": Kind(4_000, True, {"HEDDLE_MPI_NO_ANY_TAG": ("0", "1"), "HEDDLE_PROGRESS": PROGRESS, "HEDDLE_SHM_DIRECT": ("1", "0")}),
    "shmem": Kind(1_500, False, {"HEDDLE_PROGRESS": PROGRESS, "HEDDLE_SHM_DIRECT": ("1", "0")}),
}


class Rank:
    """A process, which stays this one, whatever its number is used for later."""

    def __init__(self, number, pid):
        self.number = number
        self.pid = pid
        self.handle = os.pidfd_open(pid)

    def send(self, what):
        """False: it has ended."""
        try:
            signal.pidfd_send_signal(self.handle, what)
            return True
        except ProcessLookupError:
            return False

    def close(self):
        os.close(self.handle)


def rank_of(pid):
    """None: it is no rank, such as the launcher."""
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(b"HEDDLE_LOCAL_RANK="):
            return int(variable.split(b"=")[1])
    return None


class Storm:
    """What happens to a job from outside."""

    def __init__(self, job, mark, size, choose):
        self.job = job
        self.mark = mark
        self.size = size
        self.choose = choose
        self.ranks = {}
        self.ended = os.pidfd_open(job.pid)
        self.stops = 0
        self.held_up_s = 0  # this process itself, for the most

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks.values():
            rank.send(signal.SIGCONT)
            rank.close()
        os.close(self.ended)

    def pause(self, milliseconds):
        """False: the job has ended meanwhile."""
        return not select.select([self.ended], [], [], milliseconds / 1000)[0]

    def find_all(self):
        """False: the job has ended before all its ranks were seen."""
        while len(self.ranks) < self.size:
            for pid in marked(self.mark):
                number = rank_of(pid)
                if number is None or number in self.ranks:
                    continue
                try:
                    rank = Rank(number, int(pid))
                except ProcessLookupError:
                    continue
                if rank_of(pid) == number:
                    self.ranks[number] = rank
                else:
                    rank.close()
            if not self.pause(1):
                return False
        return True

    def stop_some(self):
        """Stops one or two ranks, for times of their own."""
        some = self.choose.sample(sorted(self.ranks), min(len(self.ranks), 1 if self.choose.random() < 0.7 else 2))
        times = sorted((self.choose.uniform(1, MOST_SLEEP_MS), number) for number in some)
        for number in some:
            self.stops += self.ranks[number].send(signal.SIGSTOP)
        before = 0
        begun = time.monotonic()
        for milliseconds, number in times:
            self.pause(milliseconds - before)
            self.ranks[number].send(signal.SIGCONT)
            before = milliseconds
        self.held_up_s = max(self.held_up_s, time.monotonic() - begun - before / 1000)

    def kill(self, number):
        """False: it has ended before."""
        victim = self.ranks.pop(number)
        killed = victim.send(signal.SIGKILL)
        victim.close()
        return killed

    def rage(self, enough):
        """Until enough(), or the end of the job, which returns False."""
        while not enough():
            self.stop_some()
            if not self.pause(self.choose.uniform(0, MOST_GAP_MS)):
                return False
        return True

    def rage_for(self, seconds):
        end = time.monotonic() + seconds
        return self.rage(lambda: time.monotonic() >= end)


def stacks(mark):
    """Of all ranks, if there is a debugger."""
    if shutil.which("gdb") is None:
        return "no gdb: no stacks"
    told = []
    for pid in sorted(marked(mark)):
        number = rank_of(pid)
        if number is None:
            continue
        done = subprocess.run(["gdb", "-p", pid, "-batch", "-ex", "thread apply all backtrace 16"], capture_output=True, text=True, check=False)
        told += [f"rank {number}, process {pid}:"] + [line for line in done.stdout.splitlines() if re.match(r"#|Thread ", line)]
    return "\n".join(told)


class Run:
    """One job."""

    def __init__(self, options, name, program, number):
        self.options = options
        self.name = name
        self.kind = KINDS[name]
        self.program = program
        self.number = number
        self.choose = choose = random.Random(f"{options.seed} {name} {number}")
        self.ranks = choose.choice((2, 3, 4, 8))
        self.threads = choose.choice([threads for threads in (1, 2, 4, 16) if threads * self.ranks <= MOST_THREADS])
        self.variables = {variable: choose.choice(values) for variable, values in self.kind.variables.items()}
        self.workers = "own" if self.variables.get("HEDDLE_SHARING") == "exclusive" else choose.choice(("one", "own"))
        # Tests and probes, too, or only calls that wait.
        self.polls = [] if name == "native" else [choose.choice(("polls", "polls", "waits"))]
        cores = sorted(os.sched_getaffinity(0))
        self.cores = choose.choice(([choose.choice(cores)], cores))
        self.burns = choose.random() < 0.3
        self.victim = choose.randrange(self.ranks) if self.may_die() and choose.random() < DEATHS else None
        self.dies_after = choose.choice((0, choose.uniform(0, 20), choose.uniform(0, MAY_DIE_AFTER_MS))) / 1000
        speed = self.kind.rounds_a_second / (2 if self.burns else 1)
        self.rounds = max(20, int(options.rounds * speed / (self.ranks * self.threads)))
        self.stops = 0
        self.held_up_s = 0
        self.killed = False

    def may_die(self):
        """Survivors poll in place of waits that no death ends."""
        return self.kind.told and self.polls != ["waits"]

    def words(self):
        job = [os.path.abspath(self.options.tool), "run", "-n", str(self.ranks), "--bind", "none", "--timeout", str(self.options.limit)]
        how = [str(self.choose.randrange(1 << 30)), str(self.threads), self.workers, *self.polls]
        program = os.path.abspath(self.program)
        if self.victim is None:
            return [*job, program, str(self.rounds), *how]
        # A victim that has ended its rounds cannot be missed.
        return [*job, "--grace", str(2 * self.options.limit), program, str(1000 * self.rounds), *how, str(self.victim)]

    def told(self):
        settings = " ".join(f"{name}={value}" for name, value in self.variables.items())
        beside = ", beside one that computes" if self.burns else ""
        death = "" if self.victim is None else f", rank {self.victim} is killed after {self.dies_after:.3f} s"
        return (f"{self.ranks} ranks of {self.threads} threads, workers: {self.workers}, cores {self.cores}{beside}, {settings}{death}\n"
                f"  again: {sys.argv[0]} {self.options.tool} {self.name}={self.program} --seed {self.options.seed} --first {self.number} --runs 1 "
                f"--rounds {self.options.rounds} --limit {self.options.limit}")

    def all_begun(self, stdout):
        """Whether all ranks have said so. The file's place is the launcher's, too."""
        said = os.pread(stdout.fileno(), 1 << 16, 0).decode(errors="replace")
        return len(re.findall(r"^begun \d+$", said, re.MULTILINE)) == self.ranks

    def storm(self, job, mark, stdout):
        """What the storm itself finds wrong."""
        started = time.monotonic()
        with Storm(job, mark, self.ranks, self.choose) as storm:
            found = []
            if storm.find_all():
                if self.victim is not None and storm.rage(lambda: self.all_begun(stdout)) and storm.rage_for(self.dies_after):
                    self.killed = storm.kill(self.victim)
                calm = self.options.limit - STACKS_BEFORE_S
                if storm.rage_for(min(CALM_AFTER_S, calm / 2)) and storm.pause(1000 * max(0, started + calm - time.monotonic())):
                    found.append(f"it has not ended; stacks:\n{stacks(mark)}")
            self.stops = storm.stops
            self.held_up_s = storm.held_up_s
        try:
            job.wait(STACKS_BEFORE_S + 60)
        except subprocess.TimeoutExpired:
            job.kill()
            found.append("the launcher has not ended")
        return found

    def outcome(self, code, stdout, stderr):
        """What is wrong with it."""
        dies = self.victim is not None
        if code != (KILLED if dies else 0):
            yield f"the job ended with {code}"
        if dies and not self.killed:
            yield "the victim had ended before it was killed"
        if dies:
            expected = [f"begun {rank}" for rank in range(self.ranks)] + [f"survived {rank}" for rank in range(self.ranks) if rank != self.victim]
        else:
            expected = sorted(f"done {rank} {self.rounds * self.threads}" for rank in range(self.ranks))
        said = sorted(stdout.splitlines())
        if said != expected:
            yield f"the ranks said {said}, and not {expected}"
        unknown = [line for line in unknown_lines(stderr, "run") if not GIVEN_UP.match(line)] if dies else stderr.splitlines()
        if unknown:
            yield f"unexpected: {unknown[0]}"

    def faults(self):
        mark = f"KILL_STORM={os.getpid()}.{time.monotonic_ns()}"
        name, value = mark.split("=")
        environment = {**os.environ, **self.variables, name: value, "HEDDLE_HANG_SECONDS": str(min(HANG_S, self.options.limit // 2))}

        def on_cores():
            os.sched_setaffinity(0, self.cores)

        burner = subprocess.Popen([sys.executable, "-c", BURNER], preexec_fn=on_cores) if self.burns else None
        try:
            with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
                job = subprocess.Popen(self.words(), env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, preexec_fn=on_cores)
                found = self.storm(job, mark.encode(), stdout)
                stdout.seek(0)
                stderr.seek(0)
                said = stdout.read(), stderr.read()
        finally:
            if burner is not None:
                burner.kill()
                burner.wait()
        found += self.outcome(job.returncode, *said)
        found += [f"process {pid} is left" for pid in processes_left(mark.encode())]
        if found and self.held_up_s > HELD_UP_S:
            found.append(f"this test itself was held up for {self.held_up_s:.0f} s, and a rank that it had stopped with it")
        return [*found, *said] if found else []


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("programs", nargs="+", metavar="KIND=PROGRAM")
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--first", type=int, default=1, help="the number of the first run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=float, default=1, help="a factor")
    parser.add_argument("--limit", type=int, default=100, help="seconds of a job")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    options = parsed()
    failed = 0
    for word in options.programs:
        name, program = word.split("=", 1)
        bad = stops = deaths = 0
        for number in range(options.first, options.first + options.runs):
            run = Run(options, name, program, number)
            told = run.told()
            begun = time.monotonic()
            faults = run.faults()
            stops += run.stops
            deaths += run.killed
            if options.verbose:
                print(f"{name}, run {number}: {time.monotonic() - begun:.2f} s, {run.stops} stops, {run.rounds} rounds: {told}", flush=True)
            if faults:
                bad += 1
                print(f"{name}, run {number}: {told}\n  " + "\n  ".join(faults), flush=True)
        print(f"{name}, seed {options.seed}: {options.runs} jobs, {stops} stops, {deaths} deaths, {bad} failed", flush=True)
        if stops == 0:
            print(f"{name}: no rank was stopped, so the runs say nothing")
        failed += bad + (stops == 0)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
