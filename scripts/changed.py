#!/usr/bin/env python3
"""Tells which parts of the project a change touches, and so which checks it can break.

    changed.py                the parts, one a line: `core` if everything must be checked, else wings, `docs`, or nothing
    changed.py --base REF     against REF; the variable CHANGED_BASE says the same
    changed.py --labels       the labels of the tests that these parts can break, as ctest's -L takes them
    changed.py --own-labels   of these tests the parts' own

A change is what differs from its base, in commits or in the work tree, of the files that git knows. The base is the first of these that exists:

* REF.
* Where HEAD has left origin/main (or main, where there is no such remote branch).
* On the main branch itself: the commit that it pointed to 24 hours before HEAD was committed. So a landing of many commits is seen as a whole.

Where nothing is older than that or it is not known where HEAD has left the main branch, as in a shallow clone or one without such a branch,
and where the tree is no clone but lies within one, everything is checked: the answer is `core`.

What is in no wing is core. A wing stands on the core's public interface and what the core installs, which check_includes.py proves: so it cannot
break the core, and only these wings that use it (USERS).
"""

import argparse
import fnmatch
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOURS = 24  # of the main branch are one change

# The files of each wing, by patterns in which * takes in folders; the first that matches counts.
WINGS = (
    ("docs", ("docs/site/*", "docs/tutorial/*", "docs/figures.json", "*.md", "LICENSE")),
    ("mpi", ("interfaces/mpi/*", "examples/mpi/*")),
    ("openshmem", ("interfaces/openshmem/*",)),
    ("lcw", ("interfaces/lcw/*",)),
    ("python", ("interfaces/python/*", "examples/python/*", "pyproject.toml", "scripts/check_python.sh", "scripts/check_wheel.sh")),
    ("tofu", ("tofu/*",)),
    ("bench", ("bench/*",)),
    ("observe", ("observe/*",)),
    ("examples", ("examples/*",)),
)
# In the folder of a wing, and the tests of others use it.
SHARED = ("examples/expect.cmake",)
# The labels of the tests that use a wing, its own first.
USERS = {
    "docs": (),
    "mpi": ("mpi", "observe", "example"),
    "openshmem": ("openshmem", "observe", "bench"),
    "lcw": ("lcw",),
    "python": ("python",),
    "tofu": ("tofu",),
    "bench": ("bench", "tofu"),
    "observe": ("observe", "bench"),
    "examples": ("example", "observe"),
}


def git(*words):
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def commit(name):
    return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def base_of(given, hours=HOURS):
    """The commit from which the change is counted, and what it is. None: there is none."""
    if given:
        found = commit(given)
        if not found:
            sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {given} is no commit of this clone")
        return found, given
    if pathlib.Path(git("rev-parse", "--show-toplevel") or "/").resolve() != ROOT:
        return None, ""
    head, main = commit("HEAD"), next(filter(commit, ("origin/main", "main")), None)
    left = head and main and git("merge-base", head, main)
    if not left:
        return None, ""
    if left != head:
        return left, f"where HEAD has left {main}"
    until = int(git("show", "--no-patch", "--format=%ct", head)) - hours * 3600
    # First parents: what was merged since counts, however old it is.
    lines = git("log", "--first-parent", "--format=%ct %H", head).splitlines()
    for time, name in map(str.split, lines):
        if int(time) < until:
            return name, f"the main branch {hours} hours before"
    return None, ""


def part_of(path):
    if path in SHARED:
        return "core"
    for wing, patterns in WINGS:
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            return wing
    return "core"


def parts_since(base):
    """The parts of all files that differ; of one that was moved, where it was and where it is."""
    lines = git("diff", "--name-only", "--no-renames", base)
    if lines is None:
        sys.exit(f"changed: git cannot compare with {base}")
    return {part_of(line) for line in lines.splitlines()}


def labels_of(parts, own=False):
    return sorted({label for part in parts for label in (USERS[part][:1] if own else USERS[part])})


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("--base", default=os.environ.get("CHANGED_BASE"))
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--own-labels", action="store_true")
    options = parser.parse_args()
    base, what = base_of(options.base)
    if base is None:
        print("changed: everything is checked, for no commit to compare with was found", file=sys.stderr)
        parts = {"core"}
    else:
        parts = parts_since(base)
        print(f"changed: since {base[:10]}, {what}: {', '.join(sorted(parts)) or 'nothing'}", file=sys.stderr)
    if "core" in parts:
        parts = {"core"}
    if not options.labels and not options.own_labels:
        print("\n".join(sorted(parts)))
    elif parts != {"core"}:
        # frame: what reads all files and takes seconds.
        print("^(" + "|".join(["frame", *labels_of(parts, options.own_labels)]) + ")$")


if __name__ == "__main__":
    main()
