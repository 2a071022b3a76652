#!/usr/bin/env python3
"""What gdb says of a job with observe/gdb/heddle-gdb.py: `heddle waits` of a running rank and of core dumps, and the handles.

    gdb_test.py HEDDLE-TOOL PROGRAM LIBRARY     PROGRAM: gdb_rank.c, whose rank 1 waits for tag 7 of rank 0
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "observe" / "gdb" / "heddle-gdb.py"
GDB = shutil.which("gdb")


def gdb(*words, commands=()):
    line = [GDB, "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set width 0", "-ex", f"source {SCRIPT}"]
    for command in commands:
        line += ["-ex", command]
    ran = subprocess.run([*line, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                         timeout=120)
    return ran.stdout + ran.stderr


def why_not():
    """Why gdb cannot do this here; None: it can."""
    if GDB is None:
        return "gdb is not installed"
    if "yes" not in gdb(commands=["python print('y' + 'es')"]):
        return "this gdb has no Python"
    with subprocess.Popen(["sleep", "60"]) as other:
        told = gdb("-p", other.pid, commands=["info threads"])
        other.kill()
    return None if "* 1" in told else "gdb may not attach to processes here (ptrace_scope)"


class Job:
    """A job of two ranks that has come to where rank 1 waits."""

    def __init__(self, program=None, *settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}
        words = [TOOL, "run", "-n", "2", "--grace", "0", "--env", "HEDDLE_TRANSPORT=shm"]
        for setting in settings:
            words += ["--env", setting]
        self.process = subprocess.Popen([*words, program or PROGRAM], env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        self.pids = {}
        while len(self.pids) < 2:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the job has ended")
            if found := re.fullmatch(r"rank (\d) pid (\d+)\n", line):
                self.pids[int(found[1])] = int(found[2])

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class Case(unittest.TestCase):
    def start(self, *words):
        job = Job(*words)
        self.addCleanup(job.end)
        return job

    def ask_until(self, job, text, commands=("heddle waits",)):
        """What is said of rank 1, once the text is among it: a wait says what it is for after 10 ms."""
        for _ in range(50):
            told = gdb("-p", job.pids[1], commands=commands)
            if text in told:
                return told
            time.sleep(0.2)
        return told

    def check_waits(self, told):
        self.assertRegex(told, r"(?m)^rank 1 of 2:$")
        self.assertRegex(told, r"(?m)^  thread 1 \(LWP \d+\)$")
        self.assertRegex(told, r"(?m)^    waits in heddle_recv_wait on worker 0: a message with tag 7 from rank 0$")
        self.assertRegex(told, r"(?m)^      for receive of tag 7: worker 0 of rank 0 has to send$")
        self.assertRegex(told, r"(?m)^      \(as it said after [\d.e+-]+ s\)$")
        self.assertRegex(told, r"(?m)^  worker 0 \(\w+\): polled \d+ times; 0 operations are under way$")
        self.assertRegex(told, r"(?m)^    receive of tag 7 from worker 0 of rank 0: posted; nothing that fits has come$")
        self.assertRegex(told, r"(?m)^    receive of tag 0x500 in the bits 0xff00 from anybody: posted")
        self.assertRegex(told, r"(?m)^    2 unexpected messages with tag 8 from worker 0 of rank 0: no receive has taken them$")


class Waits(Case):
    def test_of_a_running_rank(self):
        self.check_waits(self.ask_until(self.start(), "(as it said"))

    def test_of_a_core_dump(self):
        job = self.start()
        with tempfile.TemporaryDirectory() as folder:
            core = pathlib.Path(folder) / "core"
            self.ask_until(job, "(as it said", ["heddle waits", f"generate-core-file {core}"])
            self.check_waits(gdb(PROGRAM, core, commands=["heddle waits"]))

    def test_of_a_core_dump_of_a_stripped_library(self):
        """Neither debugging information nor a table of symbols is needed, and no shared memory."""
        strip = shutil.which("strip")
        if strip is None:
            self.skipTest("skipped: no strip")
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(LIBRARY).resolve()
            bare = pathlib.Path(folder) / "libheddle.so.0"
            subprocess.run([strip, "-s", library, "-o", bare], check=True)
            core = pathlib.Path(folder) / "core"
            job = self.start(None, f"LD_LIBRARY_PATH={folder}", f"LD_PRELOAD={bare}")
            told = self.ask_until(job, "(as it said", ["heddle waits", "set use-coredump-filter on",
                                                       f"shell echo 0x11 > /proc/{job.pids[1]}/coredump_filter",
                                                       f"generate-core-file {core}"])
            self.check_waits(told)
            self.check_waits(gdb(PROGRAM, core, commands=[f"set solib-search-path {folder}", "heddle waits"]))

    def test_who_sends(self):
        """Of rank 0, which is in a barrier and has a synchronous send that nobody receives."""
        job = self.start()
        for _ in range(50):
            told = gdb("-p", job.pids[0], commands=["heddle waits"])
            if "(as it said" in told:
                break
            time.sleep(0.2)
        self.assertRegex(told, r"(?m)^    waits in heddle_context_barrier on worker 0: .*missing is rank 1")
        self.assertRegex(told, r"(?m)^  worker 0 \(\w+\): polled \d+ times; 1 operation is under way$")
        self.assertRegex(told, r"(?m)^    operation of a protocol for rank 1, ")

    def test_of_a_process_without_heddle(self):
        with subprocess.Popen(["sleep", "60"]) as other:
            told = gdb("-p", other.pid, commands=["heddle waits"])
            other.kill()
        self.assertIn("there is no Heddle of version 0.3 or newer in this process", told)

    def test_wrong_words(self):
        self.assertIn("heddle waits takes no arguments", gdb(commands=["heddle waits all"]))


class Handles(Case):
    def test_what_they_name(self):
        job = self.start()
        shown = ("context", "worker", "closed", "region", "remote", "byte", "counter", "team", "peer", "wanted", "receive", "none",
                 "wrong")
        told = gdb("-p", job.pids[1],
                   commands=[command for name in shown for command in (f"echo {name}:", f"print shown_{name}")])
        values = dict(re.findall(r"(?m)^(\w+):\$\d+ = (.*)$", told))
        self.assertEqual(values["context"], "context of rank 1 of 2", told)
        self.assertRegex(values["worker"], r"worker 0 of rank 1, \w+, \d+ operations under way")
        self.assertRegex(values["closed"], r"0x[0-9a-f]+: stale: its worker is closed, or was open in another process")
        self.assertRegex(values["region"], r"region of 4096 bytes at 0x[0-9a-f]+, allocated")
        self.assertRegex(values["remote"], r"remote region of rank 0, 4096 bytes")
        self.assertRegex(values["byte"], r"byte 72 of remote region of rank 0, 4096 bytes")
        self.assertEqual(values["counter"], "counter at 0")
        self.assertRegex(values["team"], r"team of 2, this is its rank 1; \d+ collective calls")
        self.assertEqual(values["peer"], "worker 2 of rank 3")
        self.assertEqual(values["wanted"], "tag 7 from worker 0 of rank 0")
        self.assertEqual(values["receive"], "HEDDLE_POSTED: it waits, or its data is on the way")
        self.assertEqual(values["none"], "null handle")
        self.assertRegex(values["wrong"], r"0x[0-9a-f]+: handle of a context, and not of a worker")


if __name__ == "__main__":
    TOOL, PROGRAM, LIBRARY = sys.argv[1:4]
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
