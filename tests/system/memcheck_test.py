#!/usr/bin/env python3
"""valgrind's memcheck reports nothing of Heddle in jobs of the given programs.

    memcheck_test.py HEDDLE-TOOL PROGRAM…
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SUPPRESSIONS = pathlib.Path(__file__).resolve().parents[2] / "observe" / "valgrind" / "heddle.supp"


class Memcheck(unittest.TestCase):
    def check_program(self, program):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([
                TOOL, "run", "-n", "2", "valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite",
                f"--suppressions={SUPPRESSIONS}", f"--log-file={folder}/%p", program
            ], env={**os.environ, "HEDDLE_TRANSPORT": "shm"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                 timeout=240)
            told = "".join(path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).iterdir()))
        self.assertEqual((ran.returncode, told), (0, ""), ran.stderr)

    def test_programs(self):
        for program in PROGRAMS:
            with self.subTest(program):
                self.check_program(program)


if __name__ == "__main__":
    TOOL, *PROGRAMS = sys.argv[1:]
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        sys.exit(0)
    unittest.main(argv=sys.argv[:1])
