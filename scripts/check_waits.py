#!/usr/bin/env python3
"""Refuses loops that wait by themselves: they learn of no death and no time-out, and reports about jobs that hang do not see them.

    check_waits.py [ROOT]     exit 0: all is well; 1: each fault on a line; 2: bad usage

Who waits for another process goes through a wait that knows of deaths, time-outs and the hang report: base/wait.hpp in src/ (mostly by
Worker::until), mpi/core/progress.hpp and openshmem/patience.hpp in interfaces/. Whoever pauses elsewhere, by one of the calls in PAUSES or in
a loop around a load that has no body, stands in a table below with the number of places and with what ends the wait. The number must be the
true one: a file with more is refused, and one with fewer takes its row with it.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
from cpp_text import code_of  # noqa: E402

ROOMS = ("src", "interfaces")
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inc"}

PAUSES = re.compile(r"\b(?:sched_yield|sleep_for|sleep_until|nanosleep|usleep|cpu_relax|_mm_pause|this_thread::yield|\bnap\.take)\s*\(")
WHILE = re.compile(r"\bwhile\s*\(")

# The waits themselves, and what they are made of.
WAITS = {
    "src/base/wait.cpp",
    "src/base/wait.hpp",
    "src/worker/executor.hpp",
    "src/worker/exchange.cpp",  # a nap of Context, asked for by the wait
    "interfaces/mpi/core/progress.cpp",
    "interfaces/mpi/rma/win.hpp",  # cpu_relax
}

# For another process, with an end of their own.
FOR_PROCESSES = {
    "interfaces/mpi/rma/accumulate.cpp": (1, "asks whether the guard's owner lives; tells reports"),
    "src/bootstrap/hosted/hosted.cpp": (1, "an exchange, which knows of deaths"),
    "src/bootstrap/local/channel.cpp": (1, "has a time-out"),
    "src/transport/choice.cpp": (1, "an exchange, which knows of deaths; tells who is absent"),
    "src/transport/network/device.cpp": (1, "has a time-out"),
    "src/transport/network/port.cpp": (1, "has a time-out"),
    "src/transport/ucx/device.cpp": (1, "has a time-out"),
    "src/transport/utofu/device.cpp": (1, "a put to this rank itself"),
    "src/transport/utofu/port.cpp": (1, "has a time-out"),
}

# For threads of this process, which no death of another rank holds up.
FOR_THREADS = {
    "interfaces/lcw/completion.cpp": (1, "the owner is inside for one call"),
    "interfaces/lcw/process.cpp": (1, "no wait: gives the core away once"),
    "interfaces/python/src/calls.cpp": (1, "who takes the last reference"),
    "interfaces/python/src/request.cpp": (1, "who completes it puts it on a list at once"),
    "src/base/fence.cpp": (1, "a signal's handler in each thread"),
    "src/tap/tracer.cpp": (1, "no wait: measures the clock"),
    "src/collective/runner.cpp": (1, "a lock between threads"),
    "src/memory/registration_cache.cpp": (3, "the writer is at work, and waits for nobody"),
    "src/memory/unmap_watch.cpp": (1, "the writer is at work, and waits for nobody"),
    "src/queue/system.cpp": (1, "between owner and helper"),
    "src/transport/utofu/library.cpp": (1, "a lock between threads"),
    "src/worker/gate.hpp": (1, "whoever is inside the worker"),
    "src/worker/gate_modes.cpp": (1, "a helper's short visit; so many looks"),
    "src/worker/gate_modes.hpp": (1, "whoever is inside the worker; so many looks"),
    "src/worker/helpers.cpp": (4, "no wait: a helper between two looks"),
    "src/worker/report.cpp": (1, "has a time-out"),
    "src/worker/sharing.hpp": (1, "who attends to the worker runs handlers, which do not block"),
}

KNOWN = {**FOR_PROCESSES, **FOR_THREADS}


def is_tested_with(name):
    """Tests, and what is made for them, end by their own time limits."""
    return "/tests/" in name or "/test/" in name or re.search(r"(?:_test\.cpp|/test_\w+\.(?:hpp|cpp))$", name) is not None


def end_of(code, opening):
    """Behind the bracket that closes the one here."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at + 1
    return len(code)


def empty_loops(code):
    """Loops without a body, around a load."""
    for found in WHILE.finditer(code):
        end = end_of(code, found.end() - 1)
        body = code[end:end + 200].lstrip()[:2]
        after_do = code[max(0, found.start() - 200):found.start()].rstrip().endswith("}")
        if ".load(" in code[found.end():end] and (body[:1] == ";" or body == "{}") and not after_do:
            yield end


def pauses_in(text):
    """The numbers of the lines on which somebody pauses."""
    if not PAUSES.search(text) and not WHILE.search(text):
        return []
    code = code_of(text)
    found = [match.end() for match in PAUSES.finditer(code)] + list(empty_loops(code))
    return sorted({code.count("\n", 0, at - 1) + 1 for at in found})


def sources(root):
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and not is_tested_with(name) and name not in WAITS:
                yield name, path


def faults(root, known):
    seen = set()
    for name, path in sources(root):
        lines = pauses_in(path.read_text(encoding="utf-8"))
        if lines:
            seen.add(name)
        allowed = known.get(name, (0, ""))[0]
        if len(lines) > allowed:
            where = ", ".join(str(line) for line in lines)
            yield (f"{name}: {len(lines)} places pause (lines {where}), {allowed} are known: wait through the room's wait, which learns of "
                   "deaths and time-outs and is seen by hang reports, or say in scripts/check_waits.py what ends it")
        elif len(lines) < allowed:
            yield f"{name}: {len(lines)} places pause, scripts/check_waits.py says {allowed}: take the row down to the true number"
    for name in known.keys() - seen:
        if not (root / name).exists():
            yield f"{name}: is not there, and has a row in scripts/check_waits.py: take it away"


def main(arguments):
    if len(arguments) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    if not (root / "src").is_dir():
        print(f"{root} has no folder src", file=sys.stderr)
        return 2
    found = sorted(set(faults(root, KNOWN)))
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
