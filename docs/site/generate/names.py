"""The names that the reference documents, and the roles that link to them."""

from __future__ import annotations

import re

from .headers import Header

_ROLES = {"function": "func", "struct": "struct", "enum": "enum", "type": "type", "macro": "macro"}


class Names:
    def __init__(self, c: list[Header]) -> None:
        self.c: dict[str, str] = {}
        self.enumerators: set[str] = set()
        for header in c:
            for section in header.sections:
                for declaration in (one for group in section.groups for one in group.declarations):
                    self.c[declaration.name] = f":c:{_ROLES[declaration.kind]}:`{declaration.name}`"
                    if declaration.kind == "enum":
                        for member in declaration.members:
                            self.c[member.name] = f":c:enumerator:`{member.name}`"
                            self.enumerators.add(member.name)
        self.python: dict[str, str] = {}  # name within the package -> role

    def in_c(self, name: str) -> str | None:
        """For the comments of the headers: a status is written without its prefix."""
        if name.startswith("status "):
            short = name.removeprefix("status ")
            for full in (f"HEDDLE_{short}", f"HEDDLE_ERR_{short}", f"HEDDLE_AM_{short}"):
                if full in self.enumerators:
                    return f":c:enumerator:`{short} <{full}>`"
            return None
        return self.c.get(name)

    def in_python(self, name: str) -> str | None:
        """For docstrings."""
        bare = name.removeprefix("heddle.").removeprefix("~")
        return self.python.get(bare) if not name.startswith("status ") else None


def functions(c: list[Header]) -> set[str]:
    return {
        one.name for header in c for section in header.sections for group in section.groups for one in group.declarations
        if one.kind == "function"
    }


def python_role(name: str, kind: str) -> str:
    return f":py:{kind}:`~heddle.{name}`" if "." not in name else f":py:{kind}:`{name} <heddle.{name}>`"


def sentence(lines: list[str], most: int = 140) -> str:
    """The first sentence of a comment, for a list."""
    paragraph = re.split(r"\n\s*\n|\n *- |\n  ", "\n".join(lines), maxsplit=1)[0]
    text = re.sub(r"\s+", " ", paragraph).strip()
    first = re.split(r"(?<=[.:;]) (?=[A-Z`(]|$)", text, maxsplit=1)[0].rstrip(":")
    return first if len(first) <= most else first[: first.rfind(" ", 0, most)] + " …"
