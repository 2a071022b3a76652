"""Manual pages in the macros of man(7): of commands from their help texts, of the library from the text that heads heddle.h."""

from __future__ import annotations

import dataclasses
import re
import textwrap

from help_text import Help, Item, Section

TITLES = {"Exit code": "EXIT STATUS", "Environment of the processes": "ENVIRONMENT"}


@dataclasses.dataclass(frozen=True)
class Page:
    name: str  # as "heddle-run"
    section: int
    summary: str


@dataclasses.dataclass(frozen=True)
class Edition:
    version: str
    date: str
    pages: list[Page]  # all of them, for SEE ALSO


def escape(text: str) -> str:
    """Text as troff is to print it, whatever it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    text = "".join(letter if ord(letter) < 128 else f"\\[u{ord(letter):04X}]" for letter in text)
    return re.sub(r"^\.", r"\\&.", text)


def marked(text: str) -> str:
    """A paragraph: `literal` and names of the library in bold, *words* in italics."""
    parts = re.split(r"(`[^`]+`|\*[a-z][a-z -]*\*|\b(?:heddle_[a-z_]+|HEDDLE_[A-Z_]+|[a-z_]+\.h(?:pp)?\b))", text)
    out = ""
    for i, part in enumerate(parts):
        if i % 2 == 0:
            out += escape(part)
        elif part.startswith("*"):
            out += f"\\fI{escape(part[1:-1])}\\fR"
        else:
            out += f"\\fB{escape(part.strip('`'))}\\fR"
    return wrapped(out)


def wrapped(text: str) -> str:
    """Lines of at most 78 columns; none begins as a macro does."""
    lines = textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{line}" if line.startswith((".", "\'")) else line for line in lines)


def synopsis(words: str) -> str:
    """Usage: what is typed as it stands in bold, what stands for something else in italics."""
    out = []
    for word in re.split(r"(\s+|[\[\]|…])", words):
        if re.fullmatch(r"[A-Z][A-Za-z.]*|options|program|arguments|of|the|compiler|files|collectives", word):
            out.append(f"\\fI{escape(word)}\\fR")
        elif re.search(r"\w", word):
            kind = re.fullmatch(r"([A-Z]+)(\..*)", word)
            out.append(f"\\fI{escape(kind[1])}\\fR{escape(kind[2])}" if kind else f"\\fB{escape(word)}\\fR")
        else:
            out.append(escape(word))
    return "".join(out)


def term(text: str) -> str:
    """An item's term: options in bold, their values in italics."""
    parts = re.split(r"((?<![\w|])--?[A-Za-z][A-Za-z-]*)", text)
    if len(parts) == 1:
        return f"\\fB{escape(text)}\\fR"
    out = ""
    for i, part in enumerate(parts):
        if i % 2:
            out += f"\\fB{escape(part)}\\fR"
        else:
            out += re.sub(r"[^\s,=\[\]:][^\s,\[\]:]*(?:,[^\s]+)*", lambda found: f"\\fI{escape(found[0])}\\fR", part)
    return out


def block_lines(block: str | Item, literal: bool) -> list[str]:
    if isinstance(block, str):
        return [".PP", marked(block)]
    head = escape(block.term) if literal else term(block.term)
    return [".TP", head if not literal else f"\\fB{head}\\fR", marked(block.text) or "\\&"]


def section_lines(section: Section, heading: str = ".SH") -> list[str]:
    title = TITLES.get(section.title, section.title if heading == ".SS" else section.title.upper())
    lines = [f"{heading} {escape(title)}"] if title else []
    blocks = [line for block in section.blocks for line in block_lines(block, section.title == "Examples")]
    # A paragraph needs no mark right behind a heading.
    return lines + (blocks[1:] if lines and blocks[:1] == [".PP"] else blocks)


def head_lines(page: Page, edition: Edition) -> list[str]:
    manual = "User Commands" if page.section == 1 else "Heddle"
    return [
        f'.TH {page.name.upper().replace("-", chr(92) + "-")} {page.section} "{edition.date}" "Heddle {edition.version}" "{manual}"',
        ".nh",  # names are searched for, and copied
        ".ad l",
        ".SH NAME", wrapped(f"{escape(page.name)} \\- {escape(page.summary.replace('`', ''))}"),
    ]


def see_also_lines(page: Page, edition: Edition) -> list[str]:
    others = [f"\\fB{escape(other.name)}\\fR({other.section})" for other in sorted(edition.pages, key=lambda other: (other.section, other.name)) if other != page]
    return [".SH SEE ALSO", ",\n".join(others)] if others else []


def command_page(page: Page, help_text: Help, more: list[Help], edition: Edition) -> str:
    """`more`: the help texts of parts of the command, such as heddle info --schedule."""
    lines = head_lines(page, edition) + [".SH SYNOPSIS"]
    for i, usage in enumerate(help_text.usage):
        lines += ([".br"] if i else []) + [synopsis(usage)]
    description, *others = help_text.sections
    lines += section_lines(Section("Description", description.blocks))
    for section in others:
        lines += section_lines(section)
    for part in more:
        lines += [f".SH {escape(' '.join(part.usage[0].split()[:3]).upper())}"]
        for i, usage in enumerate(part.usage):
            lines += ([".br"] if i else []) + [synopsis(usage)]
        for section in part.sections:
            lines += section_lines(section, ".SS")
    return "\n".join(lines + see_also_lines(page, edition)) + "\n"


def header_sections(header: str) -> list[Section]:
    """The comment that heads heddle.h: paragraphs that begin with "Title.", with lists in them."""
    comment = re.match(r"/\*(.*?)\*/", header, flags=re.S)
    if comment is None:
        raise ValueError("heddle.h does not begin with a comment")
    lines = [re.sub(r"^ ?\* ?", "", line).rstrip() for line in comment[1].splitlines()]
    sections: list[Section] = []
    for paragraph in re.split(r"\n{2,}", "\n".join(lines).strip()):
        title = re.match(r"([A-Z][\w ]*)\. +", paragraph)
        if title is not None:
            sections.append(Section(title[1]))
            paragraph = paragraph[title.end() :]
        if not sections:
            sections.append(Section("Description"))
        add_paragraph(sections[-1], paragraph)
    return sections


def add_paragraph(section: Section, paragraph: str) -> None:
    """Lines at the margin are text; "  TERM   meaning" and "  - text" are items, which deeper lines continue."""
    kind = ""
    for line in paragraph.splitlines():
        item = re.match(r"  (?:- (\S.*)|(\S+) {2,}(\S.*))$", line)
        last = section.blocks[-1] if section.blocks else ""
        if item is not None:
            section.blocks.append(Item("\u2022", item[1]) if item[1] else Item(item[2], item[3]))
            kind = "item"
        elif kind == "item" and line.startswith("   ") and isinstance(last, Item):
            last.text += f" {line.strip()}"
        elif kind == "text" and isinstance(last, str):
            section.blocks[-1] = f"{last} {line.strip()}"
        else:
            section.blocks.append(line.strip())
            kind = "text"


def settings_section(settings: list[dict[str, str | None]]) -> Section:
    blocks: list[str | Item] = ["Ranks, `heddle run` and the other commands read these variables; `heddle info settings` tells which are set."]
    for setting in settings:
        facts = [f"{setting['type']}", f"default {setting['default']}" if setting["default"] else "default empty"]
        facts += [f"range {setting['range']}"] if setting.get("range") else []
        blocks.append(Item(str(setting["name"]), f"{setting['help']} ({', '.join(facts)})"))
    return Section("Environment", blocks)


def library_page(page: Page, header: str, settings: list[dict[str, str | None]], edition: Edition) -> str:
    lines = head_lines(page, edition) + [".SH SYNOPSIS", "\\fB#include <heddle/heddle.h>\\fR", ".PP", "\\fBcc program.c \\-lheddle\\fR"]
    for section in [*header_sections(header), settings_section(settings)]:
        lines += section_lines(section)
    return "\n".join(lines + see_also_lines(page, edition)) + "\n"
