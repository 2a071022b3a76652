#!/usr/bin/env python3
"""Tests of the checks themselves: on small trees and files with planted faults, each of which must be found."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import changed  # noqa: E402
import check_docs  # noqa: E402
import check_exports  # noqa: E402
import check_includes  # noqa: E402
import check_links  # noqa: E402
import check_names  # noqa: E402
import check_shape  # noqa: E402
import check_tidy  # noqa: E402
import check_waits  # noqa: E402
import rewrap_comments  # noqa: E402
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
    "src/worker/worker.hpp": '#include <vector>\n  #  include "transport/transport.hpp"\n',
    "src/api/worker.cpp": '#include "worker/worker.hpp"\n#include "bootstrap/inproc/inproc.hpp"\n',
    "src/tap/ask.hpp": '#include "base/error.hpp"\n',
    "tools/main.cpp": '#include "tap/ask.hpp"\n#include "transport/transport.hpp"\n',
    "observe/jobs.cpp": '#include "tap/ask.hpp"\n',
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
        self.refused("src/transport/x.cpp", '#include "worker/worker.hpp"', "transport may not include")
        self.refused("src/transport/shm/x.cpp", '#include "worker/worker.hpp"', "transport/shm may not include")
        self.refused("src/bootstrap/x.cpp", '#include "transport/transport.hpp"', "bootstrap may not include")

    def test_across(self):
        self.refused("src/transport/shm/x.cpp", '#include "transport/loopback/loopback.hpp"', "transport/shm may not")
        self.refused("src/engine/x.cpp", '#include "transport/shm/shm.hpp"', "engine may not include")
        self.refused("src/engine/x.cpp", '#include "bootstrap/inproc/inproc.hpp"', "engine may not include")
        self.refused("src/transport/x.cpp", '#include "transport/shm/shm.hpp"', "transport may not include")

    def test_a_test_is_no_way_around(self):
        self.refused("src/transport/shm/x_test.cpp", '#include "worker/worker.hpp"', "may not include")
        self.refused("src/base/x_test.cpp", '#include "bootstrap/bootstrap.hpp"', "may not include")

    def test_users_see_only_the_public_header(self):
        self.refused("examples/x.cpp", '#include "base/error.hpp"', "include/heddle only")
        self.refused("bench/x.cpp", '#include "transport/transport.hpp"', "bench may not include")
        self.refused("tools/x.cpp", '#include "worker/worker.hpp"', "tools may not include")
        self.refused("tools/x.cpp", '#include "bench/bench.hpp"', "tools may not include")
        self.refused("observe/x.cpp", '#include "bootstrap/bootstrap.hpp"', "observe may not include")
        self.refused("include/heddle/x.hpp", '#include "base/error.hpp"', "include may not include")
        self.refused("interfaces/one/x.hpp", '#include "base/error.hpp"', "include/heddle only")
        self.refused("interfaces/two/x.hpp", '#include "one/one.hpp"', "interfaces/two may not include")

    def test_ways_to_hide(self):
        self.refused("src/base/x.cpp", '#  include "../worker/worker.hpp"', "climbs")
        self.refused("src/base/x.cpp", '#include "no/such.hpp"', "is no file")
        result = Tree(self, {**GOOD, "include/heddle/y.hpp": "", "include/heddle/x.h": '#include "heddle/y.hpp"\n'}).run()
        self.assertIn("include/heddle/x.h:1: a C header cannot include", result.stdout)

    def test_unknown_folder(self):
        result = Tree(self, {**GOOD, "src/attic/x.cpp": "\n"}).run()
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/attic/x.cpp:1: the folder src/attic has no row", result.stdout)

    def test_nothing_to_check_is_an_error(self):
        self.assertEqual(Tree(self, {"docs/a.md": ""}).run().returncode, 2)


CMAKE = {
    "CMakeLists.txt": "add_subdirectory(src/base)\ntarget_link_libraries(heddle_base PUBLIC heddle_worker)  # all together: not looked at\n",
    "src/base/CMakeLists.txt": "heddle_room(base SOURCES config.cpp)\nheddle_test_program(base_tests ROOMS base)\n",
    "src/bootstrap/CMakeLists.txt": "heddle_room(bootstrap SOURCES ${SOURCES} DEPENDS base)  # DEPENDS worker\n",
    "src/transport/CMakeLists.txt": "heddle_room(transport SOURCES table.cpp DEPENDS base bootstrap ${folders})\n",
    "src/transport/shm/CMakeLists.txt": "heddle_room(transport_shm HOT SOURCES shm.cpp DEPENDS base bootstrap)\n"
                                        "if(HEDDLE_TESTS AND X)\n  add_library(slow_shm SHARED ../test/slow.cpp)\n"
                                        "  target_link_libraries(slow_shm PRIVATE heddle_transport)\nendif()\n",
    "src/worker/CMakeLists.txt": "heddle_room(worker SOURCES worker.cpp DEPENDS\n  base transport)\n",
    "src/api/CMakeLists.txt": "heddle_room(api SOURCES api.cpp DEPENDS base worker)\nadd_library(heddle SHARED $<TARGET_OBJECTS:heddle_api>)\n"
                              "add_library(heddle::heddle ALIAS heddle)\ntarget_link_libraries(heddle PRIVATE heddle_worker ${CMAKE_DL_LIBS})\n",
    "tools/CMakeLists.txt": "add_executable(heddle_tool main.cpp)\ntarget_link_libraries(heddle_tool PRIVATE heddle heddle_worker)\n"
                            "target_include_directories(heddle_tool PRIVATE ${PROJECT_SOURCE_DIR})\n",
    "tools/main.cpp": "// ../observe\n",
    "interfaces/one/CMakeLists.txt": "add_library(heddle_one SHARED one.cpp)\n"
                                     "target_include_directories(heddle_one PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/.. ${CMAKE_CURRENT_BINARY_DIR}/made)\n"
                                     "target_link_libraries(heddle_one PRIVATE heddle::heddle Threads::Threads)\n",
    "interfaces/two/CMakeLists.txt": "add_library(heddle_two SHARED two.cpp)\n",
    "interfaces/two/tests/CMakeLists.txt": "add_executable(two_rank rank.cpp)\ntarget_link_libraries(two_rank PRIVATE heddle_two heddle_bootstrap)\n",
    "tests/api/CMakeLists.txt": "add_executable(api_rank rank.cpp)\ntarget_link_libraries(api_rank PRIVATE heddle_api heddle_transport_shm)\n",
}


class Links(unittest.TestCase):
    def faults(self, more=None, besides=(), variables=(("src/transport/CMakeLists.txt", "heddle_${folders}"),), known=()):
        root = Tree(self, {**CMAKE, **(more or {})}).root
        found = check_links.faults_of(root, dict.fromkeys(besides, "why"), dict.fromkeys(variables, {"transport/*"}), dict.fromkeys(known, "why"))
        return [f"{path}:{line}: {reason}" for path, line, reason in found[1]]

    def refused(self, name, line, word, **tables):
        """The good tree with a line more in one file: that line alone, which is its first, is refused."""
        (fault,) = self.faults({name: line + "\n" + CMAKE.get(name, "")}, **tables)
        self.assertTrue(fault.startswith(f"{name}:1: "), fault)
        self.assertIn(word, fault)

    def test_a_tree_as_planned_passes(self):
        self.assertEqual(self.faults(), [])

    def test_up_and_across(self):
        for name, line, word in (
            ("src/base/CMakeLists.txt", "target_link_libraries(heddle_base PUBLIC heddle_worker)", "base may not use heddle_worker of worker"),
            ("src/wire/CMakeLists.txt", "heddle_room(wire SOURCES w.cpp DEPENDS base worker)", "wire may not use heddle_worker of worker"),
            ("src/transport/ucx/CMakeLists.txt", "heddle_room(transport_ucx SOURCES u.cpp DEPENDS transport_shm)", "may not use heddle_transport_shm"),
            ("src/base/CMakeLists.txt", "target_link_libraries(heddle_base PUBLIC heddle)", "base may not use heddle of api"),
            ("src/base/CMakeLists.txt", "target_sources(heddle_base PRIVATE $<TARGET_OBJECTS:heddle_api>)", "base may not use heddle_api of api"),
            ("observe/CMakeLists.txt", "target_link_libraries(observer PRIVATE heddle_bootstrap)", "observe may not use heddle_bootstrap"),
            ("interfaces/one/CMakeLists.txt", "target_link_libraries(heddle_one PRIVATE heddle_base)", "installed only"),
            ("interfaces/one/CMakeLists.txt", "target_link_libraries(heddle_one PRIVATE heddle_two)", "may not use heddle_two of interfaces/two"),
            ("bench/CMakeLists.txt", "of_mine(bench LIBRARIES heddle_two)", "bench may not use heddle_two"),
        ):
            with self.subTest(line=line):
                self.refused(name, line, word)

    def test_folders(self):
        base = "src/base/CMakeLists.txt"
        self.refused(base, "target_include_directories(heddle_base PRIVATE ${PROJECT_SOURCE_DIR}/tofu/x/include)", "of tofu")
        self.refused(base, "add_custom_command(OUTPUT x COMMAND y ${CMAKE_CURRENT_SOURCE_DIR}/../worker/x.txt)", "of worker")
        self.refused(base, "set(x ${HEDDLE_ROOT}/interfaces/${folder}/x.txt)", "of interfaces/*")
        self.refused("interfaces/one/made.cmake", "set(x ../two/table.txt)", "of interfaces/two")

    def test_ways_to_hide(self):
        worker = "src/worker/CMakeLists.txt"
        self.refused(worker, "target_link_libraries(heddle_worker PRIVATE ${more})", "say which rooms these are")
        self.refused("src/wire/CMakeLists.txt", "heddle_room(wire SOURCES w.cpp DEPENDS ${more})", "say which rooms these are")
        self.refused(worker, "target_link_libraries(heddle_worker PRIVATE heddle_no_such)", "which no room makes")
        self.refused(worker, "target_link_libraries(heddle_worker PRIVATE two_rank)", "two_rank is of tests, and worker is not")
        self.refused("src/base/CMakeLists.txt", "target_link_libraries(heddle_base PUBLIC # all\n \"heddle_worker\")", "heddle_worker")

    def test_what_tests_alone_have(self):
        line = "  target_link_libraries(heddle_base PUBLIC heddle_worker)\n"
        for text, faults in (("if(HEDDLE_TESTS)\n" + line + "endif()\n", 0), ("if(NOT HEDDLE_TESTS OR X)\n  return()\nendif()\n" + line, 0),
                             ("if(HEDDLE_INSTALL OR HEDDLE_TESTS)\n" + line + "endif()\n", 1), ("if(NOT HEDDLE_TESTS)\n" + line + "endif()\n", 1),
                             ("if(HEDDLE_TESTS)\nelse()\n" + line + "endif()\n", 1), ("if(X)\n  return()\nendif()\n" + line, 1),
                             ("if(NOT HEDDLE_TESTS)\nelse()\n" + line + "endif()\n", 0)):
            with self.subTest(text=text):
                self.assertEqual(len(self.faults({"src/base/CMakeLists.txt": CMAKE["src/base/CMakeLists.txt"] + text})), faults)

    def test_rows_can_only_shrink(self):
        wrong = {"src/base/CMakeLists.txt": CMAKE["src/base/CMakeLists.txt"] + "set(x ${HEDDLE_ROOT}/tofu/x)\n"}
        self.assertEqual(self.faults(wrong, besides=[("src/base", "tofu")]), [])
        (stale,) = self.faults(besides=[("src/base", "tofu")])
        self.assertIn("names nothing of tofu: take away its row", stale)

    def test_words_of_wings_in_the_core(self):
        (fault,) = self.faults({"tools/main.cpp": '\nconst char* folder = "../observe";\n'})
        self.assertEqual(fault, "tools/main.cpp:2: ../observe is a word of observe, which the core does not know")
        self.assertEqual(self.faults({"tools/main.cpp": 'auto x = "UTOFU_EMU_FD";\n'}, known=[("tools/", "tofu")]), [])
        self.assertIn("take away its row", *self.faults(known=[("tools/", "tofu")]))

    def test_this_tree(self):
        self.assertEqual(check_links.faults_of(SCRIPTS.parent, check_links.BESIDES, check_links.VARIABLES, check_links.KNOWN)[1], [])


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
    "docs/journal/README.md": "[a](a.md)\n",
    "docs/journal/a.md": "\n",
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
        return (check_docs.check_example(root) + check_docs.check_rooms(root) + check_docs.check_indexes(root)
                + check_docs.check_links(root) + check_docs.check_names(root) + check_docs.check_files(root))

    def test_good(self):
        self.assertEqual(self.faults("README.md", DOCS["README.md"]), [])

    def test_planted(self):
        for name, text, word in (
            ("examples/hello.cpp", "int main() { }\n", "word for word"),
            ("src/base/README.md", None, "src/base/README.md: is missing"),
            ("src/base/README.md", "x\n" * 61, "61 lines"),
            ("docs/guide.md", "\n[a](nowhere.md)\n", "docs/guide.md:2: nowhere.md leads nowhere"),
            ("docs/decisions/0002-b.md", "\n", "0002-b.md has no row"),
            ("docs/journal/b.md", "\n", "docs/journal/README.md: b.md has no row"),
            ("docs/guide.md", "HEDDLE_LOUD\n", "HEDDLE_LOUD is no variable"),
            ("docs/guide.md", "`x.cpp` `base/config.cpp` `base/gone.hpp`\n", "docs/guide.md: there is no base/gone.hpp"),
            ("src/base/config.cpp", "HEDDLE_LOG\n// See gone.hpp, and config.cpp.\n", "src/base/config.cpp: there is no gone.hpp"),
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
            (["/usr/bin/python3", "/house/scripts/x.py", f"{self.TREE}/tools/heddle,{self.TREE}/examples/hello", "-"],
             {"tools/heddle", "examples/hello"}),
            (["/usr/bin/python3", "/house/scripts/x.py", f"{self.TREE}/none", "/other/tools/heddle"], set()),
        ]:
            self.assertEqual(test_targets.targets_of(command, self.TREE, known), wanted, command)


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
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "HEDDLE_TIDY", "HEDDLE_CHANGED"))}
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


SHAPES = r"""
#pragma once
#define DECLARES(x) void x(); struct Macro { void no(); \
  };
namespace heddle::inner {
enum class Color : int { red, green };
template <typename T, std::size_t N = (3 > 2) ? 1 : 2>
class [[nodiscard]] alignas(64) Box final : public Base<T>, private Other {
  void hidden();

 public:
  explicit Box(int size) : Base<T>{size}, size_(size), text_{"{;"} { fill(); }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = default;
  Box(Box&&) noexcept;
  virtual ~Box() { if (a < b) { drop(); } }
  int one() const { return size_ < 3 ? '{' : 1'000; }  // void comment();
  /* void block(); */
  [[nodiscard]] static std::map<int, std::function<void(int)>> two(int a = f(3), int b = {}) noexcept(noexcept(x()));
  virtual int three(std::span<const int> values) = 0;
  void gone(double) = delete;
  template <typename F>
    requires std::invocable<F>
  auto four(F&& f) -> decltype(f()) {
    return f([] { struct Local { void no(); }; });
  }
  bool operator==(const Box&) const = default;
  explicit operator bool() const;
  int operator()(int) const;
  int& operator[](int at) { return data_[at]; }
  bool operator<(const Box& other) const { return a < other.a; }
  friend class Friend;
  friend bool equal(const Box&, const Box&);
  using Call = void (*)(int);
  typedef void Type(int);
  static_assert(sizeof(T) > 1);
  void (*pointer)(int) = nullptr;
  std::function<void(int)> function{[](int) {}};
  int value = compute(3), other{4};
  const char* raw = R"x(void raw(); } " )x";
  struct Inside {
    int data;
    void first();
   private:
    void second();
  } inside;

 protected:
  void guarded();
 private:
  int size_;
};
struct Plain { int a{1}; void run(); };
class Forward;
struct Made : Plain { using Plain::Plain; DECLARES(x) };
constexpr auto kTable = std::array{Plain{.a = 1}, Plain{}};
extern "C" { struct Inner { void f(); void f(int); }; }
void Box<int>::one() { while (x) { y(); } }
}  // namespace
class After { public: void f(); };
"""


class Shape(unittest.TestCase):
    def test_public_functions(self):
        found = check_shape.functions_of(SHAPES)
        self.assertEqual(found["Box"], ["one", "two", "three", "four", "operator==", "operatorbool", "operator()", "operator[]", "operator<"])
        self.assertEqual(found["Box::Inside"], ["first"])
        self.assertEqual(found["Plain"], ["run"])
        self.assertEqual(found["Inner"], ["f", "f"])
        self.assertEqual(found["After"], ["f"])
        self.assertEqual(set(found), {"Box", "Box::Inside", "Plain", "Made", "Inner", "After"})

    def test_friends(self):
        self.assertEqual(check_shape.friends_of(SHAPES), 2)
        self.assertEqual(check_shape.friends_of('// a friend\nconst char* x = "friend ";\nint friendly;\n'), 0)

    def faults(self, public=40, friends=0, tables=({}, {}), text=""):
        body = "".join(f"void f{number}();" for number in range(public)) + "friend class Y;" * friends
        root = Tree(self, {"src/x.hpp": f"struct X {{ {body} }};\n{text}"}).root
        return check_shape.faults_of(root, *tables, bool(text))[1]

    def test_the_rules(self):
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(public=41), ["src/x.hpp X: 41 public functions; at most 40"])
        self.assertEqual(self.faults(friends=1), ["src/x.hpp: 1 friends; at most 0"])

    def test_exceptions_can_only_shrink(self):
        row = ({("src/x.hpp", "X"): 45}, {"src/x.hpp": 2})
        self.assertEqual(self.faults(45, 2, row), [])
        grown = self.faults(46, 3, row)
        self.assertEqual(len(grown), 2)
        self.assertIn("46 public functions; it had 45", grown[0])
        smaller, gone = self.faults(44, 0, row)
        self.assertIn("put 44 into its row", smaller)
        self.assertIn("0 friends, no longer 2: take away its row", gone)
        self.assertIn("take away its row", check_shape.ratchet({}, {"gone.hpp": 1}, 0, "friends", str)[0])

    def test_wide_comments(self):
        wide = "// " + "x " * 49 + "y"
        self.assertEqual(check_shape.wide_comments(f"{wide[:100]}\n{wide}\n"), [(2, 102)])
        self.assertEqual(check_shape.wide_comments(f'auto x = "{wide}";\n// NOLINT{wide}\n'), [])
        self.assertEqual(check_shape.wide_comments(f"/* a\n{wide} */\n{wide[2:]}/* c */ int y;\n"), [(2, 105)])
        self.assertEqual(check_shape.wide_comments(f"int x;{' ' * 94}// y\n"), [(1, 104)])
        self.assertEqual(len(self.faults(text=wide)), 1)

    def test_this_tree(self):
        _, faults = check_shape.faults_of(SCRIPTS.parent, check_shape.FUNCTIONS, check_shape.FRIENDS, False)
        self.assertEqual(faults, [])


NAMES = {
    "docs/glossary.md": "| word | means | not |\n| --- | --- | --- |\n| device | a part | `station`, home |\n| peer state | b | `channel` in src/transport |\n",
    "src/queue/ring.hpp": "namespace heddle::queue {\nclass Ring {\n  struct Inside {};\n};\n}\n",
    "src/queue/ring_test.cpp": "namespace heddle::queue::ring_test {\nnamespace {\nstruct Station {};\n}\nstruct Port {};\n}\n",
    "src/transport/transport.hpp": "namespace heddle::transport {\nclass Port;\n}\n",
    "src/transport/shm/port.hpp": "namespace heddle::queue {\nclass Ring;  // ring.hpp\n}\nnamespace heddle::transport::shm {\nclass Port final : public A<B> {\n};\n}\n",
    "src/transport/ucx/port.cpp": "namespace heddle::transport::ucx {\nnamespace {\nstruct Ring {};\n}\nstruct alignas(64) Port {};\n}\n",
    "interfaces/mpi/core/comm.hpp": "namespace heddle::mpi {\nstruct Comm {};\n}\n",
    "interfaces/openshmem/comm.hpp": "namespace heddle::shmem {\nstruct Comm {};\nint channel;  // of another folder than the one that refuses it\n}\n",
}


class Names(unittest.TestCase):
    def faults(self, more=None, namespaces=(), parts=("Port",), classes=(), words=()):
        root = Tree(self, {**NAMES, **(more or {})}).root
        return check_names.faults_of(root, dict(namespaces), set(parts), dict(classes), dict(words))[1]

    def fault(self, *arguments, **exceptions):
        found = self.faults(*arguments, **exceptions)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_what_a_text_defines(self):
        spaces, classes = check_names.definitions(SHAPES)
        self.assertEqual(spaces, {"heddle::inner"})
        self.assertEqual(classes, {"Box", "Plain", "Made", "Inner", "After"})
        self.assertEqual(check_names.definitions("struct stat* f() {}\nvoid g(struct stat s) {}\nstruct A<int> {};\nenum class E {};"), (set(), set()))

    def test_a_good_tree(self):
        self.assertEqual(self.faults(), [])

    def test_namespaces(self):
        wrong = {"src/worker/gate.hpp": "namespace heddle::engine {\nclass Gate {};\n}\n"}
        self.assertEqual(self.fault(wrong), "src/worker/gate.hpp: namespace heddle::engine; its room's is heddle::worker")
        row = {"src/worker": ("heddle::engine", "")}
        self.assertEqual(self.faults(wrong, row), [])
        self.assertIn("src/worker: its namespaces are as they should be", self.fault(namespaces=row))
        other = self.faults(wrong, {"src/worker/worker.hpp": ("heddle::engine", "")})
        self.assertEqual(len(other), 2, other)

    def test_classes(self):
        twice = {"src/worker/ring.hpp": "namespace heddle::worker {\nstruct Ring {};\n}\n"}
        self.assertEqual(self.fault(twice), "class Ring: in src/queue, src/worker; say of what each is")
        row = {"Ring": ({"src/queue", "src/worker"}, "")}
        self.assertEqual(self.faults(twice, classes=row), [])
        self.assertIn("class Ring: not in two rooms: take away its row", self.fault(classes=row))
        self.assertIn("no longer in src/wire", self.fault(twice, classes={"Ring": ({"src/queue", "src/worker", "src/wire"}, "")}))
        thrice = {**twice, "tools/ring.hpp": "namespace heddle::tools {\nstruct Ring {};\n}\n"}
        self.assertIn("class Ring: also in tools", self.fault(thrice, classes=row))
        wing = {"interfaces/mpi/rma/ring.hpp": "namespace heddle::mpi {\nclass Ring {};\n}\n"}
        self.assertIn("class Ring: in interfaces/mpi, src/queue", self.fault(wing))

    def test_parts_of_a_contract(self):
        self.assertIn("class Port: in src/transport/shm, src/transport/ucx", self.fault(parts=()))
        self.assertIn("class Regions: no part of two implementations", self.fault(parts=("Port", "Regions")))
        outside = {"src/worker/port.hpp": "namespace heddle::worker {\nstruct Port {};\n}\n"}
        self.assertIn("class Port: in src/transport/*, src/worker", self.fault(outside))

    def test_words(self):
        planted = {"src/queue/home.hpp": "namespace heddle::queue {\nint stations_;  // channel\n}\n"}
        self.assertEqual(self.fault(planted), "src/queue/home.hpp: stations_: docs/glossary.md has another word for station")
        row = {("station", "src/queue/"): ({"stations_"}, "")}
        self.assertEqual(self.faults(planted, words=row), [])
        self.assertIn("stations_ no longer there", self.fault(words=row))
        self.assertIn("does not refuse it", self.fault(words={("place", ""): ({"place"}, "")}))
        here = {"src/transport/shm/names.hpp": "namespace heddle::transport::shm {\nvoid open_channels();\n}\n"}
        self.assertIn("open_channels", self.fault(here))

    def test_forms_of_words(self):
        for word, names in {"settle": ("settled", "settling_", "doesSettle", "kSettleNs"), "give_up": ("gives_up", "giving_up", "GiveUp"),
                            "conclude": ("concluding",), "withdraw": ("withdrawal", "withdrawn"), "refuse": ("kRefusals", "refuse_wait", "refusal_")}.items():
            for name in names:
                self.assertTrue(check_names.pattern_of(word).search(check_names.parts_of(name)), name)
        for word, name in (("settle", "settler"), ("station", "workstation"), ("conclude", "include")):
            self.assertFalse(check_names.pattern_of(word).search(check_names.parts_of(name)), name)

    def test_this_tree(self):
        tables = check_names.NAMESPACES, check_names.PARTS, check_names.CLASSES, check_names.WORDS
        self.assertEqual(check_names.faults_of(SCRIPTS.parent, *tables)[1], [])


class Waits(unittest.TestCase):
    def test_pauses_are_found(self):
        for planted in ("while (word.load() != 0) sched_yield();", "  ::sched_yield();", "std::this_thread::sleep_for(1ms);",
                        "base::cpu_relax();", "while (!done.load(std::memory_order_acquire)) {}", "while (word.load() == 1);"):
            self.assertEqual(check_waits.pauses_in("int x;\n" + planted + "\n"), [2], planted)
        for innocent in ("// sched_yield();", 'say("sched_yield()");', "while (word.load() != 0) step();", "void cpu_relaxed();"):
            self.assertEqual(check_waits.pauses_in(innocent), [], innocent)

    def test_exceptions_can_only_shrink(self):
        tree = Tree(self, {"src/a.cpp": "void f() { sched_yield(); }\nvoid g() { sched_yield(); }\n",
                           "src/a_test.cpp": "void t() { sched_yield(); }\n"})
        found = lambda known: list(check_waits.faults(tree.root, known))  # noqa: E731
        self.assertEqual(found({"src/a.cpp": (2, "")}), [])
        self.assertIn("src/a.cpp: 2 places pause (lines 1, 2), 1 are known", found({"src/a.cpp": (1, "")})[0])
        self.assertIn("src/a.cpp: 2 places pause", found({})[0])
        self.assertIn("take the row down", found({"src/a.cpp": (3, "")})[0])
        self.assertIn("is not there", found({"src/a.cpp": (2, ""), "src/b.cpp": (1, "")})[0])

    def test_this_tree(self):
        self.assertEqual(list(check_waits.faults(SCRIPTS.parent, check_waits.KNOWN)), [])


class Rewrap(unittest.TestCase):
    WORDS = "the quick brown fox jumps over the lazy dog and then again "

    def rewrapped(self, text):
        result = rewrap_comments.rewrapped(text)
        self.assertEqual(rewrap_comments.rewrapped(result), result, "a second time changes it again")
        return result

    def lines(self, text):
        result = self.rewrapped(text).splitlines()
        self.assertEqual([line for line in result if len(line) > 100], [])
        return result

    def test_what_is_narrow_stays(self):
        for text in ("// short\n// lines\nint x;  // here\n", "int x;\n", "/* a\n * b */\n", f'auto s = "// {self.WORDS * 3}";\n'):
            self.assertEqual(self.rewrapped(text), text)

    def test_a_paragraph(self):
        lines = self.lines(f"  // One {self.WORDS * 3}\n  // end.\n  //\n  // Two.\n  int x;\n")
        self.assertEqual(lines[-3:], ["  //", "  // Two.", "  int x;"])
        self.assertTrue(all(line.startswith("  // ") for line in lines[:-3]))
        self.assertIn(("One " + self.WORDS * 3 + "end.").split(), [" ".join(line[4:].strip() for line in lines[:-3]).split()])

    def test_lists_keep_their_indentation(self):
        lines = self.lines(f"//  * first {self.WORDS * 2}\n//    goes on\n//  * second\n//  12. third {self.WORDS * 2}\n")
        self.assertEqual([line[:7] for line in lines], ["//  * f", "//    o", "//  * s", "//  12.", "//     "])

    def test_tables_are_not_merged(self):
        lines = self.lines(f"// a    one {self.WORDS * 2}\n// bcd  two\n//   e  three\n")
        self.assertTrue(lines[0].startswith("// a    one the"))
        self.assertRegex(lines[1], r"^//      \w")
        self.assertEqual(lines[2:], ["// bcd  two", "//   e  three"])

    def test_labels_begin_a_paragraph(self):
        lines = self.lines(f"/* Memory.  {self.WORDS * 2}\n * and {self.WORDS}and so on.\n * Errors: {self.WORDS * 2}*/\n")
        self.assertTrue(all(re.match(r"(/\*| \*) \w", line) for line in lines), lines)
        self.assertEqual(sum(line.startswith(" * Errors: ") for line in lines), 1)

    def test_no_line_begins_like_an_item(self):
        for mark in ("-", "*", "2.", "a)", "//", "#if"):
            for fill in range(80, 101):
                lines = self.lines("// word " + "x" * (fill - 9) + f" {mark} more {self.WORDS}\n")
                self.assertFalse(any(line[3:].startswith(mark) for line in lines), (mark, lines))

    def test_no_line_ends_in_a_backslash(self):
        for fill in range(80, 101):
            lines = self.lines("// word " + "x" * (fill - 9) + f" a\\ more {self.WORDS}\n")
            self.assertFalse(any(line.endswith("\\") for line in lines))

    def test_behind_code(self):
        code = "  int member = 0;"
        lines = self.lines(f"{code}  // {self.WORDS * 2}\n{' ' * 19}// goes on\n  int next;  // short\n")
        self.assertTrue(lines[0].startswith("  // the quick"))
        self.assertTrue(" ".join(lines).endswith("goes on   int member = 0;   int next;  // short"))
        lines = self.lines(f"  if (a) {{\n  }} else {{  // {self.WORDS * 2}\n    b();\n  }}\n")
        self.assertEqual(lines[1], "  } else {")
        self.assertTrue(lines[2].startswith("    // the quick"))
        lines = self.lines(f"  int member =\n      0;  // {self.WORDS * 2}\n")
        self.assertEqual(lines[-2:], ["  int member =", "      0;"])
        lines = self.lines(f"  // NOLINTNEXTLINE(x)\n  int a;  // {self.WORDS * 2}\n")
        self.assertEqual(lines[-2:], ["  // NOLINTNEXTLINE(x)", "  int a;"])

    def test_what_stays(self):
        wide = self.WORDS * 2
        for text in (f"int x;  // NOLINT(a): {wide}\n", f"#endif  // {wide}\n", f"// clang-format off\n// {wide}\n// clang-format on\n",
                     f"// ─── {wide}\n", f"#define A(x) \\\n  f(x); // {wide}\n", f"/// {wide}\n", f"/** {wide} */\n", f"// {wide} \\\n{wide}\n"):
            self.assertEqual(self.rewrapped(text), text)

    def test_rules(self):
        self.assertEqual(self.rewrapped("// ---- a " + "-" * 110 + "\n"), "// ---- a " + "-" * 90 + "\n")
        self.assertEqual(self.rewrapped("/* ---- a " + "-" * 110 + " */\n"), "/* ---- a " + "-" * 87 + " */\n")
        self.lines(f"// ---- {self.WORDS * 2}{'-' * 20}\n")

    def test_blocks(self):
        lines = self.lines(f"/* First {self.WORDS * 3}\n * end.\n *\n * Second. */\nint f(void);\n")
        self.assertEqual((lines[0][:8], lines[-4:][1:]), ("/* First", [" *", " * Second. */", "int f(void);"]))
        lines = self.lines(f"  A = 1, /* {self.WORDS * 2}\n            {self.WORDS} */\n  B\n")
        self.assertTrue(lines[0].startswith("  /* the"))
        self.assertEqual(lines[-2:], ["  A = 1,", "  B"])

    def test_code_that_would_change_is_refused(self):
        class Wrong:
            def __init__(self, text):
                self.text = text

            def run(self):
                return self.text.replace("x", "y")

        kept = rewrap_comments.Rewrapper
        self.addCleanup(setattr, rewrap_comments, "Rewrapper", kept)
        rewrap_comments.Rewrapper = Wrong
        with self.assertRaises(ValueError):
            rewrap_comments.rewrapped("int x;\n")


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
