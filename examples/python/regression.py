"""The problem of the parameter servers: linear regression by asynchronous stochastic gradient descent, with NumPy.

Each worker has rows of its own; all search the same parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

PARAMETERS = 1000
BATCH = 16
STEPS = 500  # of each worker
RATE = 2e-3


def truth() -> Vector:
    return np.random.default_rng(0).normal(size=PARAMETERS)


class Rows:
    """What one worker learns from: batches of noisy measurements."""

    def __init__(self, worker: int) -> None:
        self._random = np.random.default_rng(1 + worker)
        self._truth = truth()

    def gradient(self, parameters: Vector) -> Vector:
        """Of the squared error of one batch."""
        inputs = self._random.normal(size=(BATCH, PARAMETERS))
        targets = inputs @ self._truth + 0.01 * self._random.normal(size=BATCH)
        gradient: Vector = inputs.T @ (inputs @ parameters - targets) / BATCH
        return gradient


def report(what: str, parameters: Vector, updates: int, seconds: float) -> None:
    error = float(np.linalg.norm(parameters - truth()) / np.linalg.norm(truth()))
    print(f"{what}: {updates} updates in {seconds:.2f} s, {updates / seconds:.0f} a second; error {error:.3f}", flush=True)
    assert error < 0.7, "it has not learned"
