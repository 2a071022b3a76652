#!/usr/bin/env python3
"""heddle_lcw.cmake in projects that are laid out as LCW is, whose sources are the stand-in.

    hook_test.py BUILD HEDDLE …     BUILD: a tree of Heddle, of which is installed what the backend needs; HEDDLE: its launcher
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, HEDDLE = "", ""
TESTS = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("CMAKE_GENERATOR", "Ninja")  # scripts/packages.txt has no make

PROJECT = """cmake_minimum_required(VERSION 3.19)
project(LCW LANGUAGES CXX)
add_subdirectory(src)
"""
LIBRARY = """add_library(lcw lcw.cpp backend/backend.cpp)
set_target_properties(lcw PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
target_include_directories(lcw PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
"""
PROGRAM = f"""
find_package(Threads REQUIRED)
add_executable(program {TESTS}/operations_rank.cpp)
target_compile_features(program PRIVATE cxx_std_17)
target_link_libraries(program PRIVATE lcw Threads::Threads)
"""
# A project that has LCW within it, as those have that fetch it.
AROUND = """cmake_minimum_required(VERSION 3.19)
project(Around LANGUAGES CXX)
add_subdirectory(lcw)
""" + PROGRAM


def run(*command):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "LCW_"))}
    return subprocess.run([str(word) for word in command], env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=250)


class Hook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="heddle-lcw-")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        cls.prefix = cls.scratch / "heddle"
        for component in ("library", "development"):
            done = run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", component)
            if done.returncode != 0:
                raise AssertionError(done.stdout)
        cls.hook = cls.prefix / "share/heddle/lcw/heddle_lcw.cmake"

    def lcw(self, folder, library=LIBRARY, more=""):
        shutil.copytree(TESTS / "stand_in", folder / "src")
        (folder / "CMakeLists.txt").write_text(PROJECT + more)
        (folder / "src" / "CMakeLists.txt").write_text(library)

    def configure(self, folder, *options, hook=None):
        return run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PROJECT_LCW_INCLUDE={hook or self.hook}", *options)

    def build_and_run(self, folder, *options):
        configured = self.configure(folder, *options)
        self.assertEqual(configured.returncode, 0, configured.stdout)
        self.assertIn("is a backend (LCW_BACKEND_AUTO=heddle, the default)", configured.stdout)
        built = run("cmake", "--build", folder / "build")
        self.assertEqual(built.returncode, 0, built.stdout)
        ran = run(HEDDLE, "run", "-n", "2", "--timeout", "200", folder / "build" / "program")
        self.assertEqual((ran.returncode, "2 ranks, all is well" in ran.stdout), (0, True), ran.stdout)

    def test_lcw_itself(self):
        folder = self.scratch / "itself"
        self.lcw(folder, more=PROGRAM)
        self.build_and_run(folder)

    def test_a_shared_lcw_within_another_project(self):
        folder = self.scratch / "around"
        self.lcw(folder / "lcw")
        (folder / "CMakeLists.txt").write_text(AROUND)
        self.build_and_run(folder, "-DBUILD_SHARED_LIBS=ON")

    def refused(self, name, message, library, **keywords):
        folder = self.scratch / name
        self.lcw(folder, library)
        configured = self.configure(folder, **keywords)
        self.assertNotEqual(configured.returncode, 0, configured.stdout)
        self.assertIn(message, " ".join(configured.stdout.split()))

    def test_a_version_of_lcw_that_is_not_known(self):
        self.refused("target", "the project LCW has no target lcw; this version of LCW is not known", LIBRARY.replace("lcw ", "other "))
        self.refused("choice", "LCW's backend/backend.cpp, which chooses the backend, is not where it was",
                     LIBRARY.replace("backend/backend.cpp", ""))

    def test_no_heddle(self):
        alone = self.scratch / "alone" / "share" / "heddle" / "lcw"
        shutil.copytree(self.hook.parent, alone)
        self.refused("nothing", "no installed Heddle was found", LIBRARY, hook=alone / self.hook.name)


if __name__ == "__main__":
    BUILD, HEDDLE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
