"""Teams of ranks, and the collective operations that all members of a team make together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _heddle
from ._heddle import Collective, Context

if TYPE_CHECKING:
    from .types import Buffer

_BLOCKING, _NONBLOCKING, _PERSISTENT = range(3)
_Result = TypeVar("_Result")


class Operations(Generic[_Result]):
    """The collective operations of a team, in one of three forms.

    ``team.broadcast(data)`` blocks until this member's part is done. ``team.start.broadcast(data)`` begins, and
    returns a :class:`Collective` to wait for or to await. ``team.persistent().broadcast(data)`` makes a
    :class:`Collective` whose ``start`` and ``wait`` may be repeated: the fastest form in loops.

    All members call the same operations of a team in the same order, with arguments that agree. A member's root,
    source or target is its number in the team. Where there is one block for each member, all blocks have one
    length; operations whose names end in v take counts of the buffer's elements, one for each block, which lie one
    after the other. Buffers of a blocking call may be any memory; send and receive may be the same buffer in reduce,
    allreduce and scan. A buffer that only the root needs may be None elsewhere.

    op: sum, product, min, max, band, bor, bxor, land, lor or lxor; the elements' type is that of ``send``.

    ArgumentError: arguments that differ between members, or lengths that do not fit. PeerFailedError: a member
    has died.
    """

    def __init__(
        self, handle: _heddle.TeamHandle, form: int, algorithm: str | None = None, segment_bytes: int = 0
    ) -> None:
        self._handle = handle
        self._form = form
        self._algorithm = algorithm
        self._segment_bytes = segment_bytes

    def _run(
        self,
        name: str,
        send: Buffer | None = None,
        receive: Buffer | None = None,
        *,
        op: str = "sum",
        root: int = 0,
        send_counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        sources: Sequence[int] = (),
        targets: Sequence[int] = (),
    ) -> _Result:
        result: Any = self._handle.run(
            name,
            self._form,
            send,
            receive,
            op,
            root,
            send_counts,
            receive_counts,
            sources,
            targets,
            self._algorithm,
            self._segment_bytes,
        )
        return result  # type: ignore[no-any-return]

    def barrier(self) -> _Result:
        """No member completes it before all members have called it."""
        return self._run("barrier")

    def broadcast(self, data: Buffer, root: int = 0) -> _Result:
        """The root's ``data`` is copied to ``data`` of all members."""
        return self._run("broadcast", None, data, root=root)

    def reduce(self, send: Buffer, receive: Buffer | None, op: str = "sum", root: int = 0) -> _Result:
        """The root's ``receive`` gets ``send`` of all members, combined element by element."""
        return self._run("reduce", send, receive, op=op, root=root)

    def allreduce(self, send: Buffer, receive: Buffer, op: str = "sum") -> _Result:
        """``receive`` of all members gets ``send`` of all, combined element by element."""
        return self._run("allreduce", send, receive, op=op)

    def gather(self, send: Buffer, receive: Buffer | None, root: int = 0) -> _Result:
        """The root's ``receive`` gets ``send`` of all members, in their order."""
        return self._run("gather", send, receive, root=root)

    def allgather(self, send: Buffer, receive: Buffer) -> _Result:
        """``receive`` of all members gets ``send`` of all, in their order."""
        return self._run("allgather", send, receive)

    def scatter(self, send: Buffer | None, receive: Buffer, root: int = 0) -> _Result:
        """``receive`` of member i gets block i of the root's ``send``."""
        return self._run("scatter", send, receive, root=root)

    def alltoall(self, send: Buffer, receive: Buffer) -> _Result:
        """Block j of ``send`` of member i becomes block i of ``receive`` of member j."""
        return self._run("alltoall", send, receive)

    def reduce_scatter(self, send: Buffer, receive: Buffer, op: str = "sum") -> _Result:
        """``receive`` of member i gets block i of ``send`` of all members, combined element by element."""
        return self._run("reduce_scatter", send, receive, op=op)

    def scan(self, send: Buffer, receive: Buffer, op: str = "sum") -> _Result:
        """``receive`` of member i gets ``send`` of members 0 to i, combined element by element."""
        return self._run("scan", send, receive, op=op)

    def allgatherv(self, send: Buffer, receive: Buffer, counts: Sequence[int]) -> _Result:
        """Block i of ``receive`` of all members gets ``send`` of member i, which has ``counts[i]`` elements."""
        return self._run("allgatherv", send, receive, receive_counts=counts)

    def alltoallv(
        self, send: Buffer, send_counts: Sequence[int], receive: Buffer, receive_counts: Sequence[int]
    ) -> _Result:
        """Block j of ``send`` of member i becomes block i of ``receive`` of member j."""
        return self._run("alltoallv", send, receive, send_counts=send_counts, receive_counts=receive_counts)

    def gatherv(
        self, send: Buffer, receive: Buffer | None, counts: Sequence[int] | None, root: int = 0
    ) -> _Result:
        """``send`` of member i becomes block i of the root's ``receive``; only the root needs the counts."""
        return self._run("gatherv", send, receive, receive_counts=counts, root=root)

    def scatterv(
        self, send: Buffer | None, counts: Sequence[int] | None, receive: Buffer, root: int = 0
    ) -> _Result:
        """Block i of the root's ``send`` becomes ``receive`` of member i; only the root needs the counts."""
        return self._run("scatterv", send, receive, send_counts=counts, root=root)

    def neighbor_alltoall(
        self, sources: Sequence[int], targets: Sequence[int], send: Buffer, receive: Buffer
    ) -> _Result:
        """Block i of ``send`` goes to ``targets[i]``; block i of ``receive`` comes from ``sources[i]``.

        Each member has its own lists. If i names j as a target, j names i as a source, as often.
        """
        return self._run("neighbor_alltoall", send, receive, sources=sources, targets=targets)

    def neighbor_allgather(
        self, sources: Sequence[int], targets: Sequence[int], send: Buffer, receive: Buffer
    ) -> _Result:
        """``send`` goes to all targets; block i of ``receive`` comes from ``sources[i]``."""
        return self._run("neighbor_allgather", send, receive, sources=sources, targets=targets)

    def neighbor_alltoallv(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        send: Buffer,
        send_counts: Sequence[int],
        receive: Buffer,
        receive_counts: Sequence[int],
    ) -> _Result:
        """As neighbor_alltoall, with blocks of ``send_counts`` and ``receive_counts`` elements."""
        return self._run(
            "neighbor_alltoallv",
            send,
            receive,
            sources=sources,
            targets=targets,
            send_counts=send_counts,
            receive_counts=receive_counts,
        )


class Team(Operations[None]):
    """Some of the job's ranks in an order; its members are numbered from 0.

    ``Team(context)`` is all of them. Making a team is collective over its parent. Any thread may call operations of
    a team, one at a time for each team.
    """

    def __init__(self, context: Context) -> None:
        handle = _heddle.world(context)
        assert handle is not None
        super().__init__(handle, _BLOCKING)

    @classmethod
    def _of(cls, handle: _heddle.TeamHandle | None) -> Team | None:
        if handle is None:
            return None
        team = cls.__new__(cls)
        Operations.__init__(team, handle, _BLOCKING)
        return team

    def __repr__(self) -> str:
        return f"<heddle.Team, member {self.rank} of {self.size}>"

    @property
    def rank(self) -> int:
        """This process's number in the team."""
        return self._handle.rank

    @property
    def size(self) -> int:
        """The number of members."""
        return self._handle.size

    @property
    def start(self) -> Operations[Collective]:
        """The nonblocking form of each operation."""
        return Operations(self._handle, _NONBLOCKING)

    def persistent(self, *, algorithm: str | None = None, segment_bytes: int = 0) -> Operations[Collective]:
        """The persistent form of each operation.

        algorithm: one that ``heddle info`` lists; None: the library chooses.
        segment_bytes: the most bytes of one step of a pipeline; 0: the library chooses.
        """
        return Operations(self._handle, _PERSISTENT, algorithm, segment_bytes)

    def split(self, colour: int | None, key: int = 0) -> Team | None:
        """Members of one colour make a team, in the order of their keys; None: in no team."""
        return self._of(self._handle.split(colour, key))

    def subset(self, ranks: Sequence[int]) -> Team | None:
        """A team of these members, in this order; the others get None. All members pass the same."""
        return self._of(self._handle.subset(ranks))

    def translate(self, rank: int, to: Team) -> int | None:
        """Which member of ``to`` member ``rank`` of this team is; None: none."""
        return self._handle.translate(rank, to._handle)

    def free(self) -> None:
        """Close the team, once all members have completed its operations."""
        self._handle.free()
