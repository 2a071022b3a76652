"""The reference pages of OpenSHMEM, from the table of which its headers are made (interfaces/openshmem/table)."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types
from typing import Any

from . import text
from .across import Across
from .c_pages import elsewhere

_SECTION = re.compile(r"^# -{4}\s*(.*?)\s*-+\s*$")


def load(path: pathlib.Path) -> types.ModuleType:
    """generate.py, which reads the table for the build."""
    spec = importlib.util.spec_from_file_location("openshmem_table", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["openshmem_table"] = module
    spec.loader.exec_module(module)
    return module


class Entry:
    """One line of the table: a prototype, and the functions that it stands for."""

    def __init__(self, name: str, signatures: list[str], what: str) -> None:
        self.name = name
        self.signatures = signatures
        self.what = what  # "": a name of its own; else the one that does the work
        self.functions: list[str] = []


class Shmem:
    def __init__(self, folder: pathlib.Path) -> None:
        self.module = load(folder / "generate.py")
        self.table: Any = self.module.Table(folder / "functions.txt")
        self.sections: dict[str, list[Entry]] = {}
        self.entry_of: dict[str, str] = {}  # a function -> the name of the entry
        self._read(folder / "functions.txt")
        missing = {one.name for one in self.table.functions} ^ set(self.entry_of)
        if missing:
            raise SystemExit(f"OpenSHMEM: the pages and the table differ: {', '.join(sorted(missing)[:8])}")
        self.count = len(self.entry_of)
        for generic in self.table.generics.values():
            self.entry_of.setdefault(generic.name, self.entry_of[generic.typed[0][1]])

    def _read(self, path: pathlib.Path) -> None:
        entries: dict[str, Entry] = {}
        title, section = "", None
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := _SECTION.match(line):
                title = match[1]
            elif line.startswith("["):
                section = self.table.section(line)
            elif line and not line.startswith(("#", "types ")) and section:
                entry = self._entry(line, section, entries)
                if entry not in self.sections.setdefault(title, []):
                    self.sections[title].append(entry)

    def _entry(self, line: str, section: dict[str, Any], entries: dict[str, Entry]) -> Entry:
        match = self.module.PROTOTYPE.match(line)
        result, name = match["result"].strip(), match["name"]
        prefix = "" if match["bare"] else "shmemx_" if "shmemx" in section["flags"] else "shmem_"
        kind = section["kind"]
        stem = {"plain": name, "sized": name.replace("{}", "SIZE"), "typed": f"TYPENAME_{name}"}[kind]
        of = {"plain": "T", "sized": "void", "typed": "TYPE"}[kind]
        with_type = self.module.with_type
        parameters = [(with_type(p, of), n) for p, n in self.module.split_parameters(match["parameters"])]
        signatures = [self._signature(with_type(result, of), prefix + stem, parameters)]
        if "ctx" in section["flags"]:
            signatures.append(self._signature(with_type(result, of), f"{prefix}ctx_{stem}", [("shmem_ctx_t", "ctx"), *parameters]))
        full = prefix + stem
        entry = entries.setdefault(full, Entry(full, signatures, match["what"] or ""))
        rows = [("", "")] if kind == "plain" else self.table.types[section["types"]]
        for label, _ in rows:
            made = full.replace("TYPENAME", label).replace("SIZE", label)
            both = [made, made.replace(prefix, f"{prefix}ctx_", 1)] if "ctx" in section["flags"] else [made]
            for function in both:
                entry.functions.append(function)
                self.entry_of[function] = full
        return entry

    @staticmethod
    def _signature(result: str, name: str, parameters: list[tuple[str, str]]) -> str:
        return f"{result} {name}({', '.join(f'{p} {n}'.rstrip() for p, n in parameters) or 'void'})"

    def write(self, out: pathlib.Path, across: Across) -> None:
        out.mkdir(parents=True, exist_ok=True)
        ours: dict[str, list[str]] = {}
        for c, theirs in across.shmem.items():
            for name in theirs:
                ours.setdefault(self.entry_of[name], []).append(f":c:func:`{c}`")
        pages = []
        for title, entries in self.sections.items():
            page = text.slug(title)
            pages.append(page)
            made = text.heading(title[0].upper() + title[1:], "=")
            for entry in entries:
                made += self.one(entry, ours.get(entry.name, []))
            (out / f"{page}.rst").write_text("\n".join(made), encoding="utf-8")
        made = [*text.heading("OpenSHMEM", "="),
                f"The {self.count} functions of ``shmem.h`` and ``shmemx.h``, as programs see them. What each does, the standard says",
                "(OpenSHMEM 1.5); what this library adds, checks and leaves out: :doc:`/openshmem`. Every function also has the name ``pshmem_…``.",
                "``TYPENAME`` and ``SIZE`` stand for the names that an entry lists; C11 and C++ programs may leave them out (``shmem_put``).", ""]
        made += [".. toctree::", "   :maxdepth: 1", "", *(f"   {page}" for page in pages), ""]
        (out / "index.rst").write_text("\n".join(made), encoding="utf-8")

    @staticmethod
    def one(entry: Entry, ours: list[str]) -> list[str]:
        first, *rest = entry.signatures
        made = [f".. c:function:: {first}", *(f"                  {one}" for one in rest), ""]
        if entry.what and entry.what not in entry.name:
            made += text.indented([f"By its older name: ``{entry.what}`` does the work.", ""], 3)
        made += text.indented(elsewhere([("Heddle", ours)]), 3)
        if len(entry.functions) > len(entry.signatures):
            plain = [one for one in entry.functions if "_ctx_" not in one]
            contexts = " Each also as ``…_ctx_…``." if len(plain) < len(entry.functions) else ""
            listed = ", ".join(f"``{one}``" for one in plain)
            made += text.indented([f".. dropdown:: {len(plain)} functions", "", f"   {listed}.{contexts}", ""], 3)
        return made
