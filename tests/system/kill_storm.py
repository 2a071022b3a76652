#!/usr/bin/env python3
"""Kills a rank of many small jobs, each in another call, mode and transport, at another moment: nobody hangs, each survivor is told, nothing is left.

    kill_storm.py TOOL KIND=PROGRAM… [--runs N] [--seed N] [--transports shm,messages,ucx,ofi,mixed] [--calls A,B] [--limit S] [--alone]

TOOL is the heddle command. KIND: mpi (mpi_death_rank), shmem (shmem_death_rank), native (call_death_rank). Of each kind and transport each call comes
once before one comes again, each time in another mode and with other things that the victim does. The seed decides everything but the instruction at
which a rank dies; each failed run is told with the command that repeats it. --alone: nobody else uses /dev/shm, so what is left there is a fault.
"""

import argparse
import itertools
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

SHARING = ("auto", "exclusive", "shared", "offload", "delegate")
PROGRESS = ("none", "adaptive", "dedicated:1")
RANKS = 3
LIMIT_S = 100
HANG_S = 30  # then the launcher says what the ranks wait for
# What the library says of a peer that has died.
WARNING = re.compile(r"heddle\[\d+\] (error|warn|info): .*\b(has failed|have failed|dropped a message|has died|accepts no connection|finds no route)\b")
LONGEST_LIFE_US = 20_000
KILLED = 128 + 9
ABORTED = 128 + 6

TRANSPORTS = {
    "shm": {"HEDDLE_TRANSPORTS": "shm"},
    "messages": {"HEDDLE_TRANSPORTS": "shm", "HEDDLE_SHM_DIRECT": "0"},
    "ucx": {"HEDDLE_TRANSPORTS": "ucx", "HEDDLE_UCX_TLS": "tcp"},
    "ofi": {"HEDDLE_TRANSPORTS": "ofi", "HEDDLE_NET_DEVICES": "lo"},
    "mixed": {"HEDDLE_TRANSPORTS": "shm,ucx", "HEDDLE_NODE_RANKS": "2", "HEDDLE_UCX_TLS": "tcp"},
}

# UCX 1.13 itself may end a process when a peer dies (docs/guide.md, limits). Such runs are counted, and are no fault.
BY_UCX = re.compile(r"(ucp_request\.c|ucp_request\.inl|wireup_ep\.c|tcp_ep\.c):\d+.*(Assertion `|Fatal: )")


class Told:
    """A kind whose functions return errors: each survivor says that it got the right one, leaves the job, and ends well."""

    def __init__(self, calls, mapped=(), messages=()):
        self.calls = calls
        self.mapped = mapped  # only where memory is mapped
        self.messages = messages  # only where it is not

    def of(self, transport):
        own = {"shm": self.mapped, "mixed": ()}.get(transport, self.messages)
        return [(call, {"HEDDLE_SHARING": sharing, "HEDDLE_PROGRESS": progress}, (manner,))
                for call, sharing, progress, manner in itertools.product(self.calls + own, SHARING, PROGRESS, ("busy", "idle"))]

    def tool(self):
        return "run"

    def faults(self, done, victim, extra):
        told = sorted(re.findall(r"^survived (\d+)$", done.stdout, re.MULTILINE))
        expected = [str(rank) for rank in range(RANKS) if rank != victim]
        if told != expected:
            yield f"of the survivors {' and '.join(expected)}, {' and '.join(told) or 'none'} was told and left"


class Ended:
    """OpenSHMEM, whose functions return none: one survivor ends the job, and says who has died and in which call it was."""

    WORDS = ("wait_until", "wait_until_all", "wait_until_any", "wait_until_some", "wait_until_all_vector", "wait_until_any_vector",
             "signal_wait_until", "test", "test_all", "test_any", "test_some", "signal_fetch")
    LOCKS = ("set_lock", "test_lock", "set_lock_contended", "test_lock_contended")
    COLLECTIVES = ("barrier_all", "sync_all", "team_sync", "barrier", "broadcast", "broadcast_large", "collect", "fcollect", "alltoall",
                   "reduce", "reduce_large", "malloc", "split")
    TO_THE_VICTIM = ("put", "put_nbi", "put_signal", "get", "get_short", "iget", "fetch_add", "compare_swap", "add")

    def of(self, transport):
        calls = self.WORDS + self.LOCKS + self.COLLECTIVES
        if transport not in ("shm", "mixed"):
            calls += self.TO_THE_VICTIM
        for call, progress, level, manner, who in itertools.product(calls, PROGRESS, ("single", "multiple"), ("busy", "idle"), ("one", "all")):
            # Who sleeps answers nobody without helpers, and is waited for as long as it lives.
            if call in self.COLLECTIVES or progress == "none":
                who = "all"
            yield call, {"HEDDLE_PROGRESS": progress}, (manner, who, level)

    def tool(self):
        return "oshrun"

    def faults(self, done, victim, extra):
        ended = re.search(r"^oshrun: PE (\d+) aborts the job with code 1: (shmem\w+): (.*)$", done.stderr, re.MULTILINE)
        if ended is None:
            yield "no survivor ended the job"
        elif not re.search(rf"\bPE {victim} has died\b", ended[3]):
            yield f"who has died is not named: {ended[3]}"
        elif extra[1] not in ("all", ended[1]) and ended[2] != "shmem_barrier_all":  # in which all meet before
            yield f"PE {ended[1]} ended the job, and not PE {extra[1]}, which was in the call"


KINDS = {
    "mpi": Told(("receive", "any", "send", "barrier", "duplicate", "allreduce", "probe", "probe_any", "mprobe", "iprobe", "improbe",
                 "test_any_source", "waitany", "broadcast", "gather", "alltoall", "scan", "split", "persistent"),
                mapped=("lock_exclusive", "lock_shared", "guard", "window_lock", "window_all", "window_one", "window_request", "window_fence",
                        "window_start", "window_post"),
                messages=("lock_exclusive", "lock_shared")),
    "shmem": Ended(),
    "native": Told(("barrier", "exchange", "region_exchange", "quiet", "flush", "put", "get", "atomic", "fetch", "put_signal", "am", "am_user",
                    "am_large", "send", "send_large", "recv", "probe", "counter", "signal_wait", "team_barrier", "broadcast", "allreduce",
                    "alltoall", "collective_test", "persistent", "partitioned", "split")),
}


def marked(mark):
    """The processes that have the mark in their environment."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                yield entry.name
        except OSError:
            continue  # it has ended, or is another user's


def processes_left(mark):
    """Those that do not end by themselves."""
    end = time.monotonic() + 5
    while left := list(marked(mark)):
        if time.monotonic() > end:
            return left
    return []


def in_shared_memory():
    return {path.name for path in pathlib.Path("/dev/shm").iterdir()}


def unknown_lines(stderr, command):
    """What nobody should say."""
    report = re.compile(rf"heddle {command}: |{command}: ")
    return [line for line in stderr.splitlines() if line and not report.match(line) and not WARNING.match(line)]


class Run:
    """One job."""

    def __init__(self, options, kind, program, transport, chosen, choose):
        self.kind = KINDS[kind]
        call, variables, extra = chosen
        self.victim = choose.randrange(RANKS)
        if "one" in extra:
            one = choose.choice([rank for rank in range(RANKS) if rank != self.victim])
            extra = tuple(str(one) if word == "one" else word for word in extra)
        self.extra = extra
        life = choose.choice((0, choose.randrange(200), choose.randrange(LONGEST_LIFE_US)))
        self.variables = {**TRANSPORTS[transport], **variables, "HEDDLE_HANG_SECONDS": str(min(HANG_S, options.limit // 2))}
        self.limit = options.limit
        self.words = [os.path.abspath(options.tool), self.kind.tool(), "-n", str(RANKS), "--timeout", str(self.limit), "--grace",
                      str(2 * self.limit), os.path.abspath(program), call, str(self.victim), str(life), *extra]

    def again(self):
        return " ".join([f"{name}={value}" for name, value in self.variables.items()] + [shlex.quote(word) for word in self.words])

    def faults(self, alone):
        """Of one run of it. None: none, but UCX itself has ended a process."""
        mark = f"KILL_STORM={os.getpid()}.{time.monotonic_ns()}"
        name, value = mark.split("=")
        before = in_shared_memory()
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, **self.variables, name: value, "TMPDIR": folder}
            try:
                done = subprocess.run(self.words, env=environment, cwd=folder, capture_output=True, text=True, timeout=self.limit + 60, check=False)
            except subprocess.TimeoutExpired:
                return ["the launcher has not ended"]
            found = []
            by_ucx = BY_UCX.search(done.stderr + done.stdout) is not None
            if done.returncode != KILLED and not (by_ucx and done.returncode == ABORTED):
                found.append(f"the job ended with {done.returncode}")
            if not by_ucx:
                found += self.kind.faults(done, self.victim, self.extra)
                found += [f"unexpected: {line}" for line in unknown_lines(done.stderr, self.kind.tool())[:1]]
            found += [f"process {pid} is left" for pid in processes_left(mark.encode())]
            found += [f"file {path.name} is left" for path in pathlib.Path(folder).iterdir() if not path.name.startswith("core")]
        if alone:
            found += [f"/dev/shm/{name} is left" for name in sorted(in_shared_memory() - before)]
        if by_ucx and not found:
            return None
        return [*found, done.stdout + done.stderr] if found else []


def combinations(kind, transport, calls, choose):
    """Each call in turn, in a random order; of each call all combinations, likewise, again and again."""
    of_call = {}
    for chosen in KINDS[kind].of(transport):
        if not calls or chosen[0] in calls:
            of_call.setdefault(chosen[0], set()).add((tuple(chosen[1].items()), chosen[2]))
    names = sorted(of_call)
    choose.shuffle(names)
    ways = {}
    for name in names:
        ways[name] = sorted(of_call[name])
        choose.shuffle(ways[name])
    for turn in itertools.count() if names else ():
        for name in names:
            variables, extra = ways[name][turn % len(ways[name])]
            yield name, dict(variables), extra


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("programs", nargs="+", metavar="KIND=PROGRAM")
    parser.add_argument("--runs", type=int, default=12, help="of each kind over each transport")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", default="shm,messages")
    parser.add_argument("--calls", default="")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help="seconds of a job")
    parser.add_argument("--alone", action="store_true")
    return parser.parse_args()


def main():
    options = parsed()
    calls = set(filter(None, options.calls.split(",")))
    failed = 0
    for program, transport in itertools.product(options.programs, options.transports.split(",")):
        kind, path = program.split("=", 1)
        choose = random.Random(f"{options.seed} {kind} {transport}")
        by_ucx = bad = runs = 0
        for chosen in itertools.islice(combinations(kind, transport, calls, choose), options.runs):
            run = Run(options, kind, path, transport, chosen, choose)
            faults = run.faults(options.alone)
            runs += 1
            by_ucx += faults is None
            if faults:
                bad += 1
                print(f"{kind} over {transport}, run {runs}: {run.again()}\n  " + "\n  ".join(faults), flush=True)
        failed += bad
        ended = f", in {by_ucx} UCX itself ended a process" if by_ucx else ""
        print(f"{kind} over {transport}, seed {options.seed}: {runs} deaths, {bad} failed{ended}", flush=True)
        if runs == 0 or (runs == by_ucx):
            print(f"{kind} over {transport}: none of the runs says anything")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
