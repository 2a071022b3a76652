#!/usr/bin/env python3
"""Refuses what makes the sources hard to read: classes that do too much, friends, and, with --comments, comments that are too wide.

    check_shape.py [--comments] [ROOT]     exit 0: all is well; 1: each fault on a line; 2: bad usage

* A class or struct in src/ has at most 40 public functions. Declarations count, overloads each; constructors, destructors, assignments
  and deleted functions do not.
* src/ has no friends.
* A comment ends at column 100. scripts/rewrap_comments.py brings comments into that width.

What was there before these rules stands in the tables below with its number. The number must be the true one: a class that grows is
refused, and one that shrinks takes its row with it. A row that has come down to the rule goes.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
from cpp_text import code_of, comments, without_directives  # noqa: E402

MOST_FUNCTIONS = 40
WIDEST_COMMENT = 100
COMMENTED = ("src", "include", "interfaces", "shmem", "tools", "observe", "bench", "tofu", "tests", "examples")
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inc"}

# Classes with more than 40 public functions, and how many.
FUNCTIONS = {
}
# Files with friends, and how many.
FRIENDS = {
}

TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|\"[^\"]*\"|\S", re.DOTALL)
CLASS_KEYS = {"class", "struct", "union"}
ACCESS = {"public", "protected", "private"}
# What takes an argument in parentheses, and is no function.
WITH_PARENTHESES = {"alignas", "decltype", "noexcept", "explicit", "requires", "__attribute__", "throw"}
CLOSING = {"(": ")", "{": "}", "[": "]"}


class Scanner:
    """Walks through declarations, not through statements, and keeps what public functions each class declares."""

    def __init__(self, code):
        self.tokens = TOKEN.findall(without_directives(code))
        self.at = 0
        self.functions = {}  # by the class's name, with those of the classes around it: the names, in their order

    def skip_balanced(self):
        """Past the bracket that closes the one here."""
        opening = self.tokens[self.at]
        closing, depth = CLOSING[opening], 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            depth += (token == opening) - (token == closing)
            if depth == 0:
                return

    def end_of_arguments(self, at):
        """Where the template arguments end whose < is here; None: it is a comparison."""
        depth, brackets = 0, 0
        for place in range(at, len(self.tokens)):
            token = self.tokens[place]
            brackets += (token in CLOSING) - (token in CLOSING.values())
            if brackets < 0 or token == ";":
                return None
            if brackets == 0:
                depth += (token == "<") - (token == ">")
                if depth == 0:
                    return place + 1
        return None

    def scope(self, outer=None, access=None):
        """Declarations up to the } that ends the scope. Of a class if `outer` is its name; then with the access it begins with."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == "}":
                self.at += 1
                return
            if token in ACCESS and self.tokens[self.at + 1:self.at + 2] == [":"]:
                access = token
                self.at += 2
                continue
            self.declaration(outer, access)

    def declaration(self, outer, access):
        head = []  # without template arguments, attributes, and what stands in brackets: those are one token
        starts = False  # an initializer's or a constructor's list has begun
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == ";":
                self.at += 1
                break
            if token == "}":  # the scope's: the declaration has no end, as a macro's
                break
            if token == "<" and head and (re.match(r"\w", head[-1])) and head[-1] != "operator":
                end = self.end_of_arguments(self.at)
                if end is not None:
                    self.at = end
                    continue
            if token in ("(", "["):
                self.parenthesis(head)
                continue
            if token == "{":
                if self.brace(head, outer, starts):
                    break
                continue
            if token == "=" and head[-1:] != ["operator"] or token == ":" and "()" in head:
                starts = True
            head.append(token)
            self.at += 1
        if outer is not None and access == "public":
            name = self.function_in(head, outer)
            if name:
                self.functions[outer].append(name)

    def parenthesis(self, head):
        begin = self.at
        self.skip_balanced()
        if self.tokens[begin] == "[":
            if head[-1:] == ["operator"]:
                head.append("[]")
        elif head[-1:] == ["operator"]:
            head.append("call")  # operator()
        elif head and head[-1] in WITH_PARENTHESES:
            head.pop()
        elif self.tokens[begin + 1] in ("*", "&"):
            head.append("(*)")  # a pointer to a function
        else:
            head.append("()")

    def brace(self, head, outer, starts):
        """What begins with this {. True: the declaration ends with it."""
        keys = [place for place, token in enumerate(head) if token in CLASS_KEYS]
        if starts and "=" not in head:
            body = head[-1] in ("()", "{}", ":")  # of a constructor; else the member is initialized
            self.skip_balanced()
            head.append("{}")
            return body
        if starts or "enum" in head:
            self.skip_balanced()
            return False
        if "namespace" in head or (head[:1] == ["extern"] and len(head) == 2 and head[1].startswith('"')):
            self.at += 1
            self.scope()
            head.clear()
            return True
        if keys and "()" not in head:
            self.type(head, keys[0], outer)
            return False
        self.skip_balanced()
        return "()" in head

    def type(self, head, key, outer):
        until = head.index(":") if ":" in head else len(head)
        names = [token for token in head[key + 1:until] if re.match(r"\w", token) and token != "final"]
        name = "::".join(([outer] if outer else []) + (names or ["(unnamed)"]))
        while name in self.functions:
            name += "'"
        self.functions[name] = []
        access = "private" if head[key] == "class" else "public"
        head.clear()
        self.at += 1
        self.scope(name, access)

    @staticmethod
    def function_in(head, outer):
        """The name of the function that is declared; None: another declaration, or a function that does not count."""
        while head and head[0] in ("template", "inline"):
            head = head[1:]
        if not head or head[0] in ("using", "typedef", "friend", "static_assert") or "()" not in head:
            return None
        place = head.index("()")
        if head[place - 1:place] == ["call"]:
            return "operator()"
        if "=" in head[:place] and "operator" not in head[:place]:
            return None
        if head[-2:] == ["=", "delete"] or place == 0:
            return None
        if "operator" in head[:place]:
            name = "".join(head[head.index("operator"):place])
            return None if name == "operator=" else name
        name = head[place - 1]
        own = outer.rstrip("'").split("::")[-1]
        return None if name == own or "~" in head[:place] or not re.match(r"[A-Za-z_]", name) else name


def functions_of(text):
    """The public functions of each class that the text defines."""
    scanner = Scanner(code_of(text))
    while scanner.at < len(scanner.tokens):
        scanner.scope()
    return scanner.functions


def friends_of(text):
    return len(re.findall(r"\bfriend\b", code_of(text)))


def wide_comments(text):
    """(line, columns) of each line on which a comment ends right of the widest column. Where code follows it, the width is the code's."""
    lines = text.split("\n")
    found = {}
    for begin, end, _ in comments(text):
        first = text.count("\n", 0, begin)
        last = first + text.count("\n", begin, end)
        for number in range(first, last + 1):
            line = lines[number]
            ends = len(line) if number < last else end - (text.rfind("\n", 0, end) + 1)
            if ends > WIDEST_COMMENT and not line[ends:].strip() and "NOLINT" not in line and "://" not in line:
                found[number + 1] = ends
    return sorted(found.items())


def files_below(root, folders):
    return [path for name in folders for path in sorted((root / name).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]


def ratchet(found, table, most, what, name_of):
    """Faults of what is more than `most` and has no row, and of rows whose number is not the true one."""
    faults = []
    for key in sorted({*table, *(key for key, number in found.items() if number > most)}):
        number, row = found.get(key, 0), table.get(key)
        if row is None:
            faults.append(f"{name_of(key)}: {number} {what}; at most {most}")
        elif number > row:
            faults.append(f"{name_of(key)}: {number} {what}; it had {row}, and is to have {most} at most")
        elif number < row:
            better = f"put {number} into" if number > most else "take away"
            faults.append(f"{name_of(key)}: {number} {what}, no longer {row}: {better} its row in scripts/check_shape.py")
    return faults


def faults_of(root, functions, friends, with_comments):
    counts, friendly = {}, {}
    for path in files_below(root, ["src"]):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        counts.update({(name, owner): len(names) for owner, names in functions_of(text).items()})
        friendly[name] = friends_of(text)
    faults = ratchet(counts, functions, MOST_FUNCTIONS, "public functions", " ".join)
    faults += ratchet(friendly, friends, 0, "friends", str)
    if with_comments:
        for path in files_below(root, COMMENTED):
            name = path.relative_to(root).as_posix()
            faults += [f"{name}:{line}: a comment of {columns} columns; at most {WIDEST_COMMENT}"
                       for line, columns in wide_comments(path.read_text(encoding="utf-8"))]
    return counts, faults


def main(arguments):
    with_comments = "--comments" in arguments
    rest = [argument for argument in arguments if argument != "--comments"]
    if len(rest) > 1 or any(argument.startswith("-") for argument in rest):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(rest[0] if rest else pathlib.Path(__file__).parent.parent).resolve()
    counts, faults = faults_of(root, FUNCTIONS, FRIENDS, with_comments)
    if not counts:
        print(f"check_shape: no classes under {root}/src", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault)
    print(f"check_shape: {len(counts)} classes, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
