"""Half a round trip of a message of 8 bytes with mpi4py, beside figures.py:  mpiexec -n 2 python bench/python/figures_mpi4py.py"""

from __future__ import annotations

import statistics
import time

from mpi4py import MPI


def main(repeat: int = 7, times: int = 20_000) -> None:
    world = MPI.COMM_WORLD
    out, into = bytearray(8), bytearray(8)
    values = []
    for _ in range(repeat):
        world.Barrier()
        begin = time.perf_counter_ns()
        for _ in range(times):
            if world.rank == 0:
                world.Send(out, 1)
            world.Recv(into, 1 - world.rank)
            if world.rank == 1:
                world.Send(out, 0)
        values.append((time.perf_counter_ns() - begin) / times / 2e3)
    if world.rank == 0:
        print(f"mpi4py, half a round trip of 8 bytes {statistics.median(values):.4g} us  [{min(values):.4g}-{max(values):.4g}]")


if __name__ == "__main__":
    main()
