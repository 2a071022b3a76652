#!/usr/bin/env python3
"""Instructions per operation on the paths that matter, counted by callgrind and held against their limits.

    count_instructions.py PROGRAM LIMITS [--update]

PROGRAM is bench/instructions/path.cpp built for release; LIMITS a file of lines "name instructions" (# starts a comment).
A path may have one instruction in ten (and two) more than its limit; fewer than half is reported too, since then the limit
protects nothing. --update writes what was counted as the new limits.
Exit status: 0, or 1 if a path has become longer or could not be counted.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# name: (operation of the program, the function in which its instructions are counted, what is set in the environment).
# loopback: memory that is reached by commands only, even one's own.
SHARED, DELEGATE, OFFLOAD = ({"HEDDLE_SHARING": name} for name in ("shared", "delegate", "offload"))
PATHS = {
    "put_8": ("put", "count_put"),
    "get_8": ("get", "count_get"),
    "fetch_add": ("fetch_add", "count_fetch_add"),
    "am_send_8": ("am", "count_am_send"),
    "am_receive_8": ("am", "count_am_receive"),
    "tagged_send_8": ("tagged", "count_send"),
    "tagged_recv_8": ("tagged", "count_recv"),
    "tagged_arrive_8": ("tagged", "count_arrive"),
    "put_8_shared": ("put", "count_put", SHARED),
    "am_send_8_shared": ("am", "count_am_send", SHARED),
    "am_receive_8_shared": ("am", "count_am_receive", SHARED),
    "am_send_8_delegate": ("am", "count_am_send", DELEGATE),
    "am_send_8_offload": ("am", "count_am_send", OFFLOAD),
    "am_start_8_offload": ("am", "heddle::engine::Gate::start_run*", OFFLOAD),
    "get_post_8_offload": ("post_get", "count_post_get*", OFFLOAD | {"HEDDLE_TRANSPORT": "loopback"}),
}
FEW, MANY = 1600, 9600  # both multiples of the program's batch


def instructions(program, operation, function, extra, n):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={function}",
                   f"--callgrind-out-file={folder}/out", program, operation, str(n)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | extra)
        if result.returncode != 0:
            sys.exit(f"count_instructions: {' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
        found = re.search(r"^(?:summary|totals): (\d+)", pathlib.Path(folder, "out").read_text(), re.MULTILINE)
    if not found or int(found[1]) == 0:
        sys.exit(f"count_instructions: nothing was counted in {function}; is the program stripped?")
    return int(found[1])


def per_operation(program, name):
    operation, function, *rest = PATHS[name]
    extra = rest[0] if rest else {}
    few = instructions(program, operation, function, extra, FEW)
    many = instructions(program, operation, function, extra, MANY)
    return (many - few) / (MANY - FEW)


def read_limits(path):
    limits = {}
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            limits[words[0]] = float(words[1])
    unknown = sorted(set(limits) ^ set(PATHS))
    if unknown:
        sys.exit(f"count_instructions: {path} and this script differ in {', '.join(unknown)}")
    return limits


def write_limits(path, counted):
    comments = [line for line in pathlib.Path(path).read_text().splitlines() if line.startswith("#")]
    lines = comments + [f"{name} {value:.1f}" for name, value in counted.items()]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def main(arguments):
    if len(arguments) not in (2, 3) or arguments[2:] not in ([], ["--update"]):
        sys.exit(__doc__)
    program, path = arguments[:2]
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing")
        return 0
    counted = {name: per_operation(program, name) for name in PATHS}
    if arguments[2:]:
        write_limits(path, counted)
    worse = 0
    for name, limit in read_limits(path).items():
        verdict = "ok"
        if counted[name] > limit * 1.1 + 2:
            verdict = "TOO LONG"
            worse = 1
        elif counted[name] < limit / 2:
            verdict = "ok; the limit can come down (--update)"
        print(f"{name:20} {counted[name]:8.1f} instructions per operation, limit {limit:.1f}: {verdict}")
    return worse


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
