"""The C API of Heddle for Python; import heddle instead."""

from collections.abc import Callable, Generator, Sequence
import enum
import types
from typing import Any, SupportsIndex

import numpy.typing

import heddle.types


ANY: int = 4294967295

library_version: tuple[int, int, int] = ...

class Status(enum.IntEnum):
    """What a call of the library returned."""

    DONE = 0

    POSTED = 1

    AGAIN = 2

    ARGUMENT = -1

    HANDLE = -2

    RANK = -3

    RANGE = -4

    ALIGNMENT = -5

    SIZE = -6

    NO_MEMORY = -7

    UNSUPPORTED = -8

    PEER_FAILED = -9

    TIMEOUT = -10

    CONFIG = -11

    VERSION = -12

    BOOTSTRAP = -13

    STATE = -14

    SYSTEM = -15

    PROTOCOL = -16

    CANCELLED = -17

    TRUNCATED = -18

class Request:
    """
    An operation that was posted. Its memory stays until it is complete, whether or not the request is kept.

    Await it under asyncio, or call wait(). Any thread.
    """

    @property
    def done(self) -> bool:
        """Whether it is complete, by success or an error. Makes no progress."""

    @property
    def status(self) -> Status:
        """Status.POSTED while it is under way; then its outcome."""

    def wait(self, timeout: float | None = None) -> None:
        """
        Make progress until the operation is complete; raise its error.

        timeout: seconds, or None. TimedOut: it goes on, and can be waited for again.
        """

    def test(self) -> bool:
        """
        Make progress once; whether the operation is complete. Raises its error.
        """

    def check(self) -> None:
        """Raise the error with which the operation has completed, if it was one."""

    def cancel(self) -> None:
        """
        Cancel a receive, which then completes with CancelledError. Nothing happens if a message has come for it, or if it is no receive.
        """

    def on_done(self, function: Callable[[], object] | None) -> None:
        """
        Call the function once the operation is complete, on the thread whose call finds that; now if it is.

        One function at a time, and an await has one; None: nobody any more.
        """

    @property
    def worker(self, /) -> Worker | None:
        """The worker that it was posted on; None: it was done at once."""

    def __await__(self) -> Generator[Any, None, Request]:
        """
        Wait under asyncio; the result is the request. Cancelling the await cancels a receive.
        """

    def __repr__(self) -> str: ...

    @property
    def source(self) -> int:
        """Of a receive that is complete: the sender's rank."""

    @property
    def source_worker(self) -> int:
        """Of a receive that is complete: the sender's worker."""

    @property
    def tag(self) -> int:
        """Of a receive that is complete: the message's tag."""

    @property
    def nbytes(self) -> int:
        """
        Of a receive that is complete: the message's length in bytes, also if the buffer was shorter.
        """

class Compare(enum.Enum):
    """How wait_signal compares the word with the value."""

    EQ = 0

    NE = 1

    GT = 2

    GE = 3

    LT = 4

    LE = 5

class Context:
    """
    This process's membership in the job that it was started in, or in a job of one.

    As a context manager it leaves at the end of the block, unless by an exception. What was opened on it is closed then. Any thread may use it.
    """

    def __init__(self, *, transport: str | None = None, progress: str | None = None, bootstrap: str | None = None) -> None:
        """
        Join the job; wait until the launcher answers.

        transport: such as 'shm' or 'shm,ucx'; None: HEDDLE_TRANSPORT decides.
        progress: 'none', 'dedicated:N', 'idle', 'adaptive'; None: HEDDLE_PROGRESS decides.
        bootstrap: 'single' for a job of one, whatever has started this process; None: HEDDLE_BOOTSTRAP decides.
        JobError: there is no such job, its launcher is lost, or a setting has a wrong value.
        """

    @property
    def rank(self) -> int:
        """This process's number in the job, from 0."""

    @property
    def size(self) -> int:
        """The number of processes in the job."""

    @property
    def is_open(self) -> bool:
        """False once it has left."""

    def leave(self) -> None:
        """
        Wait until every rank leaves, then close everything opened on the context. Collective over the job.

        BufferError: arrays lie in regions of alloc(); nothing has happened.
        """

    def __repr__(self) -> str: ...

    def __enter__(self) -> Context: ...

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, traceback: types.TracebackType | None) -> None: ...

    def exchange_bytes(self, mine: bytes) -> list[bytes]:
        """
        Give bytes, equally many in all ranks (1 to 1 MiB), and get those of all. Collective over the job.
        """

    def barrier(self, worker: Worker | None = None, timeout: float | None = None) -> None:
        """
        Wait until all ranks have come, with progress meanwhile, on `worker` above all. Collective over the job; for set-up.

        PeerFailedError: a rank has died or left. TimedOut: this rank counts as arrived; call again.
        """

    def is_alive(self, rank: SupportsIndex) -> bool:
        """False once the rank is known to have died or left."""

    def abort(self, code: int = 1, message: str = '') -> None:
        """End the whole job with this exit code (0 to 255)."""

    def alloc(self, nbytes: SupportsIndex) -> Region:
        """
        A new region of zeroed memory (1 byte or more); on the same node peers reach it by loads and stores.

        Its memory goes when it is released or the context leaves: arrays in it must be gone before.
        """

    def zeros(self, shape: heddle.types.Shape, dtype: numpy.typing.DTypeLike = 'float64') -> numpy.typing.NDArray[Any]:
        """
        A NumPy array of zeros that is a region: give it to exchange(), and peers on the node reach all of it by loads and stores.

        It lives as long as you like, also when the context has left. Once exchanged, its region stays open until register(array).release(), or until the context leaves; no thread may use the array during either.
        """

    def empty(self, shape: heddle.types.Shape, dtype: numpy.typing.DTypeLike = 'float64') -> numpy.typing.NDArray[Any]:
        """
        As zeros(), for an array that is written first. (It costs the same: fresh memory is zero.)
        """

    def register(self, memory: heddle.types.Buffer, *, adopt: bool = False) -> Region:
        """
        A region of an object's own memory, which can be written; the object is kept. Of an array of zeros() or empty() it is the region that the array is.

        adopt: its whole pages become memory that peers on the node map, as fast as alloc's. What is left of a page is as without adopt: its owner's worker 0 executes atomics and signals, and must make progress. NumPy's own arrays begin within a page, so offset 0 is such a place: zeros() gives arrays without. No thread may use the memory during this call, nor while the region is released or the context leaves. UnsupportedError: memory of another kind, such as a mapped file.
        """

    def exchange(self, region: Region | heddle.types.Buffer) -> list[RemoteRegion]:
        """
        Give a region, or an array of zeros() or empty(), and get those of all ranks, in their order. Collective over the job.
        """

    def unpack(self, packed: bytes) -> RemoteRegion:
        """The region that Region.pack of a peer has named."""

    def worker(self, sharing: Sharing = Sharing.DEFAULT, *, help: bool = True) -> Worker:
        """
        Open a worker. Those of a rank are numbered 0, 1, 2, … in the order of opening.

        help: False: helper threads leave it alone.
        """

    def on_message(self, number: SupportsIndex, handler: Callable[[Message], object] | None) -> None:
        """
        Name the handler of active messages with this number (0 to 1023); None: nobody's.

        It runs in Worker.run_tasks with the message. Name it before peers send, such as before a barrier: a message without a handler is dropped. The handler is kept until the context has left.
        """

class Region:
    """
    Memory that peers can put to and get from.

    It has the buffer protocol: numpy.frombuffer(memoryview(region), dtype) is an array in it. It stays open until release(), or until the context leaves, also if nobody keeps this object.
    """

    def release(self) -> None:
        """
        Close it, after every peer's last operation on it. BufferError: arrays lie in it.
        """

    def pack(self) -> bytes:
        """
        Its name as bytes (128 at most), for Context.unpack of any rank of the job.
        """

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

    def __repr__(self) -> str: ...

    def __enter__(self) -> Region: ...

    def __exit__(self, *args: object) -> None: ...

    @property
    def nbytes(self) -> int:
        """Its length in bytes; 0: it is released."""

class RemoteRegion:
    """A peer's region, or one's own, as operations name it."""

    def __repr__(self) -> str: ...

    @property
    def rank(self) -> int:
        """The owner's rank."""

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""

    def is_mapped(self, offset: SupportsIndex = 0, nbytes: SupportsIndex = 1) -> bool:
        """
        Whether operations on these bytes are direct loads and stores of this process.
        """

class Sharing(enum.Enum):
    """Which threads may use a worker, and how."""

    DEFAULT = 0
    """What HEDDLE_SHARING says; AUTO unless set."""

    EXCLUSIVE = 1
    """One thread at a time: the fastest. Not checked."""

    SHARED = 2
    """Any thread; the caller posts."""

    OFFLOAD = 3
    """Any thread; a thread of the library posts and polls."""

    DELEGATE = 4
    """Any thread; who is inside executes what others queue."""

    AUTO = 6
    """About as fast as EXCLUSIVE while one thread uses it; any thread may."""

class Worker:
    """
    A queue of communication: threads post operations to it.

    Any thread may use it, unless it was opened with Sharing.EXCLUSIVE. Operations return a Request; they have taken their memory by then, and the call has not waited for peers unless resources were short. It stays open until close(), or until the context leaves.
    """

    def progress(self) -> int:
        """Advance the worker; return how many events it handled."""

    def wait(self, timeout: float | None = None) -> bool:
        """
        Make progress until something of this worker has moved, or some other thing may have happened.

        For loops: while not finished: worker.wait(). timeout: seconds. False: the time was over.
        """

    def close(self) -> None:
        """
        Wait for the worker's operations and for other threads' calls, then close it. Its descriptor is closed, too.

        Returns at once if another thread closes it. TimedOut: peers do not do their part (HEDDLE_CLOSE_TIMEOUT); it stays open.
        """

    def __enter__(self) -> Worker: ...

    def __exit__(self, *args: object) -> None: ...

    def __repr__(self) -> str: ...

    @property
    def index(self) -> int:
        """Its number: peers name it by its rank and this number."""

    @property
    def sharing(self) -> Sharing:
        """Its sharing mode."""

    @property
    def context(self) -> Context:
        """The context that it was opened on."""

    def fileno(self) -> int:
        """
        A descriptor for select, poll and epoll: readable once the armed worker has to be looked at.

        The library's own: do not read or close it, and take it out of the loop before the worker is closed.
        """

    def arm(self) -> bool:
        """
        True: the descriptor becomes readable when something of the worker moves. False: something has moved; make progress, and arm again. Call fileno() before.
        """

    def stats(self) -> dict[str, int]:
        """
        What was counted since it was opened, such as puts, messages, received, dropped, bytes.
        """

    def put(self, source: heddle.types.Buffer, target: RemoteRegion, offset: SupportsIndex = 0, *, local: bool = False) -> Request:
        """
        Copy the source's bytes to `offset` bytes into the target region.

        The request ends when they are visible there; local: when the source may be changed.
        ArgumentError: the bytes leave the region. PeerFailedError: its owner has died.
        """

    def get(self, target: heddle.types.Buffer, source: RemoteRegion, offset: SupportsIndex = 0) -> Request:
        """
        Copy as many bytes as `target` has from `offset` bytes into the source region; errors as of put.
        """

    def put_signal(self, source: heddle.types.Buffer, target: RemoteRegion, offset: SupportsIndex, word: RemoteRegion, word_offset: SupportsIndex, value: SupportsIndex, *, add: bool = False) -> Request:
        """
        A put after which the unsigned 64-bit word (on the same rank) is set to, or raised by, `value`.

        Who sees the word's new value (wait_signal) sees the data.
        """

    def wait_signal(self, memory: heddle.types.Buffer, offset: SupportsIndex, compare: Compare, value: SupportsIndex, timeout: float | None = None) -> None:
        """
        Make progress until the unsigned 64-bit word at `offset` bytes into one's own memory compares so.

        timeout: seconds. TimedOut: it does not compare so yet. The death of a peer is not noticed.
        """

    def compare_swap(self, target: RemoteRegion, offset: SupportsIndex, compare: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        Set the word of 64 or 32 bits at `offset` to `value` if it is `compare`. Returns its old value.
        """

    def add(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> Request:
        """
        Add to the unsigned word at `offset` in the target region.

        bits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its width. Negative values are taken as their two's complement.
        """

    def fetch_add(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        Add to the unsigned word at `offset` in the target region. Returns the word's old value, as an unsigned number; waits for it, which under asyncio holds up the loop unless the region is mapped.
        """

    def and_(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> Request:
        """
        The word becomes its bitwise and with `value`.

        bits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its width. Negative values are taken as their two's complement.
        """

    def fetch_and(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        The word becomes its bitwise and with `value`. Returns the word's old value, as an unsigned number; waits for it, which under asyncio holds up the loop unless the region is mapped.
        """

    def or_(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> Request:
        """
        The word becomes its bitwise or with `value`.

        bits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its width. Negative values are taken as their two's complement.
        """

    def fetch_or(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        The word becomes its bitwise or with `value`. Returns the word's old value, as an unsigned number; waits for it, which under asyncio holds up the loop unless the region is mapped.
        """

    def xor(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> Request:
        """
        The word becomes its bitwise exclusive or with `value`.

        bits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its width. Negative values are taken as their two's complement.
        """

    def fetch_xor(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        The word becomes its bitwise exclusive or with `value`. Returns the word's old value, as an unsigned number; waits for it, which under asyncio holds up the loop unless the region is mapped.
        """

    def set(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> Request:
        """
        The word becomes `value`.

        bits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its width. Negative values are taken as their two's complement.
        """

    def swap(self, target: RemoteRegion, offset: SupportsIndex, value: SupportsIndex, bits: int = 64) -> int:
        """
        The word becomes `value`. Returns the word's old value, as an unsigned number; waits for it, which under asyncio holds up the loop unless the region is mapped.
        """

    def fence(self) -> None:
        """
        What is posted after it takes effect, at each target, after what was posted before.
        """

    def flush(self, rank: SupportsIndex) -> None:
        """
        Wait until all operations to the rank are complete there. PeerFailedError: the rank has died.
        """

    def quiet(self) -> None:
        """
        Wait until all operations of this worker are complete. Receives are not waited for.

        Raises the first error of operations; that of a request is the request's.
        """

    def send(self, data: heddle.types.Buffer, target: SupportsIndex, tag: SupportsIndex = 0, target_worker: SupportsIndex = 0, *, remote: bool = False) -> Request:
        """
        Send the bytes of `data` with a tag (64 bits) to a worker of rank `target`.

        The request is complete when `data` may be changed; remote: when the message is in the target's memory (a long one: received).
        ArgumentError: no such rank. PeerFailedError: the rank has died. A short message that was copied is done, and quiet() tells of the death, unless `remote` was asked for.
        """

    def recv(self, buffer: heddle.types.Buffer, source: SupportsIndex = ANY, tag: SupportsIndex = 0, mask: SupportsIndex | None = None, source_worker: SupportsIndex = ANY) -> Request:
        """
        Receive into `buffer` a message whose tag equals `tag` in the bits of `mask` (None: in all; 0: any tag).

        source, source_worker: from whom; heddle.ANY: from anybody. The request tells source, tag and nbytes, and completes with TruncatedError if the message was longer than the buffer.
        """

    def recv_wait(self, buffer: heddle.types.Buffer, source: SupportsIndex = ANY, tag: SupportsIndex = 0, mask: SupportsIndex | None = None, source_worker: SupportsIndex = ANY, *, timeout: float | None = None) -> Envelope:
        """
        Receive a message as recv() does, and wait for it: the fastest way to one message.

        Returns what came. timeout: seconds, or None. TimedOut: nothing was received, and nothing waits any more. A message whose data is on its way by then is received, however long that takes. After control-C nothing waits, and a message that was on its way is lost.
        """

    def probe(self, source: SupportsIndex = ANY, tag: SupportsIndex = 0, mask: SupportsIndex | None = None, source_worker: SupportsIndex = ANY) -> Envelope | None:
        """
        The message that such a receive would take, if one is there; it stays. Makes progress once.
        """

    def am(self, target: SupportsIndex, handler: SupportsIndex, payload: heddle.types.Buffer = b'', header: heddle.types.Buffer = b'', target_worker: SupportsIndex = 0) -> Request:
        """
        Send an active message: the handler of this number runs at rank `target`, in its run_tasks.

        header: at most 64 bytes, copied at once. The request is complete when the payload may be changed.
        """

    def run_tasks(self, most: SupportsIndex = 4294967295, timeout: float | None = None) -> int:
        """
        Run the handlers of messages that have arrived, `most` at most; wait for one if there is none.

        timeout: seconds. Returns how many ran (0: the time was over). Raises what a handler raises, at once; the messages behind it wait for the next call.
        """

    def psend(self, buffer: heddle.types.Buffer, partitions: SupportsIndex, target: SupportsIndex, tag: SupportsIndex = 0, target_worker: SupportsIndex = 0) -> Partitioned:
        """
        A persistent send of so many equal parts of `buffer`. Local: the peer makes its precv when it likes.
        """

    def precv(self, buffer: heddle.types.Buffer, partitions: SupportsIndex, source: SupportsIndex, tag: SupportsIndex = 0, source_worker: SupportsIndex = 0) -> Partitioned:
        """
        The receiving side of what that worker sends to this one with this tag. The numbers of parts may differ; the bytes in all must agree.
        """

class Envelope:
    """A message that waits to be received, or was."""

    @property
    def source(self) -> int:
        """The sender's rank."""

    @property
    def source_worker(self) -> int:
        """The sender's worker."""

    def __repr__(self) -> str: ...

    @property
    def tag(self) -> int:
        """Its tag."""

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""

class Message:
    """What the handler of an active message gets."""

    def __repr__(self) -> str: ...

    @property
    def source(self) -> int:
        """The sender's rank."""

    @property
    def source_worker(self) -> int:
        """The sender's worker: where an answer goes."""

    @property
    def header(self) -> bytes:
        """At most 64 bytes."""

    @property
    def payload(self) -> bytes:
        """The data, a copy."""

class Partitioned:
    """
    A partitioned send or receive, which is started again and again. Its buffer is kept.

    A run of a send: start(), ready() of each part by any thread, wait(). Of a receive: start(), arrived() as wanted, wait().
    """

    def start(self) -> None:
        """Begin a run; waits for no peer."""

    def ready(self, partition: SupportsIndex) -> None:
        """This part of a send may go. Any thread."""

    def ready_range(self, first: SupportsIndex, last: SupportsIndex) -> None:
        """The parts from first to last, both included, may go."""

    def arrived(self, partition: SupportsIndex) -> bool:
        """Whether this part of a receive is there. Any thread."""

    def test(self) -> bool:
        """Make progress once; whether the run has completed."""

    def wait(self, timeout: float | None = None) -> None:
        """Make progress until the run has completed. TimedOut: it goes on."""

    def free(self) -> None:
        """Close it, between runs."""

    @property
    def partitions(self) -> int:
        """The number of parts."""

class TeamHandle:
    """Of heddle.Team."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def split(self, colour: int | None, key: int) -> TeamHandle | None: ...

    def subset(self, ranks: Sequence[int]) -> TeamHandle | None: ...

    def translate(self, rank: int, to: TeamHandle) -> int | None: ...

    def free(self) -> None: ...

    def run(self, name: str, form: int, send: object | None, receive: object | None, op: str, root: int, send_counts: Sequence[int] | None, receive_counts: Sequence[int] | None, sources: Sequence[int], targets: Sequence[int], algorithm: str | None, segment_bytes: int) -> object: ...

def world(context: Context) -> TeamHandle | None:
    """Of heddle.Team."""

class Collective:
    """
    A collective operation that was started, or a persistent one, which is started again and again. Its buffers stay until it has completed.

    Await it under asyncio, or call wait().
    """

    def start(self) -> None:
        """Of a persistent operation: begin a run; waits for no member."""

    def test(self) -> bool:
        """Make progress once; whether the run has completed."""

    def wait(self, timeout: float | None = None) -> None:
        """
        Make progress until the run has completed; raise its error.

        timeout: seconds. TimedOut: it goes on. PeerFailedError: a member has died.
        """

    def free(self) -> None:
        """Close a persistent operation, between runs."""

    def __await__(self) -> Generator[Any, None, None]:
        """
        Wait for the run under asyncio: the loop looks at it, once a millisecond when it lasts.
        """

    @property
    def persistent(self) -> bool:
        """Whether it can be started again."""

    @property
    def algorithm(self) -> str:
        """Such as 'broadcast.binomial'."""

    @property
    def offloaded(self) -> bool:
        """Whether the network's interface runs it."""
