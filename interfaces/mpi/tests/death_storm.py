#!/usr/bin/env python3
"""Kills a rank of many small MPI jobs, each in another call, mode and transport, at another moment: nobody hangs, nobody else dies.

    death_storm.py TOOL PROGRAM [--runs N] [--seed N] [--transports shm,messages,ucx,ofi] [--alone]

TOOL is the heddle command, PROGRAM mpi_death_rank. Each failed run is told with the command that repeats it. --alone: nobody else uses /dev/shm,
and nothing may be left there.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import time

MESSAGES = ("receive", "any", "send", "barrier", "duplicate", "allreduce", "probe", "probe_any", "mprobe", "iprobe", "improbe", "test_any_source",
            "waitany")
WINDOWS = ("lock_exclusive", "lock_shared", "guard", "window_lock", "window_all", "window_one", "window_request")
# What a transport is, and the calls that its deaths are for: by message a guard is the target's own.
TRANSPORTS = {
    "shm": ({"HEDDLE_TRANSPORTS": "shm"}, MESSAGES + WINDOWS),
    "messages": ({"HEDDLE_TRANSPORTS": "shm", "HEDDLE_SHM_DIRECT": "0"}, MESSAGES + ("lock_exclusive", "lock_shared")),
    "ucx": ({"HEDDLE_TRANSPORTS": "ucx", "HEDDLE_UCX_TLS": "tcp"}, MESSAGES),
    "ofi": ({"HEDDLE_TRANSPORTS": "ofi", "HEDDLE_OFI_DOMAIN": "lo"}, MESSAGES + ("lock_exclusive", "lock_shared")),
}
MODES = ("auto", "exclusive", "shared", "offload", "delegate")
RANKS = 3
LIMIT_S = 120
LONGEST_LIFE_US = 20_000


def left_behind():
    return {path.name for path in pathlib.Path("/dev/shm").iterdir()}


def one(tool, program, transport, mode, call, life_us):
    """What is wrong; empty: nothing."""
    settings = {**TRANSPORTS[transport][0], "HEDDLE_SHARING": mode}
    words = [tool, "run", "-n", str(RANKS), "--timeout", str(LIMIT_S), "--grace", "60", program, call, str(life_us)]
    again = " ".join([f"{name}={value}" for name, value in settings.items()] + words)
    try:
        done = subprocess.run(words, env={**os.environ, **settings}, capture_output=True, text=True, timeout=LIMIT_S + 60, check=False)
    except subprocess.TimeoutExpired:
        return f"{again}\n  the launcher has not ended"
    survivors = done.stdout.split().count("survived")
    if survivors == RANKS - 1:
        return ""
    return f"{again}\n  {survivors} of {RANKS - 1} survivors were told; code {done.returncode}\n{done.stdout}{done.stderr}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", default="shm,messages")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    transports = options.transports.split(",")
    choose = random.Random(options.seed)
    before = left_behind()
    failed = 0
    for run in range(options.runs):
        transport = transports[run % len(transports)]
        wrong = one(options.tool, options.program, transport, choose.choice(MODES), choose.choice(TRANSPORTS[transport][1]),
                    choose.randrange(LONGEST_LIFE_US))
        if wrong:
            failed += 1
            print(f"run {run}: {wrong}", flush=True)
    print(f"seed {options.seed}: {options.runs} deaths over {options.transports}, {failed} failed")
    if options.alone:
        time.sleep(1)  # what ends by itself
        left = left_behind() - before
        print("left in /dev/shm: " + (", ".join(sorted(left)) or "nothing"))
        failed += len(left)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
