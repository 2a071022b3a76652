#!/usr/bin/env python3
"""Runs programs with one planted delay each, and compares what heddle explain says with what was planted.

    judge.py --tool HEDDLE --programs FOLDER [--only REGEX] [--least N]

Right: the cause with most time is the planted one, of the planted rank, and its time, of all places together, is within a fifth of what was
planted. The exit code is 1 if fewer than N (by default all) are right.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

WITHIN = 0.2
PROGRAMS = ("plant_rank", "plant_mpi", "plant_pe")
# Rank 1 has to serve the get: nobody may read its memory without it.
SETTINGS = {"plant_rank.late_get": ["HEDDLE_SHM_CMA=0"]}


def plants(folder, only):
    for name in PROGRAMS:
        program = folder / name
        if not program.exists():
            continue
        for line in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines():
            plant, ranks = line.split()
            if re.search(only, f"{name}.{plant}"):
                yield f"{name}.{plant}", program, plant, ranks


def told(tool, program, plant, ranks, settings, trace):
    run = ["env", *settings, tool, "run", "-n", ranks, "--trace", trace, program, "--plant", plant]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=120)
    truth = re.search(r"^.*truth (\{.*\})$", ran.stdout, re.MULTILINE)
    if ran.returncode != 0 or truth is None:
        raise SystemExit(f"{program.name} {plant}: ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")
    explained = subprocess.run([tool, "explain", "--json", trace], capture_output=True, text=True, timeout=120)
    if explained.returncode != 0:
        raise SystemExit(f"{program.name} {plant}: heddle explain ended with {explained.returncode}: {explained.stderr}")
    return json.loads(truth.group(1)), json.loads(explained.stdout)


def fault(truth, report, busy):
    """None: it is right. Time of unexpected copies is not known to the program: then the bytes count, which it gives as a negative time."""
    by_bytes = truth["ns"] < 0
    same = lambda loss: loss["cause"] == truth["cause"] and (truth["rank"] < 0 or loss.get("rank", truth["rank"]) == truth["rank"])
    # Ranks come to the job, and leave it, when they can.
    losses = [loss for loss in report["losses"] if not re.search("[iI]nit|[fF]inalize|team_world|context_leave|_exchange|ready|calloc|free", loss["call"])]
    found = [loss for loss in losses if same(loss)]
    if not found:
        return f"no {truth['cause']} of rank {truth['rank']}"
    amount = sum(loss["bytes" if by_bytes else "ns"] for loss in found)
    planted = abs(truth["ns"])
    # Programs compute for so long by the clock: on a busy machine they had no core for a part of it, which is told apart.
    cores = sum(loss["ns"] for loss in losses if loss["cause"] == "no free core" and loss.get("rank") == truth["rank"])
    most = amount if by_bytes or truth["cause"] == "no free core" else amount + cores
    if most < planted * (1 - WITHIN) or (amount > planted * (1 + WITHIN) and not busy):
        return f"{amount / 1e6:.1f} instead of {planted / 1e6:.1f} (million)"
    if by_bytes or busy:
        return None
    sums = {}
    for loss in losses:
        key = (loss["cause"], loss.get("rank"))
        sums[key] = sums.get(key, 0) + loss["ns"]
    # What remains of work that had no core is its work; data that is copied is waited for by others, too.
    beside = {"no free core": ("late sender",), "copied, not mapped": ("data under way", "late in a collective")}.get(truth["cause"], ("no free core",))
    first = max((key for key in sums if key[0] not in beside), key=lambda key: sums[key])
    return None if first[0] == truth["cause"] else f"{first[0]} of rank {first[1]} comes first"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--least", type=int)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--busy", action="store_true", help="other programs run: more time of the same cause, and other causes, are right")
    arguments = parser.parse_args()
    right = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, program, plant, ranks in plants(arguments.programs.resolve(), arguments.only):
            trace = pathlib.Path(folder) / f"{name}.pftrace"
            truth, report = told(arguments.tool.resolve(), program, plant, ranks, SETTINGS.get(name, []), trace)
            wrong = fault(truth, report, arguments.busy)
            total += 1
            right += wrong is None
            print(f"{'right' if wrong is None else 'WRONG'} {name}" + (f": {wrong}" if wrong else ""), flush=True)
            if wrong and arguments.verbose:
                for loss in report["losses"][:5]:
                    print(f"    {loss['ns'] / 1e6:8.1f} ms  {loss['cause']}: {loss['says']}")
    print(f"{right} of {total} right")
    return 0 if total > 0 and right >= (total if arguments.least is None else arguments.least) else 1


if __name__ == "__main__":
    sys.exit(main())
