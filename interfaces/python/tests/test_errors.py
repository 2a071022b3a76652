"""Wrong arguments, and what is said of them; what things look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heddle


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
