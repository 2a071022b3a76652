"""Objects that tell their memory in different ways, for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import heddle


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
