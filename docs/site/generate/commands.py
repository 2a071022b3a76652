"""The page of the heddle command: what the tool itself says by --help."""

from __future__ import annotations

import re
import subprocess

INTRODUCTION = """# The heddle command

What each command says by `--help`. The [guide](../guide.md#launching) shows how they are used.

"""
WITHOUT = """This site was built without the tool, so the text is not here: run `heddle COMMAND --help`. (`HEDDLE_TOOL=build/release/tools/heddle
scripts/build_site.sh` builds a site that has it.)

| command | what it does |
| --- | --- |
| `heddle run` | starts a program as the ranks of a job on this machine |
| `heddle oshrun` | the same for OpenSHMEM |
| `heddle info` | shows version, machine, transports, launchers and settings |
| `heddle bench` | measures Heddle, the machine's limit and the peers that are installed |
| `heddle report` | draws results of `heddle bench --json` as one HTML page, and compares runs |
"""


def help_of(tool: str, *arguments: str) -> str:
    done = subprocess.run([tool, *arguments, "--help"], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{tool} {' '.join(arguments)} --help ends with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def page(tool: str) -> str:
    if not tool:
        return INTRODUCTION + WITHOUT
    top = help_of(tool)
    made = [INTRODUCTION, "```text", top, "```", ""]
    for command in re.findall(r"^  (\w+) {2,}\S", top, flags=re.M):
        if command not in ("help", "version"):
            made += [f"## heddle {command}", "", "```text", help_of(tool, command), "```", ""]
    return "\n".join(made)
