#!/usr/bin/env python3
"""Each wing as a project of its own, against an installed core: configured, built, installed beside the core, and used there.

    wings_alone_test.py --source FOLDER --build FOLDER --scratch FOLDER --version VERSION --libdir FOLDER --cc COMPILER --cxx COMPILER

The core is installed from the build tree, without what the tree's wings add. The wings are built quickly, not optimised, in folders of the
scratch folder that the next run finds as they were.
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
LIMIT = 1500  # s

CORE = ("library", "development", "tools")
# In this order: what observes takes in calls of the interfaces that are installed, and so do programs of the others.
WINGS = {"interfaces/openshmem": ("openshmem", "openshmem-development"), "interfaces/mpi": ("mpi", "mpi-development"), "observe": (), "bench": (),
         "tofu": ("emulator",)}

MPI_PROGRAM = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d: %d\\n", rank, sum);
  return MPI_Finalize();
}
"""


def start(*command, **more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "LD_", "UTOFU_"))}
    return subprocess.run([str(word) for word in command], env={**kept, **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=LIMIT)


def run(*command, **more):
    result = start(*command, **more)
    if result.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise AssertionError(f"{words}: exit {result.returncode}\n{result.stdout[-20000:]}{result.stderr}")
    return result.stdout


def install(prefix, components):
    for component in components:
        run("cmake", "--install", OPTIONS.build, "--component", component, "--prefix", prefix)


def files_of(prefix):
    """What is installed, whatever kind of build it comes from; without documents, of which a component has its own."""
    names = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if not path.is_dir()}
    return {re.sub(r"-targets-\w+\.cmake$", "-targets-KIND.cmake", name) for name in names if not name.startswith("share/")}


class WingsAlone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="heddle-wings-")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        # Its name is in what the compiler is told: always the same, so that a cache knows what it has compiled.
        cls.prefix = pathlib.Path(OPTIONS.scratch) / "prefix"
        shutil.rmtree(cls.prefix, ignore_errors=True)
        cls.heddle = cls.prefix / "bin" / "heddle"
        cls.programs = cls.prefix / OPTIONS.libdir / "heddle"
        install(cls.prefix, CORE)
        for program in cls.programs.iterdir():  # of the tree's wings
            program.unlink()

    def configure(self, wing, *more):
        build = pathlib.Path(OPTIONS.scratch) / wing
        said = run("cmake", "--fresh", "-G", "Ninja", "-S", pathlib.Path(OPTIONS.source) / wing, "-B", build,
                   f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={OPTIONS.cc}", f"-DCMAKE_CXX_COMPILER={OPTIONS.cxx}",
                   f"-DPython3_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DCMAKE_C_FLAGS_DEBUG=-O0",
                   "-DHEDDLE_PRECOMPILE=ON", "-DHEDDLE_WERROR=ON", *more)
        return build, said

    def build_and_install(self, wing, *more):
        build, said = self.configure(wing, *more)
        self.assertIn(f"Heddle {OPTIONS.version} in {self.prefix}\n", said)
        run("cmake", "--build", build)
        run("cmake", "--install", build)
        self.configure(wing, *more)  # where it is installed already
        return build

    def test_wings(self):
        for wing in WINGS:
            with self.subTest(wing):
                getattr(self, "check_" + wing.rpartition("/")[2])(wing)
        with self.subTest("the files are those of the tree"):
            tree = self.scratch / "tree"
            install(tree, CORE + tuple(component for components in WINGS.values() for component in components))
            self.assertEqual(files_of(self.prefix), files_of(tree))

    def check_openshmem(self, wing):
        self.build_and_install(wing)
        program = self.scratch / "shmem_user"
        run(self.prefix / "bin/oshcc", HERE / "shmem_user.c", "-o", program, OSHCC_COMPILER=OPTIONS.cc)
        self.assertEqual(sorted(run(self.prefix / "bin/oshrun", "-np", 2, program).splitlines()), ["c PE 0 of 2 got 101", "c PE 1 of 2 got 100"])

    def check_mpi(self, wing):
        self.build_and_install(wing)
        source = self.scratch / "mpi_user.c"
        source.write_text(MPI_PROGRAM)
        program = self.scratch / "mpi_user"
        run(self.prefix / "bin/heddle-mpicc", source, "-o", program, MPICC_COMPILER=OPTIONS.cc)
        self.assertEqual(sorted(run(self.prefix / "bin/heddle-mpirun", "-n", 3, program).splitlines()), [f"rank {rank}: 3" for rank in range(3)])

    def check_observe(self, wing):
        self.assertNotEqual(start(self.heddle, "trace", "--help").returncode, 0)
        build = self.build_and_install(wing, "-DHEDDLE_TESTS=ON")
        run("ctest", "--test-dir", build, "--no-tests=error", "--output-on-failure", "-L", "unit")
        trace = self.scratch / "trace"
        run(self.heddle, "run", "-n", 2, "--trace", trace, self.scratch / "shmem_user")
        self.assertIn(b"shmem_barrier_all", trace.read_bytes())
        self.assertIn("2 ranks", run(self.heddle, "explain", trace))

    def check_bench(self, wing):
        self.assertNotEqual(start(self.heddle, "bench", "--help").returncode, 0)
        self.build_and_install(wing)
        self.assertRegex(run(self.heddle, "bench", "pingpong", "--op", "put", "--size", 8, "--quick"), r"(?m)^  put +\S+ +8 +1 ")
        # It has the algorithms from the core.
        table = self.scratch / "table"
        told = run(self.heddle, "bench", "tune", "barrier", "--ranks", 2, "--size", 8, "--repeat", 1, "--time", 1, "--output", table)
        self.assertIn(f"rows in {table}", told)
        self.assertRegex(table.read_text(), r"(?m)^barrier kept \* \* barrier\.\w+ -$")

    def check_tofu(self, wing):
        self.build_and_install(wing)
        programs = self.programs / "utofu/programs"
        self.assertIn("laps of 2 processes, 3000 words: right", run(programs / "launch.py", 2, programs / "tofu_ring"))
        # The core's transport finds it.
        self.assertIn("by utofu", run(self.heddle, "run", "-n", 2, "--utofu", "2x1x1", "--env", "HEDDLE_TRANSPORT=utofu", self.heddle, "info", "--job"))

    def test_without_a_core(self):
        """Only the emulator needs none; the others say so."""
        for wing in WINGS:
            with self.subTest(wing):
                configure = lambda: self.configure(wing, "-DCMAKE_DISABLE_FIND_PACKAGE_heddle=ON")
                if wing == "tofu":
                    configure()
                else:
                    with self.assertRaisesRegex(AssertionError, f"This wing stands on an installed Heddle {OPTIONS.version}"):
                        configure()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("source", "build", "scratch", "version", "libdir", "cc", "cxx"):
        parser.add_argument(f"--{option}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
