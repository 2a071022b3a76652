#!/usr/bin/env python3
"""Tests of ./heddle: a copy of it runs with stand-ins for the package tools, CMake and ninja, which write down what they were asked. ctest is
the real one, on tests that are shell commands. The real others are tried by every run of CI."""

import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
REAL_TOOLS = "bash sh env sed tr dirname readlink mktemp flock cat rm mkdir sleep grep nproc touch chmod cp true false".split()

# Each appends its name and arguments to $RECORD; what they do beyond that is set by files in $STATE.
STAND_INS = {
    "dpkg-query": 'for last; do :; done; grep -qx "$last" "$STATE/missing" 2>/dev/null || printf installed',
    "id": 'cat "$STATE/uid" 2>/dev/null || echo 0',
    "apt-get": """
case " $* " in
  *" update "*) touch "$STATE/updated" ;;
  *) [ -e "$STATE/index_is_stale" ] && [ ! -e "$STATE/updated" ] && exit 100
     [ -e "$STATE/apt_is_broken" ] && exit 100
     rm -f "$STATE/missing" ;;
esac""",
    "cmake": """
preset=${!#}
mkdir -p "build/$preset"
printf "%s\\n" "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" CMAKE_GENERATOR:INTERNAL=Ninja >"build/$preset/CMakeCache.txt"
[ -e "$STATE/cmake_is_broken" ] && exit 1
touch "build/$preset/build.ninja" """,
    "ninja": """
echo "ninja: Entering directory '$2'"
echo "[1/2 0s] noise of the build"
echo "warning: planted"
[ -e "$STATE/at_the_build" ] && sh "$STATE/at_the_build"
grep -qsx "${!#}" "$STATE/broken_targets" && { echo "error: planted"; exit 1; }
echo "[2/2 1s] noise of the build"
mkdir -p "$2/tools"
cp "$STATE/tool" "$2/tools/heddle"
cp "$STATE/tests" "$2/CTestTestfile.cmake" """,
    "ctest": f'exec {shlex.quote(shutil.which("ctest"))} "$@"',
}
TOOL = """#!/bin/bash
printf "tool %s\\n" "$*" >>"$STATE/record"
echo "tool: $*"
case "$*" in *bench\\ demo*) echo page >heddle-report.html ;; esac
exit "$(cat "$STATE/tool_status" 2>/dev/null || echo 0)"
"""
# What is installed is compiled in the least time, with optimisation: so without tests, which have none.
RELEASE = "-D HEDDLE_PRECOMPILE=ON -D HEDDLE_TESTS=OFF --preset release"
TESTS = {"ring_test": "true", "queue_test": "true"}  # name: what sh does


class FrontDoor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "a clone"  # with a space: nothing may split it
        self.state = pathlib.Path(folder.name) / "state"
        self.bin = pathlib.Path(folder.name) / "bin"
        for path in (self.root / "scripts", self.state, self.bin):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "heddle", self.root)
        for name in ("packages.txt", "run_tests.py", "retry_failed.py"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "main.cpp", self.root / "tools")
        (self.state / "tool").write_text(TOOL)
        (self.state / "tool").chmod(0o755)
        self.set_tests(TESTS)
        for name in REAL_TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        (self.bin / "python3").symlink_to(sys.executable)
        for name, body in STAND_INS.items():
            self.stand_in(name, body)

    def stand_in(self, name, body):
        path = self.bin / name
        path.write_text(f'#!/bin/bash\nprintf "%s %s\\n" {name} "$*" >>"$STATE/record"\n{body}\n')
        path.chmod(0o755)

    def set(self, name, text=""):
        (self.state / name).write_text(text)

    def set_tests(self, tests, more=""):
        lines = [f'add_test([=[{name}]=] "/bin/sh" "-c" [=[{body}]=])' for name, body in tests.items()]
        lines += [f'set_tests_properties([=[{name}]=] PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped:")' for name in tests]
        self.set("tests", "\n".join(lines) + "\n" + more)

    def break_target(self, name):
        """The target's build fails; an empty name is not one: `ninja -C TREE` builds all, and its last word is the tree."""
        self.set("broken_targets", name + "\n")

    def asked(self, name):
        """The lines of arguments with which a stand-in was called."""
        record = self.state / "record"
        lines = record.read_text().splitlines() if record.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split()[0] == name]

    def environment(self):
        return {"PATH": str(self.bin), "STATE": str(self.state), "TMPDIR": str(self.state)}

    def run_door(self, *arguments, command=None, cwd=None):
        return subprocess.run(
            [command or self.root / "heddle", *arguments], env=self.environment(), cwd=cwd or self.state,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )

    def run_in_terminal(self, *arguments, **environment):
        """All that a terminal was told, and the status."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([self.root / "heddle", *arguments], env=self.environment() | environment, cwd=self.state,
                                   stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        told = b""
        with open(ours, "rb", buffering=0) as terminal:
            try:
                while part := terminal.read(4096):
                    told += part
            except OSError:  # EIO: nobody has the other end open
                pass
        return process.wait(timeout=60), told.decode()

    def test_demo_with_everything_installed(self):
        result = self.run_door("demo", "--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "tool: bench demo --quick\n")
        self.assertEqual(self.asked("apt-get"), [])
        self.assertEqual(self.asked("cmake"), [RELEASE])

    def test_demo_measures_before_it_builds_the_rest(self):
        self.run_door("demo")
        steps = [line for line in (self.state / "record").read_text().splitlines() if line.split()[0] in ("ninja", "tool")]
        ninja = f"ninja -C {self.root}/build/release "
        self.assertEqual(steps, [ninja + "heddle_tool", "tool bench demo", ninja + "heddle_installables"])

    def test_demo_says_what_it_does_and_how_long_it_took(self):
        told = self.run_door("demo").stderr
        steps = [r"1/4 installing packages.*…", r"1/4 took \d+ s", r"2/4 building the library, the tool and the benchmarks \(about \d+ minutes? on \d+ cores?\)…",
                 r"2/4 took \d+ s", r"3/4 measuring.*…", r"3/4 took \d+ s", r"4/4 building the rest.*…", r"4/4 took \d+ s"]
        for step in steps:
            self.assertEqual(len(re.findall(f"(?m)^heddle: {step}$", told)), 1, (step, told))
        self.assertRegex(told.splitlines()[-1], rf"^heddle: done in \d+ s; the report: {self.state}/heddle-report.html; to install: ")

    def test_a_second_demo_promises_no_long_build(self):
        self.run_door("demo")
        self.assertNotIn("minute", self.run_door("demo").stderr.replace("measuring this machine (about a minute)", ""))

    def test_a_demo_that_fails_to_measure(self):
        self.set("tool_status", "7")
        result = self.run_door("demo")
        self.assertEqual(result.returncode, 7)
        self.assertRegex(result.stderr.splitlines()[-1], r"^heddle: 3/4 failed after \d+ s: .*status 7; the rest of the installation is not built$")
        self.assertEqual(len(self.asked("ninja")), 1)

    def test_a_rest_that_cannot_be_built(self):
        self.break_target("heddle_installables")
        result = self.run_door("demo")
        self.assertEqual((result.returncode, result.stdout), (1, "tool: bench demo\n"))
        self.assertIn("error: planted", result.stderr)
        self.assertRegex(result.stderr.splitlines()[-1], r"^heddle: 4/4 failed after \d+ s: .*the report is there: .*heddle-report.html.*cannot be installed")

    def test_a_demo_that_cannot_be_built(self):
        self.break_target("heddle_tool")
        result = self.run_door("demo")
        self.assertEqual((result.returncode, result.stdout, self.asked("tool")), (1, "", []))
        self.assertRegex(result.stderr.splitlines()[-1], r"^heddle: 2/4 failed after \d+ s: the build failed")

    def test_a_build_says_little_where_there_is_no_terminal(self):
        result = self.run_door("demo")
        self.assertNotIn("noise of the build", result.stdout + result.stderr)
        self.assertNotIn("Entering directory", result.stdout + result.stderr)
        self.assertIn("warning: planted", result.stderr)

    def test_a_terminal_sees_the_build_and_the_report_is_opened(self):
        os.mkfifo(self.state / "opened")
        self.stand_in("xdg-open", 'echo "$1" >"$STATE/opened"')
        status, told = self.run_in_terminal("demo", DISPLAY=":7")
        self.assertEqual(status, 0, told)
        self.assertIn("noise of the build", told)
        self.assertEqual((self.state / "opened").read_text(), f"{self.state}/heddle-report.html\n")

    def test_help_on_the_demo_builds_nothing(self):
        result = self.run_door("demo", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("./heddle demo", result.stdout)
        self.assertEqual(self.asked("ninja"), [])

    def test_a_misspelt_word_builds_nothing(self):
        result = self.run_door("dmeo")
        self.assertEqual(result.returncode, 2)
        self.assertIn('there is no command "dmeo"', result.stderr)
        self.assertEqual(self.asked("ninja"), [])

    def test_what_demo_builds_can_be_installed(self):
        """README: ./heddle demo, then cmake --install. tests/install checks what that target has."""
        self.run_door("demo")
        self.run_door("info")
        self.assertEqual(self.asked("ninja")[1:], [f"-C {self.root}/build/release heddle_installables"] * 2)

    def test_what_demo_installs_has_all_transports_and_launchers(self):
        listed = (ROOT / "scripts" / "packages.txt").read_text()
        for package in ("libucx-dev", "libfabric-dev", "libibverbs-dev", "libpmix-dev", "libhwloc-dev"):
            self.assertRegex(listed, rf"(?m)^{package} +# ")

    def test_a_tree_from_before_packages_were_installed(self):
        self.run_door("demo")
        self.set("missing", "libucx-dev\n")
        self.assertEqual(self.run_door("demo").returncode, 0)
        self.assertEqual(self.asked("cmake"), [RELEASE] * 2)
        self.assertEqual(self.run_door("demo").returncode, 0)
        self.assertEqual(len(self.asked("cmake")), 2, "nothing was missing any more")

    def test_installs_only_what_is_missing(self):
        self.set("missing", "ninja-build\nlibhwloc-dev\n")
        result = self.run_door("demo")
        self.assertEqual(result.returncode, 0, result.stderr)
        (install,) = self.asked("apt-get")
        self.assertTrue(install.endswith("install -y --no-install-recommends ninja-build libhwloc-dev"), install)

    def test_stale_index_is_updated_once(self):
        self.set("missing", "cmake\n")
        self.set("index_is_stale")
        result = self.run_door("test")
        self.assertEqual(result.returncode, 0, result.stderr)
        words = [line.split()[-1] if "update" in line else "install" for line in self.asked("apt-get")]
        self.assertEqual(words, ["install", "update", "install"])

    def test_packages_that_cannot_be_installed(self):
        self.set("missing", "cmake\n")
        self.set("apt_is_broken")
        result = self.run_door("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install --no-install-recommends cmake", result.stderr)
        self.assertEqual(self.asked("ninja"), [])

    def test_without_root_and_sudo(self):
        self.set("missing", "cmake\n")
        self.set("uid", "1000\n")
        result = self.run_door("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("needs root and there is no sudo; as root: apt-get install", result.stderr)
        self.assertEqual(self.asked("apt-get"), [])

    def test_sudo_is_used_where_it_is_needed(self):
        self.set("missing", "cmake\n")
        self.set("uid", "1000\n")
        self.stand_in("sudo", '"$@"')
        self.assertEqual(self.run_door("demo").returncode, 0)
        self.assertEqual(len(self.asked("sudo")), 1)

    def test_another_system(self):
        for name in ("dpkg-query", "apt-get", "cmake"):
            (self.bin / name).unlink()
        result = self.run_door("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no Debian system", result.stderr)
        self.assertIn("libhwloc-dev", result.stderr)

    def test_test_passes_arguments(self):
        self.set_tests(TESTS, "set_tests_properties(ring_test PROPERTIES LABELS unit)\n")
        result = self.run_door("test", "-L", "unit")
        self.assertEqual(result.returncode, 0, result.stderr)
        arguments = [line for line in self.asked("ctest") if "--show-only" not in line]
        self.assertRegex(arguments[0], rf"^--test-dir {self.root}/build/dev .*--no-tests=error .*-L unit$")
        self.assertRegex(result.stdout.splitlines()[-1], r"^heddle: 1 test passed in \d+ s$")

    def test_tests_are_compiled_in_the_least_time_and_the_library_as_it_is_installed(self):
        self.run_door("test")
        self.assertEqual(self.asked("cmake"), ["-D CMAKE_BUILD_TYPE=Release -D HEDDLE_PRECOMPILE=ON --preset dev"])

    def test_a_failed_test_is_the_status(self):
        self.set_tests(TESTS | {"bad_test": "false"})
        result = self.run_door("test")
        self.assertEqual(result.returncode, 8)
        self.assertRegex(result.stdout.splitlines()[-1], r"^heddle: 1 of 3 tests failed: bad_test; ")

    def test_a_terminal_sees_one_line_grow(self):
        status, told = self.run_in_terminal("test", "-j1")
        self.assertEqual(status, 0, told)
        self.assertIn("1 of 2 tests, about 2 s left\r\x1b[K2 of 2 tests, about 0 s left\r\x1b[K", told)
        self.assertRegex(told.splitlines()[-1], r"heddle: 2 tests passed in \d+ s$")

    def test_test_stops_when_the_build_fails(self):
        self.break_target(f"{self.root}/build/dev")
        result = self.run_door("test")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: planted", result.stderr)
        self.assertEqual(self.asked("ctest"), [])

    def test_other_words_build_quietly(self):
        self.set("tool_status", "3")
        result = self.run_door("run", "-n", "2", "./a b")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (3, "tool: run -n 2 ./a b\n", ""))
        self.assertEqual(self.asked("apt-get") + self.asked("dpkg-query"), [])

    def test_a_failing_quiet_build_is_shown(self):
        self.break_target("heddle_installables")
        result = self.run_door("info")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("error: planted", result.stderr)
        self.assertIn("the build failed", result.stderr)

    def test_configures_once(self):
        self.run_door("info")
        self.run_door("info")
        self.assertEqual(self.asked("cmake"), [RELEASE])
        self.assertEqual(len(self.asked("ninja")), 2)

    def test_a_clone_that_was_moved(self):
        self.run_door("info")
        moved = self.root.with_name("moved")
        self.root.rename(moved)
        self.root = moved
        self.assertEqual(self.run_door("info").returncode, 0)
        self.assertEqual(self.asked("cmake")[-1], f"--fresh {RELEASE}")

    def test_a_clone_that_was_moved_and_did_not_come_through_at_once(self):
        self.run_door("info")
        moved = self.root.with_name("moved")
        self.root.rename(moved)
        self.root = moved
        self.set("cmake_is_broken")
        self.assertEqual(self.run_door("info").returncode, 1)
        (self.state / "cmake_is_broken").unlink()
        self.assertEqual(self.run_door("info").returncode, 0)
        self.assertEqual(self.asked("cmake")[1:], [f"--fresh {RELEASE}", RELEASE], "what was left there is of the other place")
        (self.root / "build/release/CMakeCache.txt").unlink()
        self.run_door("info")
        self.assertEqual(len(self.asked("cmake")), 4, "no cache: it was on its way")

    def test_a_folder_that_cmake_cannot_take(self):
        for name, status in (('a "clone', 1), ("a;clone", 1), ("it's & $a (clone)", 0)):
            self.root = self.root.rename(self.root.with_name(name))
            result = self.run_door("info")
            self.assertEqual((result.returncode, "CMake cannot build in a folder with" in result.stderr), (status, status == 1), result.stderr)
        self.assertEqual(len(self.asked("cmake")), 1)

    def test_a_tree_of_another_generator(self):
        self.run_door("info")
        cache = self.root / "build/release/CMakeCache.txt"
        cache.write_text(cache.read_text().replace("=Ninja", "=Unix Makefiles"))
        self.assertEqual(self.run_door("info").returncode, 0)
        self.assertEqual(self.asked("cmake")[1:], [f"--fresh {RELEASE}"])

    def test_the_other_tree_from_before_packages_were_installed(self):
        self.run_door("test")
        self.set("missing", "libucx-dev\n")
        self.run_door("demo")
        self.run_door("test")
        self.assertEqual([line.split()[-1] for line in self.asked("cmake")], ["dev", "release", "dev"])

    def test_one_builds_at_a_time(self):
        self.set("at_the_build", 'mkdir "$STATE/at_work" || exit 0; test ! -p "$STATE/go" || cat "$STATE/go"; rm -r "$STATE/at_work"\n'
                                 'echo built >>"$STATE/builds"\n')
        for words in (("demo", "demo"), ("info", "demo"), ("demo", "test"), ("demo", "info")):
            (self.state / "builds").unlink(missing_ok=True)
            os.mkfifo(self.state / "go")
            doors = []
            for word in words:
                doors.append(subprocess.Popen([self.root / "heddle", word], env=self.environment(), cwd=self.state, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                self.addCleanup(doors[-1].stderr.close)
                self.addCleanup(doors[-1].kill)
                if len(doors) == 1:
                    go = open(self.state / "go", "w")  # there when it builds
            told = ""
            while "waiting for it" not in told:
                line = doors[1].stderr.readline()
                self.assertNotEqual(line, "", f"{words}: the second one has not waited: {told}")
                told += line
            (self.state / "go").unlink()
            go.close()
            for door in doors:
                door.communicate(timeout=60)
                self.assertEqual(door.returncode, 0)
            self.assertEqual(len((self.state / "builds").read_text().split()), sum(2 if word == "demo" else 1 for word in words), words)

    def test_an_end_takes_the_build_along(self):
        """Else it goes on while the next one builds."""
        self.set("at_the_build", 'echo $$ >"$STATE/builder"; cat "$STATE/go"\n')
        os.mkfifo(self.state / "go")
        door = subprocess.Popen([self.root / "heddle", "info"], env=self.environment(), cwd=self.state, stdin=subprocess.DEVNULL)
        go = open(self.state / "go", "w")
        door.terminate()
        self.assertEqual(door.wait(timeout=60), 130)
        with self.assertRaises(BrokenPipeError, msg="whoever reads it is there still"):
            with go:
                go.write("\n")

    def test_nothing_more_is_begun_after_an_interrupt(self):
        """Whether it has killed the program that ran, or that has ended by itself."""
        self.set("missing", "cmake\n")
        self.stand_in("apt-get", "trap 'exit 100' INT; kill -INT 0; sleep 50 & wait")
        result = subprocess.run([self.root / "heddle", "demo"], env=self.environment(), cwd=self.state, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=False, timeout=60, start_new_session=True)
        self.assertEqual((result.returncode, len(self.asked("apt-get"))), (130, 1), result.stderr)

    def test_a_word_is_no_pattern(self):
        for word in ("inf.", "[", ".*"):
            result = self.run_door(word)
            self.assertEqual((result.returncode, result.stderr), (2, f'heddle: there is no command "{word}"; `./heddle help` lists them\n'))
        self.assertEqual(self.asked("ninja"), [])

    def test_through_a_link_from_anywhere(self):
        link = self.state / "hd"
        link.symlink_to(self.root / "heddle")
        result = self.run_door("info", command=link, cwd=self.state)
        self.assertEqual(result.stdout, "tool: info\n", result.stderr)

    def test_help_builds_nothing(self):
        result = self.run_door()
        self.assertEqual(result.returncode, 0)
        self.assertIn("./heddle demo", result.stdout)
        self.assertEqual(self.asked("ninja"), [])


class RunTests(unittest.TestCase):
    """scripts/run_tests.py, which `./heddle test` hands over to, with a tree of ctest's whose tests are shell commands."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "a build" / "dev"
        self.tree.mkdir(parents=True)

    def write(self, tests, more=""):
        lines = [f'add_test([=[{name}]=] "/bin/sh" "-c" [=[{body}]=])' for name, body in tests.items()]
        lines += [f'set_tests_properties([=[{name}]=] PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped:")' for name in tests]
        (self.tree / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n" + more)

    def run_tests(self, *arguments, **more):
        command = [sys.executable, ROOT / "scripts" / "run_tests.py", self.tree, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GTEST_", "TEST_"))} | more
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                timeout=60, env=environment)
        return result.returncode, result.stdout, (result.stdout.splitlines() or [""])[-1]

    def once(self, word="begun"):
        """Fails when it runs for the first time."""
        return f"test -e '{self.tree}/seen' || {{ touch '{self.tree}/seen'; echo {word}; exit 3; }}"

    def known_costs(self, **seconds):
        file = self.tree / "Testing" / "Temporary" / "CTestCostData.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name} {1 if cost else 0} {cost}\n" for name, cost in seconds.items()) + "---\n")

    def test_all_pass(self):
        self.write({"one": "true", "two": "true"})
        (self.tree / "flaky.txt").write_text("an old one\n")
        status, told, last = self.run_tests()
        self.assertFalse((self.tree / "flaky.txt").exists())
        self.assertEqual(status, 0, told)
        self.assertRegex(last, r"^heddle: 2 tests passed in \d+ s$")
        self.assertRegex(told, r"(?m)^heddle: 2 tests, roughly \d+ s \(2 of them have not run here before")

    def test_the_estimate_is_of_what_tests_took_before(self):
        self.write({"one": "true", "two": "true", "alone": "true"}, "set_tests_properties(alone PROPERTIES RUN_SERIAL ON)\n")
        self.known_costs(one=400, two=500, alone=300, gone=9000)
        self.assertIn("heddle: 3 tests, about 13 min\n", self.run_tests("-j", "2")[1])  # (400 + 500) / 2 + 300 s
        self.known_costs(one=400, two=500, alone=300, gone=9000)
        self.assertIn("heddle: 3 tests, about 20 min\n", self.run_tests("-j1")[1])
        self.known_costs(one=400, two=50, alone=0)  # none that passed
        self.assertIn("heddle: 3 tests, roughly 7 min (1 of them has not run here before", self.run_tests("-j2")[1])  # not before `one` ends

    def test_what_is_left_is_told(self):
        self.write({"one": "true", "two": "false", "three": "true"})
        told = self.run_tests("--say-every", "0", "-j", "1")[1]
        self.assertRegex(told, r"(?m)^heddle: 1 of 3 tests, about \d+ s left$")
        self.assertRegex(told, r"(?m)^heddle: 2 of 3 tests, 1 failed, about \d+ s left$")

    def test_skipped_ones_are_counted_with_their_reasons(self):
        self.write({"one": "true", "card": "echo skipped: no card", "cards": "echo skipped: no card", "off": "true"},
                   "set_tests_properties(off PROPERTIES DISABLED ON)\n")
        status, told, last = self.run_tests()
        self.assertEqual(status, 0, told)
        self.assertRegex(last, r"^heddle: 1 test passed in \d+ s \(3 skipped: reasons above\)$")
        self.assertIn("\nskipped  no card: card, cards\n", told)
        self.assertIn("\nskipped  disabled: off\n", told)

    def test_a_reason_that_is_not_marked_as_one(self):
        self.write({"card": "echo hello; echo no such card; exit 77"}, "set_tests_properties(card PROPERTIES SKIP_RETURN_CODE 77)\n")
        self.assertIn("\nskipped  no such card: card\n", self.run_tests()[1])

    def test_what_passes_alone_is_flaky(self):
        self.write({"one": "true", "two": self.once()})
        (self.tree / "flaky.txt").write_text("an old one\n")
        status, told, last = self.run_tests()
        self.assertEqual(status, 0, told)
        self.assertRegex(last, r"^heddle: 2 tests passed in \d+ s \(1 flaky: two\)$")
        self.assertEqual((self.tree / "flaky.txt").read_text(), "two in a build/dev\n")
        self.assertRegex(told, r"(?m)^begun$")

    def test_what_looks_away_alone_has_not_passed(self):
        self.write({"one": "true", "two": self.once() + "; echo skipped: no card"})
        status, told, last = self.run_tests()
        self.assertEqual(status, 8, told)
        self.assertRegex(last, r"^heddle: 1 of 2 tests failed: two; ")

    def test_what_the_environment_leaves_out_is_told(self):
        self.write({"one": "true"})
        self.assertRegex(self.run_tests(TEST_SHARE="1/2")[2], r"^heddle: 1 test passed in \d+ s \(TEST_SHARE is set: not all cases of the tests\)$")
        self.assertNotIn("GTEST_FILTER", self.run_tests(GTEST_FILTER="")[2])

    def test_what_no_terminal_can_show(self):
        self.write({"bad": r"printf '\303\251 \377 end\n'; false"})
        status, told, last = self.run_tests(PYTHONIOENCODING="ascii")
        self.assertEqual(status, 8, told)
        self.assertIn("? ? end", told)
        self.assertRegex(last, "^heddle: 1 of 1 tests failed: bad; ")

    def test_failed_ones_are_named_with_what_to_do(self):
        self.write({"one": "true", "bad": "echo why; false", "worse": "false", "two": self.once()})
        status, told, last = self.run_tests()
        self.assertEqual(status, 8)
        log = self.tree / "tests.log"
        self.assertEqual(last, f"heddle: 2 of 4 tests failed: bad, worse (1 flaky: two); output in {log}; again: ./heddle test -R '^(bad|worse)$'")
        self.assertEqual(log.read_text().count("\nwhy\n"), 3, "the first time, and twice alone")
        self.assertIn("why", told)

    def test_ctest_knows_afterwards_which_have_failed(self):
        self.write({"one": "true", "bad": "false", "worse": "false", "two": self.once()})
        self.run_tests()
        last = self.run_tests("--rerun-failed")[2]
        self.assertRegex(last, "^heddle: 2 of 2 tests failed: bad, worse; ")
        self.write({"one": "true", "bad": "true", "worse": "true", "two": "true"})
        self.assertRegex(self.run_tests("--rerun-failed")[2], r"^heddle: 2 tests passed in")
        self.assertFalse((self.tree / "Testing" / "Temporary" / "LastTestsFailed.log").exists())

    def test_many_failed_ones_are_not_tried_again(self):
        self.write({f"bad{i}": "false" for i in range(30)})
        status, told, last = self.run_tests()
        self.assertEqual(status, 8)
        self.assertNotIn(", alone", told)
        self.assertRegex(last, "^heddle: 30 of 30 tests failed: bad0, .* and 20 more; .*; again: ./heddle test --rerun-failed$")

    def test_a_sanitizers_report_has_no_second_chance(self):
        self.write({"race": self.once("WARNING: ThreadSanitizer: data race")})
        status, _, last = self.run_tests()
        self.assertEqual(status, 8)
        self.assertIn("1 of 1 tests failed: race;", last)

    def test_how_a_test_can_fail(self):
        """Whatever ctest calls it."""
        self.write({"dies": "kill -SEGV $$", "hangs": "exec sleep 50", "says": "printf \"wrong\\n3/9 Test #1: dies ....   Passed\""},
                   "set_tests_properties(hangs PROPERTIES TIMEOUT 1)\nset_tests_properties(says PROPERTIES FAIL_REGULAR_EXPRESSION wrong)\n"
                   "add_test(missing /no/such/program)\n")
        _, told, last = self.run_tests()
        self.assertRegex(last, "^heddle: 4 of 4 tests failed: dies, hangs, missing, says; ")
        self.assertNotIn("missing, alone", told)
        self.assertRegex(self.run_tests("--rerun-failed")[2], "^heddle: 4 of 4 tests failed: ")

    def test_one_without_a_result_is_no_success(self):
        self.write({"bad": self.once(), "rest": "true"})
        status, _, last = self.run_tests("-j1", "--stop-on-failure")
        self.assertEqual(status, 8)
        self.assertRegex(last, r"^heddle: 1 of 2 tests did not run: rest \(1 flaky: bad\); ")

    def test_no_test(self):
        self.write({"one": "true"})
        status, _, last = self.run_tests("-R", "nobody")
        self.assertEqual(status, 8)
        self.assertEqual(last, "heddle: no test was run")

    def test_what_lists_is_ctests_own(self):
        self.write({"one": "true"})
        for listing in ("-N", "--show-only", "--show-only=human"):
            status, told, _ = self.run_tests(listing)
            self.assertEqual((status, "Test #1: one" in told, "passed" in told), (0, True, False), told)


if __name__ == "__main__":
    unittest.main()
