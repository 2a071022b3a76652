#!/usr/bin/env python3
"""Tests of the manual pages and completions that the build has made, and of what makes them.

    pages_test.py --tool HEDDLE --source FOLDER --made FOLDER [TEST…]
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import help_text  # noqa: E402
import man  # noqa: E402

ARGUMENTS = argparse.Namespace()
# What a parser knows and users do not need: arguments between the processes of one measurement.
INTERNAL = {"--pair", "--channel", "--cores", "--processes", "--"}
# Where the options of a page are parsed.
PARSERS = {
    "heddle-run": ["tools/run/options.cpp"],
    "heddle-oshrun": ["tools/run/options.cpp"],
    "heddle-info": ["tools/info.cpp", "tools/info_schedule.cpp"],
    "heddle-bench": ["bench/harness/options.cpp"],
    "heddle-report": ["bench/report/report.cpp"],
    "oshcc": ["interfaces/openshmem/wrappers/oshcc.in"],
}


def pages() -> list[pathlib.Path]:
    return sorted(path for path in (ARGUMENTS.made / "man").rglob("*.[17]") if not path.read_text().startswith(".so "))


def rendered(path: pathlib.Path) -> str:
    text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=300", path], check=True, capture_output=True, text=True).stdout
    return re.sub(r".\x08", "", text)


def words(text: str) -> set[str]:
    return set(re.sub(r"[`*]", "", text).split())


class Reader(unittest.TestCase):
    TEXT = "usage: x [-n N]\n       x demo\n\nDoes.\nMuch.\n\nOptions:\n\n  -n, --np N  how many:\n              more\n  --long-term A|B\n              below\n  a, b,\n  c           names\n"

    def test_sections(self) -> None:
        read = help_text.parse(self.TEXT)
        self.assertEqual(read.usage, ["x [-n N]", "x demo"])
        self.assertEqual([section.title for section in read.sections], ["", "Options"])
        self.assertEqual(read.sections[0].blocks, ["Does. Much."])
        self.assertEqual(
            [(item.term, item.text) for item in read.section("Options")],
            [("-n, --np N", "how many: more"), ("--long-term A|B", "below"), ("a, b, c", "names")],
        )

    def test_options(self) -> None:
        found = help_text.options(help_text.parse(self.TEXT).section("Options"))
        self.assertEqual([(option.names, option.value) for option in found], [(["-n", "--np"], "N"), (["--long-term"], "A|B")])
        kinds = help_text.Option(["--bind"], "core|none", "")
        self.assertEqual(kinds.choices(), ["core", "none"])
        self.assertEqual(help_text.Option(["--size"], "8,4K", "").choices(), [])
        self.assertEqual(help_text.Option(["--op"], "put,get,\u2026", "").choices(), [])

    def test_other_forms_are_refused(self) -> None:
        for text in ("Usage: x\n\nDoes.\n", "usage: x\n\nOptions:\n\n      too far in\n"):
            with self.assertRaises(ValueError):
                help_text.parse(text)

    def test_what_troff_would_take_for_commands(self) -> None:
        self.assertEqual(man.escape(".x 'y' \\z a-b …"), "\\&.x \\(aqy\\(aq \\ez a\\-b \\[u2026]")


class Pages(unittest.TestCase):
    def test_there_is_one_for_each_command(self) -> None:
        names = {path.name for path in pages()}
        help_of_tool = help_text.parse(subprocess.run([ARGUMENTS.tool, "help"], check=True, capture_output=True, text=True).stdout)
        commands = {item.term for item in help_of_tool.section("Commands")} - {"help", "version"}
        # A tool without benchmarks says so.
        commands = {name for name in commands if subprocess.run([ARGUMENTS.tool, name, "--help"], capture_output=True).returncode == 0}
        self.assertEqual({"heddle.1", "heddle.7", *(f"heddle-{command}.1" for command in commands)} - names, set())
        self.assertGreaterEqual(len(commands), 3)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_lint(self) -> None:
        result = subprocess.run(["mandoc", "-T", "lint", "-W", "style", *pages()], capture_output=True, text=True)
        # mandoc looks for the pages under SEE ALSO where manuals are installed.
        faults = [line for line in result.stdout.splitlines() if "referenced manual not found" not in line]
        self.assertEqual(faults, [])

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_nothing_of_a_help_text_is_lost(self) -> None:
        for path in pages():
            if not path.name.startswith("heddle-"):
                continue
            command = path.stem.removeprefix("heddle-")
            text = subprocess.run([ARGUMENTS.tool, command, "--help"], check=True, capture_output=True, text=True).stdout
            body = "\n".join(line for line in text.splitlines() if not re.match(r"\S.*:$", line)).replace("usage: ", "")
            self.assertEqual(words(body) - words(rendered(path)), set(), path.name)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_no_option_that_is_parsed_is_missing(self) -> None:
        for name, sources in PARSERS.items():
            path = ARGUMENTS.made / "man" / "man1" / f"{name}.1"
            if name in ("oshcc", "heddle-bench", "heddle-report") and not path.exists():
                continue  # built without OpenSHMEM, or without benchmarks
            text, checked = rendered(path), 0
            for source in sources:
                code = (ARGUMENTS.source / source).read_text(encoding="utf-8")
                # Not in the texts that name other launchers' options, in help texts, nor where a report names the options of `heddle bench`.
                code = re.sub(r'R"\(.*?\)"|constexpr (?:Hint kHints|const char\* kOtherMachines).*?;\n|-Wl,\S+|const std::set<std::string> kKept.*|run_job\(.*?\n  }|<<\'END\'.*?\nEND\n', "", code, flags=re.S)
                found = set(re.findall(r'[",](--?[a-z][a-z-]*)[",=]', code)) | set(re.findall(r"(?<=[ |])(--?[a-z]+)(?= [|)]|\))", code if source.endswith(".in") else ""))
                for option in found - INTERNAL - set("-c -S -E -M -MM -fsyntax-only".split()):
                    checked += 1
                    self.assertRegex(text, rf"(?<![\w-]){re.escape(option)}(?![\w-])", f"{name}: {option} of {source}")
            self.assertGreaterEqual(checked, 1, name)

    def test_the_library_s_page_has_the_header_s_text_and_the_settings(self) -> None:
        text = (ARGUMENTS.made / "man" / "man7" / "heddle.7").read_text()
        for word in (".SH RESULTS", ".SH THREADS", ".SH PROGRESS", "HEDDLE_POSTED", "HEDDLE_TRANSPORT", "HEDDLE_PROGRESS"):
            self.assertIn(word, text)


class Completions(unittest.TestCase):
    # What stands on the line before the cursor, and some of what must be offered then.
    CASES = (
        (["heddle", ""], {"run", "info", "bench"}),
        (["heddle", "in"], {"info"}),
        (["heddle", "run", "--b"], {"--bind"}),
        (["heddle", "run", "--bind", ""], {"core", "none"}),
        (["heddle", "info", "sett"], {"settings"}),
        (["heddle", "info", "settings", "HEDDLE_TRANSP"], {"HEDDLE_TRANSPORT", "HEDDLE_TRANSPORTS"}),
        (["heddle", "info", "--schedule", "broadcast.bin"], {"broadcast.binomial"}),
        (["heddle", "bench", "pingp"], {"pingpong"}),
        (["heddle", "bench", "--pe"], {"--peers"}),
        (["heddle", "help", "re"], {"report"}),
    )
    # Behind the program its own words are meant.
    PROGRAM = ["heddle", "run", "-n", "2", "some_program", "--b"]

    def check(self, complete: object) -> None:
        assert callable(complete)
        for line, wanted in self.CASES:
            with self.subTest(" ".join(line)):
                found = complete(line)
                self.assertEqual(wanted - found, set(), found)
                if line[-1]:
                    self.assertEqual({word for word in found if not word.startswith(line[-1])}, set())

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash(self) -> None:
        def complete(line: list[str]) -> set[str]:
            script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _heddle; printf "%s\\n" "${COMPREPLY[@]}"'
            done = subprocess.run(["bash", "--norc", "-c", script, "bash", ARGUMENTS.made / "bash" / "heddle", *line], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return set(done.stdout.split())

        self.check(complete)
        self.assertEqual(complete(self.PROGRAM), set())
        self.assertEqual(complete(["heddle", "run", "--np", "=", "2", "some_program", "--b"]), set())
        self.assertEqual(complete(["heddle", "run", "--bind", "=", "co"]), {"core"})

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self) -> None:
        def complete(line: list[str]) -> set[str]:
            script = f"source {ARGUMENTS.made / 'fish' / 'heddle.fish'}; complete -C '{' '.join(line)}'"
            done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, cwd=ARGUMENTS.source)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return {found.split("\t")[0] for found in done.stdout.splitlines()}

        self.check(complete)
        self.assertEqual(complete(self.PROGRAM), set())
        self.assertIn("README.md", complete(["heddle", "run", "-n", "2", "some_program", "READ"]))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self) -> None:
        driver = pathlib.Path(__file__).with_name("complete.zsh")

        def complete(line: list[str]) -> set[str]:
            done = subprocess.run(["zsh", "-f", driver, ARGUMENTS.made / "zsh", " ".join(line)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return set(done.stdout.split())

        self.check(complete)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--made", type=pathlib.Path, required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    ARGUMENTS.made = ARGUMENTS.made.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
