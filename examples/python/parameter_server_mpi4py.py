"""The same parameter server with mpi4py, to compare: the server receives a gradient, applies it, and answers with the
parameters.

    mpiexec -n 4 python examples/python/parameter_server_mpi4py.py
"""

from __future__ import annotations

import time

import numpy as np
import regression
from mpi4py import MPI

GRADIENT, DONE = 1, 2


def serve(world: MPI.Intracomm, parameters: regression.Vector) -> int:
    updates = 0
    done = 0
    gradient = np.empty(regression.PARAMETERS)
    status = MPI.Status()
    world.Barrier()
    while done < world.size - 1:
        world.Recv(gradient, status=status)
        if status.tag == DONE:
            done += 1
            continue
        parameters[:] -= regression.RATE * gradient
        updates += 1
        world.Send(parameters, status.source)
    return updates


def learn(world: MPI.Intracomm) -> None:
    rows = regression.Rows(world.rank)
    parameters = np.zeros(regression.PARAMETERS)
    world.Barrier()
    for _ in range(regression.STEPS):
        world.Send(rows.gradient(parameters), 0, GRADIENT)
        world.Recv(parameters, 0)
    world.Send(np.zeros(0), 0, DONE)


def main() -> None:
    world = MPI.COMM_WORLD
    parameters = np.zeros(regression.PARAMETERS)
    if world.rank != 0:
        learn(world)
        return
    begin = time.perf_counter()
    updates = serve(world, parameters)
    if updates > 0:
        regression.report("mpi4py", parameters, updates, time.perf_counter() - begin)


if __name__ == "__main__":
    main()
