#!/usr/bin/env python3
"""Refuses what CMake links, compiles or reads of a room that MAY of check_includes.py does not allow, and words of a wing in the core.

    check_links.py [ROOT]     exit 0: all is well; 1: each refused line with the reason; 2: bad usage

It reads the texts of CMake, not a build tree. A room's libraries are those that its folder's CMakeLists.txt make, and *.cmake beside it;
what a command names there, a library or a folder, has to be of its own room, of one that the room may include, or of Heddle as it is
installed. Tests (folders `tests`, heddle_test…, what HEDDLE_TESTS alone decides) have the row of the tests. The root's CMakeLists.txt and
cmake/ put all together and are not looked at.

What is otherwise stands in tables, each row with its reason; a row that is no longer needed is refused.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
import check_includes  # noqa: E402
from cpp_text import comments  # noqa: E402

# Libraries that users link: also which rooms are such users.
INSTALLED = {
    "heddle": {"tools", "bench", "examples", "tofu", "interfaces"},
    "heddle_shmem": {"bench", "examples", "tofu"},
    "heddle_mpi": {"examples"},
    "_heddle": set(),
}
# (folder, room, or * for any of its folders): why it names it all the same.
BESIDES = {
    ("src/transport/utofu", "tofu"): "the transport needs a <utofu.h>: the machine's (HEDDLE_UTOFU_INCLUDE), else the emulator's; "
                                     "heddle_utofu_header is the one place that says which",
    ("observe/calls", "interfaces/*"): "its wrappers are made from the interfaces' own tables of functions, so that none is missing; "
                                       "nothing of them is linked",
    ("tools/pages", "interfaces/*"): "the manual pages of oshcc and oshc++, which are scripts that OpenSHMEM's CMake makes",
    ("interfaces/python", "tools"): "the package holds the launcher, so that a program of Python needs nothing else; it is copied, not linked",
    ("interfaces/python", "observe"): "as tools",
}
# (file, variable): the rooms whose libraries it holds.
VARIABLES = {
    ("src/transport/CMakeLists.txt", "heddle_${rooms}"): {"transport/*"},  # each folder beside it
    ("interfaces/lcw/heddle_lcw.cmake", "${heddle_lcw_library}"): {"include"},  # Heddle, as it is installed
}

# Wing: the words by which code names what is its.
WORDS = {
    "tofu": re.compile(r"UTOFU_EMU|\.\./tofu"),
    "openshmem": re.compile(r"oshrun|shmem_\w|SHMEM_\w|OpenSHMEM programs"),
    "mpi": re.compile(r"HEDDLE_MPI_|mpi_no_any_tag|MPI programs"),
    "observe": re.compile(r"heddle-observe|\.\./observe|heddle/calls"),
    "bench": re.compile(r"heddle-bench|\.\./bench"),
}
CORE = ("include", "src", "tools")
# (beginning of the path, wing): why the core knows that word. There is no interface by which a wing would tell the core of itself: the
# core is complete without them, and says what it cannot do where a wing is not installed.
KNOWN = {
    ("src/base/config.", "openshmem"): "HEDDLE_CHECK: one table has all HEDDLE_* variables, from which `heddle info` and the warning of an "
                                       "unknown one are; the wing reads its own by getenv",
    ("src/base/config.", "mpi"): "HEDDLE_CHECK, HEDDLE_MPI_NO_ANY_TAG: as for openshmem",
    ("src/bootstrap/table.cpp", "openshmem"): "who starts jobs of the local launcher, for messages: `heddle run`, and oshrun",
    ("tools/commands.hpp", "openshmem"): "oshrun is heddle run under the name, and with the words, that OpenSHMEM's standard has",
    ("tools/main.cpp", "openshmem"): "as tools/commands.hpp",
    ("tools/main.cpp", "observe"): "which program has a command is one table, which is what `heddle help` shows without starting any",
    ("tools/main.cpp", "bench"): "as for observe",
    ("tools/run/", "openshmem"): "oshrun; --exit-code survivors sets what a PE reads (SHMEM_DEATHS)",
    ("tools/run/", "observe"): "--trace preloads the library that notes calls, which only the launcher can do",
    ("tools/run/", "tofu"): "--utofu starts each process of a job with its place in the emulated machine, which only the launcher knows",
}

TOKEN = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()"#]+')
ROOT_VARIABLES = re.compile(r"^\$\{(?:HEDDLE_ROOT|PROJECT_SOURCE_DIR|PROJECT_BINARY_DIR|CMAKE_SOURCE_DIR|CMAKE_BINARY_DIR)\}/")
HERE = re.compile(r"^(?:\$\{CMAKE_CURRENT_(?:SOURCE|LIST|BINARY)_DIR\}/?)")
BLOCKS = {"foreach", "while", "function", "macro", "if"}
# Commands that link, compile and read nothing: they choose, order, test or install.
SILENT = {"if", "elseif", "else", "endif", "add_test", "add_dependencies", "add_subdirectory", "include", "install", "message",
          "set_tests_properties", "project", "cmake_minimum_required", "heddle_wing", "heddle_alone_uses", "file"}
# How libraries hide that are named by a variable; those from outside are in variables of capitals.
HIDDEN = {"heddle_room": re.compile(r"heddle_\$\{\w+\}"), "target_link_libraries": re.compile(r"(?:heddle_)?\$\{[a-z]\w*\}")}
MAKES = {"add_library": "{}", "add_executable": "{}", "nanobind_add_module": "{}", "heddle_room": "heddle_{}"}


def commands_of(text):
    """(line, name, arguments) of each command; quotes are taken away, as are comments."""
    found, head, arguments, depth = [], None, [], 0
    for token in TOKEN.finditer(text):
        word = token[0]
        if word.startswith("#"):
            continue
        if word == "(":
            depth += 1
            if depth == 1:
                arguments = []
                continue
        elif word == ")":
            depth -= 1
            if depth == 0:
                found.append((text.count("\n", 0, head.start()) + 1, head[0].lower(), arguments))
                continue
        if depth == 0:
            head = token
        else:
            arguments.append(word.strip('"'))
    return found


def only_with_tests(arguments):
    return "HEDDLE_TESTS" in arguments and "OR" not in arguments and arguments[arguments.index("HEDDLE_TESTS") - 1] != "NOT"


def only_without_tests(arguments):
    place = arguments.index("HEDDLE_TESTS") if "HEDDLE_TESTS" in arguments else 0
    return place > 0 and arguments[place - 1] == "NOT" and "AND" not in arguments


class File:
    """The commands of one text, each with whether it is about tests, and the libraries that they make."""

    def __init__(self, root, path):
        self.path = path.relative_to(root)
        self.folder = self.path.parent
        self.commands, self.made, self.tests = [], set(), set()
        scopes = [["file", "tests" in self.path.parts, False]]  # kind, about tests, whether its condition is that there are none
        for line, name, arguments in commands_of(path.read_text(encoding="utf-8")):
            test = scopes[-1][1]
            if name in BLOCKS:
                scopes.append([name, test or (name == "if" and only_with_tests(arguments)), name == "if" and only_without_tests(arguments)])
            elif name in ("else", "elseif"):
                scopes[-1][1:] = [scopes[-2][1] or scopes[-1][2], False]
            elif name.startswith("end") and name[3:] in BLOCKS:
                scopes.pop()
            elif name == "return" and scopes[-1][2]:  # what follows is there with tests only
                outer = next(scope for scope in reversed(scopes[:-1]) if scope[0] in ("file", "function", "macro"))
                outer[1] = True
                for scope in scopes[scopes.index(outer):-1]:
                    scope[1] = True
            if name.startswith("heddle_test") and arguments:
                test = True
                if name in ("heddle_test_program", "heddle_test_ranks"):
                    self.tests.add(arguments[0])
            if name in MAKES and arguments and not re.fullmatch(r"\$\{\w+\}", arguments[0]):
                (self.tests if test else self.made).add(MAKES[name].format(arguments[0]))
            self.commands.append((line, name, arguments, test or (bool(arguments) and arguments[0] in self.tests)))

    def room(self):
        return check_includes.room_of(self.path)


def folder_of(argument, folder):
    """The folder or file below the root that an argument names, as far as it can be told; None: none."""
    argument = re.sub(r"^-[ID]\w*=?", "", argument)
    if ROOT_VARIABLES.match(argument):
        place = pathlib.PurePosixPath(ROOT_VARIABLES.sub("", argument))
    elif HERE.match(argument) or argument.startswith("../"):
        place = folder / HERE.sub("", argument)
    else:
        return None
    parts = []
    for part in place.parts:
        if "$" in part:
            parts.append("*")
            break
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part != ".":
            parts.append(part)
    return parts


def room_of_parts(parts, root):
    """The name of the room of a path; None: it is of none, or above them."""
    if len(parts) < 2 and parts[:1] != ["tools"] and not (parts and parts[0] in check_includes.MAY and parts[0] != "interfaces"):
        return None
    if parts[0] not in check_includes.MAY and "/".join(parts[:2]) not in check_includes.MAY:
        return None
    return check_includes.room_of(pathlib.PurePosixPath(*parts, "x"))[1]


def granted(file, to, test):
    """Whether the file's room may use that room's libraries."""
    row, own = file.room()
    if to == own or to == "include" or check_includes.allowed(file.path, to):
        return True
    grants = set()
    for beginning, more in check_includes.BESIDES.items():
        if check_includes.room_of(pathlib.PurePosixPath(beginning + "x"))[1] == own and not re.search(r"/tests?/|_test", beginning):
            grants |= more
    if test:
        grants |= check_includes.MAY["tests"] | {"tests"}
    return to in grants or to.split("/")[0] + "/*" in grants or (to.endswith("/*") and to in grants)


class Links:
    def __init__(self, root, besides, variables):
        self.root, self.besides, self.variables = root, besides, variables
        tops = sorted({row.split("/")[0] for row in check_includes.MAY})
        self.files = [File(root, path) for top in tops for path in sorted((root / top).rglob("*"))
                      if path.name == "CMakeLists.txt" or path.suffix == ".cmake"]
        self.owner = {}  # library: (its room, whether it is for tests)
        for file in self.files:
            for name in file.made | file.tests:
                self.owner[name] = (file.room()[1], name not in file.made)
        self.needed = set()
        self.links = 0

    def faults(self):
        for file in self.files:
            for line, name, arguments, test in file.commands:
                if name in SILENT or name.startswith("end"):
                    continue
                first = arguments[:1] if name == "target_link_libraries" and "${" in arguments[0] else []  # its own target
                for argument in self.words(name, arguments[len(first):]):
                    reason = self.fault(file, name, argument, test)
                    if reason:
                        yield file.path, line, reason
        for row in sorted((set(self.besides) | set(self.variables)) - self.needed):
            yield pathlib.PurePosixPath(row[0]), 1, f"names nothing of {row[1]}: take away its row in scripts/check_links.py"

    @staticmethod
    def words(name, arguments):
        """What the arguments name: those after DEPENDS of a room are libraries without the beginning of their names."""
        rooms = False
        for argument in arguments:
            if name in ("heddle_room", "heddle_test_program", "heddle_test_alone", "heddle_test_uses") and argument in ("DEPENDS", "ROOMS"):
                rooms = True
                continue
            if argument.isupper() and "$" not in argument:
                rooms = False
                continue
            for word in argument.split(";"):
                for inner in re.findall(r"\$<(?:TARGET_OBJECTS|TARGET_FILE|TARGET_FILE_DIR|TARGET_LINKER_FILE):([^>]*)>", word) or [word]:
                    inner = re.sub(r"^\$<(?:BUILD_INTERFACE):(.*)>$", r"\1", inner)
                    inner = re.sub(r"^\$<TARGET_PROPERTY:([^,>]*),.*>$", r"\1", inner)
                    inner = re.sub(r"^heddle::(heddle)?", lambda found: "heddle" if found[1] else "heddle_", inner)
                    yield f"heddle_{inner}" if rooms else inner

    def fault(self, file, name, argument, test):
        row, own = file.room()
        if name in HIDDEN and not test and HIDDEN[name].fullmatch(argument):
            rooms = self.variables.get((file.path.as_posix(), argument))
            self.needed.add((file.path.as_posix(), argument))
            if rooms is None:
                return f"{name} with {argument}: say which rooms these are in VARIABLES of scripts/check_links.py"
            return next((self.refuse(file, to, argument, test) for to in sorted(rooms) if not granted(file, to, test)), None)
        if argument in self.owner:
            to, for_tests = self.owner[argument]
            self.links += to != own
            if for_tests and not test:
                return f"{argument} is of tests, and {own} is not"
            if argument in INSTALLED and (test or row in INSTALLED[argument]):
                return None
        elif argument.startswith("heddle_") and name in HIDDEN and argument != "heddle_flags" and "$" not in argument:
            return f"{own} links {argument}, which no room makes"
        else:
            parts = folder_of(argument, file.folder)
            to = room_of_parts(parts, self.root) if parts else None
            if to is None:
                return None
        return None if granted(file, to, test) else self.refuse(file, to, argument, test)

    def refuse(self, file, to, argument, test):
        for folder, other in self.besides:
            if (file.folder.as_posix() + "/").startswith(folder + "/") and other in (to, to.split("/")[0] + "/*"):
                self.needed.add((folder, other))
                return None
        row, own = file.room()
        may = ", ".join(sorted(check_includes.MAY["tests" if test else row])) or "what is installed only"
        return f"{own} may not use {argument} of {to}; it may use: {may}"


def words_of(root, known):
    """Faults: words of a wing in the core's code (not its comments), where no row has them."""
    needed = set()
    for top in CORE:
        for path in sorted((root / top).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in check_includes.SUFFIXES or not path.is_file() or check_includes.TEST_FILE.search(name) or "/tests/" in name:
                continue
            text = path.read_text(encoding="utf-8")
            for begin, end, _ in reversed(comments(text)):
                text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]
            for wing, pattern in WORDS.items():
                found = pattern.search(text)
                if found is None:
                    continue
                row = next((row for row in known if row[1] == wing and name.startswith(row[0])), None)
                if row is None:
                    line = text.count("\n", 0, found.start()) + 1
                    yield path.relative_to(root), line, f"{found[0]} is a word of {wing}, which the core does not know"
                needed.add(row)
    for row in sorted(set(known) - needed):
        yield pathlib.PurePosixPath(row[0]), 1, f"names nothing of {row[1]}: take away its row in scripts/check_links.py"


def faults_of(root, besides, variables, known):
    links = Links(root, besides, variables)
    return links, [*links.faults(), *words_of(root, known)]


def main(arguments):
    if len(arguments) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    links, problems = faults_of(root, BESIDES, VARIABLES, KNOWN)
    if not links.files:
        print(f"check_links: no CMakeLists.txt under {root}", file=sys.stderr)
        return 2
    for path, line, reason in problems:
        print(f"{path}:{line}: {reason}")
    print(f"check_links: {len(links.files)} files, {len(links.owner)} targets, {links.links} names of others, {len(problems)} refused")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
