"""``python -m heddle.run -n 4 script.py …``: starts a script as a job of several ranks.

What stands before the script goes to ``heddle run``; the script is run by this interpreter. ``-m MODULE`` and
``-c CODE`` take its place as they do for Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# Options of `heddle run` whose values are arguments of their own.
_WITH_VALUE = (
    *("-n", "-np", "--np", "-t", "--bind", "--timeout", "--grace", "--env", "--utofu"),
    *("--trace", "--trace-calls", "--metrics"),
)


def launcher() -> str:
    """The ``heddle`` tool of this package, else the one in PATH."""
    own = Path(__file__).with_name("bin") / "heddle"
    if own.is_file():
        return str(own)
    found = shutil.which("heddle")
    if found is None:
        raise SystemExit("heddle.run: the tool heddle is neither in this package nor in PATH")
    return found


def command(arguments: list[str]) -> list[str]:
    """The arguments of ``heddle`` for those of this module."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "--"):
        options.append(rest.pop(0))
        if options[-1] in _WITH_VALUE and rest:
            options.append(rest.pop(0))
    if rest and rest[0] == "--":
        rest.pop(0)
    asks = any(option in ("-h", "--help") for option in options)
    if not rest and not asks:
        raise SystemExit("usage: python -m heddle.run -n RANKS [options of heddle run] script.py [arguments]")
    return ["run", *options, *(["--", sys.executable, *rest] if rest else [])]


def main() -> None:
    tool = launcher()
    os.execv(tool, [tool, *command(sys.argv[1:])])


if __name__ == "__main__":
    main()
