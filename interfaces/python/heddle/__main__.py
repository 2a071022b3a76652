"""``python -m heddle``: the ``heddle`` command of this package (info, run, bench, …)."""

from __future__ import annotations

import os
import sys

from .run import launcher


def main() -> None:
    tool = launcher()
    os.execv(tool, [tool, *sys.argv[1:]])


if __name__ == "__main__":
    main()
