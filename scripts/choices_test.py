#!/usr/bin/env python3
"""Tests of what chooses from a change what is built, checked and tried again: changed.py, check_tidy.py, test_targets.py, retry_failed.py."""

import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import changed  # noqa: E402
import check_tidy  # noqa: E402
import test_targets  # noqa: E402
from checks_test import Tree  # noqa: E402

SCRIPTS = pathlib.Path(__file__).resolve().parent


class TestTargets(unittest.TestCase):
    TREE = "/house/build/tsan"

    def test_commands_are_read_as_cmake_writes_them(self):
        tree = Tree(self, {
            "CTestTestfile.cmake": 'add_test([=[a_test]=] "/t/a_test")\nset_tests_properties([=[a_test]=] PROPERTIES  TIMEOUT "9")\n',
            "src/CTestTestfile.cmake": 'add_test(b "/t/heddle" "run" "-n" "2" "/t/b rank")\nadd_test([=[c 1]=] "/t/c" "say \\"x\\"")\n',
        })
        self.assertEqual(test_targets.commands_of(tree.root), {
            "a_test": ["/t/a_test"], "b": ["/t/heddle", "run", "-n", "2", "/t/b rank"], "c 1": ["/t/c", 'say \\"x\\"']})

    def test_targets_are_those_that_ninja_knows(self):
        known = {"tools/heddle", "interfaces/openshmem/rank", "examples/hello"}
        for command, wanted in [
            ([f"{self.TREE}/tools/heddle", "run", f"{self.TREE}/interfaces/openshmem/rank"],
             {"tools/heddle", "interfaces/openshmem/rank"}),
            (["/usr/bin/cmake", f"-DCOMMAND={self.TREE}/tools/heddle;run;{self.TREE}/examples/hello"],
             {"tools/heddle", "examples/hello"}),
            (["/usr/bin/python3", "/house/scripts/x.py", f"{self.TREE}/tools/heddle,{self.TREE}/examples/hello", "-"],
             {"tools/heddle", "examples/hello"}),
            (["/usr/bin/python3", "/house/scripts/x.py", f"{self.TREE}/none", "/other/tools/heddle", f"{self.TREE}s/tools/heddle"], set()),
        ]:
            self.assertEqual(test_targets.targets_of(command, self.TREE, known), wanted, command)

    def test_a_folder_is_all_that_is_made_there(self):
        known = {"tools/pages/all", "tools/pages/made/a.1", "tools/all", "tools/heddle", "all", "heddle_installables"}
        for place, wanted in [
            ("/tools/pages", {"tools/pages/all"}), ("/tools/pages/made", {"tools/pages/made/a.1"}), ("/tools/other/x.c", set()),
            ("/logs", set()), ("", {"heddle_installables"}), ("/", {"heddle_installables"}),
        ]:
            self.assertEqual(test_targets.targets_of(["--build", self.TREE + place], self.TREE, known), wanted, place)

    def test_what_a_test_needs_besides_is_a_property(self):
        named = {"name": "REQUIRED_FILES", "value": [f"{self.TREE}/tofu/library.so"]}
        self.assertEqual(test_targets.required({"properties": [{"name": "LABELS", "value": ["x"]}, named]}), named["value"])
        self.assertEqual(test_targets.required({"name": "x"}), [])


@unittest.skipUnless(shutil.which("git"), "needs git")
class TidySelects(unittest.TestCase):
    """What a change touches, and from where a change counts."""

    FILES = {
        "src/a.cpp": '#include "a.hpp"\n#include <string>\n',
        "src/a.hpp": '#pragma once\n#include "made/deep.hpp"\n',
        "src/b.cpp": '#include "a.hpp"\n',
        "src/c.cpp": '#  include "a.hpp"\n',
        "src/d.cpp": "int d();\n",
        "src/a_test.cpp": '#include "a.hpp"\n',
        "include/made/deep.hpp": "int deep();\n",
        ".clang-tidy": "Checks: '*'\n",
    }
    DAY = 24 * 3600

    def setUp(self):
        self.root = Tree(self, self.FILES).root
        for module in (check_tidy, changed):
            self.addCleanup(setattr, module, "ROOT", module.ROOT)
            module.ROOT = self.root
        check_tidy.included.cache_clear()
        # Inside a hook of git they would name the repository that the hook is of.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TIDY_BASE", "CHANGED_BASE"))}
        patch = unittest.mock.patch.dict(os.environ, kept, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.now = 1_700_000_000
        self.commands = {str(self.root / f"src/{name}.cpp"): ("", ("clang++", f"-I{self.root}/include")) for name in "abcd"}
        self.git("init", "-q", "-b", "main")
        self.commit("first", 100)

    def git(self, *words, date=1_700_000_000):
        when = f"{date} +0000"
        names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **names, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(["git", *words], cwd=self.root, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, name, days_ago, text="int x();\n"):
        (self.root / f"{name}.cpp").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name, date=int(self.now - days_ago * self.DAY))
        return self.git("rev-parse", "HEAD")

    def touched(self, *changed):
        """The sources that differ, and those for headers."""
        return tuple([pathlib.Path(file).name for file in files] for files in check_tidy.touched_by(set(changed), self.commands))

    def selected(self, *words):
        files, _, how = check_tidy.selected(check_tidy.parse(["tree", *words]), self.commands)
        return [pathlib.Path(file).name for file in files], how

    def test_a_source_that_differs_is_looked_at(self):
        self.assertEqual(self.touched("src/d.cpp", "README.md", "src/gone.cpp"), (["d.cpp"], []))

    def test_a_header_is_seen_through_its_source_and_one_more(self):
        self.assertEqual(self.touched("src/a.hpp"), ([], ["a.cpp", "b.cpp"]))

    def test_a_header_is_seen_through_what_differs_anyway(self):
        self.assertEqual(self.touched("src/a.hpp", "src/c.cpp"), (["c.cpp"], ["a.cpp"]))

    def test_a_header_that_is_included_by_headers_alone(self):
        self.assertEqual(self.touched("include/made/deep.hpp"), ([], ["a.cpp", "b.cpp"]))

    def test_on_a_branch_the_base_is_where_it_left_main(self):
        main = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "-b", "work")
        self.commit("src/d", 0)
        self.commit("second", 0)
        self.assertEqual(changed.base_of(None, check_tidy.HOURS)[0], main)
        self.assertEqual(self.selected()[0], ["d.cpp"])

    def test_the_remote_branch_counts_before_the_local_one(self):
        first = self.git("rev-parse", "HEAD")
        self.commit("src/d", 0)
        self.git("update-ref", "refs/remotes/origin/main", first)
        self.assertEqual(changed.base_of(None, check_tidy.HOURS)[0], first)

    def test_on_main_the_base_is_half_a_day_old(self):
        old = self.commit("old", 1)
        self.commit("src/b", 0.4)
        self.commit("src/d", 0)
        self.git("checkout", "-q", "--detach")
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.assertEqual(changed.base_of(None, check_tidy.HOURS)[0], old)
        self.assertEqual(self.selected()[0], ["b.cpp", "d.cpp"])

    def test_what_was_merged_lately_counts_though_it_is_old(self):
        self.git("checkout", "-q", "-b", "side")
        self.commit("src/d", 50)
        self.git("checkout", "-q", "main")
        old = self.commit("old", 10)
        self.git("merge", "-q", "--no-ff", "-m", "merge", "side", date=self.now)
        self.assertEqual(changed.base_of(None, check_tidy.HOURS)[0], old)
        self.assertEqual(self.selected()[0], ["d.cpp"])

    def test_where_nothing_is_older_everything_is_looked_at(self):
        self.git("checkout", "-q", "--orphan", "fresh")
        self.git("branch", "-D", "main")
        self.commit("src/d", 0.2)
        self.assertEqual(changed.base_of(None, check_tidy.HOURS), (None, ""))
        self.assertEqual(self.selected()[0], ["a.cpp", "b.cpp", "c.cpp", "d.cpp"])

    def test_without_a_main_branch_it_is_not_known_what_has_changed(self):
        self.git("branch", "-m", "main", "trunk")
        self.commit("src/a", 3)
        self.commit("src/d", 0)
        self.assertEqual(changed.base_of(None), (None, ""))

    def test_nor_where_the_clone_is_too_shallow(self):
        self.git("checkout", "-q", "-b", "work")
        self.commit("src/a", 3)
        self.commit("middle", 2)
        self.commit("src/d", 0)
        self.git("checkout", "-q", "main")
        self.commit("further", 0)
        folder = pathlib.Path(Tree(self, {}).root) / "clone"
        self.git("clone", "-q", "--depth", "2", "--no-single-branch", "-b", "work", f"file://{self.root}", str(folder))
        changed.ROOT = folder
        self.assertEqual(changed.base_of(None), (None, ""))

    def test_nor_of_a_tree_within_another_clone(self):
        self.git("checkout", "-q", "-b", "work")
        self.commit("second", 0)
        self.assertIsNotNone(changed.base_of(None)[0])
        changed.ROOT = self.root / "src"
        self.assertEqual(changed.base_of(None), (None, ""))

    def test_what_is_let_pass_counts(self):
        plain = "int a;  // NOLINT(one)\nint b;  // that\nint c;\n"
        self.commit("src/d", 0, plain)
        for text, differs in ((plain.replace("that", "this"), False), (plain.replace("one", "two"), True), (plain.replace("(one)", ""), True),
                              (plain.replace("  // NOLINT(one)\n", "\n// NOLINT(one)\n"), True), (plain.replace("// that", "\n// that\n"), False)):
            (self.root / "src/d.cpp").write_text(text)
            self.assertEqual(self.selected("--base", "HEAD")[0], ["d.cpp"] * differs, text)

    def test_names_of_other_alphabets(self):
        self.commit("src/é", 0)
        (self.root / "src/é.cpp").write_text("int y();\n")
        self.commands[str(self.root / "src/é.cpp")] = ("", ("clang++",))
        self.assertEqual(self.selected("--base", "HEAD")[0], ["é.cpp"])

    def test_comments_and_moves_do_not_count(self):
        self.git("checkout", "-q", "-b", "work")
        (self.root / "src/b.cpp").write_text('// Says why.\n#include "a.hpp"  // and what\n')
        (self.root / "src/d.cpp").write_text("int d() ;  // other words\n")
        self.git("mv", "src/c.cpp", "src/f.cpp")
        self.commands[str(self.root / "src/f.cpp")] = self.commands[str(self.root / "src/c.cpp")]
        self.commit("second", 0)
        self.assertEqual(self.selected()[0], ["d.cpp"], "its code has other words")

    def test_the_work_tree_counts(self):
        (self.root / "src/c.cpp").write_text("int c();\n")
        self.git("rm", "-q", "src/b.cpp")
        (self.root / "src/e.cpp").write_text("int e();\n")
        self.git("add", "--intent-to-add", "src/e.cpp")
        self.commands[str(self.root / "src/e.cpp")] = ("", ("clang++",))
        self.assertEqual(self.selected("--base", "HEAD")[0], ["c.cpp", "e.cpp"])

    def test_other_checks_concern_everything(self):
        (self.root / ".clang-tidy").write_text("Checks: '-*'\n")
        files, how = self.selected("--base", "HEAD")
        self.assertEqual(len(files), 4)
        self.assertIn(".clang-tidy", how)

    def test_all_and_one(self):
        self.assertEqual(self.selected("--all")[0], ["a.cpp", "b.cpp", "c.cpp", "d.cpp"])
        self.assertEqual(self.selected("src/[bc]")[0], ["b.cpp", "c.cpp"])

    def test_a_base_that_is_none_is_an_error(self):
        with self.assertRaises(SystemExit) as refused:
            changed.base_of("no-such-branch")
        self.assertIn("no-such-branch", str(refused.exception))


class Changed(unittest.TestCase):
    """Which checks a change can break."""

    def test_each_file_has_its_part(self):
        for path, part in {
            "src/engine/core.cpp": "core",
            "include/heddle/heddle.h": "core",
            "tools/run/launcher.cpp": "core",
            "tests/api/order_test.cpp": "core",
            "scripts/changed.py": "core",
            ".ci/run": "core",
            "CMakeLists.txt": "core",
            "docs/site/howto/CMakeLists.txt": "docs",
            "README.md": "docs",
            "interfaces/mpi/README.md": "docs",
            "interfaces/mpi/rma/win.cpp": "mpi",
            "examples/mpi/wave.cpp": "mpi",
            "examples/halo.cpp": "examples",
            "examples/expect.cmake": "core",
            "interfaces/openshmem/rma.cpp": "openshmem",
            "interfaces/python/src/module.cpp": "python",
            "tofu/emulator/cq.cpp": "tofu",
            "tofu/bench/threads.c": "tofu",
            "bench/main.cpp": "bench",
            "observe/explain/blame.cpp": "observe",
        }.items():
            self.assertEqual(changed.part_of(path), part, path)

    def test_each_wing_has_files_and_users(self):
        files = ((shutil.which("git") and changed.git("ls-files")) or "").split()
        if not files:
            self.skipTest("no clone of git")
        self.assertLessEqual(set(changed.SHARED), set(files))
        for wing, patterns in changed.WINGS:
            self.assertIn(wing, changed.USERS)
            for pattern in patterns:
                self.assertTrue(fnmatch.filter(files, pattern), f"{wing}: nothing matches {pattern}")

    def test_a_wing_means_the_tests_of_those_that_use_it(self):
        self.assertEqual(changed.labels_of({"mpi", "docs"}), ["example", "mpi", "observe"])
        self.assertEqual(changed.labels_of({"docs"}), [])

    def test_its_own_tests_are_the_first_of_them(self):
        self.assertEqual(changed.labels_of({"mpi", "docs"}, own=True), ["mpi"])
        self.assertEqual(changed.labels_of({"examples", "bench"}, own=True), ["bench", "example"])


class RetryFailed(unittest.TestCase):
    """A tree of three tests: one that passes, one that fails the first time, one that always fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        once = f"test -e {self.tree}/seen || {{ touch {self.tree}/seen; echo begun; kill -SEGV $$; }}"
        self.write({"good": "true", "once": once, "never": "false"})

    def write(self, tests):
        lines = [f'add_test([=[{name}]=] "/bin/sh" "-c" [=[{body}]=])' for name, body in tests.items()]
        (self.tree / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")

    def run_and_retry(self, pattern):
        subprocess.run(["ctest", "--test-dir", self.tree, "-R", pattern], capture_output=True, check=False)
        command = [sys.executable, SCRIPTS / "retry_failed.py", self.tree, self.tree / "flaky.txt"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_what_passes_alone_is_flaky(self):
        done = self.run_and_retry("good|once")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual((self.tree / "flaky.txt").read_text(), f"once in {self.tree}\n")
        self.assertNotIn("good", done.stdout)

    def test_how_a_flaky_one_ended_is_told(self):
        done = self.run_and_retry("once")
        self.assertRegex(done.stdout, r"(?m)^begun\n<its end> Test time = +[0-9.]+ sec\nFLAKY    once")

    def test_what_fails_three_times_has_failed(self):
        done = self.run_and_retry("never|once")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED   never", done.stdout)
        self.assertIn("FLAKY    once", done.stdout)

    def test_a_sanitizers_report_has_no_second_chance(self):
        once = f"test -e {self.tree}/raced || {{ touch {self.tree}/raced; echo 'WARNING: ThreadSanitizer: data race'; exit 66; }}"
        self.write({"race": once, "never": "false"})
        done = self.run_and_retry("race|never")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED   race", done.stdout)
        self.assertNotIn("race, alone", done.stdout)
        self.assertIn("never, alone", done.stdout)

    def test_without_a_failed_test_it_is_another_failure(self):
        done = self.run_and_retry("good")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no list of failed tests", done.stderr)


if __name__ == "__main__":
    unittest.main()
