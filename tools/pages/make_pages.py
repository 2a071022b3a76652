#!/usr/bin/env python3
"""Makes manual pages and completions from what the commands themselves say: their --help, the settings, the head of heddle.h.

    make_pages.py --tool HEDDLE --header heddle.h --output FOLDER [--date YYYY-MM-DD] [--wrapper NAME=SCRIPT…] [--alias NAME=PAGE…]

FOLDER/man/man1, FOLDER/man/man7, FOLDER/bash/heddle, FOLDER/zsh/_heddle, FOLDER/fish/heddle.fish. A wrapper is a shell script with a --help
in the same form, such as oshcc; NAME is the name of its page. An alias is another name of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess

import completion
import man
from help_text import Help, Option, options, parse

SUMMARY = "communication for programs in which every thread communicates"


def output_of(*command: str | pathlib.Path) -> str:
    """What a program prints, in an environment without settings, which would be told as such."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, env=environment).stdout


class Tool:
    """The built heddle command, and what it says of itself."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.help = parse(output_of(path, "help"))
        self.version = output_of(path, "version").split()[1]
        self.summaries = {item.term: item.text for item in self.help.section("Commands")}
        self.settings = json.loads(output_of(path, "info", "--json", "settings"))["settings"]
        self.transports = [entry["name"] for entry in json.loads(output_of(path, "info", "--json", "transports"))["transports"]]
        self.algorithms = [line.split()[0] for line in output_of(path, "info", "--schedule", "list").splitlines()]

    def help_of(self, *words: str) -> Help:
        return parse(output_of(self.path, *words, "--help"))

    def commands(self) -> list[str]:
        """Those that have a help of their own. A tool without benchmarks says that it has none."""
        own = [name for name in self.summaries if name not in ("help", "version")]
        return [name for name in own if subprocess.run([self.path, name, "--help"], capture_output=True).returncode == 0]


def completed(tool: Tool) -> list[completion.Command]:
    commands = []
    having_help = tool.commands()
    for name, summary in tool.summaries.items():
        if name not in (*having_help, "help", "version"):
            continue
        command = completion.Command(name, summary, [])
        if name in having_help:
            help_text = tool.help_of(name)
            titles = [section.title for section in help_text.sections if section.title.startswith("Options")]
            command.options = merged(options(help_text.section(*titles)))
        if name in ("run", "oshrun"):
            command.files = "program"
        elif name == "info":
            command.words = {item.term.split()[0]: item.text for item in help_text.section("Sections")}
            command.after = {"settings": [setting["name"] for setting in tool.settings], "transports": tool.transports, "--schedule": ["list", *tool.algorithms]}
            command.options = merged(command.options + options(tool.help_of("info", "--schedule").section("Options")))
        elif name == "bench":
            titles = [section.title for section in help_text.sections if section.title.startswith(("Benchmarks", "Collective"))]
            command.words = {word: item.text for item in help_text.section(*titles) for word in item.term.split(", ")}
            command.after = {"--algorithm": tool.algorithms}
        elif name == "report":
            command.files = "*.json"
        elif name == "help":
            command.words = {other: text for other, text in tool.summaries.items()}
        commands.append(command)
    return commands


def merged(found: list[Option]) -> list[Option]:
    """Each option once: some parts of a command have options of the same name."""
    seen: set[str] = set()
    result = []
    for option in found:
        if not seen.intersection(option.names):
            result.append(option)
        seen.update(option.names)
    return result


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def summary_of(help_text: Help) -> str:
    """The first sentence of a description, as the line under NAME has it."""
    first = str(help_text.sections[0].blocks[0]).split(":")[0].split(". ")[0].rstrip(".")
    return first[0].lower() + first[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, required=True)
    parser.add_argument("--header", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--date", default="")
    parser.add_argument("--wrapper", action="append", default=[], metavar="NAME=SCRIPT")
    parser.add_argument("--alias", action="append", default=[], metavar="NAME=PAGE")
    arguments = parser.parse_args()
    tool = Tool(arguments.tool)
    wrappers = {name: parse(output_of("sh", script, "--help")) for name, _, script in (word.partition("=") for word in arguments.wrapper)}

    command_pages = {f"heddle-{name}": (name, man.Page(f"heddle-{name}", 1, tool.summaries[name])) for name in tool.commands()}
    wrapper_pages = {name: man.Page(name, 1, summary_of(help_text)) for name, help_text in wrappers.items()}
    overview, library = man.Page("heddle", 1, "start jobs, tell about an installation, measure"), man.Page("heddle", 7, SUMMARY)
    edition = man.Edition(tool.version, arguments.date, [overview, library, *(page for _, page in command_pages.values()), *wrapper_pages.values()])

    section_1 = arguments.output / "man" / "man1"
    write(section_1 / "heddle.1", man.command_page(overview, tool.help, [], edition))
    for file, (name, page) in command_pages.items():
        more = [tool.help_of("info", "--schedule")] if name == "info" else []
        write(section_1 / f"{file}.1", man.command_page(page, tool.help_of(name), more, edition))
    for name, page in wrapper_pages.items():
        write(section_1 / f"{name}.1", man.command_page(page, wrappers[name], [], edition))
    for alias, _, name in (word.partition("=") for word in arguments.alias):
        write(section_1 / f"{alias}.1", f".so man1/{name}.1\n")
    header = arguments.header.read_text(encoding="utf-8")
    write(arguments.output / "man" / "man7" / "heddle.7", man.library_page(library, header, tool.settings, edition))

    commands = completed(tool)
    write(arguments.output / "bash" / "heddle", completion.bash(commands))
    write(arguments.output / "zsh" / "_heddle", completion.zsh(commands))
    write(arguments.output / "fish" / "heddle.fish", completion.fish(commands))


if __name__ == "__main__":
    main()
