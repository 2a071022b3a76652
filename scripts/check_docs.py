#!/usr/bin/env python3
"""Checks what the documents promise: the README's program is the example, word for word; every room has a README of at
most 60 lines; every relative link leads to a file; every HEDDLE_ variable that a document names exists, and so does every
source that a document names in backquotes, or a comment names.

    check_docs.py [ROOT]     exit 0: all is well; 1: each fault on a line
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
from cpp_text import comments  # noqa: E402

MOST_LINES = 60
INDEXES = {"docs/decisions": "[0-9]*.md", "docs/journal": "*.md"}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
# A source of the project, by the end of its path. x.cpp, NAME_test.cpp and UNIT.hpp stand for any.
SOURCE = r"(?:(?:\.\./)*(?:[\w-]+/)*[a-z][a-z0-9_-]+\.(?:cpp|hpp|py|sh|cmake))"
QUOTED = re.compile(f"`({SOURCE})`")
NAMED = re.compile(rf"(?<![\w./-])({SOURCE})(?![\w/])")
ANY = re.compile(r"(^|/)x(_test)?\.")
TOLD_OF_THE_PAST = ("docs/decisions/", "docs/journal/", "CHANGELOG.md")
VARIABLE = re.compile(r"\bHEDDLE_[A-Z0-9_]+\b")


def documents(root):
    return [
        path for path in sorted(root.rglob("*.md"))
        if not any(part.startswith((".", "build")) for part in path.relative_to(root).parts)
    ]


def rooms(root):
    """Folders that must explain themselves: the rooms, transports, and those beside src/."""
    folders = [root / name for name in ("include", "tools", "observe", "tofu", "bench", "examples", "interfaces", "docs/decisions", "docs/journal")]
    folders += [path.parent for path in root.glob("src/*/CMakeLists.txt")]
    folders += [path.parent for path in root.glob("src/transport/*/CMakeLists.txt")]
    folders += [path.parent for path in root.glob("interfaces/*/CMakeLists.txt")]
    folders += [path.parent for path in root.glob("tests/*/CMakeLists.txt")]
    return sorted(folder for folder in folders if folder.is_dir())


def check_example(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    example = (root / "examples" / "hello.cpp").read_text(encoding="utf-8")
    if f"```cpp\n{example}```" not in readme:
        return ["README.md: the program differs from examples/hello.cpp; they must be the same, word for word"]
    return []


def check_rooms(root):
    problems = []
    for folder in rooms(root):
        name = (folder / "README.md").relative_to(root)
        if not (folder / "README.md").is_file():
            problems.append(f"{name}: is missing; at most {MOST_LINES} lines on what the folder is for")
        elif (count := len((folder / "README.md").read_text(encoding="utf-8").splitlines())) > MOST_LINES:
            problems.append(f"{name}: {count} lines; at most {MOST_LINES}")
    return problems


def check_indexes(root):
    """The README of a folder of documents names each of them."""
    return [
        f"{folder}/README.md: {path.name} has no row"
        for folder, names in INDEXES.items()
        for path in sorted((root / folder).glob(names))
        if path.name != "README.md" and f"({path.name})" not in (root / folder / "README.md").read_text(encoding="utf-8")
    ]


def check_links(root):
    return [
        f"{path.relative_to(root)}:{number}: {target} leads nowhere"
        for path in documents(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for target in LINK.findall(line)
        if "://" not in target and not (path.parent / target).exists()
    ]


def check_names(root):
    """Names of variables, functions' macros and statuses are those of the sources."""
    known = set()
    for pattern in ("include/**/*.h*", "src/**/*.[ch]pp", "bench/**/*.[ch]pp", "cmake/*", "CMakeLists.txt", "CMakePresets.json",
                    "src/**/*.map", "src/**/CMakeLists.txt", "bench/CMakeLists.txt", "interfaces/**/CMakeLists.txt", "interfaces/**/*.cmake", "interfaces/**/*.cpp", "scripts/*.sh", "tests/**/*.txt"):
        for path in root.glob(pattern):
            known |= set(VARIABLE.findall(path.read_text(encoding="utf-8")))
    return [
        f"{path.relative_to(root)}: {name} is no variable, constant or option of the sources"
        for path in documents(root)
        for name in sorted(set(VARIABLE.findall(path.read_text(encoding="utf-8"))) - known)
        if not name.endswith("_") and not any(other.startswith(name + "_") for other in known)
    ]


def path_ends(root):
    """Every way to name a file of the project: its path, and the ends of that."""
    ends = set()
    for path in root.rglob("*.*"):
        parts = path.relative_to(root).parts
        if not any(part.startswith((".", "build")) for part in parts[:-1]):
            ends |= {"/".join(parts[at:]) for at in range(len(parts))}
    return ends


def check_files(root):
    """Sources that are named are there: in documents, and in comments."""
    ends = path_ends(root)
    named = [(path, path.read_text(encoding="utf-8"), QUOTED) for path in documents(root)
             if not str(path.relative_to(root)).startswith(TOLD_OF_THE_PAST)]
    for path in sorted(path for kind in ("cpp", "hpp", "c", "h") for path in root.rglob(f"*.{kind}")):
        if not any(part.startswith((".", "build")) for part in path.relative_to(root).parts[:-1]):
            text = path.read_text(encoding="utf-8")
            named += [(path, text[begin:end], NAMED) for begin, end, _ in comments(text)]
    return [
        f"{path.relative_to(root)}: there is no {name}"
        for path, text, names in named
        for name in sorted(set(names.findall(text)))
        if not ANY.search(name) and name.removeprefix("../") not in ends and not (path.parent / name).exists()
    ]


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    problems = check_example(root) + check_rooms(root) + check_indexes(root) + check_links(root) + check_names(root) + check_files(root)
    for problem in problems:
        print(problem)
    print(f"check_docs: {len(documents(root))} documents, {len(problems)} faults")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
