#!/usr/bin/env python3
"""Wrappers that make_calls.py makes: which functions have one, and what they show."""

import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_calls  # noqa: E402

INTERFACES = pathlib.Path(__file__).resolve().parents[2] / "interfaces"
FOLDERS = {"mpi": INTERFACES / "mpi", "shmem": INTERFACES / "openshmem"}


class MakeCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = {kind: make_calls.calls(kind, folder) for kind, folder in FOLDERS.items()}
        cls.formats = {}
        for text in cls.texts.values():
            cls.formats.update(re.findall(r'heddle_calls_begin\("(\w+)", "([^"]*)"', text))

    def wrapped(self, kind):
        return set(re.findall(r'HEDDLE_CALLS_REAL\("(\w+)"\)', self.texts[kind]))

    def test_telling_arguments_come_first(self):
        self.assertEqual(self.formats["MPI_Send"], "count=i datatype=H dest=r tag=t comm=H buf=B")
        self.assertEqual(self.formats["MPI_Isend_c"], "count=i datatype=H dest=r tag=t comm=H buf=B")
        self.assertEqual(self.formats["MPI_Wait"], "request=H")
        self.assertEqual(self.formats["MPI_Waitall"], "count=i")
        self.assertEqual(self.formats["MPI_Allgatherv"], "sendcount=i sendtype=H recvtype=H comm=H sendbuf=B recvbuf=B")
        self.assertEqual(self.formats["shmem_ctx_double_put"], "ctx=C nelems=u pe=i dest=p source=p")
        self.assertEqual(self.formats["shmem_longdouble_p"], "value=f pe=i dest=p")
        self.assertEqual(self.formats["shmem_putmem_signal"], "nelems=u signal=u sig_op=s pe=i dest=p source=p sig_addr=p")

    def test_what_is_asked_again_and_again_has_no_wrapper(self):
        mpi, shmem = self.wrapped("mpi"), self.wrapped("shmem")
        self.assertGreater(len(mpi), 500)
        self.assertGreater(len(shmem), 1800)
        for name in ("Comm_rank", "Wtime", "Initialized", "Get_count_c", "Comm_toint", "T_pvar_read", "Pcontrol", "Type_size"):
            self.assertNotIn(f"MPI_{name}", mpi)
        for name in ("shmem_my_pe", "_num_pes", "shmem_ptr", "shmem_pcontrol", "shmem_team_my_pe"):
            self.assertNotIn(name, shmem)

    def test_each_rule_has_a_function(self):
        for kind, folder in FOLDERS.items():
            names = [name for name, _, _ in make_calls.read_functions(kind, folder)]
            bare = [re.sub(r"^(MPI_|shmemx?_)", "", name) for name in names]
            for rule in re.split(r"\|(?![^(]*\))", make_calls.LEFT_OUT[kind]):
                self.assertTrue(any(re.fullmatch(rule, name) for name in bare), rule)
            for letter, found in make_calls.read_constants(kind, folder).items():
                self.assertTrue(found, f"no constants are shown for {letter}")

    def test_calls_around_the_job_and_polls(self):
        self.assertIn('heddle_calls_enter("MPI_Session_init");', self.texts["mpi"])
        self.assertIn('heddle_calls_leave("shmem_finalize");', self.texts["shmem"])
        for name in ("MPI_Testsome", "MPI_Parrived", "MPI_Win_test"):
            self.assertIn(f'heddle_calls_polled("{name}", found);', self.texts["mpi"])
        for name in ("shmem_test_lock", "shmem_int_test", "shmem_size_test_some_vector", "shmem_long_test_any"):
            self.assertIn(f'heddle_calls_polled("{name}", found);', self.texts["shmem"])


if __name__ == "__main__":
    unittest.main()
