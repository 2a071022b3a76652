#!/usr/bin/env python3
"""clang-tidy over the libraries and the tool, with the compile commands of a build tree. Exit 1: findings, each printed.

    check_tidy.py BUILD_TREE [REGEX of paths]
    check_tidy.py BUILD_TREE --record    writes down what is clean: all but the files that have findings
    check_tidy.py BUILD_TREE --all       the same, but looks also at what was found clean before

It takes a quarter of an hour of processor time. A file that was found clean stays so while nothing that it is made of changes: itself, the
project's headers that it includes, directly or not, its command, the checks. tidy_clean.txt has a hash of these for each such file, and
what is in there is not looked at again.

Most checks look at one declaration after another, and spend nearly all their time on those of the standard library, which each file
includes anew. These see the files of a target together, as if each were included into one. Files that define a name which one before them
has, too, go into a group of their own. A group in which they find anything is halved until its files stand alone, and what is
said of a file alone is what counts. The others, which look at the file itself or at ways through all of its functions, see each file alone.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = os.environ.get("CLANG_TIDY", "clang-tidy-19")
CLEAN = ROOT / "scripts/tidy_clean.txt"
# The analyzer follows so many states of a function, not 225,000: a quarter of the time.
ANALYZER = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=30000")]
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
    patterns = ["src/*.cpp", "tools/*.cpp", "interfaces/*.cpp"]
    listed = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    no_tests = re.compile(r"_test\.cpp$|/conformance[^/]*$|^interfaces/[^/]*/tests/")
    return [ROOT / name for name in listed.stdout.split() if not no_tests.search(name) and re.search(only, name)]


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


def hash_of(file, command, version):
    folders = tuple(pathlib.Path(word[2:]) for word in command[1] if word.startswith("-I"))
    parts, open_ones = set(), [pathlib.Path(file).resolve()]
    while open_ones:
        one = open_ones.pop()
        if one not in parts:
            parts.add(one)
            open_ones += included(one, folders)
    made_of = hashlib.sha256((version + " ".join(command[1]).replace(str(ROOT), ".")).encode())
    for part in (ROOT / ".clang-tidy", pathlib.Path(__file__).resolve(), *sorted(parts)):
        made_of.update(os.path.relpath(part, ROOT).encode() + b"\0" + part.read_bytes())
    return made_of.hexdigest()[:20]


def hashes_of(files, commands):
    version = re.search(r"version \S+", subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout)[0]
    return {file: f"{hash_of(file, commands[file], version)} {pathlib.Path(file).relative_to(ROOT).as_posix()}" for file in files}


class Checker:
    def __init__(self, tree):
        self.tree = tree
        self.folder = tree / "tidy"
        self.folder.mkdir(exist_ok=True)
        self.alone, self.together = checks()

    def tidy(self, file, database, names):
        # Findings in the sources of a group are findings in what is included.
        command = [TIDY, f"--config-file={ROOT}/.clang-tidy", "-p", database, "--quiet", *ANALYZER, f"--checks=-*,{','.join(names)}",
                   r"--header-filter=/(src|tools|bench|interfaces|include/heddle)/.*\.[hc]pp$", file]
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


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    tree = pathlib.Path(sys.argv[1]).resolve()
    database = tree / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"check_tidy: {tree} has no compile_commands.json; configure it first")
    # Only what the tree compiles: a file outside every target has no command, and clang-tidy would guess one.
    commands = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        if entry["file"].endswith(".cpp"):
            commands.setdefault(entry["file"], command_of(entry))
    everything = sys.argv[2:] == ["--all"]
    record = everything or sys.argv[2:] == ["--record"]
    named = [str(file) for file in sources("." if record or len(sys.argv) == 2 else sys.argv[2]) if str(file) in commands]
    if not named:
        sys.exit("check_tidy: nothing to check")
    hashes = hashes_of(named, commands)
    clean = set(CLEAN.read_text(encoding="utf-8").splitlines()) if CLEAN.exists() and not everything else set()
    files = [file for file in named if hashes[file] not in clean]
    alike = {}
    for file in files:
        alike.setdefault(commands[file], []).append(file)
    checker = Checker(tree)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        work = []
        for command, members in alike.items():
            for first in range(0, len(members), TOGETHER):
                work.append(pool.submit(checker.group, str(len(work)), command, members[first:first + TOGETHER]))
        work += [pool.submit(checker.file_alone, file, checker.alone) for file in files]
        found = "".join(each.result() for each in work)
    print(found, end="")
    print(f"check_tidy: {len(files)} files; {len(named) - len(files)} are as they were when they were found clean")
    # What is said of a header is said of all that include it: then nothing is written down.
    bad = set(re.findall(r"^(/\S+?):\d+:\d+: (?:warning|error)", found, re.MULTILINE))
    if record and bad <= set(named) and bool(bad) == bool(found):
        lines = sorted((hashes[file] for file in named if file not in bad), key=lambda line: line.split()[1])
        CLEAN.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
