#!/usr/bin/env python3
"""Starts the processes of a uTofu program on this machine, for the emulator.

    launch.py PROCESSES [NAME=VALUE ...] PROGRAM [ARGUMENT ...]

Each process gets MEET_DIR, MEET_RANK and MEET_SIZE (programs/meet.h) and the emulator's UTOFU_EMU_WORLD, _RANK and
_PROCESSES; NAME=VALUE adds to the environment (UTOFU_EMU_MODE=strict, say). `heddle run --utofu` does the same for
programs that bring their own way to meet. Exit status: 0 if all processes ended with 0, else that of the first that did
not (128 + signal if one ended it, 124 after LAUNCH_TIMEOUT seconds, 100 if unset); the others are ended then.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def main():
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    processes = int(sys.argv[1])
    command = sys.argv[2:]
    environment = dict(os.environ)
    while command and "=" in command[0] and not command[0].startswith(("/", ".")):
        name, value = command.pop(0).split("=", 1)
        environment[name] = value
    directory = tempfile.mkdtemp(prefix="utofu-")
    environment.update(MEET_DIR=os.path.join(directory, "meet"), MEET_SIZE=str(processes),
                       UTOFU_EMU_WORLD=os.path.join(directory, "world"), UTOFU_EMU_PROCESSES=str(processes))
    os.mkdir(environment["MEET_DIR"])
    children = {}
    try:
        for rank in range(processes):
            environment.update(MEET_RANK=str(rank), UTOFU_EMU_RANK=str(rank))
            child = subprocess.Popen(command, env=environment)
            children[os.pidfd_open(child.pid)] = (rank, child)
        return wait_for(children)
    finally:
        for _, child in children.values():
            child.kill()
            child.wait()
        shutil.rmtree(directory, ignore_errors=True)


def wait_for(children):
    deadline = time.monotonic() + float(os.environ.get("LAUNCH_TIMEOUT", "100"))
    while children:
        ended = select.select(list(children), [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ended:
            ranks = sorted(rank for rank, _ in children.values())
            print(f"launch.py: out of time; still running: ranks {ranks}", file=sys.stderr)
            return 124
        # All that have ended by now: who breaks a rule of the emulator aborts, and the others exit because of it.
        ends = []
        for descriptor, (rank, child) in list(children.items()):
            status = child.poll()
            if status is None:
                continue
            os.close(descriptor)
            del children[descriptor]
            if status:
                ends.append((status > 0, rank, status))
        if ends:
            _, rank, status = min(ends)
            how = f"status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
            print(f"launch.py: rank {rank} ended with {how}", file=sys.stderr)
            return status if status > 0 else 128 - status
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
