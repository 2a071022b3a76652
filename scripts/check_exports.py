#!/usr/bin/env python3
"""Checks that the library exports exactly the functions that the public C header declares, and the headers that it includes.

    check_exports.py HEADER LIBRARY [NM]     exit 0: the same set; 1: what differs; 2: bad usage
"""

import pathlib
import re
import subprocess
import sys


# What debuggers look for by name: no part of the interface (docs/debugging.md).
FOR_DEBUGGERS = {"heddle_debug_directory"}


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def headers(header, seen=None):
    """The header and those beside it that it includes ("folder/name")."""
    seen = [] if seen is None else seen
    if header in seen or not header.is_file():
        return seen
    seen.append(header)
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', header.read_text(encoding="utf-8"), flags=re.M):
        headers(header.parent.parent / name, seen)
    return seen


def declared(header):
    """Names of the functions marked HEDDLE_API: the identifier before the first parenthesis of each declaration."""
    text = "\n".join(strip_comments(path.read_text(encoding="utf-8")) for path in headers(pathlib.Path(header)))
    text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M)
    return set(re.findall(r"\bHEDDLE_API\b[^;(]*?\b(\w+)\s*\(", text))


def exported(library, nm):
    """Every defined dynamic symbol, whatever its kind. Symbols that only name a version of the script are none."""
    output = subprocess.run(
        [nm, "--dynamic", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True
    ).stdout
    symbols = (line.split() for line in output.splitlines() if line.strip())
    return {fields[0].split("@")[0] for fields in symbols if fields[1] != "A"} - FOR_DEBUGGERS


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    header, library = arguments[:2]
    wanted = declared(header)
    found = exported(library, arguments[2] if len(arguments) == 3 else "nm")
    if not wanted:
        print(f"check_exports: {header} declares no HEDDLE_API function")
        return 1
    for name in sorted(wanted - found):
        print(f"{header}: {name} is declared but {library} does not export it")
    for name in sorted(found - wanted):
        print(f"{library}: exports {name}, which {header} does not declare; see src/api/heddle.map")
    print(f"check_exports: {len(wanted)} declared, {len(found)} exported")
    return 0 if wanted == found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
