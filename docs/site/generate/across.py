"""Which function of C, method of C++, method of Python and function of OpenSHMEM do the same work.

C++: the C functions that a method's body calls. Python: python_names.txt. OpenSHMEM: shmem_names.txt.
"""

from __future__ import annotations

import collections
import pathlib
import re

from .headers import Declaration, Header

CALL = re.compile(r"\b(heddle_\w+)\b")


class Across:
    def __init__(self) -> None:
        self.cpp: dict[str, list[str]] = collections.defaultdict(list)  # C function -> qualified C++ names
        self.python: dict[str, list[str]] = collections.defaultdict(list)  # C function -> qualified Python names
        self.shmem: dict[str, list[str]] = collections.defaultdict(list)  # C function -> names of OpenSHMEM
        self.from_cpp: dict[str, list[str]] = collections.defaultdict(list)
        self.from_python: dict[str, list[str]] = collections.defaultdict(list)

    def add(self, c: str, cpp: str = "", python: str = "", shmem: str = "") -> None:
        rows = ((cpp, self.cpp[c]), (python, self.python[c]), (shmem, self.shmem[c]), (c if cpp else "", self.from_cpp[cpp]))
        for name, names in (*rows, (c if python else "", self.from_python[python])):
            if name and name not in names:
                names.append(name)


def forms(operation: str, functions: set[str]) -> list[str]:
    """A collective operation's blocking, nonblocking and persistent function."""
    return [name for name in (f"heddle_{operation}", f"heddle_{operation}_start", f"heddle_{operation}_init") if name in functions]


# ---- C++ -----------------------------------------------------------------------------------------------------------------


def add_cpp(across: Across, headers: list[Header], functions: set[str]) -> None:
    for header in headers:
        for section in header.sections:
            for group in section.groups:
                for declaration in group.declarations:
                    if declaration.kind == "class":
                        _add_class(across, declaration, functions)


def _add_class(across: Across, declared: Declaration, functions: set[str]) -> None:
    owner = f"heddle::{declared.name}"
    for c in CALL.findall(declared.text):
        if c in functions:
            across.add(c, cpp=owner)
    methods = [one for group in declared.inner for one in group.declarations if one.kind == "function"]
    bodies = {one.name: one.body for one in methods}
    for one in methods:
        called = [c for c in CALL.findall(one.body) if c in functions]
        if not called:  # by another method of the class
            inner = re.findall(r"\b(\w+)(?:<T>)?\(", one.body)
            called = [c for name in inner if name != one.name for c in CALL.findall(bodies.get(name, "")) if c in functions]
        if not called and one.name.startswith("counter"):
            called = ["heddle_counter_create"]
        for c in called:
            if c not in ("heddle_status_name", "heddle_last_error"):
                across.add(c, cpp=f"{owner}::{one.name}")
    if declared.name == "Error":  # its message is that of
        across.add("heddle_last_error", cpp=owner)
    if declared.name == "Team":
        for c in sorted(functions):
            if c.endswith("_start") and c.removesuffix("_start") in functions:
                across.add(c, cpp=f"{owner}::start")
            if c.endswith("_init") and c.removesuffix("_init") in functions:
                across.add(c, cpp=f"{owner}::make")


# ---- Python --------------------------------------------------------------------------------------------------------------


def add_python(across: Across, table: pathlib.Path, names: set[str], functions: set[str]) -> None:
    """names: the public classes, methods and properties of the package, such as Worker.put. The table must have each of them."""
    rows = [line.split() for line in table.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    listed = {row[0] for row in rows}
    problems = [f"{name} is in {table.name}, but not in the package" for name in sorted(listed - names)]
    problems += [f"{name} is in the package, but not in {table.name}" for name in sorted(names - listed)]
    for name, *used in rows:
        for stem in used:
            both = [stem, stem.replace("heddle_", "heddle_try_", 1)]
            if stem == "-":
                continue
            if stem not in functions:
                problems.append(f"{stem} is in {table.name}, but not in the headers")
            for c in both:
                if c in functions:
                    across.add(c, python=f"heddle.{name}")
    if problems:
        raise SystemExit("\n".join(problems))


def add_operations(across: Across, operations: list[str], functions: set[str]) -> None:
    """The collective operations: team.X, team.start.X and team.persistent().X; and what is no method."""
    for name in operations:
        for c in forms(name, functions):
            across.add(c, python=f"heddle.Team.{name}")
            form = {"_start": "start", "_init": "persistent"}.get(c.removeprefix(f"heddle_{name}"))
            if form:
                across.python[c] = [f"heddle.Team.{form}"]
    across.add("heddle_last_error", python="heddle.HeddleError")
    across.add("heddle_version", python="heddle.library_version")


# ---- OpenSHMEM -----------------------------------------------------------------------------------------------------------


def add_shmem(across: Across, table: pathlib.Path, names: set[str], functions: set[str]) -> None:
    """names: the functions of OpenSHMEM, generic ones too. The table must have each function of C, but for try_, _start and _init."""
    rows = [line.split() for line in table.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    others = {c for name in functions for c in (f"{name}_start", f"{name}_init", name.replace("heddle_", "heddle_try_", 1))}
    listed = [row[0] for row in rows]
    problems = [f"{name} is in {table.name}, but not in the headers" for name in listed if name not in functions]
    problems += [f"{name} is in {table.name} more than once" for name in sorted(set(listed)) if listed.count(name) > 1]
    problems += [f"{name} is in the headers, but not in {table.name}" for name in sorted(functions - others - set(listed))]
    for name, *theirs in rows:
        for one in theirs:
            if one == "-":
                continue
            if one not in names:
                problems.append(f"{one} is in {table.name}, but not in OpenSHMEM")
            for c in (name, name.replace("heddle_", "heddle_try_", 1)):
                if c in functions:
                    across.add(c, shmem=one)
    if problems:
        raise SystemExit("\n".join(problems))
