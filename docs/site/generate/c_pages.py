"""The reference pages of C and C++, from the headers."""

from __future__ import annotations

import pathlib

from . import text
from .across import Across
from .headers import Declaration, Group, Header, Names, python_role, sentence

TITLES = {"heddle.h": "Status, handles, context", "heddle.hpp": "Contexts, workers, regions, counters",
          "collectives.h": "Teams and collective operations", "one_sided.h": "Regions, put and get, atomics",
          "worker.h": "Workers, completions, order"}


def title_of(header: Header) -> str:
    """What the header says that it is about, up to the first full stop."""
    if header.path.name in TITLES:
        return TITLES[header.path.name]
    said = " ".join(header.comment).removeprefix("Heddle: ").split(". ")[0]
    said = said.split(" of " + header.path.with_suffix(".h").name)[0]
    said = said.split(", and the operations that")[0]
    return said[0].upper() + said[1:]


def elsewhere(pairs: list[tuple[str, list[str]]]) -> list[str]:
    """One line with the same thing in other languages."""
    said = [f"{language}: {', '.join(links)}" for language, links in pairs if links]
    return [".. rst-class:: across", "", " · ".join(said), ""] if said else []


def cpp_links(names: list[str]) -> list[str]:
    return [
        f":cpp:class:`{name.removeprefix('heddle::')} <{name}>`" if name.count("::") == 1 else
        f":cpp:func:`{name.removeprefix('heddle::')} <{name}>`" for name in names
    ]


def python_links(names: list[str], known: Names) -> list[str]:
    bare = [name.removeprefix("heddle.") for name in names]
    return [known.python.get(name) or python_role(name, "obj") for name in bare]


def c_links(names: list[str]) -> list[str]:
    return [f":c:func:`{name}`" for name in names]


def union(table: dict[str, list[str]], keys: list[str]) -> list[str]:
    return list(dict.fromkeys(name for key in keys for name in table.get(key, [])))


class CPages:
    def __init__(self, names: Names, across: Across, shmem: dict[str, str]) -> None:
        self.names = names
        self.across = across
        self.shmem = shmem  # a name of OpenSHMEM -> the entry that documents it

    def page(self, header: Header) -> str:
        made = [f".. _header-{header.path.name}:", "", *text.heading(title_of(header), "=")]
        made += [".. rst-class:: header-name", "", f"``#include <heddle/{header.path.name}>``", ""]
        if len(header.comment) > 2:  # a shorter one says no more than the title
            made += text.to_rst(header.comment, self.names.in_c, run_in=True)
        for section in header.sections:
            if section.title:
                made += text.heading(section.title[0].upper() + section.title[1:], "-")
            before = ""  # the last function that has a comment
            for group in section.groups:
                made += self.group(group, before)
                if group.comment and group.declarations and group.declarations[-1].kind == "function":
                    before = group.declarations[0].name
        return "\n".join(made) + "\n"

    def group(self, group: Group, before: str) -> list[str]:
        said = text.to_rst(group.comment, self.names.in_c)
        if not group.declarations:
            return said
        made: list[str] = []
        others = [one for one in group.declarations if one.kind != "function"]
        if len(others) > 1 and len({one.kind for one in others}) == 1 and others[0].kind != "macro":
            made, said = said, []
        for one in others:
            made += self.other(one, said)
        functions = [one for one in group.declarations if one.kind == "function"]
        if functions:
            if not said and before:
                said = [f"Described with :c:func:`{before}`.", ""]
            made += self.functions(functions, said)
        return made

    def functions(self, functions: list[Declaration], said: list[str]) -> list[str]:
        first, *rest = functions
        made = [f".. c:function:: {first.text}", *(f"              {one.text}" for one in rest), ""]
        keys = [one.name for one in functions]
        theirs = [f":c:func:`{name} <{self.shmem[name]}>`" for name in union(self.across.shmem, keys) if name in self.shmem]
        same = elsewhere([
            ("C++", cpp_links(union(self.across.cpp, keys))),
            ("Python", python_links(union(self.across.python, keys), self.names)),
            ("OpenSHMEM", theirs),
        ])
        return made + text.indented(said + same, 3)

    def other(self, one: Declaration, said: list[str]) -> list[str]:
        if one.kind in ("type", "macro"):
            made = [f".. c:{one.kind}:: {one.text}", ""]
            value = [f"``{one.body}``", ""] if one.kind == "macro" and one.body else []
            return made + text.indented(value + said, 3)
        made = [f".. c:{one.kind}:: {one.name}", "", *text.indented(said, 3)]
        for member in one.members:
            inner = "enumerator" if one.kind == "enum" else "member"
            made += text.indented([f".. c:{inner}:: {member.text}", ""], 3)
            made += text.indented(text.to_rst(member.comment, self.names.in_c), 6)
        return made

    def every_function(self, headers: list[Header]) -> list[str]:
        """A list of all functions with the first sentence of each."""
        rows: dict[str, str] = {}
        for header in headers:
            for section in header.sections:
                said: list[str] = []
                for group in section.groups:
                    said = group.comment or said
                    for one in group.declarations:
                        if one.kind == "function":
                            rows[one.name] = text.inline(sentence(said), self.names.in_c)
        made = [".. list-table::", "   :class: functions", "   :header-rows: 1", "   :widths: 38 62", "", "   * - function", "     - what it does"]
        for name in sorted(rows, key=lambda one: one.replace("heddle_try_", "heddle_")):
            made += [f"   * - :c:func:`{name}`", f"     - {rows[name]}"]
        return [*made, ""]


class CppPages:
    def __init__(self, names: Names, across: Across) -> None:
        self.names = names
        self.across = across

    def page(self, header: Header) -> str:
        made = [f".. _header-{header.path.name}:", "", *text.heading(title_of(header), "=")]
        made += [".. rst-class:: header-name", "", f"``#include <heddle/{header.path.name}>``", ""]
        made += text.to_rst(header.comment, self.names.in_c)
        made += [".. cpp:namespace:: heddle", ""]
        for section in header.sections:
            for group in section.groups:
                for one in group.declarations:
                    if one.kind == "class":
                        made += text.heading(one.name, "-")
                        made += self.declared(one, text.to_rst(group.comment, self.names.in_c))
                rest = [one for one in group.declarations if one.kind != "class"]
                if rest:
                    made += self.together(rest, group, "")
        return "\n".join(made) + "\n"

    def declared(self, one: Declaration, said: list[str]) -> list[str]:
        made = [f".. cpp:class:: {one.text}", ""]
        made += text.indented(said, 3)
        made += text.indented(elsewhere([("C", c_links(self.across.from_cpp.get(f"heddle::{one.name}", [])))]), 3)
        for group in one.inner:
            made += text.indented(self.together(group.declarations, group, f"{one.name}::"), 3)
        return made

    def together(self, declarations: list[Declaration], group: Group, owner: str) -> list[str]:
        """Declarations under one comment; those that are alone in having their C functions are shown alone."""
        said = text.to_rst(group.comment, self.names.in_c)
        made: list[str] = []
        rows = [declarations] if group.comment else [[one] for one in declarations]
        for row in rows:
            kind = "type" if row[0].kind == "alias" else "function"
            made += [f".. cpp:{kind}:: {row[0].text}", *(f"                  {one.text}" for one in row[1:]), ""]
            keys = [f"heddle::{owner}{one.name}" for one in row]
            made += text.indented(said + elsewhere([("C", c_links(union(self.across.from_cpp, keys)))]), 3)
        return made


def write_c(out: pathlib.Path, headers: list[Header], pages: CPages) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for header in headers:
        (out / f"{header.path.stem}.rst").write_text(pages.page(header), encoding="utf-8")
    made = [*text.heading("C", "="), "The headers are the reference of the C API: these pages are made from their declarations and comments.", ""]
    made += [".. toctree::", "   :maxdepth: 1", "", *(f"   {header.path.stem}" for header in headers), ""]
    made += [*text.heading("All functions", "-"), *pages.every_function(headers)]
    (out / "index.rst").write_text("\n".join(made), encoding="utf-8")


def write_cpp(out: pathlib.Path, headers: list[Header], pages: CppPages) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for header in headers:
        (out / f"{header.path.stem}.rst").write_text(pages.page(header), encoding="utf-8")
    made = [*text.heading("C++", "="), "Owners, spans and awaitable completions over the C API, in headers only. A method means the same as the C function",
            "to which its entry leads; that entry has the errors.", ""]
    made += [".. toctree::", "   :maxdepth: 2", "", *(f"   {header.path.stem}" for header in headers), ""]
    (out / "index.rst").write_text("\n".join(made), encoding="utf-8")


# ---- the page on which one finds a function in every language


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
