#!/usr/bin/env python3
"""Tests of ./heddle: a copy of it runs with stand-ins for the package tools, CMake, ninja and ctest, which write down
what they were asked. The real ones are tried by every run of CI."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
REAL_TOOLS = "bash env sed tr dirname readlink mktemp flock cat rm mkdir sleep grep nproc touch chmod cp".split()

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
touch "build/$preset/build.ninja"
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >"build/$preset/CMakeCache.txt" """,
    "ninja": """
echo "[1/1] noise of the build"
[ -e "$STATE/build_is_broken" ] && { echo "error: planted"; exit 1; }
mkdir -p "$2/tools"
cp "$STATE/tool" "$2/tools/heddle" """,
    "ctest": 'exit "$(cat "$STATE/ctest_status" 2>/dev/null || echo 0)"',
}
TOOL = '#!/bin/bash\necho "tool: $*"\nexit "$(cat "$STATE/tool_status" 2>/dev/null || echo 0)"\n'


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
        shutil.copy(ROOT / "scripts" / "packages.txt", self.root / "scripts")
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "main.cpp", self.root / "tools")
        (self.state / "tool").write_text(TOOL)
        (self.state / "tool").chmod(0o755)
        for name in REAL_TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        for name, body in STAND_INS.items():
            self.stand_in(name, body)

    def stand_in(self, name, body):
        path = self.bin / name
        path.write_text(f'#!/bin/bash\nprintf "%s %s\\n" {name} "$*" >>"$STATE/record"\n{body}\n')
        path.chmod(0o755)

    def set(self, name, text=""):
        (self.state / name).write_text(text)

    def asked(self, name):
        """The lines of arguments with which a stand-in was called."""
        record = self.state / "record"
        lines = record.read_text().splitlines() if record.exists() else []
        return [line.partition(" ")[2] for line in lines if line.split()[0] == name]

    def run_door(self, *arguments, command=None, cwd="/"):
        environment = {"PATH": str(self.bin), "STATE": str(self.state), "TMPDIR": str(self.state)}
        return subprocess.run(
            [command or self.root / "heddle", *arguments],
            env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )

    def test_demo_with_everything_installed(self):
        result = self.run_door("demo", "--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("tool: bench demo --quick", result.stdout)
        self.assertIn("noise of the build", result.stdout)
        self.assertEqual(self.asked("apt-get"), [])
        self.assertEqual(self.asked("cmake"), ["--preset release"])

    def test_a_misspelt_word_builds_nothing(self):
        result = self.run_door("dmeo")
        self.assertEqual(result.returncode, 2)
        self.assertIn('there is no command "dmeo"', result.stderr)
        self.assertEqual(self.asked("ninja"), [])

    def test_what_demo_builds_can_be_installed(self):
        """README: ./heddle demo, then cmake --install. tests/install checks what that target has."""
        self.run_door("demo")
        self.run_door("info")
        self.assertEqual(self.asked("ninja"), [f"-C {self.root}/build/release heddle_installables"] * 2)

    def test_what_demo_installs_has_all_transports_and_launchers(self):
        listed = (ROOT / "scripts" / "packages.txt").read_text()
        for package in ("libucx-dev", "libfabric-dev", "libibverbs-dev", "libpmix-dev", "libhwloc-dev"):
            self.assertRegex(listed, rf"(?m)^{package} +# ")

    def test_a_tree_from_before_packages_were_installed(self):
        self.run_door("demo")
        self.set("missing", "libucx-dev\n")
        self.assertEqual(self.run_door("demo").returncode, 0)
        self.assertEqual(self.asked("cmake"), ["--preset release"] * 2)
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

    def test_test_passes_arguments_and_status(self):
        self.set("ctest_status", "8")
        result = self.run_door("test", "-L", "unit")
        self.assertEqual(result.returncode, 8)
        (arguments,) = self.asked("ctest")
        self.assertIn(f"--test-dir {self.root}/build/dev", arguments)
        self.assertIn("--no-tests=error", arguments)
        self.assertTrue(arguments.endswith(" -L unit"), arguments)

    def test_test_stops_when_the_build_fails(self):
        self.set("build_is_broken")
        result = self.run_door("test")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.asked("ctest"), [])

    def test_other_words_build_quietly(self):
        self.set("tool_status", "3")
        result = self.run_door("run", "-n", "2", "./a b")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (3, "tool: run -n 2 ./a b\n", ""))
        self.assertEqual(self.asked("apt-get") + self.asked("dpkg-query"), [])

    def test_a_failing_quiet_build_is_shown(self):
        self.set("build_is_broken")
        result = self.run_door("info")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("error: planted", result.stderr)
        self.assertIn("the build failed", result.stderr)

    def test_configures_once(self):
        self.run_door("info")
        self.run_door("info")
        self.assertEqual(self.asked("cmake"), ["--preset release"])
        self.assertEqual(len(self.asked("ninja")), 2)

    def test_a_clone_that_was_moved(self):
        self.run_door("info")
        moved = self.root.with_name("moved")
        self.root.rename(moved)
        self.root = moved
        self.assertEqual(self.run_door("info").returncode, 0)
        self.assertEqual(self.asked("cmake")[-1], "--fresh --preset release")

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


if __name__ == "__main__":
    unittest.main()
