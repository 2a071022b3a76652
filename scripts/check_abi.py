#!/usr/bin/env python3
"""Compares the interface of the built libraries with that of the last release, as docs/abi.md says.

    check_abi.py BUILD             builds what is compared, and compares; exit 0: programs compiled with the release still run
    check_abi.py BUILD --release   records the interface as that of the project's version

packaging/abi/ has for each library, release and processor what abidw of libabigail (Debian: abigail-tools) makes of debugging information, and for
each release the constants of the headers.
"""

from __future__ import annotations

import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "packaging" / "abi"
# Library, CMake target that has its interface, folder of its headers within the source (first) or the build (second), and map of its symbols.
LIBRARIES = (
    ("libheddle", "heddle_abi", "include", "", "src/api/heddle.map"),
    ("libheddle_shmem", "heddle_shmem_abi", "", "interfaces/openshmem/made/include", "interfaces/openshmem/shmem.map"),
)
# Structures that carry their size grow at the end ("Structures with a size", heddle.h).
GROWING = re.compile(r"heddle_\w+_(options|stats)")
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


def cut_to(old: pathlib.Path, new: pathlib.Path, output: pathlib.Path) -> None:
    """Of the new interface what a program of the release knows: growing structures to their old size, enumerations without new values."""
    before, tree = structures(old), ElementTree.parse(new)
    known = {node.get("name"): {value.get("name") for value in node.iter("enumerator")}
             for node in ElementTree.parse(old).getroot().iter("enum-decl")}
    for node in tree.getroot().iter("class-decl"):
        name = node.get("name", "")
        if GROWING.fullmatch(name) and name in before and int(node.get("size-in-bits", "0")) > before[name][0]:
            size = before[name][0]
            for member in [one for one in node.findall("data-member") if int(one.get("layout-offset-in-bits", "0")) >= size]:
                node.remove(member)
            node.set("size-in-bits", str(size))
    for node in tree.getroot().iter("enum-decl"):
        for value in [one for one in node.findall("enumerator") if node.get("name") in known and one.get("name") not in known[node.get("name")]]:
            node.remove(value)
    tree.write(output, encoding="unicode")


def added_to_released(old: pathlib.Path, new: pathlib.Path, node: str) -> list[str]:
    """New functions that are not exported under `node`: the loader would start a program that needs one with a library that lacks it."""
    before, after = symbols(old), symbols(new)
    return [f"{name} is new, but exported as {version or 'no version'}: give it to a node {node} in the .map file"
            for name, version in sorted(after.items()) if name not in before and (version != node or version in before.values())]


def broken_chain(script: str) -> list[str]:
    """Nodes of a .map file that do not inherit the one before."""
    nodes = re.findall(r"^([\w.]+) *\{[^}]*\} *([\w.]*) *;", re.sub(r"/\*.*?\*/|#[^\n]*", "", script, flags=re.S), flags=re.S | re.M)
    return [f"node {name} of the .map file inherits {parent or 'nothing'} instead of {before}: end it with }} {before};"
            for (before, _), (name, parent) in zip(nodes, nodes[1:]) if parent != before]


def constants(headers: pathlib.Path) -> dict[str, str]:
    """What compiled programs have copied out of the headers: macros with values, and enumerators."""
    source = f'#include "{headers / "heddle" / "heddle.h"}"\n'
    done = subprocess.run(["cc", "-E", "-dM", f"-I{headers}", "-xc", "-"], input=source, check=True, capture_output=True, text=True)
    found = dict(re.findall(r"^#define (HEDDLE_\w+) (.+)$", done.stdout, flags=re.M))
    for header in sorted((headers / "heddle").glob("*.h")):
        code = re.sub(r"/\*.*?\*/|^\s*#[^\n]*", "", header.read_text(encoding="utf-8"), flags=re.S | re.M)
        for body in re.findall(r"\benum \w+ *\{([^}]*)\}", code):
            for value in filter(None, (word.strip() for word in body.split(","))):
                name, equals, number = (word.strip() for word in value.partition("="))
                if not equals:
                    raise SystemExit(f"check_abi: {header.name}: {name} has no value of its own; one that comes before it would change it")
                found[name] = number
    return {name: value for name, value in found.items() if not re.match(r"HEDDLE_(VERSION_|API$|\w+_H$)", name)}


def changed_constants(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [f"{name} was {value} and is {new.get(name, 'gone')}" for name, value in sorted(old.items()) if new.get(name) != value]


def compare(old: pathlib.Path, new: pathlib.Path, node: str) -> list[str]:
    """What programs that were compiled with the old interface would notice; empty: nothing. `node`: the symbol version of what is new."""
    cut = new.with_suffix(".cut")
    cut_to(old, new, cut)
    result = run("abidiff", "--harmless", "--no-added-syms", old, cut)
    if result.returncode & FAILED:
        raise SystemExit(f"check_abi: abidiff failed: {result.stdout}{result.stderr}")
    faults = [result.stdout.strip()] if result.returncode & INTERFACE_CHANGED else []
    return faults + grown_into_padding(old, new) + added_to_released(old, new, node)


def main(arguments: list[str]) -> int:
    release = "--release" in arguments
    folders = [word for word in arguments if word != "--release"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("abidiff"):
        print("check_abi: abidiff is not installed (Debian: abigail-tools)", file=sys.stderr)
        return 2
    build, machine, faults = pathlib.Path(folders[0]).resolve(), platform.machine(), []
    if subprocess.run(["cmake", "--build", build, "--target", *(library[1] for library in LIBRARIES)], stdout=subprocess.DEVNULL).returncode:
        print(f"check_abi: {build} has to be a tree with OpenSHMEM (HEDDLE_SHMEM=ON)", file=sys.stderr)
        return 1
    project = re.search(r"project\(heddle VERSION ((\d+\.\d+)[0-9.]*)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert project is not None
    for name, _, source, made, script in LIBRARIES:
        library = build / "abi" / f"{name}.so"
        output = RECORDS / f"{name}-{project[1]}.{machine}.abi" if release else build / "abi" / f"{name}.abi"
        record(library, ROOT / source if source else build / made, output)
        if release:
            print(f"check_abi: {output.relative_to(ROOT)} has the interface of {name} {project[1]}")
            continue
        old = last_release(RECORDS, name, machine)
        if old is None:
            print(f"skipped: no release of {name} is recorded for {machine}")
            continue
        node = f"{name.removeprefix('lib').upper()}_{project[2]}"
        found = compare(old, output, node) + broken_chain((ROOT / script).read_text(encoding="utf-8"))
        print(*found, f"check_abi: {name} against {old.name}: {len(found) or 'no'} fault{'s' if len(found) != 1 else ''}", sep="\n")
        faults += found
    return 1 if compare_constants(project[1], release) + len(faults) else 0


def compare_constants(version: str, release: bool) -> int:
    new = constants(ROOT / "include")
    if release:
        path = RECORDS / f"constants-{version}.json"
        path.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"check_abi: {path.relative_to(ROOT)} has the constants")
        return 0
    old = max(RECORDS.glob("constants-*.json"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.stem)])
    found = changed_constants(json.loads(old.read_text(encoding="utf-8")), new)
    print(*found, f"check_abi: constants against {old.name}: {len(found) or 'no'} fault{'s' if len(found) != 1 else ''}", sep="\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
