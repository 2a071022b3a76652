"""Reads the help texts of the commands, from which the manual pages and the completions are made.

A help text has:

    usage: heddle run [options] program         lines of usage, to the first empty line
                                                paragraphs: lines that begin at the margin
    Options:                                    a heading: a line at the margin that ends in ":", between empty lines
                                                (at the beginning of the text the empty line before is not needed)
      -t T    threads per process               items: two spaces, the term, two or more spaces, what it means;
              …                                 lines that are further in continue it. A term may stand on a line of its own,
      -n, --np N                                with the text below it, and goes on in the next line where it ends in ","
              …
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass
class Item:
    term: str
    text: str = ""


@dataclasses.dataclass
class Section:
    title: str  # "" for what stands before the first heading
    blocks: list[str | Item] = dataclasses.field(default_factory=list)

    def items(self) -> list[Item]:
        return [block for block in self.blocks if isinstance(block, Item)]


@dataclasses.dataclass
class Help:
    usage: list[str]
    sections: list[Section]

    def section(self, *titles: str) -> list[Item]:
        return [item for section in self.sections if section.title in titles for item in section.items()]


@dataclasses.dataclass
class Option:
    names: list[str]
    value: str  # how the help calls its value; "": it takes none
    text: str

    def choices(self) -> list[str]:
        """The values, where the help names them all: a|b."""
        if "\u2026" in self.value:
            return []
        words = re.split(r"[|,]", self.value) if re.search(r"[|,]", self.value) else []
        return [word for word in words if re.fullmatch(r"[a-z][a-z_]*", word)]

    def takes_file(self) -> bool:
        return self.value.startswith(("FILE", "OUT"))


def parse(text: str) -> Help:
    head, _, body = text.partition("\n\n")
    if not head.startswith("usage: "):
        raise ValueError(f"a help text begins with {head[:40]!r} instead of its usage")
    help_text = Help([line.removeprefix("usage:").strip() for line in head.splitlines()], [Section("")])
    for paragraph in re.split(r"\n{2,}", body.strip("\n")):
        lines = paragraph.splitlines()
        if len(lines) == 1 and re.match(r"\S.*:$", lines[0]):
            help_text.sections.append(Section(lines[0][:-1]))
        elif lines[0].startswith(" "):
            help_text.sections[-1].blocks.extend(items(lines))
        else:
            help_text.sections[-1].blocks.append(" ".join(lines))
    return help_text


def items(lines: list[str]) -> list[Item]:
    found: list[Item] = []
    for line in lines:
        begin = re.match(r"  (\S.*?)(?: {2,}(\S.*))?$", line)
        if begin is None:
            if not found or not line.startswith("   "):
                raise ValueError(f"{line!r} is neither an item nor goes on with one")
            found[-1].text = f"{found[-1].text} {line.strip()}".strip()
        elif found and not found[-1].text and found[-1].term.endswith(","):
            found[-1] = Item(f"{found[-1].term} {begin[1]}", begin[2] or "")
        else:
            found.append(Item(begin[1], begin[2] or ""))
    return found


def options(found: list[Item]) -> list[Option]:
    """Of items such as "-n, -np, --np N": those that begin with a dash. "--" alone is none."""
    result = []
    for item in found:
        names = list(re.finditer(r"(?:^|, )(--?[A-Za-z][A-Za-z0-9-]*)", item.term))
        if names:
            result.append(Option([name[1] for name in names], item.term[names[-1].end() :].lstrip(" ="), item.text))
    return result
