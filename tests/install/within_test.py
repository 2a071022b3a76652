#!/usr/bin/env python3
"""Heddle within another project, by add_subdirectory and by FetchContent: its library is built, and nothing else of the project changes.
And Heddle alone without each of its parts: what is left knows how to be built. Configured and Parts build no library; Built does.

    within_test.py --source FOLDER --build FOLDER --version VERSION --cc COMPILER --cxx COMPILER [TEST…]

The library is built once, quickly: not optimised, its headers parsed once, without what is found on some machines only. The other ways
are configured in the same folder and find it built, as does the next run.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
OPTIONS = argparse.Namespace()
LIMIT = 800  # s; on two busy cores it has taken 80


# Each CMake looks for them again otherwise, and twenty times for Python, which may be a script that looks for the one that is meant.
PYTHON = f"-DPython3_EXECUTABLE={sys.executable}"


def run(*command):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "LD_"))}
    result = subprocess.run([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, timeout=LIMIT)
    if result.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise AssertionError(f"{words}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Within(unittest.TestCase):
    """Another project, in a folder of its own for each of the classes below."""

    def setUp(self):
        self.build = pathlib.Path(OPTIONS.build) / type(self).__name__.lower()

    def configure(self, way, languages, **more):
        quick = {"CMAKE_BUILD_TYPE": "Debug", "CMAKE_CXX_FLAGS_DEBUG": "-O0", "HEDDLE_PRECOMPILE": "ON", "HEDDLE_UCX": "OFF", "HEDDLE_OFI": "OFF",
                 "HEDDLE_VERBS": "OFF", "HEDDLE_HWLOC": "OFF", "HEDDLE_PMIX": "OFF"}
        sources = {"HEDDLE_SOURCE": OPTIONS.source, "FETCHCONTENT_SOURCE_DIR_HEDDLE": OPTIONS.source}
        compilers = {"CMAKE_C_COMPILER": OPTIONS.cc}
        if "CXX" in languages:
            compilers["CMAKE_CXX_COMPILER"] = OPTIONS.cxx
        variables = {"WAY": way, "LANGUAGES": languages, **compilers, **sources, **quick, **more}
        run("cmake", "--fresh", "-G", "Ninja", "-S", HERE / "within", "-B", self.build, PYTHON,
            *(f"-D{name}={value}" for name, value in variables.items()))


class Configured(Within):
    """What there is to build has every file that it takes, and the user's own files compile; the library is not built."""

    def compile_own_files(self):
        targets = run("ninja", "-C", self.build, "-t", "targets", "all")
        own = re.findall(r"^(CMakeFiles/\S+\.o): ", targets, re.M)
        self.assertTrue(own, "the project has no file of its own")
        run("ninja", "-C", self.build, "-n")
        run("ninja", "-C", self.build, *own)

    def test_ways(self):
        for way in ("add_subdirectory", "FetchContent"):
            with self.subTest(way):
                self.configure(way, "C;CXX")
                self.compile_own_files()
        with self.subTest("OpenSHMEM, if asked for"):
            self.configure("FetchContent", "C;CXX", HEDDLE_SHMEM="ON")
            self.compile_own_files()

    def test_a_project_without_cpp(self):
        self.configure("add_subdirectory", "C")
        self.compile_own_files()


class Built(Within):
    def build_and_run(self):
        programs = {"c": self.build / "user_c", "c++": self.build / "user_cpp"}
        for program in programs.values():
            program.unlink(missing_ok=True)
        run("cmake", "--build", self.build)
        for language, program in programs.items():
            self.assertEqual(run(program), f"{language} {OPTIONS.version} rank 0 of 1 got 100\n")

    def test_ways(self):
        self.configure("add_subdirectory", "C;CXX")
        self.build_and_run()
        with self.subTest("nothing is installed"), tempfile.TemporaryDirectory(prefix="heddle-within-") as prefix:
            run("cmake", "--install", self.build, "--prefix", prefix)
            self.assertEqual([path for path in pathlib.Path(prefix).rglob("*") if path.is_file()], [])
        with self.subTest("FetchContent"):
            self.configure("FetchContent", "C;CXX")
            self.build_and_run()
        with self.subTest("OpenSHMEM, if asked for"):
            self.configure("FetchContent", "C;CXX", HEDDLE_SHMEM="ON")
            run("cmake", "--build", self.build)
            self.assertEqual(run(self.build / "shmem_user"), "c PE 0 of 1 got 100\n")


class Parts(unittest.TestCase):
    PARTS = ("HEDDLE_TOOL", "HEDDLE_OBSERVE", "HEDDLE_BENCH", "HEDDLE_EMULATOR", "HEDDLE_EXAMPLES", "HEDDLE_SHMEM", "HEDDLE_MPI", "HEDDLE_TESTS", "HEDDLE_INSTALL")

    def setUp(self):
        self.compilers = None

    def targets(self, *parts):
        """How much there is to build without these parts; every file that it takes is there, or can be made. Only what the first found of the
        compilers is given to the others, which look for everything else themselves."""
        with tempfile.TemporaryDirectory(prefix="heddle-parts-") as folder:
            build = pathlib.Path(folder)
            if self.compilers:
                shutil.copytree(self.compilers, build / "CMakeFiles" / self.compilers.name)
            run("cmake", "-G", "Ninja", "-S", OPTIONS.source, "-B", build, f"-DCMAKE_C_COMPILER={OPTIONS.cc}",
                f"-DCMAKE_CXX_COMPILER={OPTIONS.cxx}", "-DCMAKE_SUPPRESS_REGENERATION=ON", PYTHON, *(f"-D{part}=OFF" for part in parts))
            if not self.compilers:
                kept = tempfile.TemporaryDirectory(prefix="heddle-compilers-")
                self.addCleanup(kept.cleanup)
                found, = (build / "CMakeFiles").glob("*/CMakeCXXCompiler.cmake")
                self.compilers = pathlib.Path(kept.name) / found.parent.name
                shutil.copytree(found.parent, self.compilers)
            return len(run("ninja", "-n", "-C", build).splitlines())

    def test_each_can_be_left_out(self):
        everything = self.targets()
        for part in self.PARTS:
            with self.subTest(part):
                left = self.targets(part)
                self.assertGreater(left, 150)
                if part != "HEDDLE_INSTALL":
                    self.assertLess(left, everything)
        self.assertLess(self.targets(*self.PARTS), everything / 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("source", "build", "version", "cc", "cxx"):
        parser.add_argument(f"--{option}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
