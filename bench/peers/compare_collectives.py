#!/usr/bin/env python3
"""compare_collectives.py BUILD [--pes 2,4,8] [--repeats 7] [--time MS] [--alone]: collectives of Heddle's OpenSHMEM beside Open MPI's.

Runs the two programs of collectives.cpp by turns, and prints for each collective the medians, their range, and how many times as fast
Heddle is. --alone runs Heddle's only. Fails if a result was wrong or is missing, not by times.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys

NAMES = ["barrier_0"] + [f"{kind}_{size}" for kind in ("broadcast", "reduce") for size in (8, 64, 4096, 65536, 1048576)]


def times_of(command, own):
    job = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, check=False)
    words = [line.split() for line in job.stdout.splitlines()]
    times = {line[0]: float(line[1]) for line in words if len(line) == 2 and line[0] in NAMES}
    if ["end"] not in words or list(times) != NAMES or (own and job.returncode != 0):
        sys.exit(f"{' '.join(command)}: code {job.returncode}\n{job.stdout}{job.stderr}")
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pes", default="2,4,8")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--time", type=float, default=15)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    peers = options.build / "bench" / "peers"
    both = [("Heddle", [str(options.build / "tools" / "heddle"), "oshrun", "-n"], peers / "collectives_shmem")]
    if not options.alone:
        both.append(("oshmem", ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"],
                     peers / "collectives_oshmem"))
    for pes in options.pes.split(","):
        times = {name: [] for name, _, _ in both}
        for _ in range(options.repeats):
            for name, launcher, program in both:
                times[name].append(times_of([*launcher, pes, str(program), "3", str(options.time)], name == "Heddle"))
        print(f"{pes} PEs; microseconds, median [least-most] of {options.repeats}")
        for work in NAMES:
            medians = {}
            line = f"  {work:18}"
            for name, runs in times.items():
                samples = [run[work] for run in runs]
                medians[name] = statistics.median(samples)
                line += f" {name} {medians[name]:9.2f} [{min(samples):.2f}-{max(samples):.2f}]"
            if len(medians) == 2:
                line += f"  {medians['oshmem'] / medians['Heddle']:.2f} x"
            print(line, flush=True)


main()
