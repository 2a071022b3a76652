"""What is accepted as memory, for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, Union

if TYPE_CHECKING:
    from typing_extensions import Buffer as _HasBuffer
    from typing_extensions import TypeAlias


# An extent, or all of them, as of NumPy.
Shape = Union[SupportsIndex, Sequence[SupportsIndex]]


class HasDLPack(Protocol):
    """A tensor that other libraries can look into, such as torch's; it must lie in host memory."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


class HasArrayInterface(Protocol):
    """An array that tells its address, as NumPy's do."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


if TYPE_CHECKING:
    Buffer: TypeAlias = Union[_HasBuffer, HasDLPack, HasArrayInterface]
else:
    Buffer = Any
