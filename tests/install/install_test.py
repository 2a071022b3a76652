#!/usr/bin/env python3
"""An outside user's view of an installation: staged, moved, found by find_package and by pkg-config, built with, run."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
OPTIONS = argparse.Namespace()
os.environ.setdefault("CMAKE_GENERATOR", "Ninja")  # scripts/packages.txt has no make


def run(*command, **keywords):
    result = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120, **keywords,
    )
    if result.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise AssertionError(f"{words}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def clean_environment(**more):
    """No HEDDLE_* variable, and nothing that would find a library by accident."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "LD_", "PKG_CONFIG"))}
    return {**kept, **more}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="heddle-install-")
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = pathlib.Path(folder.name)
        stage = cls.scratch / "stage"
        # Staged as a distribution does it, then moved: nothing in the installed files may name where they were.
        run("cmake", "--install", OPTIONS.build, "--prefix", "/opt/heddle", env=clean_environment(DESTDIR=str(stage)))
        cls.prefix = cls.scratch / "moved" / "here"
        cls.prefix.parent.mkdir()
        (stage / "opt" / "heddle").rename(cls.prefix)
        cls.libdir = cls.prefix / OPTIONS.libdir

    def check_program(self, program, language, env):
        """As a job of one, and as a job of three where the launcher is installed."""
        line = f"{language} {OPTIONS.version} rank {{}} of {{}} got {{}}"
        self.assertEqual(run(program, env=env).splitlines(), [line.format(0, 1, 100)])
        launched = run(self.prefix / "bin" / "heddle", "run", "-n", "3", program, env=env)
        expected = [line.format(rank, 3, 100 + (rank + 2) % 3) for rank in range(3)]
        self.assertEqual(sorted(launched.splitlines()), expected)

    def test_files(self):
        installed = {path.relative_to(self.prefix).as_posix() for path in self.prefix.rglob("*") if not path.is_dir()}
        lib = OPTIONS.libdir
        expected = {
            "bin/heddle", "include/heddle/heddle.h", "include/heddle/heddle.hpp", "include/heddle/collectives.h",
            "include/heddle/collectives.hpp", "include/heddle/memory.hpp", "include/heddle/partitioned.h", "include/heddle/partitioned.hpp",
            f"{lib}/libheddle.so",
            f"{lib}/libheddle.so.0", f"{lib}/libheddle.so.{OPTIONS.version}", f"{lib}/pkgconfig/heddle.pc",
            f"{lib}/cmake/heddle/heddle-config.cmake", f"{lib}/cmake/heddle/heddle-config-version.cmake",
            f"{lib}/cmake/heddle/heddle-targets.cmake", "share/doc/heddle/LICENSE",
            "share/doc/heddle/README.md", "share/doc/heddle/docs/guide.md", f"{lib}/heddle/utofu/libtofucom.so",
            f"{lib}/heddle/calls/libheddle_shmem_calls.so",
            f"{lib}/heddle/utofu/include/utofu.h", f"{lib}/heddle/utofu/programs/tofu_probe",
            f"{lib}/heddle/utofu/programs/launch.py", f"{lib}/heddle/utofu/programs/meet.h",
            "include/heddle/worker.h", "include/heddle/one_sided.h", "include/heddle/messages.h", "include/heddle/diagnosis.h",
            "share/heddle/lcw/heddle_lcw.cmake", "share/man/man1/heddle.1", "share/man/man1/heddle-run.1", "share/man/man1/oshcc.1", "share/man/man7/heddle.7",
            "share/bash-completion/completions/heddle", "share/zsh/site-functions/_heddle",
            "share/fish/vendor_completions.d/heddle.fish", "share/heddle/heddle-gdb.py", "share/heddle/heddle.supp",
        }
        self.assertEqual(expected - installed, set())
        # By the library's full name, as gdb wants it: its folder is that of the configured prefix.
        loaded = [name for name in installed if name.startswith("share/gdb/auto-load/")]
        self.assertEqual([name.rsplit("/", 1)[1] for name in loaded], [f"libheddle.so.{OPTIONS.version}-gdb.py"])
        sources = [name for name in installed if name.endswith((".a", ".cpp")) or "/src/" in name]
        # Examples, and what a user's LCW compiles.
        wanted = ("share/doc/heddle/examples/", "share/heddle/lcw/")
        self.assertEqual([name for name in sources if not name.startswith(wanted)], [])

    def test_links_between_the_documents_hold(self):
        folder = self.prefix / "share/doc/heddle"
        for document in (folder / "README.md", folder / "docs/guide.md"):
            links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
            self.assertGreater(len(links), 1, document)
            for link in links:
                self.assertTrue((document.parent / link).exists(), f"{document}: {link}")

    def test_nothing_names_the_build_tree(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in (".cmake", ".pc", ".h", ".hpp"):
                self.assertNotIn(OPTIONS.build, path.read_text(), path)
        for binary in (self.prefix / "bin" / "heddle", self.libdir / "libheddle.so"):
            self.assertNotIn(OPTIONS.build, run("readelf", "-d", binary))

    def test_soname_and_needed(self):
        dynamic = run("readelf", "-d", self.libdir / "libheddle.so")
        self.assertIn("soname: [libheddle.so.0]", dynamic)
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
        self.assertEqual([name for name in needed if "gtest" in name or "san" in name], [])

    def test_nothing_but_the_run_time_libraries_is_needed(self):
        """docs/decisions/0004: hwloc, UCX, libfabric, libibverbs and PMIx are opened at run time, so what is missing costs a line of `heddle info`."""
        run_time = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux.*|libatomic)\.so\.\d+")
        emulator = self.libdir / "heddle" / "utofu"
        binaries = [self.libdir / "libheddle.so", self.libdir / "libheddle_shmem.so", self.prefix / "bin" / "heddle",
                    emulator / "libtofucom.so", *(emulator / "programs").glob("tofu_*")]
        for binary in binaries:
            if binary.name == "libheddle_shmem.so" and not binary.exists():
                continue  # built without OpenSHMEM
            needed = re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", binary))
            self.assertTrue(needed, binary)
            own = ("libheddle.so.0", "libtofucom.so")
            self.assertEqual([name for name in needed if name not in own and not run_time.fullmatch(name)], [], binary)

    def test_what_the_front_door_builds_is_all_that_is_installed(self):
        """Each file that an install script takes from the build tree, and that ninja makes, is of heddle_installables."""
        build = pathlib.Path(OPTIONS.build)
        if not (build / "build.ninja").exists():
            self.skipTest("not built by ninja")
        together = {}  # each file that is made, and the others that the same command makes
        for outputs in re.findall(r"(?m)^build (.*?): ", (build / "build.ninja").read_text()):
            files = outputs.replace("| ", "").split()
            together.update((file, files) for file in files)
        wanted = set(re.findall(r'label="([^"]+)"', run("ninja", "-C", build, "-t", "graph", "heddle_installables")))
        taken = set()
        for script in build.rglob("cmake_install.cmake"):
            taken.update(re.findall(rf'"{re.escape(str(build))}/([^"]+)"', script.read_text()))
        taken &= together.keys()
        self.assertGreater(len(taken), 5)
        self.assertEqual({name for name in taken if wanted.isdisjoint(together[name])}, set())

    def test_components(self):
        """A component is a target; one that is not there is refused by name."""
        source = self.scratch / "components"
        source.mkdir()
        for components, fits in (("heddle", True), ("heddle shmem", (self.libdir / "libheddle_shmem.so").exists()),
                                 ("mpi", (self.libdir / "heddle/mpi/lib/libmpi_abi.so").exists()), ("fortran", False)):
            (source / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES C)\n"
                f"find_package(heddle {OPTIONS.version} REQUIRED COMPONENTS {components})\n"
            )
            with self.subTest(components):
                configure = lambda: run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                        env=clean_environment())
                if fits:
                    configure()
                else:
                    with self.assertRaisesRegex(AssertionError, f"no component {components.split()[-1]}"):
                        configure()

    def test_find_package(self):
        build = self.scratch / "cmake_user"
        run("cmake", "-S", HERE / "cmake_user", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={OPTIONS.cc}", f"-DCMAKE_CXX_COMPILER={OPTIONS.cxx}", "-DCMAKE_BUILD_TYPE=Release",
            env=clean_environment())
        run("cmake", "--build", build)
        self.check_program(build / "user_c", "c", clean_environment())
        self.check_program(build / "user_cpp", "c++", clean_environment())
        for waiting in ("barrier", "signal"):
            with self.subTest(waiting):
                self.check_throwing(build / "throwing_cpp", waiting)
        caught = run(self.prefix / "bin" / "heddle", "run", "-n", "3", build / "throwing_cpp", "caught",
                     env=clean_environment())
        self.assertEqual(caught.count("caught HEDDLE_ERR_RANGE"), 1, caught)

    def check_throwing(self, program, waiting):
        """A rank whose exception unwinds past its context ends; it does not wait for those who wait for it."""
        job = subprocess.run(
            [self.prefix / "bin" / "heddle", "run", "-n", "3", program, waiting], env=clean_environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )
        self.assertEqual(job.returncode, 3, job.stderr)
        self.assertIn("HEDDLE_ERR_RANGE", job.stderr)
        self.assertRegex(job.stderr, r"rank 1 \(pid \d+\) exited with code 3")
        if waiting == "barrier":  # who waits for all is told; who waits for a word in memory is ended by the launcher
            self.assertEqual(job.stderr.count("HEDDLE_ERR_PEER_FAILED"), 2, job.stderr)

    def test_find_package_in_a_project_without_cpp(self):
        build = self.scratch / "c_user"
        run("cmake", "-S", HERE / "c_user", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={OPTIONS.cc}", env=clean_environment())
        run("cmake", "--build", build)
        self.check_program(build / "user_c", "c", clean_environment())

    def test_an_older_standard_is_told_what_is_missing(self):
        source = self.scratch / "old.cpp"
        source.write_text("#include <heddle/heddle.hpp>\n")
        with self.assertRaisesRegex(AssertionError, "heddle.hpp needs C\\+\\+20"):
            run(OPTIONS.cxx, "-std=c++17", f"-I{self.prefix / 'include'}", "-fsyntax-only", source)

    def test_find_package_refuses_another_version(self):
        source = self.scratch / "too_new"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(too_new NONE)\nfind_package(heddle 9.0 REQUIRED)\n"
        )
        with self.assertRaisesRegex(AssertionError, "9.0"):
            run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_pkg_config(self):
        env = clean_environment(PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"))
        self.assertEqual(run("pkg-config", "--modversion", "heddle", env=env).strip(), OPTIONS.version)
        flags = run("pkg-config", "--cflags", "--libs", "heddle", env=env).split()
        places = {flag[:2]: pathlib.Path(flag[2:]).resolve() for flag in flags if flag[:2] in ("-I", "-L")}
        self.assertEqual(places, {"-I": self.prefix / "include", "-L": self.libdir})
        for compiler, source, language in ((OPTIONS.cc, "user.c", "c"), (OPTIONS.cxx, "user.cpp", "c++")):
            program = self.scratch / f"pc_{source.replace('.', '_')}"
            standard = "-std=c11" if language == "c" else "-std=c++20"
            run(compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", HERE / source, "-o", program, *flags)
            self.check_program(program, language, clean_environment(LD_LIBRARY_PATH=str(self.libdir)))

    def test_thread_sanitizer_of_a_program(self):
        """It sees the order that signals make, though the library is built without, and the race that there is."""
        program = self.scratch / "tsan_user"
        run(OPTIONS.cc, "-std=c11", "-g", "-O1", "-fsanitize=thread", "-Wall", "-Wextra", "-Werror", HERE / "tsan_user.c",
            "-o", program, f"-I{self.prefix / 'include'}", f"-L{self.libdir}", "-lheddle", "-pthread")
        env = clean_environment(LD_LIBRARY_PATH=str(self.libdir), TSAN_OPTIONS="exitcode=66")

        def result(*words):
            # Without randomised addresses, of which older ones of its run-time libraries refuse some.
            return subprocess.run(["setarch", "-R", program, *words], env=env, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=120)

        for ranks, transport in (("1", "shm"), ("1", "loopback"), ("2", "loopback"), ("2", "shm")):
            for how in ("signal", "atomic"):
                with self.subTest(ranks=ranks, transport=transport, how=how):
                    ran = result(ranks, transport, how)
                    self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "done\n", ""))
        racing = result("1", "shm", "race")
        self.assertEqual(racing.returncode, 66, racing.stderr)
        self.assertEqual(racing.stderr.count("WARNING: ThreadSanitizer: data race"), 1, racing.stderr)

    def test_thread_sanitizer_knows_the_order_of_messages(self):
        """Messages, completions, objects and collectives, by the threads that call and with a helper that does their work."""
        program = self.scratch / "tsan_messages"
        run(OPTIONS.cc, "-std=c11", "-g", "-O1", "-fsanitize=thread", "-Wall", "-Wextra", "-Werror", HERE / "tsan_messages.c",
            "-o", program, f"-I{self.prefix / 'include'}", f"-L{self.libdir}", "-lheddle", "-pthread")
        env = clean_environment(LD_LIBRARY_PATH=str(self.libdir), TSAN_OPTIONS="exitcode=66")
        ways = ("tagged_short", "tagged_eager", "tagged_long", "active_short", "active_eager", "active_long", "active_user",
                "callbacks", "objects", "one_sided", "collectives")
        for progress in ("none", "dedicated:1"):
            for ranks, transport in (("1", "shm"), ("1", "loopback"), ("2", "shm"), ("2", "loopback")):
                for how in ways:
                    with self.subTest(progress=progress, ranks=ranks, transport=transport, how=how):
                        ran = subprocess.run(["setarch", "-R", program, ranks, transport, how],
                                             env={**env, "HEDDLE_PROGRESS": progress}, stdin=subprocess.DEVNULL,
                                             capture_output=True, text=True, check=False, timeout=120)
                        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "done\n", ""))

    def check_shmem_program(self, program, language, env):
        line = f"{language} PE {{}} of {{}} got {{}}"
        self.assertEqual(run(program, env=env).splitlines(), [line.format(0, 1, 100)])
        launched = run(self.prefix / "bin" / "oshrun", "-np", "3", program, env=env)
        expected = [line.format(pe, 3, 100 + (pe + 2) % 3) for pe in range(3)]
        self.assertEqual(sorted(launched.splitlines()), expected)

    def skip_without_openshmem(self):
        if not (self.prefix / "bin" / "oshcc").exists():
            self.skipTest("built without OpenSHMEM")

    def test_oshcc(self):
        self.skip_without_openshmem()
        sources = {"c": HERE / "shmem_user.c", "c++": self.scratch / "shmem_user.cpp"}
        sources["c++"].write_text(sources["c"].read_text())
        for wrapper, variable, compiler, language, standard in (
            ("oshcc", "OSHCC_COMPILER", OPTIONS.cc, "c", "-std=c11"),
            ("oshc++", "OSHCXX_COMPILER", OPTIONS.cxx, "c++", "-std=c++11"),
        ):
            with self.subTest(wrapper):
                env = clean_environment(**{variable: compiler})
                wrapper = self.prefix / "bin" / wrapper
                program = self.scratch / f"osh_{language}"
                warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
                run(wrapper, standard, *warnings, sources[language], "-o", program, env=env)
                self.check_shmem_program(program, language, clean_environment())
                shown = run(wrapper, "--show", "-c", "x.c", env=env).split()
                self.assertEqual(shown[0], compiler)
                self.assertNotIn("-lheddle_shmem", shown)
                self.assertEqual(run(wrapper, "--version", env=env), run(compiler, "--version"))

    def test_c99_and_c89_see_the_functions(self):
        self.skip_without_openshmem()
        source = self.scratch / "old.c"
        source.write_text("#include <pshmem.h>\n#include <pshmemx.h>\nlong a;\n"
                          "void f(void) { shmem_long_p(&a, 1, 0); pshmem_long_p(&a, 1, 0); }\n")
        run(OPTIONS.cc, "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{self.prefix / 'include'}", "-c", source,
            "-o", self.scratch / "old.o")

    def test_openshmem_by_pkg_config_and_find_package(self):
        self.skip_without_openshmem()
        env = clean_environment(PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "heddle-shmem", env=env).split()
        program = self.scratch / "pc_shmem"
        run(OPTIONS.cc, "-std=c11", HERE / "shmem_user.c", "-o", program, *flags)
        self.check_shmem_program(program, "c", clean_environment(LD_LIBRARY_PATH=str(self.libdir)))
        build = self.scratch / "shmem_user"
        run("cmake", "-S", HERE / "shmem_user", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={OPTIONS.cc}", env=clean_environment())
        run("cmake", "--build", build)
        self.check_shmem_program(build / "shmem_user", "c", clean_environment())

    def test_another_launcher_is_noticed(self):
        """Started by mpirun or srun, every process is a job of one, and says so once; in a job of its own it does not."""
        program = self.scratch / "launched_by_others"
        env = clean_environment(PKG_CONFIG_PATH=str(self.libdir / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "heddle", env=env).split()
        run(OPTIONS.cc, "-std=c11", HERE / "user.c", "-o", program, *flags, f"-Wl,-rpath,{self.libdir}")

        def warnings(*command, **variables):
            job = subprocess.run(
                [str(word) for word in command], env={**clean_environment(), **variables},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60,
            )
            return job.stderr

        for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"):
            with self.subTest(variable):
                said = warnings(program, **{variable: "4"})
                self.assertEqual(said.count(f"a job of one, although {variable} is 4"), 1, said)
                self.assertEqual(said.count("\n"), 1, said)
                self.assertEqual(warnings(program, **{variable: "1"}), "")
                launched = (self.prefix / "bin" / "heddle", "run", "-n", "2", program)
                self.assertEqual(warnings(*launched, **{variable: "4"}), "")

    def test_the_tool(self):
        tool = self.prefix / "bin" / "heddle"
        self.assertIn(OPTIONS.version, run(tool, "--version", env=clean_environment()))
        self.assertIn("HEDDLE_TRANSPORT", run(tool, "info", "settings", env=clean_environment()))
        for command in ("run", "info", "bench", "report"):
            wanted = run(tool, command, "--help", env=clean_environment())
            self.assertEqual(run(tool, "help", command, env=clean_environment()), wanted)
        self.assertIn("HEDDLE_LOCAL_RANK", run(tool, "help", "run", env=clean_environment()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("build", "version", "libdir", "cc", "cxx"):
        parser.add_argument(f"--{option}", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
