"""Jobs of 2 and 4 ranks, over shm and ucx; what the ranks do is in ranks.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import RANKS, Launch, Run

PROGRAMS = [
    "one_sided",
    "registered",
    "own_arrays",
    "tagged",
    "active",
    "collectives",
    "wrong_collectives",
    "partitioned",
    "threads",
    "waits_release_the_gil",
    "awaits",
    "serves",
]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_ranks(run: Run, program: str, ranks: int) -> None:
    run(program, ranks)


@pytest.mark.parametrize("program", ["awaits", "threads", "serves"])
def test_helpers_may_move_everything(run: Run, program: str) -> None:
    run(program, 2, HEDDLE_PROGRESS="adaptive")


@pytest.mark.parametrize("sharing", ["exclusive", "shared", "offload", "delegate"])
def test_asyncio_in_each_sharing_mode(run: Run, sharing: str) -> None:
    run("awaits", 2, HEDDLE_SHARING=sharing)


def test_the_death_of_a_rank_is_an_exception(launch: Launch) -> None:
    ended = launch(3, str(RANKS), "survives_a_death")
    assert ended.returncode != 0 and "rank 2" in ended.stderr
    assert ended.stdout.count("survives_a_death passed") == 2, ended.stdout + ended.stderr


def test_an_exception_of_a_rank_ends_the_job(launch: Launch) -> None:
    ended = launch(2, str(RANKS), "raises")
    assert ended.returncode != 0 and "this rank has had enough" in ended.stderr
    assert "passed" not in ended.stdout and "PeerFailedError" in ended.stderr


def test_the_example_learns(launch: Launch) -> None:
    example = Path(__file__).parents[3] / "examples" / "python" / "parameter_server.py"
    ended = launch(3, str(example), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    assert ended.returncode == 0 and "1000 updates" in ended.stdout, ended.stdout + ended.stderr


def test_the_document_runs(launch: Launch) -> None:
    """The first program of docs/python.md and of the README."""
    root = Path(__file__).parents[3]
    programs = {
        (root / document).read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
        for document in ("docs/python.md", "interfaces/python/README.md")
    }
    for program in programs:
        ended = launch(3, "-c", program)
        assert ended.returncode == 0 and ended.stdout.count("[0. 1. 2.]") == 3, ended.stdout + ended.stderr
