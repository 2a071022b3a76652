"""asyncio: ``await worker.recv(buffer)``, and handlers of active messages in the event loop.

The event loop waits on the worker's descriptor (``Worker.fileno``, ``Worker.arm``); no thread polls. Several loops,
each in its thread, may wait for one worker.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable

from ._heddle import Collective, Context, Message, Request, Worker

# Looks in a row that a busy worker gets before other callbacks of the loop have their turn.
_LOOKS = 64
# After something has moved, the next thing may come soon: so long, in seconds, the worker is looked at in each turn of the
# loop, before the loop sleeps. To wake it costs about as much.
_SOON = 100e-6


class _Watch:
    """One worker in one event loop, while somebody waits for it there: armed, and looked at when its descriptor is
    readable. It ends when nobody waits any more, or by an error of the worker, which all who wait get."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        self._loop = loop
        self._worker = worker
        self._descriptor = -1
        self._failures: set[asyncio.Future[None]] = set()
        self._handlers = 0
        self._scheduled = False
        self._reads = False
        self._moved_at = loop.time()
        self._schedule()

    def add(self, failure: asyncio.Future[None], handlers: bool) -> None:
        """``failure`` gets the worker's error; ``handlers``: those of active messages run here."""
        self._failures.add(failure)
        self._handlers += handlers
        self._moved_at = self._loop.time()
        self._schedule()

    def remove(self, failure: asyncio.Future[None], handlers: bool) -> None:
        self._failures.discard(failure)
        self._handlers -= handlers
        if not self._failures:
            self._end()

    def _end(self) -> None:
        if _watches.get((self._loop, self._worker)) is self:
            del _watches[self._loop, self._worker]
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._descriptor)

    def closing(self) -> None:
        """The descriptor is about to be closed, perhaps; the next look finds out."""
        self._stop_reading()
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if not self._failures:
            return
        try:
            if not self._reads:
                self._descriptor = self._worker.fileno()
                self._loop.add_reader(self._descriptor, self._schedule)
                self._reads = True
            for _ in range(_LOOKS):
                if self._worker.progress() > 0 or (self._handlers > 0 and self._worker.run_tasks(1, timeout=0) > 0):
                    self._moved_at = self._loop.time()
                elif self._loop.time() - self._moved_at < _SOON:
                    break
                elif self._worker.arm():
                    return
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
            return
        self._schedule()

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, StopIteration):  # which no future takes
            wrapped = RuntimeError("a handler raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        failures = list(self._failures)
        self._failures.clear()
        self._end()
        for failure in failures:
            if not failure.done():
                failure.set_exception(error)


_watches: dict[tuple[asyncio.AbstractEventLoop, Worker], _Watch] = {}


def _closing(what: Worker | Context) -> None:
    """Called before a worker is closed, or a context leaves: no loop may have its descriptor then."""
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    for (loop, worker), watch in list(_watches.items()):
        if (worker is not what and worker.context is not what) or loop.is_closed():
            continue
        if loop is here:
            watch.closing()
            continue
        done = threading.Event()

        def stop(watch: _Watch = watch, done: threading.Event = done) -> None:
            watch.closing()
            done.set()

        try:
            loop.call_soon_threadsafe(stop)
        except RuntimeError:  # it has been closed meanwhile
            continue
        done.wait(1)  # a loop that is blocked for longer finds a closed descriptor, which it forgets


async def _wait(worker: Worker, future: asyncio.Future[None], handlers: bool = False) -> None:
    """Until the future is done; the worker's error, if it has one before, becomes the future's."""
    key = (asyncio.get_running_loop(), worker)
    watch = _watches.get(key)
    if watch is None:
        watch = _watches[key] = _Watch(*key)
    watch.add(future, handlers)
    try:
        await future
    finally:
        watch.remove(future, handlers)


async def wait_for_request(request: Request) -> Request:
    """What ``await request`` does: wait until it is complete, raise its error, return it.

    Cancelling it cancels a receive. If a message had come before that, the request is done, and has it.
    """
    worker = request.worker
    if request.done or worker is None:
        request.check()
        return request
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        # Any thread that uses the worker may find that it is complete.
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            wake()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    request.on_done(tell)
    try:
        await _wait(worker, future)
    except BaseException as error:
        if not request.done:
            request.on_done(None)
            if isinstance(error, asyncio.CancelledError):
                request.cancel()
        if isinstance(error, asyncio.CancelledError) or not request.done:
            raise
    request.check()
    return request


async def wait_for_collective(collective: Collective) -> None:
    """What ``await collective`` does: look at it in each turn of the loop, and once a millisecond when it lasts."""
    looks = 0
    while not collective.test():
        looks += 1
        await asyncio.sleep(0 if looks < 50 else 0.001)


async def serve(worker: Worker) -> None:
    """Run the handlers of active messages as they arrive, until it is cancelled, or the worker is closed.

    A handler that is a coroutine function is named through :func:`in_tasks`. What another handler raises ends
    ``serve`` with that error; the messages behind it wait for the next call.
    """
    await _wait(worker, asyncio.get_running_loop().create_future(), handlers=True)


def in_tasks(handler: Callable[[Message], Awaitable[object]]) -> Callable[[Message], None]:
    """A handler for ``Context.on_message`` that runs a coroutine function as a task of the running loop.

    What the coroutine raises goes to the loop's exception handler.
    """
    tasks: set[asyncio.Task[object]] = set()

    def ended(task: asyncio.Task[object]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": "a handler of active messages has failed", "exception": error, "task": task}
            )

    def run(message: Message) -> None:
        coroutine = handler(message)
        assert inspect.iscoroutine(coroutine), "heddle.aio.in_tasks takes a coroutine function"
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(coroutine)
        tasks.add(task)  # the loop keeps no reference of its own
        task.add_done_callback(ended)

    return run
