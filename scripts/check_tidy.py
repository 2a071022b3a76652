#!/usr/bin/env python3
"""clang-tidy over the libraries and the tool, with the compile commands of a build tree. Exit 1: findings, each printed.

    check_tidy.py BUILD_TREE               what the change touches
    check_tidy.py BUILD_TREE --base REF    what differs from REF; the variable TIDY_BASE says the same
    check_tidy.py BUILD_TREE --all         everything: about a quarter of an hour of processor time
    check_tidy.py BUILD_TREE REGEX         the sources whose path matches

A change is what differs from its base, in commits or in the work tree, of the files that git knows. The base is the first of these that exists:

* REF.
* Where HEAD has left origin/main (or main, where there is no such remote branch).
* On the main branch itself: the commit that it pointed to twelve hours before HEAD was committed. So a landing of many commits is seen as a whole.

Where there is none, as in a shallow clone or one without a main branch, and where .clang-tidy itself differs, everything is looked at. A
header that differs is seen through two of the sources that include it, directly or not, first the one with its name: clang-tidy reports what
it finds in headers, too. What a header changes in its other users only --all finds, as it does what the analyzer, which follows the ways
through functions, would see in a source whose own code is as it was, or behind more states of a function than are followed for a change.

Most checks look at one declaration after another, and spend nearly all their time on those of the standard library, which each file
includes anew. These see the files of a target together, as if each were included into one. Files that define a name which one before them
has, too, go into a group of their own. A group in which they find anything is halved until its files stand alone, and what is
said of a file alone is what counts. The others, which look at the file itself or at ways through all of its functions, see each file alone.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
from changed import base_of, git  # noqa: E402
from cpp_text import comments  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-19")
HOURS = 12  # of the main branch are one change
INCLUDERS = 2  # sources through which a header is seen
# The analyzer follows so many states of a function, not 225,000: for everything a quarter of the time, for a change a sixth.
STATES, STATES_OF_A_CHANGE = 30_000, 10_000
TOGETHER = 12  # files in a group: few enough that the last group does not keep the other processors waiting
# What is about the file that is compiled, not about what it includes, or is about all that a file declares.
ABOUT_THE_FILE = {
    "bugprone-forward-declaration-namespace",
    "bugprone-suspicious-include",
    "misc-definitions-in-headers",
    "misc-unused-alias-decls",
    "misc-unused-using-decls",
}


def sources(only):
    patterns = ["src/*.cpp", "tools/*.cpp", "interfaces/*.cpp", "observe/*.cpp"]
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    no_tests = re.compile(r"_test\.cpp$|/conformance[^/]*$|^(interfaces/[^/]*|observe)/tests/")
    return [ROOT / name for name in listed.stdout.split("\0") if name and not no_tests.search(name) and re.search(only, name)]


def without_precompiled(words):
    """Each word of these comes with an -Xclang before it: -include-pch FILE -include FILE."""
    kept = []
    rest = iter(words)
    for word in rest:
        if word != "-Xclang":
            kept.append(word)
            continue
        option = next(rest)
        if option in ("-include-pch", "-include"):
            next(rest), next(rest)
        elif option != "-emit-pch":
            kept += [word, option]
    return kept


def command_of(entry):
    """The command without what it makes of which file, and without what was parsed before: here every file stands alone."""
    words = without_precompiled(shlex.split(entry["command"]))
    at = words.index("-o")
    words = [word for word in words[:at] + words[at + 2:] if word not in ("-c", entry["file"])]
    compiler = next(i for i, word in enumerate(words) if "clang" in os.path.basename(word) or "++" in os.path.basename(word))
    return entry["directory"], tuple(words[compiler:])


def checks():
    """The names of .clang-tidy's checks: what sees each file alone, and what may see several together."""
    listed = subprocess.run([TIDY, f"--config-file={ROOT}/.clang-tidy", "--list-checks"], capture_output=True, text=True, check=True)
    names = [line.strip() for line in listed.stdout.splitlines() if line.startswith(" ")]
    alone = [name for name in names if name.startswith("clang-analyzer-") or name in ABOUT_THE_FILE]
    return alone, [name for name in names if name not in alone]


@functools.cache
def included(file, folders):
    """The project's files, generated ones too, that one may mean in its includes."""
    names = re.findall(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', file.read_text(encoding="utf-8"), re.M)
    places = ((folder / name).resolve() for name in names for folder in (file.parent, *folders))
    return {place for place in places if place.is_file() and place.is_relative_to(ROOT)}


def without_comments(text):
    """The words of a source: the same after its comments were written anew. Those with NOLINT tell what is let pass, and of which lines."""
    kept = False
    for begin, end, _ in reversed(comments(text)):
        if "NOLINT" in text[begin:end]:
            kept = True
        else:
            text = text[:begin] + " " + text[end:]
    return [words for line in text.splitlines() if (words := line.split())] if kept else text.split()


def same_code(base, before, path):
    """Whether a source has the same code as the one that the commit has at another path, or the same."""
    if pathlib.Path(path).suffix not in (".c", ".cpp", ".h", ".hpp", ".inc"):
        return False
    old, new = git("show", f"{base}:{before}"), (ROOT / path).read_text(encoding="utf-8")
    return old is not None and without_comments(old) == without_comments(new)


def changed_since(base):
    """The paths, relative to the root, whose code differs from the commit in the work tree."""
    lines = git("-c", "core.quotePath=false", "diff", "--name-status", "--find-renames", "--diff-filter=d", base)
    if lines is None:
        sys.exit(f"check_tidy: git cannot compare with {base}")
    entries = [line.split("\t") for line in lines.splitlines()]
    return {entry[-1] for entry in entries if entry[0] == "A" or not same_code(base, entry[1], entry[-1])}


def made_of(file, folders):
    """The project's files that a source consists of."""
    parts, open_ones = set(), [pathlib.Path(file).resolve()]
    while open_ones:
        one = open_ones.pop()
        if one not in parts:
            parts.add(one)
            open_ones += included(one, folders)
    return parts


def touched_by(changed, commands):
    """The sources of those that have a command which differ, and those through which the headers that differ are seen: two lists."""
    paths = {(ROOT / name).resolve() for name in changed}
    headers = {path for path in paths if path.suffix in (".h", ".hpp", ".inc")}
    chosen = {file for file in commands if pathlib.Path(file).resolve() in paths}
    if not headers:
        return sorted(chosen), []
    besides = set()
    users = {header: [] for header in headers}
    for file, (_, words) in commands.items():
        folders = tuple(pathlib.Path(word[2:]) for word in words if word.startswith("-I"))
        for header in headers & made_of(file, folders):
            users[header].append(file)
    for header in sorted(headers):
        near = sorted(users[header], key=lambda file: (pathlib.Path(file).stem != header.stem, file not in chosen and file not in besides, file))
        besides.update(near[:INCLUDERS])
    return sorted(chosen), sorted(besides - chosen)


class Checker:
    def __init__(self, tree, states):
        self.tree = tree
        words = ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={states}")
        self.analyzer = [f"--extra-arg={word}" for word in words]
        self.folder = tree / "tidy"
        self.folder.mkdir(exist_ok=True)
        self.alone, self.together = checks()

    def tidy(self, file, database, names):
        # Findings in the sources of a group are findings in what is included.
        command = [TIDY, f"--config-file={ROOT}/.clang-tidy", "-p", database, "--quiet", *self.analyzer, f"--checks=-*,{','.join(names)}",
                   r"--header-filter=/(src|tools|bench|interfaces|observe|include/heddle)/.*\.[hc]pp$", file]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)

    def file_alone(self, file, names):
        result = self.tidy(file, self.tree, names)
        if result.returncode == 0:
            return ""
        return result.stdout or f"{file}: {TIDY} ended with {result.returncode}\n"

    @staticmethod
    def at_odds(command, file):
        """The files of those that this one includes which do not compile beside those before them."""
        directory, words = command
        compiled = subprocess.run([*words, "-w", "-fsyntax-only", "-ferror-limit=0", file], cwd=directory, stderr=subprocess.PIPE,
                                  text=True, check=False)
        return set(re.findall(r"^([^:\n]+):\d+:\d+: (?:fatal )?error:", compiled.stderr, re.M))

    def group(self, number, command, files):
        """What is found, or nothing."""
        if len(files) == 1:
            return self.file_alone(files[0], self.together)
        folder = self.folder / number
        folder.mkdir(exist_ok=True)
        file = folder / "group.cpp"
        file.write_text("".join(f'#include "{source}"\n' for source in files), encoding="utf-8")
        odd = self.at_odds(command, file)
        apart = [source for source in files if source in odd]
        if apart and len(apart) < len(files):
            rest = [source for source in files if source not in odd]
            return self.group(f"{number}a", command, rest) + self.group(f"{number}b", command, apart)
        directory, words = command
        # The compiler's own warnings are the build's to tell, and not all mean something where files meet that never do.
        entry = {"directory": directory, "file": str(file), "arguments": [*words, "-w", "-c", str(file)]}
        (folder / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
        if self.tidy(file, folder, self.together).returncode == 0:
            return ""
        half = len(files) // 2
        return self.group(f"{number}a", command, files[:half]) + self.group(f"{number}b", command, files[half:])


def parse(words):
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("only", nargs="?")
    parser.add_argument("--base", default=os.environ.get("TIDY_BASE"))
    parser.add_argument("--all", action="store_true")
    return parser.parse_args(words)


def selected(options, commands):
    """The files to look at, those of which only the headers that they include count, and how they were chosen."""
    named = {str(file) for file in sources(options.only or ".") if str(file) in commands}
    if not named:
        sys.exit("check_tidy: nothing to check")
    if options.all or options.only:
        return sorted(named), [], "all that match" if options.only else "everything"
    base, what = base_of(options.base, HOURS)
    if not base:
        return sorted(named), [], "everything, for no commit to compare with was found"
    changed = changed_since(base)
    if ".clang-tidy" in changed:
        return sorted(named), [], "everything, for .clang-tidy differs"
    return *touched_by(changed, {file: commands[file] for file in named}), f"what differs from {base[:10]}, {what}"


def main():
    options = parse(sys.argv[1:])
    tree = options.tree.resolve()
    database = tree / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"check_tidy: {tree} has no compile_commands.json; configure it first")
    # Only what the tree compiles: a file outside every target has no command, and clang-tidy would guess one.
    commands = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        if entry["file"].endswith(".cpp"):
            commands.setdefault(entry["file"], command_of(entry))
    files, besides, how = selected(options, commands)
    print(f"check_tidy: {len(files)} files: {how}; {len(besides)} more for headers", flush=True)
    alike = {}
    for file in sorted([*files, *besides]):
        alike.setdefault(commands[file], []).append(file)
    checker = Checker(tree, STATES if options.all else STATES_OF_A_CHANGE)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        work = []
        for command, members in alike.items():
            for first in range(0, len(members), TOGETHER):
                work.append(pool.submit(checker.group, str(len(work)), command, members[first:first + TOGETHER]))
        work += [pool.submit(checker.file_alone, file, checker.alone) for file in files]
        found = "".join(each.result() for each in work)
    print(found, end="")
    print(f"check_tidy: {len(files)} files, {'findings' if found else 'nothing found'}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
