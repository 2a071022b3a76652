#!/usr/bin/env python3
"""Tests of check_abi.py: small libraries, each with one change, of which the check must find the harmful ones and bear the others."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_abi  # noqa: E402

HEADER = """
#include <stddef.h>
typedef enum heddle_status { HEDDLE_DONE = 0, HEDDLE_AGAIN = 1 } heddle_status;
typedef struct heddle_open_options { size_t size; int threads; short kind; } heddle_open_options;
typedef struct heddle_remote { int rank; } heddle_remote;
heddle_status heddle_open(const heddle_open_options* options);
heddle_status heddle_put(heddle_remote* remote, int bytes);
"""
SOURCE = """
#include "heddle.h"
heddle_status heddle_open(const heddle_open_options* options) { return options ? HEDDLE_DONE : HEDDLE_AGAIN; }
heddle_status heddle_put(heddle_remote* remote, int bytes) { return remote && bytes ? HEDDLE_DONE : HEDDLE_AGAIN; }
"""
MAP = "HEDDLE_1 { global: heddle_open; heddle_put; local: *; };\n"
ONE_MORE = ("heddle_status heddle_get(void);", "heddle_status heddle_get(void) { return HEDDLE_DONE; }")


@unittest.skipUnless(shutil.which("abidiff") and shutil.which("gcc"), "abidiff (Debian: abigail-tools) or gcc is not installed")
class Changes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.release = self.interface("release", HEADER, SOURCE, MAP)

    def interface(self, name, header, source, script):
        folder = self.root / name
        folder.mkdir()
        (folder / "heddle.h").write_text(header)
        (folder / "heddle.c").write_text(source)
        (folder / "heddle.map").write_text(script)
        subprocess.run(["gcc", "-g", "-shared", "-fPIC", "heddle.c", "-o", "libheddle.so", "-Wl,--version-script=heddle.map"], cwd=folder, check=True)
        check_abi.record(folder / "libheddle.so", folder, folder / "heddle.abi")
        return folder / "heddle.abi"

    def faults(self, *, old="", new="", source=SOURCE, script=MAP):
        self.assertIn(old, HEADER)
        return check_abi.compare(self.release, self.interface("now", HEADER.replace(old, new, 1) if old else HEADER, source, script))

    def test_nothing_changed(self):
        self.assertEqual(self.faults(), [])

    def test_options_grow_at_the_end(self):
        self.assertEqual(self.faults(old="short kind;", new="short kind; size_t more;"), [])

    def test_options_grow_into_padding(self):
        found = self.faults(old="short kind;", new="short kind; short more;")
        self.assertEqual(len(found), 1)
        self.assertIn("heddle_open_options.more lies where the release has padding", found[0])

    def test_options_grow_before_the_end(self):
        self.assertTrue(self.faults(old="int threads;", new="int more; int threads;"))

    def test_another_structure_grows(self):
        self.assertTrue(self.faults(old="int rank;", new="int rank; int more;"))

    def test_an_enumerator_is_added(self):
        self.assertEqual(self.faults(old="HEDDLE_AGAIN = 1", new="HEDDLE_AGAIN = 1, HEDDLE_POSTED = 2"), [])

    def test_an_enumerator_changes(self):
        self.assertTrue(self.faults(old="HEDDLE_AGAIN = 1", new="HEDDLE_AGAIN = 2"))

    def test_a_parameter_changes(self):
        self.assertTrue(self.faults(old="int bytes", new="long bytes", source=SOURCE.replace("int bytes", "long bytes")))

    def test_a_function_goes(self):
        self.assertTrue(self.faults(script=MAP.replace("heddle_put;", "")))

    def test_a_function_comes_in_a_node_of_its_own(self):
        script = MAP + "HEDDLE_2 { global: heddle_get; } HEDDLE_1;\n"
        self.assertEqual(self.faults(old="heddle_status heddle_open", new=ONE_MORE[0] + "\nheddle_status heddle_open", source=SOURCE + ONE_MORE[1], script=script), [])

    def test_a_function_comes_in_a_released_node(self):
        script = MAP.replace("heddle_put;", "heddle_put; heddle_get;")
        found = self.faults(old="heddle_status heddle_open", new=ONE_MORE[0] + "\nheddle_status heddle_open", source=SOURCE + ONE_MORE[1], script=script)
        self.assertEqual(len(found), 1)
        self.assertIn("heddle_get is new, but exported as HEDDLE_1, which is released", found[0])

    def test_a_function_moves_to_another_node(self):
        self.assertTrue(self.faults(script="HEDDLE_1 { global: heddle_open; local: *; };\nHEDDLE_2 { global: heddle_put; } HEDDLE_1;\n"))


class LastRelease(unittest.TestCase):
    def test_is_the_highest_version_of_this_processor(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libheddle-0.9.0.x86_64.abi", "libheddle-0.10.1.x86_64.abi", "libheddle-0.11.0.aarch64.abi", "libheddle_shmem-1.0.0.x86_64.abi"):
                pathlib.Path(folder, name).touch()
            found = check_abi.last_release(pathlib.Path(folder), "libheddle", "x86_64")
            self.assertEqual(found and found.name, "libheddle-0.10.1.x86_64.abi")
            self.assertIsNone(check_abi.last_release(pathlib.Path(folder), "libheddle", "riscv64"))


if __name__ == "__main__":
    unittest.main()
