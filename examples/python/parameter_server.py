"""An asynchronous parameter server: rank 0 has the parameters, the other ranks learn.

    python -m heddle.run -n 4 examples/python/parameter_server.py

A worker reads the parameters where they are, by a get from the server's memory, in which the server takes no part, and
sends its gradient as an active message, whose handler at the server applies it. No worker waits for another one, nor for
the server: the next step is computed while the message is on its way.
"""

from __future__ import annotations

import time

import numpy as np
import regression

import heddle

GRADIENT, DONE = 1, 2


def serve(context: heddle.Context, worker: heddle.Worker, parameters: regression.Vector) -> int:
    """Apply gradients until every worker is done; return how many."""
    updates = 0
    done = 0

    def apply(message: heddle.Message) -> None:
        nonlocal updates
        gradient = np.frombuffer(message.payload, np.float64)
        parameters[:] -= regression.RATE * gradient
        updates += 1

    def finish(message: heddle.Message) -> None:
        nonlocal done
        done += 1

    context.on_message(GRADIENT, apply)
    context.on_message(DONE, finish)
    context.barrier(worker)  # from here on workers send
    while done < context.size - 1:
        worker.run_tasks()
    return updates


def learn(context: heddle.Context, worker: heddle.Worker, server: heddle.RemoteRegion) -> None:
    rows = regression.Rows(context.rank)
    parameters = np.empty(regression.PARAMETERS)
    context.barrier(worker)
    for _ in range(regression.STEPS):
        worker.get(parameters, server).wait()
        worker.am(0, GRADIENT, rows.gradient(parameters))
    worker.fence()  # DONE comes after all gradients
    worker.am(0, DONE)


def main() -> None:
    with heddle.Context() as context:
        worker = context.worker()
        parameters = context.zeros(regression.PARAMETERS)  # a NumPy array
        # Peers on the node reach it by loads; only the server's is used.
        servers = context.exchange(parameters)
        if context.rank != 0:
            learn(context, worker, servers[0])
        else:
            begin = time.perf_counter()
            updates = serve(context, worker, parameters)
            assert updates == regression.STEPS * (context.size - 1)
            if updates > 0:
                regression.report("Heddle", parameters, updates, time.perf_counter() - begin)
        worker.quiet()
        context.barrier(worker)


if __name__ == "__main__":
    main()
