"""Reads the public headers: declarations as the compiler's parser (libclang) sees them, comments as they stand above them.

A comment belongs to what follows it without an empty line. In C it then also belongs to the declarations that follow that one without a
comment or an empty line of their own, as the headers are written.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess

import clang.cindex as ci

RULER = re.compile(r"^-{4}\s*(.*?)\s*-+$")


@dataclasses.dataclass
class Member:
    """A field, an enumerator: its declaration and what is said of it."""

    name: str
    text: str
    comment: list[str]


@dataclasses.dataclass
class Declaration:
    kind: str  # function, struct, enum, type, macro; of C++ also class, alias
    name: str
    text: str
    first: int
    last: int
    members: list[Member] = dataclasses.field(default_factory=list)
    body: str = ""
    inner: list[Group] = dataclasses.field(default_factory=list)  # of a class


@dataclasses.dataclass
class Group:
    """Declarations under one comment; without declarations: a note between them."""

    comment: list[str]
    declarations: list[Declaration]


@dataclasses.dataclass
class Section:
    title: str  # "": before the first ruler
    groups: list[Group]


@dataclasses.dataclass
class Header:
    path: pathlib.Path
    comment: list[str]  # at the top
    sections: list[Section]


@dataclasses.dataclass
class _Comment:
    first: int
    last: int
    alone: bool  # nothing stands before it on its line
    lines: list[str]


def _compiler_folders(language: str) -> list[str]:
    """Where the system's compiler looks for headers: libclang comes without its own."""
    command = ["c++" if language == "c++" else "cc", "-E", "-v", "-x", language, "/dev/null"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    listed = said.split("#include <...> search starts here:")[1].split("End of search list.")[0]
    return [f"-isystem{line.strip()}" for line in listed.splitlines() if line.strip()]


def _lines_of(spelling: str) -> list[str]:
    if spelling.startswith("//"):
        return [re.sub(r"^// ?", "", spelling).rstrip()]
    inner = spelling.removeprefix("/*").removesuffix("*/")
    return [re.sub(r"^\s*\* ?", "", line).rstrip() if number else line.strip() for number, line in enumerate(inner.split("\n"))]


def _comments(unit: ci.TranslationUnit, path: pathlib.Path) -> list[_Comment]:
    text = path.read_text(encoding="utf-8").split("\n")
    whole = unit.get_extent(str(path), ((1, 1), (len(text), len(text[-1]) + 1)))
    found: list[_Comment] = []
    for token in unit.get_tokens(extent=whole):
        start, end = token.extent.start, token.extent.end
        if token.kind != ci.TokenKind.COMMENT or "IWYU pragma" in token.spelling:
            continue
        if start.line > 1 and text[end.line].startswith("#include"):  # it describes what is included
            continue
        if text[start.line - 1].startswith("#include"):
            continue
        alone = not text[start.line - 1].encode()[: start.column - 1].strip()
        one = _Comment(start.line, end.line, alone, _lines_of(token.spelling))
        slashes = token.spelling.startswith("//")
        if slashes and found and found[-1].alone and alone and found[-1].last == one.first - 1:
            found[-1].last = one.last
            found[-1].lines += one.lines
        else:
            found.append(one)
    return found


class _Reader:
    def __init__(self, unit: ci.TranslationUnit, path: pathlib.Path) -> None:
        self.path = path
        self.source = path.read_bytes()
        self.lines = self.source.decode().split("\n")
        self.comments = _comments(unit, path)
        self.cpp = path.suffix == ".hpp"

    def between(self, start: int, end: int) -> str:
        return self.source[start:end].decode()

    def signature(self, cursor: ci.Cursor) -> tuple[str, str]:
        """The declaration without its body, on one line; and the body."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        whole = self.between(start, end)
        bodies = [child for child in cursor.get_children() if child.kind == ci.CursorKind.COMPOUND_STMT]
        cut = bodies[-1].extent.start.offset - start if bodies else len(whole.encode())
        head = whole.encode()[:cut].decode()
        body = whole.encode()[cut:].decode()
        if cursor.kind == ci.CursorKind.CONSTRUCTOR or "~" in cursor.spelling or cursor.spelling.startswith(cursor.semantic_parent.spelling):
            head = re.sub(r"\)\s*(noexcept)?\s*:\s.*$", r") \1", head, flags=re.S)  # its initialisers
        head = re.sub(r"//[^\n]*|/\*.*?\*/", " ", head, flags=re.S)
        head = re.sub(r"\bHEDDLE_API\b|\[\[nodiscard\]\]|\binline\b", " ", head)
        head = re.sub(r"\s+", " ", head).strip().rstrip(";").strip()
        return head, body

    def members(self, cursor: ci.Cursor) -> list[Member]:
        found = []
        kinds = (ci.CursorKind.FIELD_DECL, ci.CursorKind.ENUM_CONSTANT_DECL)
        children = [child for child in cursor.get_children() if child.kind in kinds]
        before = cursor.extent.start.line
        for child in children:
            first, last = child.extent.start.line, child.extent.end.line
            said: list[str] = []
            for comment in self.comments:
                above = comment.alone and before < comment.first and comment.last < first
                if above or (not comment.alone and comment.first == last):
                    said += ([""] if said else []) + comment.lines
            text = re.sub(r"\s+", " ", self.between(child.extent.start.offset, child.extent.end.offset))
            found.append(Member(child.spelling, text, said))
            before = last
        return found

    def trailing(self, line: int) -> list[str]:
        return next((one.lines for one in self.comments if one.first == line and not one.alone), [])

    def grouped(self, declarations: list[Declaration], first: int, last: int) -> list[Section]:
        """The declarations between two lines with their comments; a ruler begins a section."""
        sections = [Section("", [])]
        events: list[_Comment | Declaration] = [
            one for one in self.comments if one.alone and first < one.first and one.last < last and not self._inside(one, declarations)
        ]
        events += declarations
        events.sort(key=lambda one: one.first)
        pending: _Comment | None = None
        previous = 0  # the last line of the declaration before, while the group may go on
        for event in events:
            if isinstance(event, _Comment):
                if pending:
                    sections[-1].groups.append(Group(pending.lines, []))
                pending, previous = None, 0
                if ruler := RULER.match(" ".join(event.lines).strip()):
                    sections.append(Section(ruler[1], []))
                else:
                    pending = event
                continue
            if pending and pending.last != event.first - 1:
                sections[-1].groups.append(Group(pending.lines, []))
                pending = None
            groups = sections[-1].groups
            if pending:
                groups.append(Group(pending.lines, [event]))
            elif previous and previous == event.first - 1 and self._goes_on(groups[-1], event):
                groups[-1].declarations.append(event)
            else:
                groups.append(Group(self.trailing(event.last), [event]))
            pending, previous = None, event.last
        if pending:
            sections[-1].groups.append(Group(pending.lines, []))
        return sections

    def _goes_on(self, group: Group, event: Declaration) -> bool:
        """In C++ a comment also holds for its neighbours whose names have a word in common with the first's."""
        if not self.cpp:
            function = group.declarations[-1].kind == "function"
            return event.kind == "function" or (not function and not self.trailing(event.last))
        words = {word for word in group.declarations[0].name.split("_") if word not in ("try", "of")}
        return bool(words & set(event.name.split("_"))) or not group.comment

    @staticmethod
    def _inside(comment: _Comment, declarations: list[Declaration]) -> bool:
        return any(one.first < comment.first and comment.last <= one.last for one in declarations)


def _parse(path: pathlib.Path, include: pathlib.Path) -> ci.TranslationUnit:
    language = "c++" if path.suffix == ".hpp" else "c"
    standard = "-std=c++20" if language == "c++" else "-std=c11"
    arguments = ["-x", language, standard, f"-I{include}", *_compiler_folders(language)]
    options = ci.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    unit = ci.Index.create().parse(str(path), args=arguments, options=options)
    errors = [str(one) for one in unit.diagnostics if one.severity >= ci.Diagnostic.Error]
    if errors:
        raise SystemExit(f"{path}: libclang: {'; '.join(errors[:5])}")
    return unit


def _c_declaration(reader: _Reader, cursor: ci.Cursor) -> Declaration | None:
    kind = cursor.kind
    first, last = cursor.extent.start.line, cursor.extent.end.line
    if kind == ci.CursorKind.FUNCTION_DECL:
        return Declaration("function", cursor.spelling, reader.signature(cursor)[0], first, last)
    if kind in (ci.CursorKind.STRUCT_DECL, ci.CursorKind.ENUM_DECL) and cursor.is_definition():
        name = "struct" if kind == ci.CursorKind.STRUCT_DECL else "enum"
        return Declaration(name, cursor.spelling, cursor.spelling, first, last, reader.members(cursor))
    if kind == ci.CursorKind.TYPEDEF_DECL:
        text = re.sub(r"\s+", " ", reader.between(cursor.extent.start.offset, cursor.extent.end.offset))
        is_pointer = "(*" in text and "{" not in text  # a struct has its own cursor, also one whose members are such pointers
        return Declaration("type", cursor.spelling, text.removeprefix("typedef "), first, last) if is_pointer else None
    if kind == ci.CursorKind.MACRO_DEFINITION:
        name = cursor.spelling
        if name == "HEDDLE_API" or name.endswith("_H"):
            return None
        return Declaration("macro", name, name, first, last, body=reader.lines[first - 1].split(name, 1)[1].split("/*")[0].strip())
    return None


def read_c(top: pathlib.Path) -> list[Header]:
    """The header and those beside it that it includes, in the order of inclusion."""
    unit = _parse(top, top.parent.parent)
    paths = [top]
    for inclusion in unit.get_includes():
        path = pathlib.Path(inclusion.include.name).resolve()
        if path.parent == top.parent and path not in paths:
            paths.append(path)
    headers = []
    for path in paths:
        reader = _Reader(unit, path)
        declarations = []
        for cursor in unit.cursor.get_children():
            if cursor.location.file and pathlib.Path(cursor.location.file.name).resolve() == path:
                if one := _c_declaration(reader, cursor):
                    declarations.append(one)
        declarations.sort(key=lambda one: one.first)
        headers.append(_header(reader, declarations))
    return headers


def _header(reader: _Reader, declarations: list[Declaration]) -> Header:
    top = next((one for one in reader.comments if one.alone), None)
    first = top.last if top and top.first == 1 else 0
    sections = reader.grouped(declarations, first, len(reader.lines) + 1)
    return Header(reader.path, top.lines if top and top.first == 1 else [], [one for one in sections if one.groups])


_FUNCTIONS = (ci.CursorKind.FUNCTION_DECL, ci.CursorKind.CXX_METHOD, ci.CursorKind.CONSTRUCTOR, ci.CursorKind.FUNCTION_TEMPLATE,
              ci.CursorKind.CONVERSION_FUNCTION)
_CLASSES = (ci.CursorKind.CLASS_DECL, ci.CursorKind.CLASS_TEMPLATE)


def _cpp_declaration(reader: _Reader, cursor: ci.Cursor) -> Declaration | None:
    first, last = cursor.extent.start.line, cursor.extent.end.line
    if cursor.kind in _FUNCTIONS:
        if cursor.spelling.startswith("operator=") or cursor.is_deleted_method():
            return None
        head, body = reader.signature(cursor)
        return Declaration("function", cursor.spelling.split("<")[0], head, first, last, body=body)
    if cursor.kind in (ci.CursorKind.TYPE_ALIAS_DECL, ci.CursorKind.TYPE_ALIAS_TEMPLATE_DECL):
        text = re.sub(r"\s+", " ", reader.between(cursor.extent.start.offset, cursor.extent.end.offset))
        return Declaration("alias", cursor.spelling, re.sub(r"\busing ", "", text, count=1), first, last)
    if cursor.kind in _CLASSES and cursor.is_definition():
        head = reader.between(cursor.extent.start.offset, cursor.extent.end.offset).split("{", 1)[0]
        head = re.sub(r"\bclass (?=\w+( final)?( :|$))", "", re.sub(r"\s+", " ", head).strip()) if "template" not in head else re.sub(
            r"> class ", "> ", re.sub(r"\s+", " ", head).strip())
        made = Declaration("class", cursor.spelling, head, first, last)
        inner = []
        for child in cursor.get_children():
            if child.access_specifier == ci.AccessSpecifier.PUBLIC and (one := _cpp_declaration(reader, child)):
                inner.append(one)
        begin = _first_line_of_body(reader, cursor)
        hidden = [child for child in cursor.get_children() if child.access_specifier != ci.AccessSpecifier.PUBLIC]
        end = min([child.extent.start.line for child in hidden if child.extent.start.line > begin and child.location.line > begin] + [last])
        made.inner = [group for section in reader.grouped(inner, begin, end) for group in section.groups if group.declarations]
        return made
    return None


def _first_line_of_body(reader: _Reader, cursor: ci.Cursor) -> int:
    line: int = cursor.extent.start.line
    while "{" not in reader.lines[line - 1]:
        line += 1
    return line


def read_cpp(top: pathlib.Path) -> list[Header]:
    unit = _parse(top, top.parent.parent)
    headers = []
    for path in sorted(top.parent.glob("*.hpp"), key=lambda one: (one != top, one.name)):
        reader = _Reader(unit, path)
        declarations = []
        for space in unit.cursor.get_children():
            if space.kind != ci.CursorKind.NAMESPACE or space.spelling != "heddle":
                continue
            for cursor in space.get_children():
                if pathlib.Path(cursor.location.file.name).resolve() == path and (one := _cpp_declaration(reader, cursor)):
                    declarations.append(one)
        header = _header(reader, declarations)
        headers.append(header)
    return headers


# ---- the names that the reference documents, and the roles that link to them

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
