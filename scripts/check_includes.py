#!/usr/bin/env python3
"""Refuses an #include that points up, or across between rooms that must not know each other.

    check_includes.py [ROOT]     exit 0: all is well; 1: each refused line with the reason; 2: bad usage

MAY below is the plan of the house (docs/architecture.md). A room is a folder; "transport" means the contract, the files
directly in src/transport, and "transport/shm" one transport. A room always reaches itself and the public headers.
"""

import pathlib
import re
import sys

# Room: what it may include. The first row whose name is the room's or a parent folder's counts.
BELOW_TRANSPORT = {"base", "tap", "queue", "wire", "memory", "bootstrap", "transport/common"}
BELOW_WORKER = BELOW_TRANSPORT | {"transport", "engine", "protocol"}
BELOW_API = BELOW_WORKER | {"worker", "collective"}
MAY = {
    "include": set(),
    "src/base": set(),
    "src/tap": {"base"},
    "src/diagnosis": {"base", "tap"},
    "src/queue": {"base"},
    "src/wire": {"base"},
    "src/memory": {"base", "queue"},
    "src/bootstrap": {"base", "tap", "diagnosis", "queue", "wire"},
    "src/transport": BELOW_TRANSPORT | {"transport/network"},
    "src/engine": BELOW_TRANSPORT | {"transport"},
    "src/protocol": BELOW_TRANSPORT | {"transport", "engine"},
    "src/worker": BELOW_WORKER,
    "src/collective": BELOW_WORKER | {"worker"},
    "src/api": BELOW_API | {"bootstrap/*"},
    "tools": {"base", "tap", "bootstrap", "bootstrap/*", "transport", "collective"},
    "observe": {"base", "tap", "diagnosis"},
    "bench": {"base"},
    "examples": set(),
    "interfaces": set(),  # each folder of it is a room of its own
    "tofu": {"base", "queue"},
    "tests": BELOW_API | {"diagnosis", "bootstrap/*", "transport/*", "api", "tools", "observe", "bench", "tofu"},
}
# Exceptions, by the beginning of the file's path.
BESIDES = {
    "src/transport/table.cpp": {"transport/*"},  # the tables are the only files that know every implementation
    "src/bootstrap/table.cpp": {"bootstrap/*"},
    "src/bootstrap/hosted/": {"bootstrap/local"},  # rank 0 hosts the broker of the local launcher
    "src/bootstrap/pmi/": {"bootstrap/hosted"},
    "src/bootstrap/pmix/": {"bootstrap/hosted"},
    "src/transport/test/": {"transport/*"},  # doubles of the networks' libraries, and what tests of transports share
    "src/transport/fault/fault_test.cpp": {"transport/loopback"},  # a decorator is tested on the reference
    "observe/tests/": {"tests"},  # what ranks of tests share
    "tools/info.cpp": {"worker"},  # the sharing modes that there are
    "tools/info.hpp": {"protocol"},  # the ways of messages
}
# Files beside the sources that only tests use: they put rooms together, so they may start a job and open transports.
TEST_FILE = re.compile(r"(_test\.(c|cpp|hpp)|/test_[^/]*\.(cpp|hpp)|^src/transport/test/.*\.(cpp|hpp))$")
FOR_TESTS = {"bootstrap", "bootstrap/*", "transport", "transport/test"}
FOLDERS_WITH_INNER_ROOMS = ("transport", "bootstrap")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(heddle/[^>]+)>)')
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".in", ".inc"}


def room_of(path):
    """The room's row in MAY, and the name by which others refer to it, of a path relative to the root."""
    parts = path.parts
    if parts[0] == "src" and len(parts) > 2:
        inner = parts[1] in FOLDERS_WITH_INNER_ROOMS and len(parts) > 3
        return f"src/{parts[1]}", f"{parts[1]}/{parts[2]}" if inner else parts[1]
    if parts[0] == "interfaces" and len(parts) > 2:
        return parts[0], f"{parts[0]}/{parts[1]}"
    return parts[0], parts[0]


def resolve(root, source, name):
    """The file that an include names, relative to the root; None: outside or missing."""
    top = root / source.relative_to(root).parts[0]
    for place in (source.parent, root / "src", root / "include", root, top):
        candidate = place / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root)
    return None


def allowed(path, to):
    """Whether the file may include a file of the room called `to`."""
    row, own = room_of(path)
    if to == own or to == "include":
        return True
    grants = set(MAY[row])
    for beginning, more in BESIDES.items():
        if path.as_posix().startswith(beginning):
            grants |= more
    if TEST_FILE.search(path.as_posix()) and row.startswith("src/") and row not in ("src/base", "src/queue", "src/wire"):
        grants |= FOR_TESTS
    if "/" in own and to == own.split("/")[0]:  # an implementation knows its contract
        return True
    return to in grants or ("/" in to and to.split("/")[0] + "/*" in grants)


def check_file(root, source):
    path = source.relative_to(root)
    row, own = room_of(path)
    if row not in MAY:
        return [(path, 1, f"the folder {row} has no row in scripts/check_includes.py; add one")]
    problems = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1) or match.group(2)
        if ".." in name.split("/"):
            problems.append((path, number, f'"{name}" climbs with ..; write the path from src/'))
            continue
        target = resolve(root, source, name)
        if target is None:
            problems.append((path, number, f'"{name}" is no file of this repository; use <> for headers from outside'))
            continue
        if source.suffix == ".h" and target.suffix == ".hpp":
            problems.append((path, number, f'a C header cannot include the C++ header "{name}"'))
        _, to = room_of(target)
        if not allowed(path, to):
            may = ", ".join(sorted(MAY[row])) or "include/heddle only"
            problems.append((path, number, f'{own} may not include "{name}" of {to}; it may use: {may}'))
    return problems


def main(arguments):
    if len(arguments) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    sources = [
        file
        for top in sorted(root.iterdir())
        if top.is_dir() and not top.name.startswith((".", "build")) and top.name not in ("docs", "scripts", "cmake")
        for file in sorted(top.rglob("*"))
        if file.suffix in SUFFIXES and file.is_file()
    ]
    if not sources:
        print(f"check_includes: no sources under {root}", file=sys.stderr)
        return 2
    problems = [problem for source in sources for problem in check_file(root, source)]
    for path, number, reason in problems:
        print(f"{path}:{number}: {reason}")
    print(f"check_includes: {len(sources)} files, {len(problems)} refused")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
