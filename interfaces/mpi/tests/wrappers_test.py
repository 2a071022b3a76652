#!/usr/bin/env python3
"""A user's view of the installed MPI: the wrappers, FindMPI of CMake, pkg-config, the launcher's options, LD_LIBRARY_PATH."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()
os.environ.setdefault("CMAKE_GENERATOR", "Ninja")
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const char* value = getenv("FOO");
  if (rank == 0) printf("%d ranks, sum %d, FOO is %s, %d arguments\n", size, sum, value ? value : "not set", argc);
  MPI_Finalize();
  return 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C CXX)
find_package(MPI REQUIRED COMPONENTS C CXX)
add_executable(c_program program.c)
target_link_libraries(c_program PRIVATE MPI::MPI_C)
add_executable(cxx_program program.cpp)
target_link_libraries(cxx_program PRIVATE MPI::MPI_CXX)
file(WRITE ${CMAKE_BINARY_DIR}/launcher "${MPIEXEC_EXECUTABLE};${MPIEXEC_NUMPROC_FLAG}")
"""


def clean_environment(**more):
    """No HEDDLE_* variable, and nothing that would find a library by accident."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "LD_", "PKG_CONFIG", "MPI"))}
    return {**kept, **more}


def attempt(*command, **keywords):
    keywords.setdefault("env", clean_environment())
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=120, **keywords)


def run(*command, **keywords):
    result = attempt(*command, **keywords)
    if result.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise AssertionError(f"{words}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Wrappers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="heddle-mpi-")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        stage = cls.scratch / "stage"
        # Staged, then moved: nothing in the installed files may name where they were.
        run("cmake", "--install", OPTIONS.build, "--prefix", "/opt/heddle", env=clean_environment(DESTDIR=str(stage)))
        cls.prefix = cls.scratch / "moved"
        (stage / "opt" / "heddle").rename(cls.prefix)
        cls.home = cls.prefix / OPTIONS.libdir / "heddle" / "mpi"
        cls.bin = cls.prefix / "bin"
        cls.source = cls.scratch / "source"
        cls.source.mkdir()
        for name in ("program.c", "program.cpp"):
            (cls.source / name).write_text(PROGRAM)
        (cls.source / "CMakeLists.txt").write_text(PROJECT)

    def check(self, program, launcher=None, env=None):
        env = env or clean_environment()
        self.assertEqual(run(program, env=env), "1 ranks, sum 0, FOO is not set, 1 arguments\n")
        launched = run(launcher or self.bin / "heddle-mpirun", "-n", 3, program, "argument", env=env)
        self.assertEqual(launched, "3 ranks, sum 3, FOO is not set, 2 arguments\n")

    def compiled(self, wrapper, source, *options, name="program"):
        program = self.scratch / name
        run(wrapper, *options, self.source / source, "-o", program)
        return program

    def test_compile(self):
        for wrapper, source in (("heddle-mpicc", "program.c"), ("heddle-mpicxx", "program.cpp"), ("heddle-mpic++", "program.cpp")):
            with self.subTest(wrapper):
                self.check(self.compiled(self.bin / wrapper, source))
        for wrapper, source in (("mpicc", "program.c"), ("mpicxx", "program.cpp"), ("mpic++", "program.cpp")):
            with self.subTest(wrapper):
                self.check(self.compiled(self.home / "bin" / wrapper, source), self.home / "bin" / "mpiexec")

    def test_what_they_show(self):
        mpicc = self.bin / "heddle-mpicc"
        self.assertEqual(run(mpicc, "-showme:compile"), f"-I{self.home}/include\n")
        link = f"-L{self.home}/lib -Wl,-rpath,{self.home}/lib -lmpi_abi\n"
        self.assertEqual(run(mpicc, "--showme:link"), link)
        for option in ("-show", "--showme", "-compile-info", "-link-info"):
            self.assertEqual(run(mpicc, option), f"cc -I{self.home}/include {link}")
        self.assertEqual(run(mpicc, "-show", "-c", "a.c"), f"cc -I{self.home}/include -c a.c\n")
        self.assertEqual(run(mpicc, "-cc=gcc", "-show", "-c", "a.c"), f"gcc -I{self.home}/include -c a.c\n")
        self.assertEqual(run(mpicc, "-showme:command", env=clean_environment(MPICC_COMPILER="other")), "other\n")
        self.assertIn("Heddle", run(mpicc, "-showme:version"))
        self.assertIn("usage:", run(mpicc, "--help"))
        self.assertTrue(run(mpicc, "--version"))  # the compiler's
        refused = attempt(mpicc, "-showme:nothing")
        self.assertEqual((refused.returncode, "unknown option -showme:nothing" in refused.stderr), (2, True))

    def test_launcher(self):
        program = self.compiled(self.bin / "heddle-mpicc", "program.c", name="launched")
        mpirun = self.bin / "heddle-mpirun"
        for options in (("-np", 2, "-x", "FOO=a b"), ("--np", 2, "-genv", "FOO", "a b"), ("-env", "FOO", "a b", "-n", 2),
                        ("-n", 2, "--env", "FOO=a b", "--oversubscribe", "--bind-to", "none", "-genvall")):
            self.assertEqual(run(mpirun, *options, program, "-n", "7"), "2 ranks, sum 1, FOO is a b, 3 arguments\n")
        env = clean_environment(FOO="inherited")
        self.assertEqual(run(mpirun, "-x", "FOO", program, env=env), "1 ranks, sum 0, FOO is inherited, 1 arguments\n")
        self.assertIn("[0] 1 ranks", run(mpirun, "-l", program))
        for option, value in (("--timeout", 60), ("--grace", 1), ("--exit-code", "first"), ("--trace-calls", "no"), ("--metrics", 0),
                              ("--metrics-for", "user"), ("--env", "FOO=a b"), ("--bind", "none")):
            self.assertIn("[0] 1 ranks", run(mpirun, option, value, "-l", program), option)
        self.assertIn("1 ranks", run(mpirun, "-wdir", program.parent, "./launched"))
        self.assertIn("1 ranks", run(mpirun, "-n", 1, "--", program))
        for options in (("-n",), ("--no-such", "-n", 2, program), ("-n", "x", program), ("--hostfile", "hosts", program),
                        ("-genv", "FOO"), ("--bind-to", "socket", program), ()):
            refused = attempt(mpirun, *options)
            self.assertEqual(refused.returncode, 2, options)
            self.assertTrue(refused.stderr.strip(), options)
        self.assertIn("docs/clusters.md", attempt(mpirun, "--hostfile", "hosts", program).stderr)

    def test_cmake(self):
        ways = {
            "compilers": [f"-DMPI_C_COMPILER={self.bin}/heddle-mpicc", f"-DMPI_CXX_COMPILER={self.bin}/heddle-mpicxx",
                          f"-DMPIEXEC_EXECUTABLE={self.bin}/heddle-mpirun"],
            "home": [f"-DMPI_HOME={self.home}"],
            "prefix": [f"-DCMAKE_PREFIX_PATH={self.home}"],
            "path": [],
        }
        for way, options in ways.items():
            with self.subTest(way):
                env = clean_environment()
                if way == "path":
                    env["PATH"] = f"{self.home}/bin:{env['PATH']}"
                build = self.scratch / f"build-{way}"
                run("cmake", "-S", self.source, "-B", build, *options, env=env)
                run("cmake", "--build", build, env=env)
                launcher, flag = (build / "launcher").read_text().split(";")
                self.assertEqual(pathlib.Path(launcher).resolve(), (self.bin / "heddle-mpirun").resolve())
                self.assertEqual(flag, "-n")
                for program in ("c_program", "cxx_program"):
                    self.assertIn("libmpi_abi.so.1", run("readelf", "-d", build / program))
                    self.check(build / program, launcher)

    def test_pkg_config_and_the_loader(self):
        """A program that knows no folder of the library is given one in LD_LIBRARY_PATH, and needs no other."""
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config")
        env = clean_environment(PKG_CONFIG_PATH=str(self.prefix / OPTIONS.libdir / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "heddle-mpi", env=env).split()
        program = self.scratch / "without_rpath"
        run("cc", self.source / "program.c", *flags, "-o", program)
        self.assertNotEqual(attempt(program).returncode, 0)
        self.check(program, env=clean_environment(LD_LIBRARY_PATH=str(self.home / "lib")))

    def test_nothing_names_the_build_tree(self):
        self.assertNotIn(OPTIONS.build, run("readelf", "-d", self.home / "lib" / "libmpi_abi.so.1"))
        for path in (*self.home.rglob("*.h"), *self.bin.glob("heddle-mpi*")):
            self.assertNotIn(OPTIONS.build, path.read_text(), path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--libdir", required=True)
    _, rest = parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=[sys.argv[0], *rest])
