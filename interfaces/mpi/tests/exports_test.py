#!/usr/bin/env python3
"""exports_test.py NM READELF TABLE-FOLDER LIBRARY ENGINE: the library exports each function of the table, weak, and its strong PMPI_ twin, and nothing
else; and dlopen() finds room for the thread-local variables of both libraries, as Python's modules need it."""

import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "table"))
import generate  # noqa: E402


# glibc keeps 1664 bytes for the static thread-local variables of all libraries that are loaded later.
MOST_THREAD_LOCAL = 512


def thread_local_bytes(readelf, library):
    output = subprocess.run([readelf, "--segments", "--wide", library], check=True, capture_output=True, text=True).stdout
    return sum(int(line.split()[5], 16) for line in output.splitlines() if line.split()[:1] == ["TLS"])


def main(nm, readelf, table, *libraries):
    library = libraries[0]
    output = subprocess.run([nm, "--dynamic", "--defined-only", "--format=posix", library], check=True,
                            capture_output=True, text=True).stdout
    found = {line.split()[0].split("@")[0]: line.split()[1] for line in output.splitlines() if line.split()[1] != "A"}
    wanted = {}
    for function in generate.functions(pathlib.Path(table) / "functions.txt")[0]:
        wanted[f"MPI_{function.name}"] = "W"
        wanted[f"PMPI_{function.name}"] = "T"
    wrong = [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
    for name in wrong:
        print(f"{name}: is {found.get(name, 'missing')}, should be {wanted.get(name, 'missing')}")
    print(f"{len(wanted)} names, {len(wrong)} wrong")
    sizes = [thread_local_bytes(readelf, each) for each in libraries]
    print(f"thread-local variables: {sizes} bytes, of {MOST_THREAD_LOCAL}")
    return 1 if wrong or len(wanted) < 1000 or not all(sizes) or sum(sizes) > MOST_THREAD_LOCAL else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
