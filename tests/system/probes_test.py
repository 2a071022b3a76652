#!/usr/bin/env python3
"""The library's static probes: each that docs/debugging.md lists is noted in it, with as many arguments, and no other is.
Where bpftrace is installed and may run, it counts those of a job.

    probes_test.py LIBRARY HEDDLE-TOOL PROGRAM HAS-PROBES
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "debugging.md"


def noted():
    """Name and number of arguments of each probe, by readelf."""
    text = subprocess.run(["readelf", "-nW", LIBRARY], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    found = {}
    for provider, name, arguments in re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+.*\n?\s*Arguments:(.*)", text):
        if provider == "heddle":
            found.setdefault(name, set()).add(len(arguments.split("@")) - 1)
    return found


def documented():
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]*) \|", DOCUMENT.read_text(encoding="utf-8"))
    return {name: {0 if arguments.strip() == "none" else len(arguments.split(","))} for name, arguments in rows}


class Probes(unittest.TestCase):
    def test_those_that_are_documented(self):
        self.assertEqual(noted(), documented())
        self.assertGreaterEqual(len(documented()), 14)

    def test_bpftrace_counts_them(self):
        if shutil.which("bpftrace") is None:
            self.skipTest("bpftrace is not installed")
        script = f'usdt:{LIBRARY}:heddle:posted {{ @posted = count(); }} usdt:{LIBRARY}:heddle:ended {{ @ended = count(); }}'
        command = f"{TOOL} run -n 2 --env HEDDLE_PROBES=1 {PROGRAM}"
        ran = subprocess.run(["bpftrace", "-e", script, "-c", command], capture_output=True, text=True, check=False, timeout=120)
        if ran.returncode != 0:
            self.skipTest(f"bpftrace may not run here: {ran.stderr.strip().splitlines()[-1:]}")
        self.assertRegex(ran.stdout, r"@posted: [1-9]")


class Probed(unittest.TestCase):
    def test_a_job_with_probes_does_the_same(self):
        """What stands in the way of operations with HEDDLE_PROBES=1."""
        environment = {**os.environ, "HEDDLE_PROBES": "1"}
        ran = subprocess.run([TOOL, "run", "-n", "2", PROGRAM], env=environment, capture_output=True, text=True, check=False,
                             timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    LIBRARY, TOOL, PROGRAM, HAS_PROBES = sys.argv[1:5]
    if shutil.which("readelf") is None:
        print("skipped: readelf is not installed")
        sys.exit(0)
    if HAS_PROBES != "1":
        print("skipped: the library is built without probes (<sys/sdt.h>, HEDDLE_USDT)")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
