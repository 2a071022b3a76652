"""The exceptions of Heddle: one class for each status that a program may want to handle by itself.

Every one is a :class:`HeddleError`, has the library's text, and the status as ``error.status``.
"""

from ._heddle import Status


class HeddleError(Exception):
    """An operation was refused or has failed; the text says why and what to do."""

    status: Status

    def __init__(self, text: str = "", status: Status = Status.STATE) -> None:
        super().__init__(text)
        self.status = status


class ArgumentError(HeddleError, ValueError):
    """A value outside its domain (ARGUMENT, RANK, RANGE, ALIGNMENT, SIZE)."""


class ClosedError(HeddleError, ValueError):
    """What the call was for has been closed (HANDLE)."""


class PeerFailedError(HeddleError, ConnectionError):
    """The other rank has died or left the job (PEER_FAILED)."""


class TimedOut(HeddleError, TimeoutError):
    """The time was over; what was waited for goes on (TIMEOUT)."""


class CancelledError(HeddleError):
    """The receive was cancelled, or a worker was closed before the end (CANCELLED)."""


class TruncatedError(HeddleError, BufferError):
    """The message was longer than the buffer, which has what fits (TRUNCATED)."""


class NoMemoryError(HeddleError, MemoryError):
    """Memory or another bounded resource is used up (NO_MEMORY)."""


class UnsupportedError(HeddleError, NotImplementedError):
    """Not available in this build, on this transport or in this sharing mode (UNSUPPORTED)."""


class JobError(HeddleError, OSError):
    """The job could not be joined, or its launcher was lost (BOOTSTRAP, VERSION, CONFIG, SYSTEM)."""


_CLASSES: dict[Status, type[HeddleError]] = {
    Status.ARGUMENT: ArgumentError,
    Status.RANK: ArgumentError,
    Status.RANGE: ArgumentError,
    Status.ALIGNMENT: ArgumentError,
    Status.SIZE: ArgumentError,
    Status.HANDLE: ClosedError,
    Status.PEER_FAILED: PeerFailedError,
    Status.TIMEOUT: TimedOut,
    Status.CANCELLED: CancelledError,
    Status.TRUNCATED: TruncatedError,
    Status.NO_MEMORY: NoMemoryError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.BOOTSTRAP: JobError,
    Status.VERSION: JobError,
    Status.CONFIG: JobError,
    Status.SYSTEM: JobError,
}


def exception_of(status: int, text: str) -> HeddleError:
    """The exception for a status of the library; it is returned, not raised."""
    named = Status(status)
    return _CLASSES.get(named, HeddleError)(text or named.name, named)
