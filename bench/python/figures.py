"""What an operation costs in Python: a put of 8 bytes, half a round trip of a tagged message by wait and by await, and
the rate of threads with a worker each.

    python -m heddle.run -n 2 bench/python/figures.py [--repeat 7]

Each figure is the median of its repeats, with the least and the most. For half a round trip in C, which stands beside
it: `heddle bench latency --op tagged`; for mpi4py: figures_mpi4py.py.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

import heddle


def report(what: str, values: list[float], unit: str) -> None:
    print(f"{what:52} {statistics.median(values):10.4g} {unit}  [{min(values):.4g}-{max(values):.4g}]", flush=True)


def time_of(call: Callable[[], object], times: int) -> float:
    """Nanoseconds of one call, the loop included."""
    begin = time.perf_counter_ns()
    for _ in range(times):
        call()
    return (time.perf_counter_ns() - begin) / times


def puts(worker: heddle.Worker, peer: heddle.RemoteRegion, repeat: int) -> None:
    empty = [time_of(lambda: None, 200_000) for _ in range(repeat)]
    report("an empty call", empty, "ns")
    for what, source in (("bytes", b"12345678"), ("bytearray", bytearray(8)), ("NumPy array", np.zeros(1))):
        values = [time_of(lambda: worker.put(source, peer, 0), 200_000) for _ in range(repeat)]
        report(f"put of 8 bytes from {what}, the call included", values, "ns")
    report("fetch-add", [time_of(lambda: worker.fetch_add(peer, 0, 1), 100_000) for _ in range(repeat)], "ns")


def round_trips(worker: heddle.Worker, rank: int, repeat: int, fused: bool, times: int = 20_000) -> list[float]:
    """Microseconds of half a round trip of 8 bytes; fused: by recv_wait(), which has no request."""
    out, into = bytearray(8), bytearray(8)

    def with_requests() -> None:
        for _ in range(times):
            if rank == 0:
                worker.send(out, 1)
            worker.recv(into, 1 - rank).wait()
            if rank == 1:
                worker.send(out, 0)

    def with_recv_wait() -> None:
        for _ in range(times):
            if rank == 0:
                worker.send(out, 1)
            worker.recv_wait(into, 1 - rank)
            if rank == 1:
                worker.send(out, 0)

    values = []
    for _ in range(repeat):
        begin = time.perf_counter_ns()
        with_recv_wait() if fused else with_requests()
        values.append((time.perf_counter_ns() - begin) / times / 2e3)
    return values


async def awaited_round_trips(worker: heddle.Worker, rank: int, repeat: int, times: int = 3_000) -> list[float]:
    out, into = bytearray(8), bytearray(8)
    values = []
    for _ in range(repeat):
        begin = time.perf_counter_ns()
        for _ in range(times):
            if rank == 0:
                await worker.send(out, 1)
            await worker.recv(into, 1 - rank)
            if rank == 1:
                await worker.send(out, 0)
        values.append((time.perf_counter_ns() - begin) / times / 2e3)
    return values


def rate(loops: Sequence[Callable[[int], None]], times: int = 200_000) -> float:
    """Million turns a second, by a thread for each loop."""
    barrier = threading.Barrier(len(loops) + 1)

    def run(loop: Callable[[int], None]) -> None:
        barrier.wait()
        loop(times)
        barrier.wait()

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter_ns()
    barrier.wait()
    elapsed = time.perf_counter_ns() - begin
    for thread in threads:
        thread.join()
    return len(loops) * times * 1e3 / elapsed


def put_loop(worker: heddle.Worker, region: heddle.RemoteRegion) -> Callable[[int], None]:
    def loop(times: int) -> None:
        data = bytearray(8)
        for _ in range(times):
            worker.put(data, region, 0)

    return loop


def empty_loop() -> Callable[[int], None]:
    """The machine's limit: calls that do nothing."""

    def nothing() -> None:
        pass

    def loop(times: int) -> None:
        for _ in range(4 * times):
            nothing()

    return loop


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    with heddle.Context() as context:
        rank = context.rank
        workers = [context.worker() for _ in range(2)]
        regions = [context.exchange(context.alloc(4096))[1 - rank] for _ in range(2)]
        context.barrier(workers[0])
        if rank == 0:
            gil = getattr(sys, "_is_gil_enabled", lambda: True)()
            print(f"Python {sys.version.split()[0]}, {'with' if gil else 'without'} the GIL")
            puts(workers[0], regions[0], repeat)
            # By turns, since a machine that others use is now faster, now slower.
            loops = [put_loop(*one) for one in zip(workers, regions)]
            empty = [empty_loop(), empty_loop()]
            turns = [(rate(empty[:1]), rate(empty), rate(loops[:1]), rate(loops)) for _ in range(repeat)]
            report("puts, 1 thread", [turn[2] for turn in turns], "M/s")
            report("puts, 2 threads with a worker each", [turn[3] for turn in turns], "M/s")
            report("2 threads for 1", [turn[3] / turn[2] for turn in turns], "times")
            report("2 threads for 1, of calls that do nothing", [turn[1] / turn[0] for turn in turns], "times")
        context.barrier(workers[0])
        with_requests = round_trips(workers[0], rank, repeat, fused=False)
        context.barrier(workers[0])
        values = round_trips(workers[0], rank, repeat, fused=True)
        context.barrier(workers[0])
        awaited = asyncio.run(awaited_round_trips(workers[0], rank, repeat))
        if rank == 0:
            report("half a round trip of 8 bytes, tagged, recv_wait", values, "us")
            report("the same, recv and wait", with_requests, "us")
            report("the same, await in asyncio", awaited, "us")
        context.barrier(workers[0])


if __name__ == "__main__":
    main()
