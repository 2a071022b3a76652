"""Jobs of several ranks, for the tests: each is a function of ranks.py, run by the launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import heddle

RANKS = Path(__file__).with_name("ranks.py")
Launch = Callable[..., "subprocess.CompletedProcess[str]"]
Run = Callable[..., None]


def ucx_is_missing() -> str:
    """Why the ucx transport cannot be used here; empty: it can."""
    said = subprocess.run(
        [sys.executable, "-m", "heddle", "info", "transports", "ucx"],
        env={**os.environ, "HEDDLE_UCX_TLS": "tcp"},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    lines = [line.strip() for line in said.splitlines() if "not available" in line]
    return lines[0] if lines else ""


@pytest.fixture(params=["shm", "ucx"])
def launch(request: pytest.FixtureRequest) -> Launch:
    """launch(ranks, script, arguments…, **environment): a job over each transport, run to its end."""
    transport = request.param
    if transport == "ucx" and (reason := ucx_is_missing()):
        pytest.skip(f"skipped: {reason}")

    def start(ranks: int, *script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "heddle.run", "-n", str(ranks), "--timeout", "120", *script],
            env={**os.environ, "HEDDLE_TRANSPORT": transport, "HEDDLE_UCX_TLS": "tcp", **environment},
            capture_output=True,
            text=True,
            timeout=180,
        )

    return start


@pytest.fixture
def run(launch: Launch) -> Run:
    """run(function, ranks, **environment): a job by which that function of ranks.py is called in each rank."""

    def start(function: str, ranks: int, **environment: str) -> None:
        ended = launch(ranks, str(RANKS), function, **environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.count(f"{function} passed") == ranks, ended.stdout + ended.stderr

    return start


@pytest.fixture
def context() -> Iterator[heddle.Context]:
    """A job of one, in this process."""
    with heddle.Context(bootstrap="single", transport="shm") as one:
        yield one
