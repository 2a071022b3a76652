#!/usr/bin/env python3
"""Compares the interface of the built libraries with that of the last release, as docs/abi.md says.

    check_abi.py BUILD             builds what is compared, and compares; exit 0: programs compiled with the release still run
    check_abi.py BUILD --release   records the interface as that of the project's version

The interface is what abidw of libabigail (Debian: abigail-tools) makes of debugging information; packaging/abi/ has one file for each library,
release and processor.
"""

from __future__ import annotations

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "packaging" / "abi"
SUPPRESSIONS = RECORDS / "heddle.suppr"
# Library, CMake target that has its interface, and folder of its headers within the source (first) or the build (second).
LIBRARIES = (
    ("libheddle", "heddle_abi", "include", ""),
    ("libheddle_shmem", "heddle_shmem_abi", "", "interfaces/openshmem/made/include"),
)
INTERFACE_CHANGED = 4  # bits of abidiff's exit status
FAILED = 1 | 2


def run(*command: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def record(library: pathlib.Path, headers: pathlib.Path, output: pathlib.Path) -> None:
    """Writes the interface of a library to a file. Types that no public header has do not belong to it."""
    result = run("abidw", "--headers-dir", headers, "--drop-private-types", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path",
                 "--exported-interfaces-only", "--no-parameter-names", "--no-elf-needed", "--out-file", output, library)
    if result.returncode != 0:
        raise SystemExit(f"check_abi: abidw cannot read {library}: {result.stdout}{result.stderr}")


def version_of(path: pathlib.Path) -> tuple[int, ...]:
    found = re.search(r"-(\d+(?:\.\d+)*)\.[^.]+\.abi$", path.name)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def last_release(records: pathlib.Path, name: str, machine: str) -> pathlib.Path | None:
    return max(records.glob(f"{name}-*.{machine}.abi"), key=version_of, default=None)


def symbols(interface: pathlib.Path) -> dict[str, str]:
    """The functions, and the version under which each is exported ("" for none)."""
    root = ElementTree.parse(interface).getroot()
    return {symbol.get("name", ""): symbol.get("version", "") for symbol in root.iter("elf-symbol")}


def structures(interface: pathlib.Path) -> dict[str, tuple[int, dict[str, int]]]:
    """The size of each structure, and the offset of each of its members, in bits."""
    found = {}
    for node in ElementTree.parse(interface).getroot().iter("class-decl"):
        if node.get("name") and node.get("size-in-bits"):
            members = {}
            for member in node.iter("data-member"):
                declaration = member.find("var-decl")
                if declaration is not None:
                    members[declaration.get("name", "")] = int(member.get("layout-offset-in-bits", "0"))
            found[node.get("name", "")] = int(node.get("size-in-bits", "0")), members
    return found


def grown_into_padding(old: pathlib.Path, new: pathlib.Path) -> list[str]:
    """A new member within the old size: a program compiled before says that it has it, and its value is whatever lay there."""
    before, after, faults = structures(old), structures(new), []
    for name, (size, members) in before.items():
        for member, offset in after.get(name, (0, {}))[1].items():
            if member not in members and offset < size:
                faults.append(f"{name}.{member} lies where the release has padding: put it behind its {size // 8} bytes")
    return faults


def added_to_released(old: pathlib.Path, new: pathlib.Path) -> list[str]:
    """A new function under the version of a release: the loader would start a program that needs it with a library that lacks it."""
    before, after = symbols(old), symbols(new)
    released = set(before.values())
    return [f"{name} is new, but exported as {version or 'no version'}, which is released: give it a node of its own in the .map file"
            for name, version in sorted(after.items()) if name not in before and version in released]


def compare(old: pathlib.Path, new: pathlib.Path) -> list[str]:
    """What programs that were compiled with the old interface would notice; empty: nothing."""
    result = run("abidiff", "--suppressions", SUPPRESSIONS, "--no-added-syms", old, new)
    if result.returncode & FAILED:
        raise SystemExit(f"check_abi: abidiff failed: {result.stdout}{result.stderr}")
    faults = [result.stdout.strip()] if result.returncode & INTERFACE_CHANGED else []
    return faults + grown_into_padding(old, new) + added_to_released(old, new)


def main(arguments: list[str]) -> int:
    release = "--release" in arguments
    folders = [word for word in arguments if word != "--release"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("abidiff"):
        print("check_abi: abidiff is not installed (Debian: abigail-tools)", file=sys.stderr)
        return 2
    build, machine, faults = pathlib.Path(folders[0]).resolve(), platform.machine(), 0
    if subprocess.run(["cmake", "--build", build, "--target", *(target for _, target, _, _ in LIBRARIES)], stdout=subprocess.DEVNULL).returncode:
        return 1
    version = re.search(r"project\(heddle VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert version is not None
    for name, _, source, made in LIBRARIES:
        library = build / "abi" / f"{name}.so"
        output = RECORDS / f"{name}-{version[1]}.{machine}.abi" if release else build / "abi" / f"{name}.abi"
        record(library, ROOT / source if source else build / made, output)
        if release:
            print(f"check_abi: {output.relative_to(ROOT)} has the interface of {name} {version[1]}")
            continue
        old = last_release(RECORDS, name, machine)
        if old is None:
            print(f"skipped: no release of {name} is recorded for {machine}")
            continue
        found = compare(old, output)
        print(*found, f"check_abi: {name} against {old.name}: {len(found) or 'no'} fault{'s' if len(found) != 1 else ''}", sep="\n")
        faults += len(found)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
