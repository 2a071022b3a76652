#!/usr/bin/env python3
"""judge_mpi4py.py RANKS FOLDER: what mpi4py's test runner has printed on each rank, in FOLDER/RANK. Every rank must have ended its tests; a failure is
accepted if it says that the library does not support the operation."""

import pathlib
import re
import sys


def judge(text):
    """Tests that have run (None: it has not ended), and how many failures are accepted, and the others."""
    ended = re.search(r"^Ran (\d+) tests? in ", text, re.MULTILINE)
    failures = re.split(r"^=+\n(?=(?:ERROR|FAIL): )", text, flags=re.MULTILINE)[1:]
    others = [failure for failure in failures if "MPI_ERR_UNSUPPORTED_OPERATION" not in failure]
    return ended and int(ended[1]), len(failures) - len(others), others


def main(ranks, folder):
    wrong = False
    for rank in range(int(ranks)):
        file = pathlib.Path(folder) / str(rank)
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        ran, unsupported, others = judge(text)
        for failure in others:
            print(failure[:2000])
        if ran is None:
            print(text[-3000:])
        print(f"mpi4py, rank {rank} of {ranks}: {ran} tests, {unsupported} unsupported, {len(others)} failed")
        wrong = wrong or not ran or bool(others)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
