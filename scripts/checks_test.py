#!/usr/bin/env python3
"""Tests of the checks themselves: on small trees and files with planted faults, each of which must be found."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_docs  # noqa: E402
import check_exports  # noqa: E402
import check_includes  # noqa: E402
import check_links  # noqa: E402
import check_names  # noqa: E402
import check_shape  # noqa: E402
import check_waits  # noqa: E402
import rewrap_comments  # noqa: E402

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


if __name__ == "__main__":
    unittest.main()
