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
#include <stdint.h>
typedef void (*heddle_callback)(void* arg, int status);
typedef struct heddle_inner { int first; } heddle_inner;
typedef enum heddle_status { HEDDLE_DONE = 0, HEDDLE_AGAIN = 1 } heddle_status;
typedef struct heddle_open_options { size_t size; heddle_callback call; heddle_inner inner; int list[4]; int threads; short kind; } heddle_open_options;
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
        new_interface = self.interface("now", HEADER.replace(old, new, 1) if old else HEADER, source, script)
        return check_abi.compare(self.release, new_interface, "HEDDLE_2") + check_abi.broken_chain(script)

    def test_nothing_changed(self):
        self.assertEqual(self.faults(), [])

    def test_options_grow_at_the_end(self):
        self.assertEqual(self.faults(old="short kind;", new="short kind; size_t more;"), [])

    def test_options_grow_into_padding(self):
        found = self.faults(old="short kind;", new="short kind; short more;")
        self.assertTrue(any("heddle_open_options.more lies where the release has padding" in fault for fault in found), found)

    def test_options_grow_before_the_end(self):
        self.assertTrue(self.faults(old="int threads;", new="int more; int threads;"))

    def test_options_change_within_the_old_size_while_they_grow(self):
        grown = "short kind; size_t more;"
        for old, new in (
            ("int threads; short kind;", "short kind; int threads;"),
            ("int threads;", "unsigned threads;"),
            ("int threads;", "float threads;"),
            ("int list[4]; int threads;", "int list[5];"),
            ("heddle_inner inner;", "int inner;"),
            ("size_t size; heddle_callback call;", "heddle_callback call; size_t size;"),
        ):
            for more in ("", grown):
                with self.subTest(new + more):
                    text = HEADER.replace(old, new)
                    self.assertNotEqual(text, HEADER)
                    text = text.replace("short kind;", more) if more else text
                    interface = self.interface(f"now{abs(hash((new, more)))}", text, SOURCE, MAP)
                    self.assertTrue(check_abi.compare(self.release, interface, "HEDDLE_2"))

    def test_a_callback_in_options_changes(self):
        self.assertTrue(self.faults(old="(void* arg, int status)", new="(void* arg, long status)"))

    def test_a_nested_structure_changes(self):
        self.assertTrue(self.faults(old="int first;", new="float first;"))

    def test_another_structure_grows(self):
        self.assertTrue(self.faults(old="int rank;", new="int rank; int more;"))

    def test_an_enumerator_is_added(self):
        self.assertEqual(self.faults(old="HEDDLE_AGAIN = 1", new="HEDDLE_AGAIN = 1, HEDDLE_POSTED = 2"), [])

    def test_an_enumerator_is_added_before_others(self):
        self.assertEqual(self.faults(old="HEDDLE_DONE = 0,", new="HEDDLE_LOST = -1, HEDDLE_DONE = 0,"), [])

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
        self.assertIn("heddle_get is new, but exported as HEDDLE_1: give it to a node HEDDLE_2", found[0])

    def test_a_function_comes_in_a_node_that_inherits_nothing(self):
        script = MAP + "HEDDLE_2 { global: heddle_get; };\n"
        found = self.faults(old="heddle_status heddle_open", new=ONE_MORE[0] + "\nheddle_status heddle_open", source=SOURCE + ONE_MORE[1], script=script)
        self.assertEqual(len(found), 1)
        self.assertIn("node HEDDLE_2 of the .map file inherits nothing instead of HEDDLE_1", found[0])

    def test_a_function_comes_in_a_node_of_another_name(self):
        script = MAP + "HEDDLE_0 { global: heddle_get; } HEDDLE_1;\n"
        self.assertEqual(len(self.faults(old="heddle_status heddle_open", new=ONE_MORE[0] + "\nheddle_status heddle_open", source=SOURCE + ONE_MORE[1], script=script)), 1)

    def test_a_function_moves_to_another_node(self):
        self.assertTrue(self.faults(script="HEDDLE_1 { global: heddle_open; local: *; };\nHEDDLE_2 { global: heddle_put; } HEDDLE_1;\n"))


@unittest.skipUnless(shutil.which("cc"), "cc is not installed")
class Constants(unittest.TestCase):
    def of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "heddle", "heddle.h")
            path.parent.mkdir()
            path.write_text(text)
            return check_abi.constants(pathlib.Path(folder))

    def test_macros_and_enumerators(self):
        text = "#define HEDDLE_HEDDLE_H\n#define HEDDLE_VERSION_MAJOR 0\n#define HEDDLE_BYTES 64 /* of a thing */\ntypedef enum heddle_kind { HEDDLE_ONE = 1, /* a, b */ HEDDLE_TWO = 2 } heddle_kind;\n"
        found = self.of(text)
        self.assertEqual(found, {"HEDDLE_BYTES": "64", "HEDDLE_ONE": "1", "HEDDLE_TWO": "2"})
        self.assertEqual(check_abi.changed_constants(found, {**found, "HEDDLE_THREE": "3"}), [])
        self.assertEqual(check_abi.changed_constants(found, {"HEDDLE_BYTES": "128", "HEDDLE_ONE": "1"}),
                         ["HEDDLE_BYTES was 64 and is 128", "HEDDLE_TWO was 2 and is gone"])

    def test_an_enumerator_without_a_value(self):
        with self.assertRaises(SystemExit):
            self.of("enum heddle_kind { HEDDLE_ONE };\n")


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
