#!/usr/bin/env python3
"""Tests of the checks themselves: on small trees and files with planted faults, each of which must be found."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_docs  # noqa: E402
import check_exports  # noqa: E402
import check_includes  # noqa: E402
import check_tidy  # noqa: E402
import test_targets  # noqa: E402

SCRIPTS = pathlib.Path(__file__).resolve().parent


class Tree:
    """A repository of a few files in a temporary folder."""

    def __init__(self, test, files):
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self):
        return subprocess.run(
            [sys.executable, SCRIPTS / "check_includes.py", self.root], capture_output=True, text=True, check=False
        )


GOOD = {
    "include/heddle/heddle.h": "#include <stdint.h>\n",
    "src/base/error.hpp": '#include "heddle/heddle.h"\n',
    "src/bootstrap/bootstrap.hpp": '#include "base/error.hpp"\n',
    "src/bootstrap/inproc/inproc.hpp": '#include "bootstrap/bootstrap.hpp"\n',
    "src/transport/transport.hpp": '#include "bootstrap/bootstrap.hpp"\n',
    "src/transport/shm/shm.hpp": '#include "transport/transport.hpp"\n',
    "src/transport/shm/shm.cpp": '#include "shm.hpp"\n',
    "src/transport/shm/shm_test.cpp": '#include "bootstrap/inproc/inproc.hpp"\n',
    "src/transport/loopback/loopback.hpp": '#include "transport/transport.hpp"\n',
    "src/transport/table.cpp": '#include "transport/shm/shm.hpp"\n#include "transport/loopback/loopback.hpp"\n',
    "src/engine/worker.hpp": '#include <vector>\n  #  include "transport/transport.hpp"\n',
    "src/api/worker.cpp": '#include "engine/worker.hpp"\n#include "bootstrap/inproc/inproc.hpp"\n',
    "tools/main.cpp": '#include "bench/bench.hpp"\n#include "transport/transport.hpp"\n',
    "bench/bench.hpp": '#include <heddle/heddle.h>\n#include "harness/json.hpp"\n',
    "bench/harness/json.hpp": "\n",
    "examples/hello.c": "#include <heddle/heddle.h>\n",
    "interfaces/one/one.hpp": "#include <heddle/heddle.h>\n",
    "interfaces/one/tests/one.cpp": '#include "one/one.hpp"\n',
}


class Includes(unittest.TestCase):
    def refused(self, name, line, word):
        """The planted file alone must be refused, at its second line, for a reason that holds `word`."""
        tree = Tree(self, {**GOOD, name: "// first line\n" + line + "\n"})
        result = tree.run()
        self.assertEqual(result.returncode, 1, result.stdout)
        first, last = result.stdout.splitlines()[0], result.stdout.splitlines()[-1]
        self.assertTrue(first.startswith(f"{name}:2: "), result.stdout)
        self.assertIn(word, first)
        self.assertIn(" 1 refused", last)

    def test_a_tree_as_planned_passes(self):
        result = Tree(self, GOOD).run()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn(f"{len(GOOD)} files, 0 refused", result.stdout)

    def test_up(self):
        self.refused("src/base/x.cpp", '#include "transport/transport.hpp"', "base may not include")
        self.refused("src/transport/x.cpp", '#include "engine/worker.hpp"', "transport may not include")
        self.refused("src/transport/shm/x.cpp", '#include "engine/worker.hpp"', "transport/shm may not include")
        self.refused("src/bootstrap/x.cpp", '#include "transport/transport.hpp"', "bootstrap may not include")

    def test_across(self):
        self.refused("src/transport/shm/x.cpp", '#include "transport/loopback/loopback.hpp"', "transport/shm may not")
        self.refused("src/engine/x.cpp", '#include "transport/shm/shm.hpp"', "engine may not include")
        self.refused("src/engine/x.cpp", '#include "bootstrap/inproc/inproc.hpp"', "engine may not include")
        self.refused("src/transport/x.cpp", '#include "transport/shm/shm.hpp"', "transport may not include")

    def test_a_test_is_no_way_around(self):
        self.refused("src/transport/shm/x_test.cpp", '#include "engine/worker.hpp"', "may not include")
        self.refused("src/base/x_test.cpp", '#include "bootstrap/bootstrap.hpp"', "may not include")

    def test_users_see_only_the_public_header(self):
        self.refused("examples/x.cpp", '#include "base/error.hpp"', "include/heddle only")
        self.refused("bench/x.cpp", '#include "transport/transport.hpp"', "bench may not include")
        self.refused("tools/x.cpp", '#include "engine/worker.hpp"', "tools may not include")
        self.refused("include/heddle/x.hpp", '#include "base/error.hpp"', "include may not include")
        self.refused("interfaces/one/x.hpp", '#include "base/error.hpp"', "include/heddle only")
        self.refused("interfaces/two/x.hpp", '#include "one/one.hpp"', "interfaces/two may not include")

    def test_ways_to_hide(self):
        self.refused("src/base/x.cpp", '#  include "../engine/worker.hpp"', "climbs")
        self.refused("src/base/x.cpp", '#include "no/such.hpp"', "is no file")
        result = Tree(self, {**GOOD, "include/heddle/y.hpp": "", "include/heddle/x.h": '#include "heddle/y.hpp"\n'}).run()
        self.assertIn("include/heddle/x.h:1: a C header cannot include", result.stdout)

    def test_unknown_folder(self):
        result = Tree(self, {**GOOD, "src/attic/x.cpp": "\n"}).run()
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/attic/x.cpp:1: the folder src/attic has no row", result.stdout)

    def test_nothing_to_check_is_an_error(self):
        self.assertEqual(Tree(self, {"docs/a.md": ""}).run().returncode, 2)


HEADER = """
/* HEDDLE_API int not_this(void); */
#define HEDDLE_API __attribute__((visibility("default")))
HEDDLE_API const char* heddle_one(int);
HEDDLE_API heddle_status heddle_two(heddle_worker worker,
                                    void (*fn)(void));
// HEDDLE_API int nor_this(void);
int heddle_unmarked(void);
"""
LIBRARY = 'extern "C" { int heddle_one(int) { return 1; } %s }'


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "h.h").write_text(HEADER)

    def check(self, body):
        (self.root / "l.cpp").write_text(LIBRARY % body)
        library = self.root / "l.so"
        subprocess.run(["c++", "-shared", "-fPIC", "-nostdlib", "-o", library, self.root / "l.cpp"], check=True)
        return subprocess.run(
            [sys.executable, SCRIPTS / "check_exports.py", self.root / "h.h", library],
            capture_output=True,
            text=True,
            check=False,
        )

    def test_the_same_set_passes(self):
        self.assertEqual(check_exports.declared(self.root / "h.h"), {"heddle_one", "heddle_two"})
        result = self.check("int heddle_two() { return 2; }")
        self.assertEqual((result.returncode, result.stdout), (0, "check_exports: 2 declared, 2 exported\n"))

    def test_missing(self):
        result = self.check("")
        self.assertEqual(result.returncode, 1)
        self.assertIn("heddle_two is declared but", result.stdout)

    def test_one_too_many(self):
        result = self.check("int heddle_two() { return 2; } int heddle_secret_data = 3;")
        self.assertEqual(result.returncode, 1)
        self.assertIn("exports heddle_secret_data", result.stdout)


DOCS = {
    "README.md": "[guide](docs/guide.md) HEDDLE_LOG\n```cpp\nint main() {}\n```\n",
    "examples/hello.cpp": "int main() {}\n",
    "examples/README.md": "\n",
    "docs/decisions/README.md": "[0001](0001-a.md)\n",
    "docs/decisions/0001-a.md": "\n",
    "docs/guide.md": "[up](../README.md#top) [out](https://example.org/x)\n",
    "src/base/config.cpp": "HEDDLE_LOG\n",
    "src/base/CMakeLists.txt": "\n",
    "src/base/README.md": "x\n" * 60,
}


class Docs(unittest.TestCase):
    def faults(self, name, text):
        """What is said of the good tree with one file replaced (None: taken away)."""
        files = {**DOCS, name: text}
        tree = Tree(self, {key: value for key, value in files.items() if value is not None})
        root = tree.root
        return (check_docs.check_example(root) + check_docs.check_rooms(root) + check_docs.check_decisions(root)
                + check_docs.check_links(root) + check_docs.check_names(root))

    def test_good(self):
        self.assertEqual(self.faults("README.md", DOCS["README.md"]), [])

    def test_planted(self):
        for name, text, word in (
            ("examples/hello.cpp", "int main() { }\n", "word for word"),
            ("src/base/README.md", None, "src/base/README.md: is missing"),
            ("src/base/README.md", "x\n" * 61, "61 lines"),
            ("docs/guide.md", "\n[a](nowhere.md)\n", "docs/guide.md:2: nowhere.md leads nowhere"),
            ("docs/decisions/0002-b.md", "\n", "0002-b.md has no row"),
            ("docs/guide.md", "HEDDLE_LOUD\n", "HEDDLE_LOUD is no variable"),
        ):
            with self.subTest(word=word):
                (fault,) = self.faults(name, text)
                self.assertIn(word, fault)


class IncludesUnits(unittest.TestCase):
    def test_rooms(self):
        path = pathlib.PurePosixPath
        self.assertEqual(check_includes.room_of(path("src/transport/shm/x.cpp")), ("src/transport", "transport/shm"))
        self.assertEqual(check_includes.room_of(path("src/transport/x.cpp")), ("src/transport", "transport"))
        self.assertEqual(check_includes.room_of(path("src/engine/deep/x.cpp")), ("src/engine", "engine"))
        self.assertEqual(check_includes.room_of(path("include/heddle/heddle.h")), ("include", "include"))


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
            (["/usr/bin/python3", "/house/scripts/x.py", f"{self.TREE}/none", "/other/tools/heddle"], set()),
        ]:
            self.assertEqual(test_targets.targets_of(command, self.TREE, known), wanted, command)


class TidyHashes(unittest.TestCase):
    """What was found clean is looked at again if anything that it is made of has changed, and only then."""

    FILES = {
        ".clang-tidy": "Checks: '*'\n",
        "src/a.cpp": '#include "b.hpp"\n#include <string>\n',
        "src/b.hpp": '#pragma once\n#include "made/c.hpp"\n',
        "build/made/c.hpp": "int c();\n",
        "src/other.hpp": "int other();\n",
    }

    def setUp(self):
        self.root = Tree(self, self.FILES).root
        kept = check_tidy.ROOT
        self.addCleanup(setattr, check_tidy, "ROOT", kept)
        check_tidy.ROOT = self.root

    def hash(self, words=(), version="1"):
        check_tidy.included.cache_clear()
        return check_tidy.hash_of(self.root / "src/a.cpp", ("", ("clang++", f"-I{self.root}/build", *words)), version)

    def test_of_what_counts(self):
        first = self.hash()
        self.assertEqual(first, self.hash())
        self.assertNotEqual(first, self.hash(words=("-O2",)))
        self.assertNotEqual(first, self.hash(version="2"))
        for name in (".clang-tidy", "src/a.cpp", "src/b.hpp", "build/made/c.hpp"):
            with self.subTest(name=name):
                (self.root / name).write_text(self.FILES[name] + "// another\n")
                self.assertNotEqual(first, self.hash())
                (self.root / name).write_text(self.FILES[name])
                self.assertEqual(first, self.hash())

    def test_of_what_does_not(self):
        first = self.hash()
        (self.root / "src/other.hpp").write_text("int another();\n")
        self.assertEqual(first, self.hash())


class RetryFailed(unittest.TestCase):
    """A tree of three tests: one that passes, one that fails the first time, one that always fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        once = f"test -e {self.tree}/seen || {{ touch {self.tree}/seen; exit 1; }}"
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
