#!/usr/bin/env python3
"""calls_test.py --tool HEDDLE --programs FOLDER [TEST…]: calls of MPI and OpenSHMEM in the picture of a traced job."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import perfetto_read  # noqa: E402

TOOL = PROGRAMS = None


def words(text):
    return dict(part.split("=", 1) for part in text.split())


class Calls(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_job(self, *program, ranks=2, options=(), trace=True, environment=(), code=0):
        picture = self.folder / "picture"
        traced = ["--trace", str(picture)] if trace else []
        done = subprocess.run([TOOL, "run", "-n", str(ranks), "--timeout", "60", *traced, *options, *map(str, program)],
                              capture_output=True, text=True, check=False, env={**os.environ, **dict(environment)})
        self.assertEqual(done.returncode, code, done.stderr)
        return done, perfetto_read.read(picture) if trace and picture.exists() else None

    def calls_of(self, trace, rank, prefix):
        """Those of the rank's main thread, in their order."""
        process = next(one for one in trace.processes() if one.name.startswith(f"rank {rank} "))
        threads = [[one for one in trace.slices(thread) if one.name.startswith(prefix)] for thread in trace.threads(process)]
        with_calls = [calls for calls in threads if calls]
        self.assertEqual(len(with_calls), 1, "one thread makes calls")
        return with_calls[0]

    def check_mpi(self, trace):
        ends = ["MPI_Sendrecv", "MPI_Allreduce", "MPI_Comm_create_keyval", "MPI_Comm_set_attr", "MPI_Comm_delete_attr", "MPI_Barrier",
                "MPI_Comm_free_keyval"]
        calls = self.calls_of(trace, 0, "MPI_")
        self.assertEqual([call.name for call in calls],
                         ["MPI_Init", "MPI_Send", *ends, "MPI_Barrier", "MPI_Send", "MPI_Finalize"])
        sent = words(calls[1].annotations["arguments"])
        self.assertTrue(sent.pop("buf").startswith("0x"))
        self.assertEqual(sent, {"count": "8", "datatype": "MPI_INT", "dest": "1", "tag": "7", "comm": "MPI_COMM_WORLD"})
        self.assertEqual(
            calls[2].annotations["arguments"],  # the buffers have no room
            "sendcount=2 sendtype=MPI_DOUBLE dest=MPI_PROC_NULL sendtag=1 recvcount=3 recvtype=MPI_BYTE source=MPI_PROC_NULL recvtag=2")
        summed = words(calls[3].annotations["arguments"])
        self.assertEqual((summed["op"], summed["sendbuf"], summed["count"]), ("MPI_SUM", "MPI_IN_PLACE", "1"))
        barrier = calls[7]
        self.assertEqual((barrier.parent.name, barrier.annotations), ("MPI_Comm_delete_attr", {"arguments": "comm=MPI_COMM_SELF"}))
        for call in calls:
            self.assertLessEqual(call.begin, call.end)
            self.assertLessEqual(len(call.annotations.get("arguments", "")), 127)

        calls = self.calls_of(trace, 1, "MPI_")
        received = words(calls[1].annotations["arguments"])
        self.assertEqual((received["source"], received["tag"]), ("MPI_ANY_SOURCE", "MPI_ANY_TAG"))
        polls = [call for call in calls if call.name == "MPI_Test"]
        # the first of a hundred in vain; the one that found it, perhaps after others
        self.assertIn(len(polls), (2, 3))
        requests = {words(call.annotations["arguments"])["request"] for call in polls}
        self.assertEqual(len(requests), 1)
        self.assertNotIn("MPI_REQUEST_NULL", requests)

    def test_mpi(self):
        done, trace = self.run_job(PROGRAMS / "calls_mpi")
        self.assertEqual(done.stdout, "wrappers: yes\n" * 2)
        self.check_mpi(trace)

    def test_mpi_in_a_scope_of_its_own(self):
        _, trace = self.run_job(PROGRAMS / "calls_loader", PROGRAMS / "libcalls_mpi_part.so")
        self.check_mpi(trace)

    def test_openshmem(self):
        done, trace = self.run_job(PROGRAMS / "calls_shmem")
        self.assertEqual(done.stdout, "wrappers: yes\n" * 2)
        for pe in (0, 1):
            calls = self.calls_of(trace, pe, "shmem_")
            names = [call.name for call in calls]
            tests = names.count("shmem_long_test")
            self.assertIn(tests, (1, 2))
            self.assertEqual(names, ["shmem_init", "shmem_float_p", "shmem_int_put", "shmem_fence", "shmem_long_p",
                                     *["shmem_long_test"] * tests, "shmem_long_wait_until", "shmem_ctx_long_atomic_add",
                                     "shmem_barrier_all", "shmem_int_sum_reduce", "shmem_finalize"])
            said = [words(call.annotations.get("arguments", "")) for call in calls]
            other = str(1 - pe)
            self.assertEqual((said[1]["value"], said[1]["pe"]), ("1.5", other))
            self.assertEqual((said[2]["nelems"], said[2]["pe"]), ("4", other))
            self.assertEqual(said[4]["value"], "-3")
            self.assertEqual((said[5]["cmp"], said[5]["cmp_value"]), ("SHMEM_CMP_EQ", "-3"))
            self.assertEqual(said[-4]["ctx"], "SHMEM_CTX_DEFAULT")
            self.assertEqual((said[-2]["team"], said[-2]["nreduce"]), ("SHMEM_TEAM_WORLD", "4"))

    def test_nothing_is_loaded_unless_it_is_asked_for(self):
        for program in ("calls_mpi", "calls_shmem"):
            done, _ = self.run_job(PROGRAMS / program, trace=False)
            self.assertEqual(done.stdout, "wrappers: no\n" * 2)
            done, trace = self.run_job(PROGRAMS / program, options=["--trace-calls", "no"])
            self.assertEqual(done.stdout, "wrappers: no\n" * 2)
            prefix = "MPI_" if program == "calls_mpi" else "shmem_"
            events = [event for event in trace.events if event.type == "begin" and event.name.startswith(prefix)]
            self.assertEqual(events, [])

    def test_another_mpi_is_left_alone(self):
        for program in (["foreign_program"], ["calls_loader", PROGRAMS / "libforeign_part.so"]):
            done, _ = self.run_job(PROGRAMS / program[0], *program[1:], ranks=1)  # it has no part in the job
            self.assertEqual(done.stdout, "foreign: 11 12 13\n")

    def test_a_call_of_no_library(self):
        done, _ = self.run_job(PROGRAMS / "orphan_program", ranks=1, code=134)
        self.assertIn("MPI_Barrier is called, and no library that is loaded has it; with --trace-calls no", done.stderr)

    def test_what_the_user_preloads_stays_first(self):
        show = ["sh", "-c", "echo $LD_PRELOAD"]
        own = str(PROGRAMS / "libforeign_mpi.so")
        done, _ = self.run_job(*show, ranks=1, environment={"LD_PRELOAD": own})
        given, *ours = done.stdout.strip().split(":")
        self.assertEqual((given, [pathlib.Path(one).name for one in ours]), (own, ["libheddle_mpi_calls.so", "libheddle_shmem_calls.so"]))
        done, _ = self.run_job(*show, ranks=1, options=["--env", f"LD_PRELOAD={own}"])
        self.assertTrue(done.stdout.startswith(own + ":"), done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    known, rest = parser.parse_known_args()
    TOOL, PROGRAMS = known.tool, known.programs
    unittest.main(argv=[sys.argv[0], *rest])
