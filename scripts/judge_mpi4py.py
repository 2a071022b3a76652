#!/usr/bin/env python3
"""judge_mpi4py.py RANKS LOG: what mpi4py's test runner has printed. Every rank must have ended its tests; a failure is accepted if it says that the
library does not support the operation."""

import re
import sys


def main(ranks, log):
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    ended = re.findall(r"^Ran (\d+) tests? in ", text, re.MULTILINE)
    blocks = re.split(r"^(?=(?:\[\d+\] )?(?:ERROR|FAIL): )", text, flags=re.MULTILINE)[1:]
    other = [block for block in blocks if "MPI_ERR_UNSUPPORTED_OPERATION" not in block]
    for block in other:
        print(block[:2000])
    print(f"mpi4py, {ranks} ranks: {ended[0] if ended else 'no'} tests on each of {len(ended)} ranks, "
          f"{len(blocks) - len(other)} unsupported, {len(other)} failed")
    if len(ended) != int(ranks):
        print(text[-3000:])
    return 1 if other or len(ended) != int(ranks) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
