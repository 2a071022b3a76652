#!/usr/bin/env python3
"""Prints, one a line, the targets that ninja must build so that a selection of a tree's tests can run.

    test_targets.py TREE [CTEST-ARGUMENTS…]     such as: test_targets.py build/tsan -L unit -LE slow

A test's targets are what ninja knows of what its command names: files of the tree; for a folder all that is made there; for the tree itself,
which is then installed, all that can be. What it needs besides says the test's property REQUIRED_FILES. What these need in turn, ninja knows.
Exit 3: nothing is selected. Exit 1: ctest or ninja do not answer.
"""

import json
import pathlib
import re
import subprocess
import sys

# add_test(NAME "PROGRAM" "ARGUMENT" …), the name in brackets if it is not a plain word.
ADD_TEST = re.compile(r"^add_test\((?:\[=*\[)?(.+?)(?:\]=*\])? (\".*\")\)$", re.M)

INSTALLED = "heddle_installables"  # the target of all that `cmake --install` copies


def output(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"test_targets: {' '.join(map(str, command))}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def known_targets(tree):
    """What ninja can build, by path relative to the tree; each line of its answer is `target: rule`."""
    return {line.rpartition(": ")[0] for line in output("ninja", "-C", tree, "-t", "targets", "all").splitlines()}


def commands_of(tree):
    """What the tests run, by name, as CMake has written it down; ctest itself does not tell it of programs that are not built."""
    commands = {}
    for file in tree.rglob("CTestTestfile.cmake"):
        for name, command in ADD_TEST.findall(file.read_text(encoding="utf-8")):
            # A folder that has moved leaves its file behind, whose targets ninja does not know any more.
            commands.setdefault(name, []).extend(re.findall(r'"((?:[^"\\]|\\.)*)"', command))
    return commands


def targets_at(place, known):
    """The targets for a path relative to the tree: a file's own, or those of a folder, which may be one that CMake does not know."""
    if place in known:
        return {place}
    if place == "":
        return known & {INSTALLED}
    if f"{place}/all" in known:
        return {f"{place}/all"}
    return {target for target in known if target.startswith(f"{place}/")}


def targets_of(words, tree, known):
    """The targets that words name, each as a whole or within one (-DCOMMAND=PROGRAM;ARGUMENTS, PROGRAM,LIBRARY)."""
    parts = {part for word in words for part in re.split("[=;,]", word)}
    places = {part[len(str(tree)) + 1:] for part in parts if f"{part}/".startswith(f"{tree}/")}
    return {target for place in places for target in targets_at(place, known)}


def required(test):
    """The files of its property REQUIRED_FILES."""
    for entry in test.get("properties", []):
        if entry["name"] == "REQUIRED_FILES":
            return entry["value"] if isinstance(entry["value"], list) else [entry["value"]]
    return []


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tree = pathlib.Path(sys.argv[1]).resolve()
    tests = json.loads(output("ctest", "--test-dir", tree, "--show-only=json-v1", *sys.argv[2:]))["tests"]
    commands, known = commands_of(tree), known_targets(tree)
    found = set()
    for test in tests:
        name = test["name"]
        if name not in commands:
            sys.exit(f"test_targets: {tree} has no command of the test {name}; configure it anew")
        found |= targets_of([*commands[name], *required(test)], tree, known)
    if not found:
        print(f"test_targets: no test of {tree} is selected that has something to build", file=sys.stderr)
        sys.exit(3)
    print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
