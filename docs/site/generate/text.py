"""From the text of a comment or docstring to reStructuredText: paragraphs, lists, code, names that become links."""

from __future__ import annotations

import re
from collections.abc import Callable

Resolve = Callable[[str], str | None]  # a name -> its role and target, such as :c:func:`heddle_put`; None: unknown

_TOKEN = re.compile(
    r"``(?P<double>[^`]+)``"
    r"|:(?P<role>[a-z]+):`(?P<target>[^`]+)`"
    r"|`(?P<code>[^`]+)`"
    r"|(?<![\w*])\*(?P<emphasis>\w[\w -]*)\*(?![\w*])"
    r"|(?<![\w.])(?P<name>(?:heddle_|HEDDLE_)\w*\w)(?P<call>\(\))?"
    r"|(?<![\w-])(?P<status>[A-Z][A-Z_]+[A-Z])(?![\w-])"
)
_BEFORE = set(" \n'\"([{<-/:")
_AFTER = set(" \n'\")]}>-/\\:.,;!?")
_LABEL = re.compile(r"(?P<label>Errors?(?: \([^)]*\))?)(?P<rest>(?:, [^:.]*)?:)(?= |$)")
_STATUS_FIRST = re.compile(r"^[A-Z][A-Z_]+(?: \([^)]*\))?: ")
_RUN_IN = re.compile(r"^(?P<title>[A-Za-z][\w ]{2,30})\.(?:  | (?=The child))(?P<rest>.*)$")
_ENTRY = re.compile(r"^(?P<term>\S(?:.*?\S)?)\s{2,}(?P<text>\S.*)$")


def escape(text: str) -> str:
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def inline(text: str, resolve: Resolve) -> str:
    """Markup within a paragraph. What is not known as a name stays as it is."""
    made = ""
    at = 0
    for match in _TOKEN.finditer(text):
        marked: str | None
        if match["double"]:
            marked = resolve(match["double"].removesuffix("()")) or f"``{match['double']}``"
        elif match["role"]:
            marked = resolve(match["target"]) or f"``{match['target']}``"
        elif match["code"]:
            marked = resolve(match["code"].removesuffix("()")) or f"``{match['code'].strip()}``"
        elif match["emphasis"]:
            marked = f"*{match['emphasis']}*"
        elif match["name"]:
            known = resolve(match["name"])
            marked = known or f"``{match['name']}{match['call'] or ''}``"
        else:
            marked = resolve(f"status {match['status']}")
        if marked is None:
            continue
        made += escape(text[at : match.start()])
        if made and made[-1] not in _BEFORE:
            made += "\\ "
        made += marked
        at = match.end()
        if at < len(text) and text[at] not in _AFTER:
            made += "\\ "
    return made + escape(text[at:])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class _Blocks:
    """Makes blocks of lines: paragraphs, bullets, and what is indented."""

    def __init__(self, resolve: Resolve, run_in: bool) -> None:
        self.resolve = resolve
        self.run_in = run_in
        self.made: list[str] = []

    def paragraph(self, lines: list[str], prefix: str = "") -> None:
        text = " ".join(line.strip() for line in lines)
        if not text:
            return
        title = _RUN_IN.match(text) if self.run_in and not prefix else None
        if title and len(title["title"].split()) <= 5:
            self.made += heading(title["title"][0].upper() + title["title"][1:], "-")
            text = title["rest"]
        parts = re.split(r"(?:(?<=[.:)]) |^)(?=Errors?(?: \([^)]*\))?(?:, [^:.]*)?: )", text) if not prefix else [text]
        for part in parts:
            label = _LABEL.match(part)
            if label and not prefix:
                rest = part[label.end() :].strip()
                head = f"**{label['label']}**{inline(label['rest'], self.resolve)}"
                self.made += [f"{head} {inline(rest, self.resolve)}".rstrip(), ""]
            elif part.strip():
                self.made += [prefix + inline(part.strip(), self.resolve), ""]

    def indented(self, lines: list[str]) -> None:
        base = min(_indent(line) for line in lines)
        lines = [line[base:] for line in lines]
        entries = [(number, _ENTRY.match(line)) for number, line in enumerate(lines) if _indent(line) == 0]
        if all(entry and not entry["term"].endswith((";", "{")) for _, entry in entries) and len(entries) > 1:
            for place, (number, entry) in enumerate(entries):
                assert entry
                last = entries[place + 1][0] if place + 1 < len(entries) else len(lines)
                text = " ".join([entry["text"], *(line.strip() for line in lines[number + 1 : last])])
                self.made += [inline(entry["term"], self.resolve), "   " + inline(text, self.resolve), ""]
            return
        self.made += [".. code-block:: c", "", *("   " + line for line in lines), ""]


def to_rst(lines: list[str], resolve: Resolve, *, run_in: bool = False) -> list[str]:
    """run_in: paragraphs that begin with a title and a full stop get a heading."""
    blocks = _Blocks(resolve, run_in)
    lines = [line.rstrip() for line in lines]
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line:
            at += 1
        elif line.lstrip().startswith("- "):
            indent = _indent(line)
            last = at + 1
            while last < len(lines) and lines[last] and _indent(lines[last]) > indent and not lines[last].lstrip().startswith("- "):
                last += 1
            blocks.paragraph([line.lstrip()[2:], *lines[at + 1 : last]], "* ")
            at = last
        elif _indent(line) >= 2:
            last = at + 1
            while last < len(lines) and lines[last] and _indent(lines[last]) >= 2:
                last += 1
            blocks.indented(lines[at:last])
            at = last
        else:
            hangs = bool(_STATUS_FIRST.match(line))
            last = at + 1
            while last < len(lines) and lines[last] and not lines[last].lstrip().startswith("- "):
                following = lines[last]
                if _indent(following) >= 2 and not (hangs and _indent(following) == 2):
                    break
                if _indent(following) < 2 and (_STATUS_FIRST.match(following) or following.startswith("Errors")):
                    break
                last += 1
            blocks.paragraph(lines[at:last])
            at = last
    return blocks.made


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def indented(lines: list[str], by: int) -> list[str]:
    return [(" " * by + line) if line else "" for line in lines]


def heading(text: str, mark: str) -> list[str]:
    return [text, mark * len(text), ""]
