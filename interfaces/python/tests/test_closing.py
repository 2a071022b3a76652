"""Closing and leaving while other threads are inside."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import heddle


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
