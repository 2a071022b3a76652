"""Communication for programs in which every thread communicates.

A process joins its job with :class:`Context`, opens a :class:`Worker` on it, and then puts to and gets from
regions of its peers, sends tagged and active messages, and takes part in collective operations of a
:class:`Team`. Any thread may use any of these objects at any time.

    import heddle, numpy

    with heddle.Context() as context:
        worker = context.worker()
        table = context.zeros(context.size, numpy.uint64)  # a NumPy array that peers reach
        peers = context.exchange(table)
        right = (context.rank + 1) % context.size
        worker.put(numpy.uint64(context.rank), peers[right], 8 * context.rank)
        worker.quiet()
        context.barrier(worker)

Start it as a job of four ranks by ``python -m heddle.run -n 4 script.py``.

Units: lengths and offsets are bytes, times are seconds. Memory is any object with the buffer protocol, DLPack on
a CPU or ``__array_interface__``, contiguous. Errors are exceptions of :mod:`heddle.errors`.
"""

from ._heddle import (
    ANY,
    Collective,
    Compare,
    Context,
    Envelope,
    Message,
    Partitioned,
    Region,
    RemoteRegion,
    Request,
    Sharing,
    Status,
    Worker,
    library_version,
)
from .errors import (
    ArgumentError,
    CancelledError,
    ClosedError,
    HeddleError,
    JobError,
    NoMemoryError,
    PeerFailedError,
    TimedOut,
    TruncatedError,
    UnsupportedError,
)
from .teams import Team
from .types import Buffer

__version__ = ".".join(str(part) for part in library_version)

__all__ = [
    "ANY",
    "ArgumentError",
    "Buffer",
    "CancelledError",
    "ClosedError",
    "Collective",
    "Compare",
    "Context",
    "Envelope",
    "HeddleError",
    "JobError",
    "Message",
    "NoMemoryError",
    "Partitioned",
    "PeerFailedError",
    "Region",
    "RemoteRegion",
    "Request",
    "Sharing",
    "Status",
    "Team",
    "TimedOut",
    "TruncatedError",
    "UnsupportedError",
    "Worker",
]


def __getattr__(name: str) -> object:
    # What needs asyncio is imported when it is asked for.
    if name == "aio":
        import importlib

        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
