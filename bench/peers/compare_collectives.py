#!/usr/bin/env python3
"""compare_collectives.py BUILD [--ranks 2,4] [--names broadcast,allreduce] [--size 8,4K,1M] [--form blocking]
                          [--repeats 7] [--time MS] [--mpicxx WRAPPER,…] [--openshmem] [--alone]
Collectives of Heddle's teams beside MPI's, or with --openshmem of Heddle's OpenSHMEM beside Open MPI's: all by turns, then medians,
their range, and how many times as fast Heddle is. Open MPI's programs are of the build; --mpicxx compiles the same for other MPIs,
whose mpirun lies beside their compiler. --alone runs Heddle's only. Fails if a result was wrong or is missing, not by times.
"""

import argparse
import csv
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows_of(command):
    job = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, check=False)
    lines = [line for line in job.stdout.splitlines() if line.count(",") == 14]
    rows = list(csv.DictReader(lines))
    if job.returncode != 0 or not rows or any(row["right"] != "yes" for row in rows):
        sys.exit(f"{' '.join(command)}: code {job.returncode}\n{job.stdout}{job.stderr}")
    return {(row["operation"], row["form"], int(row["bytes"])): row for row in rows}


def launcher_of(mpicxx):
    """The mpirun that belongs to a compiler's wrapper: the same folder and suffix."""
    path = pathlib.Path(shutil.which(mpicxx) or sys.exit(f"{mpicxx} is not in PATH"))
    suffix = path.name.partition(".")[2]
    for name in ("mpirun", "mpiexec"):
        launcher = path.with_name(name + ("." + suffix if suffix else ""))
        if launcher.exists():
            return str(launcher)
    return sys.exit(f"no mpirun beside {path}")


def options_of(launcher, ranks):
    """A core for each rank where there are as many, as for Heddle's."""
    alone = ranks <= len(os.sched_getaffinity(0))
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in version or "OpenRTE" in version:
        return ["--allow-run-as-root", "--oversubscribe", "--bind-to", "core" if alone else "none"]
    return ["-bind-to", "core"] if alone and "HYDRA" in version else []


def compiled(mpicxx, build, folder):
    program = folder / pathlib.Path(mpicxx).name.replace(".", "_")
    command = [mpicxx, "-std=c++20", "-O2", "-DNDEBUG", *(f"-I{ROOT / inside}" for inside in ("bench", "src", "include")),
               str(ROOT / "bench/peers/collectives_mpi.cpp"), str(build / "bench/libheddle_bench_harness.a"),
               str(build / "src/base/libheddle_base.a"), "-lhwloc", "-lpthread", "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stderr}")
    return program


def print_line(key, times):
    operation, form, size = key
    line = f"  {operation + ' ' + form:24} {size:>9}"
    medians = {}
    for name, samples in times.items():
        medians[name] = statistics.median(samples)
        line += f"  {name} {medians[name] / 1e3:9.2f} [{min(samples) / 1e3:.2f}-{max(samples) / 1e3:.2f}]"
    ours = next(iter(medians))
    for name, median in medians.items():
        if name != ours:
            line += f"  {median / max(1.0, medians[ours]):.2f} x {name}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--names", default="barrier,broadcast,allreduce")
    parser.add_argument("--size", default="8,64,1K,4K,64K,1M,16M")
    parser.add_argument("--form", default="blocking,persistent")
    parser.add_argument("--memory", default="allocated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--time", default="10")
    parser.add_argument("--mpicxx", default="")
    parser.add_argument("--openshmem", action="store_true")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    if options.openshmem:  # Debian's ends with a segmentation fault unless one-sided MPI over RDMA is left out
        os.environ["OMPI_MCA_osc"] = "^rdma"
    work = [*options.names.split(","), "--size", options.size, "--form", options.form, "--repeat", "1", "--time",
            options.time]
    tool = str(options.build / "tools" / "heddle")
    with tempfile.TemporaryDirectory(prefix="heddle-peers-") as folder:
        peers = []
        if not options.alone:
            own = options.build / "bench/peers" / ("collectives_oshmem" if options.openshmem else "collectives_mpi")
            if own.exists():
                peers.append([shutil.which("mpirun.openmpi") or "mpirun", own])
            for mpicxx in filter(None, options.mpicxx.split(",")):
                peers.append([launcher_of(mpicxx), compiled(mpicxx, options.build, pathlib.Path(folder))])
        for ranks in options.ranks.split(","):
            binding = "core" if int(ranks) <= len(os.sched_getaffinity(0)) else "none"
            heddle = [tool, "bench", *work, "--memory", options.memory]
            if options.openshmem:
                heddle = [str(options.build / "bench/peers/collectives_shmem"), *work]
            commands = [[tool, "run", "-n", ranks, "--bind", binding, *heddle]]
            for launcher, program in peers:
                commands.append([launcher, *options_of(launcher, int(ranks)), "-n", ranks, str(program), *work])
            times = {}
            for _ in range(options.repeats):
                for command in commands:
                    for key, row in rows_of(command).items():
                        times.setdefault(key, {}).setdefault(row["library"], []).append(float(row["total_ns"]))
            print(f"{ranks} ranks; microseconds, median [least-most] of {options.repeats}")
            for key, by_library in times.items():
                print_line(key, by_library)


main()
