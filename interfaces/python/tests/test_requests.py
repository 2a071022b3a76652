"""Requests: callbacks, several that wait, asyncio."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import numpy as np
import pytest

import heddle
from heddle import aio


def test_on_done(context: heddle.Context) -> None:
    worker = context.worker()
    told: list[int] = []
    got = worker.recv(bytearray(1), 0, 1)
    got.on_done(lambda: told.append(1))
    with pytest.raises(heddle.HeddleError, match="already"):
        got.on_done(lambda: told.append(2))
    with pytest.raises(TypeError, match="function"):
        got.on_done(5)  # type: ignore[arg-type]
    got.on_done(None)
    got.on_done(lambda: told.append(1))
    worker.send(b"x", 0, 1)
    got.wait(timeout=60)
    assert told == [1]
    got.on_done(lambda: told.append(3))
    assert told == [1, 3]
    put = worker.put(b"1", context.exchange(context.alloc(8))[0])
    put.on_done(lambda: told.append(4))
    assert told == [1, 3, 4] and put.done and put.worker is None
    assert got.worker is worker


def test_receive_and_wait(context: heddle.Context) -> None:
    worker = context.worker()
    buffer = bytearray(4)
    worker.send(b"here", 0, 1)
    came = worker.recv_wait(buffer, 0, 1)
    assert buffer == b"here" and (came.source, came.tag, came.nbytes) == (0, 1, 4)
    with pytest.raises(heddle.TimedOut, match="nothing waits for it"):
        worker.recv_wait(buffer, 0, 2, timeout=0.01)
    worker.send(b"late", 0, 2)  # the call that has timed out does not take it
    assert worker.recv_wait(buffer, 0, 2, timeout=60).nbytes == 4 and buffer == b"late"
    worker.send(b"too long", 0, 3)
    with pytest.raises(heddle.TruncatedError, match="8 bytes"):
        worker.recv_wait(buffer, 0, 3)
    worker.send(b"kept", 0, 4)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(heddle.ArgumentError):
            worker.recv_wait(buffer, 0, 4, timeout=wrong)
    assert worker.recv_wait(buffer, 0, 4).nbytes == 4, "an argument that is wrong takes no message"


def test_a_signal_ends_receive_and_wait(context: heddle.Context) -> None:
    class Alarm(Exception):
        pass

    def alarm(number: int, frame: object) -> None:
        raise Alarm

    worker, buffer = context.worker(), bytearray(4)
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            worker.recv_wait(buffer, 0, 6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    worker.send(b"next", 0, 6)  # nothing of the call that was interrupted takes it
    assert worker.recv_wait(buffer, 0, 6, timeout=60).nbytes == 4 and buffer == b"next"


def test_receive_and_wait_in_a_handler(context: heddle.Context) -> None:
    worker, buffer = context.worker(), bytearray(4)
    context.on_message(7, lambda message: seen.append(worker.recv_wait(buffer, 0, 5, timeout=60).nbytes))
    seen: list[int] = []
    worker.am(0, 7)
    worker.send(b"kept", 0, 5)
    while not seen:
        worker.run_tasks()
    assert seen == [4] and buffer == b"kept"


def test_callbacks_may_ask_for_other_requests(context: heddle.Context) -> None:
    worker = context.worker()
    order: list[int] = []
    gets = [worker.recv(bytearray(1), 0, i) for i in range(5)]

    def completed(i: int) -> None:
        order.append(i)
        for other in gets:
            if other.done:
                other.wait(timeout=1)
                other.on_done(lambda: None)

    for i, one in enumerate(gets):
        one.on_done(lambda i=i: completed(i))  # type: ignore[misc]
    for i in range(5):
        worker.send(b"x", 0, i)
    while len(order) < 5:
        worker.progress()
    assert order == list(range(5)), "in the order of completion"


def test_collectives_that_several_wait_for(context: heddle.Context) -> None:
    team = heddle.Team(context)
    step = team.persistent().allreduce(np.ones(4), np.zeros(4))
    for _ in range(20):
        step.start()
        threads = [threading.Thread(target=step.wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    step.free()
    with pytest.raises(heddle.ClosedError):
        step.start()


def test_many_that_wait_in_one_loop(context: heddle.Context) -> None:
    worker = context.worker()

    async def main() -> None:
        async def one(i: int) -> int:
            buffer = bytearray(4)
            await worker.recv(buffer, 0, i)
            return int.from_bytes(buffer, "little")

        tasks = [asyncio.create_task(one(i)) for i in range(500)]
        await asyncio.sleep(0)
        for i in range(500):
            await worker.send((3 * i).to_bytes(4, "little"), 0, i)
        assert await asyncio.gather(*tasks) == [3 * i for i in range(500)]

    asyncio.run(main())


def test_an_idle_loop_sleeps(context: heddle.Context) -> None:
    """Processor time is counted, so others on the machine do not matter."""
    worker = context.worker()

    async def main() -> None:
        got = worker.recv(bytearray(1), 0, 1)
        waiting = asyncio.ensure_future(aio.wait_for_request(got))
        await asyncio.sleep(0.1)
        before = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - before < 0.1
        await worker.send(b"x", 0, 1)
        await waiting

    asyncio.run(main())


def test_an_end_that_another_thread_finds(context: heddle.Context) -> None:
    worker = context.worker()
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            worker.progress()

    thread = threading.Thread(target=poll)
    thread.start()

    async def main() -> None:
        for _ in range(300):
            got = worker.recv(bytearray(1), 0, 1)
            await worker.send(b"x", 0, 1)
            await asyncio.wait_for(got, 60)

    asyncio.run(main())
    over.set()
    thread.join()


def test_an_await_that_was_cancelled_can_be_repeated(context: heddle.Context) -> None:
    worker = context.worker()

    async def main() -> None:
        sent = worker.send(bytes(3_000_000), 0, 1, remote=True)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sent, 0.01)
        got = worker.recv(bytearray(3_000_000), 0, 1)
        await asyncio.wait_for(sent, 60)
        await got

    asyncio.run(main())


def test_a_loop_hears_of_the_end_of_its_worker(context: heddle.Context) -> None:
    async def main(in_thread: bool) -> None:
        worker = context.worker()
        serving = asyncio.create_task(aio.serve(worker))
        got = worker.recv(bytearray(1), 0, 1)
        waiting = asyncio.create_task(aio.wait_for_request(got))
        await asyncio.sleep(0.01)
        if in_thread:
            await asyncio.get_running_loop().run_in_executor(None, worker.close)
        else:
            worker.close()
        with pytest.raises((heddle.ClosedError, heddle.CancelledError)):
            await asyncio.wait_for(waiting, 60)
        with pytest.raises(heddle.ClosedError):
            await asyncio.wait_for(serving, 60)
        # The number of its descriptor is another one's now.
        with context.worker() as other:
            got = other.recv(bytearray(1), 0, 1)
            threading.Timer(0.05, lambda: other.send(b"x", 0, 1, other.index)).start()
            await asyncio.wait_for(got, 60)

    for in_thread in (False, True):
        asyncio.run(main(in_thread))
    assert not aio._watches


def test_two_loops_on_one_worker(context: heddle.Context) -> None:
    """One loop comes and goes under a flood, the other one waits for a rare message."""
    worker = context.worker()
    sender = context.worker()
    rounds = 40
    failed: list[BaseException] = []

    def rare() -> None:
        async def main() -> None:
            for i in range(rounds):
                await asyncio.wait_for(worker.recv(bytearray(1), 0, 1), 60)
                await sender.send(b"y", 0, 2, sender.index)

        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=rare)
    thread.start()

    async def flood() -> None:
        gets = [worker.recv(bytearray(8), 0, 10 + i) for i in range(100)]
        for i in range(100):
            await sender.send(b"12345678", 0, 10 + i, worker.index)
        for one in gets:
            await one

    for _ in range(rounds):
        asyncio.run(flood())
        answer = sender.recv(bytearray(1), 0, 2)
        sender.send(b"x", 0, 1, worker.index)
        answer.wait(timeout=60)
    thread.join(timeout=60)
    assert not failed and not thread.is_alive(), failed
