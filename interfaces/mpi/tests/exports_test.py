#!/usr/bin/env python3
"""exports_test.py NM LIBRARY TABLE-FOLDER: the library exports each function of the table, weak, and its strong PMPI_ twin, and nothing else."""

import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "table"))
import generate  # noqa: E402


def main(nm, library, table):
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
    return 1 if wrong or len(wanted) < 1000 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
