#!/usr/bin/env python3
"""Refuses a name that says something else than it means: a namespace that is not its room's, a class name that two rooms have, a word against the glossary.

    check_names.py [--count] [ROOT]     exit 0: all is well; 1: each fault on a line; 2: bad usage
    --count: how much of each kind there is, with the exceptions, and which names are shared by which rooms

* A namespace is its room's: what a file of src/queue opens is heddle::queue, or lies in it. ROOMS below has the rule for each folder.
* No class has the name of a class of another room. The core is one house, each wing is one that knows the core: two wings may use the same
  word, since neither includes the other. A class of a file's unnamed namespace or of a test does not count, nor one inside another class.
* The implementations of one contract (the transports, the bootstraps) call the same part by the same name; PARTS lists these names.
* A word in `backquotes` in the last column of docs/glossary.md is in no name of the product; with "in FOLDER" behind it, in no name there.

What was there before these rules stands in tables below, each row with its reason. A row must say exactly what is there: one more is
refused, and a row that is no longer needed goes.
"""

import collections
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from cpp_text import code_of, without_directives  # noqa: E402

SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".inc"}
PRODUCT = ("src", "include", "interfaces", "tools", "observe", "bench", "tofu")
GLOSSARY = "docs/glossary.md"

# Folder: the namespaces of its files; the first row that is the folder or a parent of it counts. * is the folder's name below the row's.
ROOMS = {
    "include/heddle": ("heddle",),
    "src/transport/common": ("heddle::transport",),  # what each transport may use of the contract's room
    "src/transport/test": ("heddle::transport",),  # the conformance tests, and doubles of libraries
    "src/transport": ("heddle::transport::*",),
    "src/bootstrap/inproc": ("heddle::bootstrap::inproc", "heddle::bootstrap::single", "heddle::bootstrap::inproc_test"),
    "src/bootstrap": ("heddle::bootstrap::*",),
    "src/collective/algorithms": ("heddle::collective",),  # rows of one table
    "src": ("heddle::*",),
    "interfaces/mpi": ("heddle::mpi",),
    "interfaces/openshmem/memory": ("heddle::shmem::memory",),
    "interfaces/openshmem": ("heddle::shmem",),
    "interfaces/lcw": ("heddle::for_lcw", "lcw"),  # lcw: the interface that it implements
    "interfaces/python/src": ("heddle::python",),
    "observe": ("heddle::observe::*",),
    "bench": ("heddle::bench::*",),
    "tools": ("heddle::tools::*",),
    "tofu": ("tofu_emulator",),
}
OF_OTHERS = {"std", "nanobind::detail", "testing"}  # namespaces in which only their own templates are specialised

# What a contract's implementations may each have, by the word of docs/glossary.md.
CONTRACTS = ("src/transport", "src/bootstrap")
PARTS = {
    "CallersMemory",  # registrations of memory that the program did not register
    "Device",
    "Functions",  # of the network's library, found at run time
    "KeyBytes",  # what a memory key holds
    "Library",  # the network's, loaded
    "Member",  # one rank's bootstrap
    "Outgoing",  # messages
    "Packet",  # a message that the transport owns
    "PeerProcess",
    "PeerState",
    "Port",
    "Receive",  # a buffer that is posted to the network
    "Regions",
    "Settings",  # of a decorator
    "Transfer",
    "Transfers",  # puts, gets and atomics
}

# File or folder: the namespace that it has instead, and why.
NAMESPACES = {
    "src/transport/ofi/ofi_forged_test.cpp": ("heddle::transport::network", "gives this transport to the tests that the three networks share"),
    "src/transport/ucx/ucx_forged_test.cpp": ("heddle::transport::network", "gives this transport to the tests that the three networks share"),
}
# Class name: the rooms that have it, and why that is so.
CLASSES = {
    **{name: ({"include/heddle", "interfaces/python", room}, "a class of the C++ and Python interfaces, and what its handle names") for name, room in (
        ("Context", "src/worker"), ("Worker", "src/worker"), ("Region", "src/engine"), ("RemoteRegion", "src/engine"), ("Team", "src/collective"))},
}
# (word of the glossary, folder): the names that hold it there, and why.
WORDS = {
    ("channel", "src/transport/verbs/"): ({"channel", "channel_", "CompletionChannel", "create_comp_channel", "destroy_comp_channel",
                                           "ibv_comp_channel", "ibv_create_comp_channel", "ibv_destroy_comp_channel"},
                                          "the word of libibverbs for what wakes up a thread"),
    ("withdraw", ""): ({"heddle_team_withdraw", "withdraw"}, "a function of the C API, and what it calls: a team's offer ends unused"),
}

TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|\"[^\"]*\"|\S", re.DOTALL)
KEYS = ("class", "struct", "union")
# A namespace that another room's classes are only announced in.
FORWARD = re.compile(r"^namespace [\w:]+ \{\n\s*(?:(?:class|struct) \w+;(?:[ \t]*//[^\n]*)?\s*)+\}", re.MULTILINE)
TEST_FILE = re.compile(r"(_test\.(c|cpp|hpp)$|/test_[^/]*\.(c|cpp|hpp)$|_test_support\.(cpp|hpp)$|/test_support\.(cpp|hpp)$|/tests?/)")


def without_arguments(head):
    """Tokens without template arguments, whose place <> takes, and without what stands in brackets, whose place () takes."""
    kept, angle, bracket = [], 0, 0
    for token in head:
        if token in ("(", "["):
            bracket += 1
        elif token in (")", "]"):
            bracket -= 1
            if bracket == 0 and angle == 0:
                kept.append("()" if token == ")" else "[]")
        elif bracket:
            continue
        elif token == "<" and kept[-1:] != ["operator"]:
            angle += 1
        elif token == ">" and angle:
            angle -= 1
            if angle == 0:
                kept.append("<>")
        elif not angle:
            kept.append(token)
    return kept


def opened_by(head):
    """What a { opens: ("namespace", its name), ("class", its name) or ("other", ""). The name of what cannot be named elsewhere is empty."""
    head = without_arguments(head)
    if "=" in head or "enum" in head:
        return "other", ""
    if "namespace" in head:
        return "namespace", "".join(token for token in head[head.index("namespace") + 1:] if re.match(r"\w|::", token))
    if head[:1] == ["extern"] and len(head) == 2:
        return "namespace", 'extern "C"'
    at = next((place for place, token in enumerate(head) if token in KEYS), None)
    if at is None:
        return "other", ""
    named = []
    for token in head[at + 1:]:
        if token == ":":
            break
        if token == "()" and named[-1:] in (["alignas"], ["__attribute__"]):
            named.pop()
        elif token not in ("[]", "final"):
            named.append(token)
    if "()" in named:
        return "other", ""
    return "class", named[0] if len(named) == 1 and re.match(r"[A-Za-z_]", named[0]) else ""


def definitions(text):
    """(outermost named namespaces, classes) of a text: each a set of names; of classes those that another file can name without a class."""
    spaces, classes = set(), set()
    scopes, head, brackets = [], [], []
    for token in TOKEN.findall(without_directives(code_of(text))):
        if token == "{":
            inside = ("other", "") if "(" in brackets or "[" in brackets else opened_by(head)
            scopes.append((inside, head, brackets))
            if all(kind == "namespace" for (kind, _), *_ in scopes[:-1]):
                path = [name for (_, name), *_ in scopes if name != 'extern "C"']
                if inside[0] == "namespace" and inside[1] and inside[1] != 'extern "C"' and "" not in path:
                    spaces.add("::".join(path))
                elif inside[0] == "class" and inside[1] and "" not in path[:-1]:
                    classes.add(inside[1])
            head, brackets = [], []
        elif token == "}":
            if scopes:
                _, head, brackets = scopes.pop()
                head = head + ["{}"] if "(" in brackets or "[" in brackets else []
        elif token == ";" and not brackets:
            head = []
        else:
            brackets = brackets + [token] if token in "([" else brackets[:-1] if token in ")]" else brackets
            head.append(token)
    return spaces, classes


def room_of(path):
    """The folder whose classes belong together, as a name."""
    parts = path.split("/")[:-1]
    if path.startswith(("src/transport/", "src/bootstrap/")):
        return "/".join(parts[:3])
    return "/".join(parts[:2])


def house_of(room):
    """Rooms of one house may include each other."""
    if room.startswith(("src", "include", "tools")):
        return "core"
    return room if room.startswith("interfaces") else room.split("/")[0]


def namespaces_of(path):
    """Which namespaces the rule gives a file; none: no rule."""
    folder = path.rsplit("/", 1)[0]
    for row, spaces in ROOMS.items():
        if folder == row or folder.startswith(row + "/"):
            below = folder[len(row):].replace("/", "::")
            return {re.sub(r"::\*$", below, space) for space in spaces}
    return set()


def covers(space, inner):
    return inner == space or inner.startswith(space + "::")


def glossary_of(text):
    """(word, folder or "") of each word that the last column of the glossary's table refuses."""
    refused = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and not cells[0].startswith(("word", "-")):
            refused += re.findall(r"`([a-z_]+)`(?: in ([\w/]*\w))?", cells[2])
    return refused


def parts_of(name):
    """The words of which a name is made, joined by _ in lower case."""
    return "_".join(part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])", name))


def pattern_of(word):
    """Finds a word of the glossary, in any of its forms, in what parts_of returned."""
    first, *rest = word.split("_")
    stem = re.sub(r"e$", "", first)
    forms = rf"(?:{first}(?:s|es|d|ed|n|al|ment)?|{stem}(?:s|es|ed|ing|als?)?)"
    return re.compile("(?:^|_)" + "_".join([forms, *rest]) + "(?:_|$)")


class Sources:
    """What the product's sources name: read once."""

    def __init__(self, root):
        self.spaces = {}  # by file
        self.classes = collections.defaultdict(lambda: collections.defaultdict(set))  # by name, by room: the files
        self.names = collections.defaultdict(set)  # by name as it is written: the files
        for top in PRODUCT:
            for path in sorted((root / top).rglob("*")):
                if path.suffix in SUFFIXES and path.is_file():
                    self.read(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))

    def read(self, name, text):
        spaces, classes = definitions(FORWARD.sub("", text))
        self.spaces[name] = set() if "/tests/" in name else spaces  # programs and their parts: in no library
        if TEST_FILE.search(name):
            return
        for defined in classes if not name.endswith(".c") else ():  # a source of C shows its types to nobody
            self.classes[defined][room_of(name)].add(name)
        for written in set(re.findall(r"[A-Za-z_]\w*", code_of(text))):
            self.names[written].add(name)


def wrong_namespaces(sources):
    """File: the namespaces in it that are not its room's."""
    wrong = {}
    for name, spaces in sources.spaces.items():
        own = namespaces_of(name) | ({"heddle::test"} if TEST_FILE.search(name) else set())
        strange = {space for space in spaces
                   if space not in OF_OTHERS and not any(covers(room, space) or covers(space, room) for room in own)}
        if strange:
            wrong[name] = strange
    return wrong


def namespace_faults(sources, exceptions):
    wrong = wrong_namespaces(sources)
    needed = set()
    for name, spaces in sorted(wrong.items()):
        row = next((row for row in exceptions if name == row or name.startswith(row + "/")), None)
        if row is not None and all(covers(exceptions[row][0], space) for space in spaces):
            needed.add(row)
        else:
            own = " or ".join(sorted(namespaces_of(name))) or "a row in ROOMS"
            yield f"{name}: namespace {', '.join(sorted(spaces))}; its room's is {own}"
    for row in exceptions:
        if row not in needed:
            yield f"{row}: its namespaces are as they should be: take away its row in NAMESPACES of scripts/check_names.py"


def in_one_contract(rooms):
    return any(all(room.startswith(contract + "/") for room in rooms) for contract in CONTRACTS)


def shared_classes(sources):
    """Class name: the rooms that have it, where they are more than one and may meet."""
    shared = {}
    for name, by_room in sources.classes.items():
        houses = collections.Counter(house_of(room) for room in by_room)
        meet = {room for room in by_room if "core" in houses or houses[house_of(room)] > 1}
        if len(meet) > 1:
            shared[name] = meet
    return shared


def of_contracts(rooms):
    """The rooms, where one name stands for all implementations of a contract."""
    return {next((contract + "/*" for contract in CONTRACTS if room.startswith(contract + "/")), room) for room in rooms}


def class_faults(sources, parts, exceptions):
    shared = shared_classes(sources)
    needed = {name for name in parts for contract in CONTRACTS
              if sum(room.startswith(contract + "/") for room in shared.get(name, ())) > 1}
    shared = {name: of_contracts(rooms) if name in parts else rooms for name, rooms in shared.items()}
    shared = {name: rooms for name, rooms in shared.items() if len(rooms) > 1}
    for name, rooms in sorted(shared.items()):
        if name in exceptions:
            more, fewer = rooms - exceptions[name][0], exceptions[name][0] - rooms
            if more:
                yield f"class {name}: also in {', '.join(sorted(more))}; its row in CLASSES has {', '.join(sorted(exceptions[name][0]))}"
            elif fewer:
                yield f"class {name}: no longer in {', '.join(sorted(fewer))}: take them from its row in CLASSES of scripts/check_names.py"
        else:
            yield f"class {name}: in {', '.join(sorted(rooms))}; say of what each is"
    for name in sorted(exceptions.keys() - shared.keys()):
        yield f"class {name}: not in two rooms: take away its row in CLASSES of scripts/check_names.py"
    for name in sorted(set(parts) - needed):
        yield f"class {name}: no part of two implementations: take away its row in PARTS of scripts/check_names.py"


def refused_names(sources, refused):
    """(word, folder): the names that hold the word there."""
    found = collections.defaultdict(set)
    words = {name: parts_of(name) for name in sources.names}
    for word, folder in refused:
        pattern = pattern_of(word)
        for name, files in sources.names.items():
            if pattern.search(words[name]) and any(not folder or file.startswith(folder + "/") for file in files):
                found[word, folder].add(name)
    return found


def word_faults(sources, refused, exceptions):
    found = refused_names(sources, refused)
    for (word, folder), names in sorted(found.items()):
        known = set()
        for (other, where), (listed, _) in exceptions.items():
            if other == word:
                known |= {name for name in names & listed
                          if all(file.startswith(where) for file in sources.names[name] if file.startswith(folder))}
        for name in sorted(names - known):
            where = sorted(file for file in sources.names[name] if file.startswith(folder))
            yield f"{where[0]}: {name}: {GLOSSARY} has another word for {word}"
    refused_words = {word for word, _ in refused}
    for (word, where), (listed, _) in exceptions.items():
        if word not in refused_words:
            yield f"{word}: {GLOSSARY} does not refuse it: take away its row in WORDS of scripts/check_names.py"
            continue
        gone = sorted(name for name in listed if not any(file.startswith(where) for file in sources.names.get(name, ())))
        if gone:
            yield f"{word} in {where}: {', '.join(gone)} no longer there: take it from WORDS of scripts/check_names.py"


def faults_of(root, namespaces, parts, classes, words):
    sources = Sources(root)
    refused = glossary_of((root / GLOSSARY).read_text(encoding="utf-8"))
    return sources, [*namespace_faults(sources, namespaces), *class_faults(sources, parts, classes), *word_faults(sources, refused, words)]


def count(sources, root):
    shared = shared_classes(sources)
    siblings = {name for name, rooms in shared.items() if in_one_contract(rooms)}
    print(f"files with a namespace that is not their room's: {len(wrong_namespaces(sources))}")
    for title, names in (("class names in rooms that may meet", shared.keys() - siblings), ("class names of one contract's implementations", siblings)):
        print(f"{title}: {len(names)}")
        for name in sorted(names):
            print(f"    {name}: {', '.join(sorted(shared[name]))}")
    for (word, folder), names in sorted(refused_names(sources, glossary_of((root / GLOSSARY).read_text(encoding="utf-8"))).items()):
        print(f"names with {word}{' in ' + folder if folder else ''}: {len(names)}: {' '.join(sorted(names))}")


def main(arguments):
    counted = "--count" in arguments
    rest = [argument for argument in arguments if argument != "--count"]
    if len(rest) > 1 or any(argument.startswith("-") for argument in rest):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(rest[0] if rest else pathlib.Path(__file__).parent.parent).resolve()
    sources, faults = faults_of(root, NAMESPACES, PARTS, CLASSES, WORDS)
    if not sources.spaces:
        print(f"check_names: no sources under {root}", file=sys.stderr)
        return 2
    if counted:
        count(sources, root)
        return 0
    for fault in faults:
        print(fault)
    print(f"check_names: {len(sources.spaces)} files, {len(sources.classes)} classes, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
