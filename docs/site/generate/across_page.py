"""The page on which one finds a function in every language."""

from __future__ import annotations

from . import text
from .across import Across
from .c_pages import cpp_links, python_links
from .headers import Header
from .names import Names


def across_page(headers: list[Header], across: Across, names: Names, shmem: dict[str, str]) -> str:
    made = [*text.heading("One function in each language", "="),
            "A row has the functions that do the same work. C++ methods call the C functions of their row; Python's use them; OpenSHMEM's are the",
            "nearest (:doc:`/guide` has a table with UCX and MPI too). Nonblocking and persistent collective operations are arguments of C++'s",
            "``team.start<…>`` and ``team.make<…>``, and methods of Python's ``team.start`` and ``team.persistent()``. A dash: none. From C++ use the",
            "C function; Python and OpenSHMEM do without it.", ""]
    for header in headers:
        for section in header.sections:
            rows = []
            for group in section.groups:
                for one in group.declarations:
                    if one.kind != "function" or (one.name.startswith("heddle_try_") and one.name.replace("try_", "", 1) in names.c):
                        continue
                    rows.append(_row(one.name, across, names, shmem))
            if rows:
                made += text.heading(section.title[0].upper() + section.title[1:] if section.title else header.path.name, "-")
                made += [".. list-table::", "   :class: across-table", "   :header-rows: 1", "   :widths: 28 26 26 20", ""]
                made += ["   * - C", "     - C++", "     - Python", "     - OpenSHMEM"]
                made += [line for row in rows for line in row] + [""]
    return "\n".join(made) + "\n"


def _row(name: str, across: Across, names: Names, shmem: dict[str, str]) -> list[str]:
    tried = name.replace("heddle_", "heddle_try_", 1)
    c = f":c:func:`{name}`" + (f", :c:func:`try_… <{tried}>`" if tried in names.c else "")
    theirs = [f":c:func:`{one} <{shmem[one]}>`" for one in across.shmem.get(name, [])]
    cells = [c, ", ".join(cpp_links(across.cpp.get(name, []))), ", ".join(python_links(across.python.get(name, []), names)), ", ".join(theirs)]
    return [f"   * - {cells[0]}", *(f"     - {cell or '–'}" for cell in cells[1:])]
