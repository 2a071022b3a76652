"""What needs no peers: memory, errors, ends, in a job of one."""

from __future__ import annotations

import array
import asyncio
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heddle
from heddle import aio


class OnlyDLPack:
    """As a tensor of another library: its memory is told by DLPack alone."""

    def __init__(self, memory: Any, device: int = 1) -> None:
        self.memory = memory
        self.device = device

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.memory.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


class FreshDLPack:
    """Each export is an array of its own, which the exporter does not keep."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __dlpack__(self, **arguments: Any) -> Any:
        return np.frombuffer(self.data, np.uint8).copy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OnlyInterface:
    def __init__(self, memory: Any) -> None:
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.memory.__array_interface__)


class OnGpu:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (1,), "typestr": "<f4", "data": (1, False), "version": 3}


def echo(context: heddle.Context, worker: heddle.Worker, sent: Any, into: Any) -> None:
    got = worker.recv(into, 0, 1)
    worker.send(sent, 0, 1)
    got.wait(timeout=60)


# ---- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        bytearray,
        lambda data: memoryview(bytearray(data)),
        lambda data: array.array("B", data),
        lambda data: np.frombuffer(data, np.uint8).copy(),
        lambda data: np.frombuffer(data, np.uint8).copy().reshape(2, -1, order="F"),
        lambda data: (ctypes.c_char * len(data))(*data),
        lambda data: OnlyDLPack(np.frombuffer(data, np.uint8).copy()),
        lambda data: OnlyInterface(np.frombuffer(data, np.uint8).copy()),
        lambda data: np.frombuffer(data, "datetime64[ns]").copy(),
    ],
)
def test_memory_of_every_kind(context: heddle.Context, make: Any) -> None:
    worker = context.worker()
    data = bytes(range(64))
    there = bytearray(64)
    echo(context, worker, make(data), there)
    assert there == data
    back = make(bytes(64))
    echo(context, worker, data, back)
    whole = back.memory if hasattr(back, "memory") else back
    assert (whole.tobytes(order="A") if isinstance(whole, np.ndarray) else bytes(whole)) == data


def test_what_a_tensor_exports_stays(context: heddle.Context) -> None:
    worker = context.worker()
    data = bytes(range(256)) * 4096
    there = bytearray(len(data))
    got = worker.recv(there, 0, 1)
    sent = worker.send(FreshDLPack(data), 0, 1, remote=True)
    gc.collect()
    sent.wait(timeout=60)
    got.wait(timeout=60)
    assert there == data
    into = worker.recv(FreshDLPack(data), 0, 2)  # to where nobody looks, but it stays until then
    gc.collect()
    worker.send(data, 0, 2)
    into.wait(timeout=60)


def test_regions_are_memory(context: heddle.Context) -> None:
    worker = context.worker()
    region = context.alloc(64)
    assert len(region) == region.nbytes == 64 and bytes(memoryview(region)) == bytes(64)
    echo(context, worker, b"x" * 64, region)
    assert bytes(memoryview(region)) == b"x" * 64


def test_refused_memory(context: heddle.Context) -> None:
    worker = context.worker()
    for refused, text in (
        (object(), "no memory to send"),
        (17, "no memory to send"),
        ("text", "no memory to send"),
        (OnGpu(), "GPU"),
        (OnlyDLPack(np.zeros(3), device=2), "GPU"),
        (None, "no memory to send"),
        (np.array([{}], object), "Python objects"),
        (np.zeros(2, [("number", "i4"), ("anything", object)]), "Python objects"),
        (OnlyInterface(np.array([{}], object)), "Python objects"),
    ):
        with pytest.raises(TypeError, match=text):
            worker.send(refused, 0)  # type: ignore[arg-type]
    strided: Any
    for strided in (np.zeros((4, 4))[:, ::2], OnlyInterface(np.zeros((4, 4))[:, ::2]), OnlyDLPack(np.zeros(8)[::2])):
        with pytest.raises(BufferError, match="contiguous"):
            worker.send(strided, 0)
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    for constant in (b"bytes", read_only, OnlyInterface(read_only), memoryview(b"bytes")):
        with pytest.raises(BufferError, match="read-only"):
            worker.recv(constant, 0)


def test_memory_stays_until_the_end(context: heddle.Context) -> None:
    worker = context.worker()
    buffer = bytearray(8)
    got = worker.recv(buffer, 0, 1)
    with pytest.raises(BufferError):
        buffer.extend(b"more")  # the library owns it
    worker.send(b"12345678", 0, 1)
    got.wait(timeout=60)
    buffer.extend(b"more")
    # Nobody keeps the request, nor the buffer.
    worker.recv(bytearray(8), 0, 2)
    gc.collect()
    worker.send(b"12345678", 0, 2)
    worker.quiet()


def test_arrays_in_regions_hold_the_context() -> None:
    context = heddle.Context(bootstrap="single", transport="shm")
    region = context.alloc(4096)
    inside = np.frombuffer(memoryview(region), np.uint8)
    with pytest.raises(BufferError, match="adopt=True"):
        context.leave()
    with pytest.raises(BufferError, match="delete them"):
        region.release()
    assert context.is_open and inside.sum() == 0
    del inside
    context.leave()
    assert not context.is_open and region.nbytes == 0
    with pytest.raises(BufferError, match="released"):
        memoryview(region)
    # Registered memory is one's own.
    with heddle.Context(bootstrap="single", transport="shm") as context:
        own = np.zeros(10_000)
        peer = context.exchange(context.register(own, adopt=True))[0]
        context.worker().put(np.ones(10_000), peer).wait()
    assert own.sum() == 10_000


def test_a_forgotten_region_stays_open(context: heddle.Context) -> None:
    peers = context.exchange(context.alloc(64))
    gc.collect()
    worker = context.worker()
    worker.put(b"12345678", peers[0]).wait()
    got = bytearray(8)
    worker.get(got, peers[0]).wait()
    assert got == b"12345678"


def test_arrays_in_fortran_order(context: heddle.Context) -> None:
    worker = context.worker()
    team = heddle.Team(context)
    numbers = np.arange(6.0).reshape(2, 3)
    transposed = np.zeros((3, 2)).T  # both in Fortran's order: taken as they lie
    echo(context, worker, np.asfortranarray(numbers), transposed)
    assert (transposed == numbers).all()
    with pytest.raises(BufferError, match="order"):
        team.allreduce(numbers, np.asfortranarray(np.zeros((2, 3))))


# ---- errors -----------------------------------------------------------------------------------------


def test_errors_have_a_class_the_text_and_the_status(context: heddle.Context) -> None:
    worker = context.worker()
    peer = context.exchange(context.alloc(64))[0]
    with pytest.raises(heddle.ArgumentError, match="64") as caught:
        worker.put(b"1234", peer, 62)
    assert caught.value.status == heddle.Status.RANGE and isinstance(caught.value, ValueError)
    with pytest.raises(heddle.ArgumentError, match="rank 7"):
        worker.send(b"", 7)
    with pytest.raises(heddle.ArgumentError):
        worker.fetch_add(peer, 3, 1)
    with pytest.raises(heddle.TimedOut) as late:
        worker.recv(bytearray(1), 0, 5).wait(timeout=0.01)
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(ValueError, match="timeout"):
        worker.wait(timeout=-1)
    with pytest.raises(heddle.ArgumentError, match="32 or 64"):
        worker.add(peer, 0, 1, bits=16)
    with pytest.raises(TypeError):
        worker.wait(timeout="long")  # type: ignore[arg-type]
    with pytest.raises(heddle.HeddleError):
        context.unpack(b"nonsense")
    with pytest.raises(heddle.HeddleError, match="transport"):
        heddle.Context(bootstrap="single", transport="carrier-pigeon")


def test_numbers_are_checked(context: heddle.Context) -> None:
    worker = context.worker()
    peer = context.exchange(context.alloc(64))[0]
    for call, text in (
        (lambda: worker.send(b"", -1), "rank is -1"),
        (lambda: worker.send(b"", 2**40), "rank is"),
        (lambda: worker.send(b"", 0, -1), "tag is -1"),
        (lambda: worker.recv(bytearray(1), 0, 2**64), "tag is"),
        (lambda: worker.put(b"", peer, -8), "offset is -8"),
        (lambda: context.alloc(-1), "length is -1"),
        (lambda: worker.add(peer, 0, 2**64), "64 bits"),
        (lambda: worker.fetch_add(peer, 0, 2**40, bits=32), "32 bits"),
    ):
        with pytest.raises(heddle.ArgumentError, match=text):
            call()
    for wrong in ("0", 1.5, None):
        with pytest.raises(TypeError):
            worker.send(b"", wrong)  # type: ignore[arg-type]
    worker.add(peer, 0, 5).wait()
    worker.add(peer, 0, -2).wait()
    assert worker.fetch_add(peer, np.int64(0), np.uint64(1)) == 3
    assert worker.compare_swap(peer, 0, 4, -1) == 4
    assert worker.swap(peer, 0, 7) == 2**64 - 1
    assert worker.fetch_add(peer, 8, -1, bits=32) == 0 and worker.fetch_add(peer, 8, 0, bits=32) == 2**32 - 1


def test_ones_own_region_is_no_target(context: heddle.Context) -> None:
    worker = context.worker()
    region: Any = context.alloc(64)
    for call in (
        lambda: worker.put(b"", region),
        lambda: worker.get(bytearray(1), region),
        lambda: worker.add(region, 0, 1),
        lambda: worker.fetch_add(region, 0, 1),
    ):
        with pytest.raises(TypeError, match="exchange"):
            call()
    with pytest.raises(TypeError, match="RemoteRegion"):
        worker.put(b"", 0)  # type: ignore[arg-type]


def test_what_combines_must_be_alike(context: heddle.Context) -> None:
    team = heddle.Team(context)
    with pytest.raises(TypeError, match="different types"):
        team.allreduce(np.ones(4), np.ones(4, np.int64))
    with pytest.raises(TypeError, match="different types"):
        team.allreduce(np.ones(4), np.ones(8, np.float32))
    with pytest.raises(TypeError, match="lor or land"):
        team.allreduce(np.ones(4, bool), np.ones(4, bool))
    either = np.zeros(4, bool)
    team.allreduce(np.ones(4, bool), either, op="lor")
    assert either.all()


def test_only_receives_know_what_came(context: heddle.Context) -> None:
    worker = context.worker()
    got = worker.recv(bytearray(1), 0, 1)
    with pytest.raises(heddle.HeddleError, match="not completed"):
        got.source
    sent = worker.send(b"x", 0, 1)
    with pytest.raises(heddle.HeddleError, match="no receive"):
        sent.nbytes
    while not got.test():
        pass
    assert (got.source, got.nbytes) == (0, 1)


def test_what_things_look_like(context: heddle.Context) -> None:
    worker = context.worker()
    region = context.alloc(64)
    got = worker.recv(bytearray(1), 0, 1)
    shown = [repr(one) for one in (context, worker, region, context.exchange(region)[0], got, heddle.Team(context))]
    assert shown == [
        "<heddle.Context, rank 0 of 1>",
        "<heddle.Worker 0 of rank 0>",
        "<heddle.Region, 64 bytes>",
        "<heddle.RemoteRegion, 64 bytes of rank 0>",
        "<heddle.Request receive, under way>",
        "<heddle.Team, member 0 of 1>",
    ]
    got.cancel()


# ---- closing while others are inside ----------------------------------------------------------------


@pytest.mark.parametrize("ends", ["close", "leave"])
@pytest.mark.parametrize("sharing", [heddle.Sharing.SHARED, heddle.Sharing.OFFLOAD, heddle.Sharing.AUTO])
def test_threads_that_wait_are_told_of_the_end(ends: str, sharing: heddle.Sharing) -> None:
    for _ in range(3):
        context = heddle.Context(bootstrap="single", transport="shm")
        worker = context.worker(sharing)
        peer = context.exchange(context.alloc(64))[0]
        word = bytearray(8)
        errors: list[BaseException] = []

        def in_a_loop(call: Any, errors: list[BaseException] = errors) -> None:
            try:
                while True:
                    call()
            except heddle.HeddleError as error:
                errors.append(error)

        calls = [
            worker.progress,
            worker.wait,
            worker.arm,
            worker.run_tasks,
            lambda: worker.recv(bytearray(8), 0, 99).wait(),
            lambda: worker.put(b"x" * 64, peer).wait(),
            lambda: worker.wait_signal(word, 0, heddle.Compare.EQ, 1),
            lambda: worker.fetch_add(peer, 0, 1),
        ]
        worker.fileno()
        threads = [threading.Thread(target=in_a_loop, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.02)  # so that they are inside; what is tested holds whether or not
        worker.close() if ends == "close" else context.leave()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert {type(error) for error in errors} <= {heddle.ClosedError, heddle.CancelledError}
        context.leave()


def test_memory_views_end_before_the_context() -> None:
    """While one thread leaves, others make views of a region: none of them is of memory that has gone."""
    for _ in range(20):
        context = heddle.Context(bootstrap="single", transport="shm")
        region = context.alloc(4096)
        over = threading.Event()

        def look(region: heddle.Region = region, over: threading.Event = over) -> None:
            while not over.is_set():
                try:
                    with memoryview(region) as view:
                        assert view[0] == 0
                except BufferError:
                    return

        thread = threading.Thread(target=look)
        thread.start()
        while context.is_open:
            try:
                context.leave()
            except BufferError:
                pass
        thread.join(timeout=60)
        over.set()
        assert not thread.is_alive()


def test_nothing_is_closed_inside_a_handler(context: heddle.Context) -> None:
    worker = context.worker()
    texts: list[str] = []

    def handler(message: heddle.Message) -> None:
        for call in (worker.close, context.leave):
            with pytest.raises(heddle.HeddleError) as caught:
                call()
            texts.append(str(caught.value))

    context.on_message(1, handler)
    worker.am(0, 1)
    worker.run_tasks()
    assert len(texts) == 2 and all("inside a handler" in text for text in texts)


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


def test_memory_of_what_is_dropped_while_the_context_leaves() -> None:
    for _ in range(10):
        context = heddle.Context(bootstrap="single", transport="shm")
        worker = context.worker()
        team = heddle.Team(context)
        begun = [team.start.broadcast(np.zeros(100_000)) for _ in range(4)]
        parts = [worker.precv(bytearray(1000), 2, 0, i) for i in range(4)]
        for part in parts:
            part.start()
        thread = threading.Thread(target=context.leave)
        thread.start()
        begun.clear()
        parts.clear()
        gc.collect()
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_regions_that_are_made_while_the_context_leaves() -> None:
    class Length:
        """Asked for its value, it lets another thread leave."""

        def __init__(self, context: heddle.Context) -> None:
            self.context = context

        def leave(self) -> None:
            try:
                self.context.leave()
            except BufferError:  # the view was there before
                pass

        def __index__(self) -> int:
            self.thread = threading.Thread(target=self.leave)
            self.thread.start()
            self.thread.join(timeout=0.05)
            return 4096

    context = heddle.Context(bootstrap="single", transport="shm")
    length = Length(context)
    region = context.alloc(length)
    try:
        view = memoryview(region)
    except BufferError:  # it has left
        pass
    else:
        length.thread.join(timeout=0.2)
        assert view[0] == 0
        view.release()
    length.thread.join(timeout=60)
    if context.is_open:  # the view has kept it
        context.leave()


def test_malformed_interfaces(context: heddle.Context) -> None:
    worker = context.worker()

    class Interface:
        def __init__(self, value: Any) -> None:
            self.__array_interface__ = value

    class Device:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __dlpack__(self, **arguments: Any) -> Any:
            return 5

        def __dlpack_device__(self) -> Any:
            return self.value

    right = {"typestr": "<f8", "shape": (1,), "data": (0, False), "version": 3}
    wrong: list[Any] = [Interface(5), Interface({}), Device(()), Device(5), Device(("x", 0)), Device((1, 0))]
    wrong += [Interface({**right, **one}) for one in ({"shape": 3}, {"data": (None, False)}, {"data": ()}, {"typestr": 7})]
    wrong += [Interface({**right, "shape": (2**40, 2**40)}), Interface({**right, "typestr": "<f"})]
    for one in wrong:
        with pytest.raises(TypeError):
            worker.send(one, 0)


def test_a_child_of_a_busy_parent_ends(context: heddle.Context) -> None:
    worker = context.worker()
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            worker.progress()

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            import atexit

            atexit._run_exitfuncs()
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    over.set()
    for thread in threads:
        thread.join()


def test_daemon_threads_at_the_end() -> None:
    """Threads that wait when the interpreter ends do not make it abort."""
    program = """
import heddle, threading, time
context = heddle.Context(bootstrap="single")
worker = context.worker()
def loop(call):
    while True:
        call()
for call in (lambda: worker.wait(0.001), worker.progress, lambda: worker.run_tasks(timeout=0.001), worker.run_tasks,
             lambda: worker.recv(bytearray(1), 0).wait()):
    threading.Thread(target=loop, args=(call,), daemon=True).start()
time.sleep(0.05)
"""
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_operations_while_modules_go() -> None:
    program = """
import sys, heddle
context = heddle.Context(bootstrap="single")
worker = context.worker()
peer = context.exchange(context.alloc(64))[0]
class Late:
    def __del__(self):
        worker_.put(b"12345678", peer_)
sys.late = Late()
Late.__del__.__globals__.update(worker_=worker, peer_=peer)
heddle._heddle.late = sys.late
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_what_is_closed_says_so() -> None:
    context = heddle.Context(bootstrap="single", transport="shm")
    worker = context.worker()
    second = context.worker()
    region = context.alloc(64)
    peer = context.exchange(region)[0]
    second.close()
    with pytest.raises(heddle.ClosedError):
        second.send(b"", 0)
    region.release()
    region.release()
    context.leave()
    context.leave()
    for call in (
        lambda: worker.send(b"", 0),
        lambda: worker.put(b"", peer),
        lambda: worker.progress(),
        lambda: context.worker(),
        lambda: context.alloc(1),
        lambda: heddle.Team(context),
        lambda: region.pack(),
    ):
        with pytest.raises(heddle.ClosedError):
            call()


def test_a_receive_is_cancelled(context: heddle.Context) -> None:
    worker = context.worker()
    buffer = bytearray(1)
    got = worker.recv(buffer, 0, 1)
    got.cancel()
    with pytest.raises(heddle.CancelledError):
        got.wait()
    assert got.done and got.status == heddle.Status.CANCELLED
    buffer.extend(b"free again")
    got.cancel()
    worker.send(b"x", 0, 1).cancel()


# ---- handlers ---------------------------------------------------------------------------------------


def test_what_a_handler_raises(context: heddle.Context) -> None:
    worker = context.worker()
    seen: list[int] = []

    def handler(message: heddle.Message) -> None:
        seen.append(message.payload[0])
        if message.payload[0] == 1:
            raise KeyError("in the handler")

    context.on_message(5, handler)
    for i in range(3):
        worker.am(0, 5, bytes([i]))
    with pytest.raises(KeyError, match="in the handler"):
        worker.run_tasks()
    assert seen == [0, 1]
    assert worker.run_tasks() == 1 and seen == [0, 1, 2]
    assert worker.run_tasks(timeout=0) == 0
    # Nested: a handler may wait for the next one.
    context.on_message(6, lambda message: worker.run_tasks())
    worker.am(0, 6)
    worker.am(0, 5, b"\3")
    worker.run_tasks()
    assert seen == [0, 1, 2, 3]
    context.on_message(5, None)
    worker.am(0, 5, b"\4")
    assert worker.run_tasks(timeout=0) == 0 and worker.stats()["dropped"] == 1


def test_wrong_handlers(context: heddle.Context) -> None:
    worker = context.worker()
    for call in (
        lambda: context.on_message(1024, print),
        lambda: worker.am(0, -1),
        lambda: worker.am(0, 1, header=bytes(65)),
        lambda: worker.run_tasks(0),
    ):
        with pytest.raises(heddle.ArgumentError):
            call()
    with pytest.raises(TypeError, match="function"):
        context.on_message(1, 17)  # type: ignore[arg-type]

    async def coroutine(message: heddle.Message) -> None:
        pass

    with pytest.raises(TypeError, match="in_tasks"):
        context.on_message(1, coroutine)


# ---- requests ---------------------------------------------------------------------------------------


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


# ---- what must not grow, and processes --------------------------------------------------------------


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_nothing_leaks(context: heddle.Context) -> None:
    worker = context.worker()
    own = np.zeros(4096)

    def turn(times: int) -> None:
        for _ in range(times):
            region = context.alloc(4096)
            peer = context.unpack(region.pack())
            worker.put(b"12345678", peer).wait()
            region.release()
            with context.register(own):
                pass
            got = worker.recv(bytearray(20_000), 0, 1)
            worker.send(bytearray(20_000), 0, 1)
            got.wait(timeout=60)
            worker.am(0, 1, b"x" * 100)
            worker.run_tasks()

    async def awaiting(worker: heddle.Worker) -> None:
        got = worker.recv(bytearray(8), 0, 7)
        await worker.send(b"x", 0, 7)
        await got

    context.on_message(1, lambda message: None)
    turn(2000)
    gc.collect()
    asyncio.run(awaiting(worker))
    gc.collect()
    objects, kib = len(gc.get_objects()), resident_kib()
    for _ in range(20):
        asyncio.run(awaiting(worker))
    turn(10_000)
    gc.collect()
    assert len(gc.get_objects()) < objects + 100
    # 10 000 of anything that was kept would be more than this.
    assert resident_kib() < kib + 2000
    references = sys.getrefcount(own)
    with context.register(own):
        assert sys.getrefcount(own) > references
    assert sys.getrefcount(own) == references


def test_a_child_is_no_member(context: heddle.Context) -> None:
    worker = context.worker()
    child = os.fork()
    if child == 0:
        try:
            worker.send(b"x", 0)
        except heddle.ClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    got = worker.recv(bytearray(1), 0, 1)
    worker.send(b"x", 0, 1)
    got.wait(timeout=60)


def test_a_program_may_just_end() -> None:
    program = """
import heddle
context = heddle.Context(bootstrap="single")
worker = context.worker()
region = context.alloc(4096)
view = memoryview(region)
got = worker.recv(bytearray(8), 0, 1)
context.on_message(1, lambda message: context)
worker.fileno()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_control_c_ends_a_wait() -> None:
    program = """
import os, signal, threading, heddle
worker = heddle.Context(bootstrap="single").worker()
part = worker.precv(bytearray(8), 1, 0, 9)
part.start()
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
"""
    waits = (
        "worker.recv(bytearray(1), 0).wait()",
        "worker.run_tasks()",
        "worker.wait_signal(bytearray(8), 0, heddle.Compare.EQ, 1)",
        "worker.wait_signal(bytearray(8), 0, heddle.Compare.EQ, 1, timeout=50)",
        "worker.wait(timeout=50)",
        "part.wait()",
    )
    for wait in waits:
        ended = subprocess.run(
            [sys.executable, "-c", program.format(wait=wait)], capture_output=True, text=True, timeout=60
        )
        assert ended.stdout == "interrupted\n", ended.stderr


# ---- the launcher -----------------------------------------------------------------------------------


def test_run_takes_options_modules_and_code(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # In one piece, which ranks do not mix.
    script.write_text(
        "import heddle, sys\nwith heddle.Context() as c: sys.stdout.write(f'{c.rank} {c.size} {sys.argv[1:]}\\n')\n"
    )
    for arguments in (
        ["-n", "2", str(script), "-n", "9"],
        ["--np", "2", "--timeout", "60", str(script), "-n", "9"],
        ["-n", "2", "--", str(script), "-n", "9"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "heddle.run", *arguments], capture_output=True, text=True, timeout=60
        )
        assert sorted(ended.stdout.splitlines()) == ["0 2 ['-n', '9']", "1 2 ['-n', '9']"], ended.stderr
    code = "import heddle, sys\nwith heddle.Context() as c: sys.stdout.write(f'{c.size}\\n')"
    ended = subprocess.run(
        [sys.executable, "-m", "heddle.run", "-n", "3", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "3\n3\n3\n"
    ended = subprocess.run([sys.executable, "-m", "heddle.run"], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "usage" in ended.stderr
    ended = subprocess.run([sys.executable, "-m", "heddle.run", "--help"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "--bind" in ended.stdout


def test_versions_agree() -> None:
    import importlib.metadata

    assert importlib.metadata.version("heddle") == heddle.__version__
