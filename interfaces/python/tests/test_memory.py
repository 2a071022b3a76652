"""What is accepted as memory, and how long it stays."""

from __future__ import annotations

import array
import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from memories import FreshDLPack, OnGpu, OnlyDLPack, OnlyInterface, echo

import heddle


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


def test_arrays_of_a_context() -> None:
    with heddle.Context(bootstrap="single", transport="shm") as context:
        worker = context.worker()
        for shape in (7, (7,), [2, 3], (), 0, (4, 0, 3), np.int64(5)):
            array = context.zeros(shape, np.int32)
            assert array.shape == np.zeros(shape).shape and array.dtype == np.int32 and not array.any()
        assert context.empty(3).dtype == np.float64 and context.zeros(2, "datetime64[s]").dtype == "datetime64[s]"
        kept = context.zeros(1000)
        peer = context.exchange(kept)[0]
        region = context.register(kept)
        assert region.nbytes == peer.nbytes == kept.nbytes and context.register(kept[:10]) is region
        worker.put(np.ones(1000), peer).wait()
        assert kept.sum() == 1000
        view = np.frombuffer(memoryview(region), np.float64)
        with pytest.raises(heddle.ArgumentError, match="begins inside"):
            context.exchange(kept[1:])
        with pytest.raises(TypeError, match="Context.register"):
            context.exchange(np.zeros(3))
        with pytest.raises(TypeError, match="Python objects"):
            context.zeros(3, object)
        with pytest.raises(heddle.ArgumentError, match="extent"):
            context.zeros(-1)
        with pytest.raises(MemoryError):
            context.zeros((2**40, 2**40))
        with pytest.raises(MemoryError):
            context.zeros(2**58)
    # They outlive the context, and its region.
    kept[0] = 5
    assert kept.sum() == 1004 and view[0] == 5 and region.nbytes == 0
    with pytest.raises(heddle.ClosedError):
        context.zeros(3)
    del region, view
    gc.collect()
    assert kept[0] == 5


def test_an_array_that_nobody_knows_takes_its_region_along(context: heddle.Context) -> None:
    def mappings() -> int:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return sum("memfd" in line for line in maps)

    context.zeros(3)
    before = mappings()
    for _ in range(200):
        context.zeros(3)[0] = 1
    assert mappings() < before + 20
    known = [context.exchange(context.zeros(3))[0] for _ in range(3)]
    gc.collect()
    for peer in known:  # and these stay
        context.worker().put(np.ones(3), peer).wait()


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
