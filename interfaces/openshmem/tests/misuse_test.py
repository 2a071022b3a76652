#!/usr/bin/env python3
"""misuse_test.py HEDDLE PROGRAM: each mistake ends the job, with a message that names the call, the argument and its value."""

import os
import re
import subprocess
import sys
import unittest

HEDDLE, PROGRAM = "", ""


def alike(call, value, on_0, on_1):
    """Either PE may say it first."""
    return (rf"{call}: {value} is ({on_0} on PE 0 and {on_1} on PE 1|{on_1} on PE 1 and {on_0} on PE 0): "
            "all PEs must give the same")


def instead(on_0, on_1):
    return (rf"({on_0}: PE 0 calls it where PE 1 calls {on_1}|{on_1}: PE 1 calls it where PE 0 calls {on_0}): "
            "the PEs of a team make the same")


# Mistake: what must be said of it.
SAID = {
    "before-init": r"shmem_my_pe: called before shmem_init",
    "put-before-init": r"shmem_long_p: called before shmem_init",
    "quiet-before-init": r"shmem_quiet: called before shmem_init",
    "cache-before-init": r"shmem_udcflush: called before shmem_init",
    "malloc-before-init": r"shmem_malloc: called before shmem_init",
    "after-finalize": r"shmem_long_p: called after shmem_finalize",
    "quiet-after-finalize": r"shmem_quiet: called after shmem_finalize",
    "pe": r"shmem_long_p: pe 2: the PEs of the context are 0-1",
    "negative-pe": r"shmem_putmem: pe -1: the PEs of the context are 0-1",
    "fetch-pe": r"shmem_long_atomic_fetch_add: pe 7: the PEs of the context are 0-1",
    "nothing-to-pe": r"shmem_putmem: pe 2: the PEs of the context are 0-1",
    "stack": r"shmem_long_p: dest 0x[0-9a-f]+ is not symmetric",
    "get-stack": r"shmem_getmem: source 0x[0-9a-f]+ is not symmetric",
    "null": r"shmem_long_p: dest \(nil\) is not symmetric",
    "atomic-stack": r"shmem_long_atomic_inc: dest 0x[0-9a-f]+ is not symmetric",
    "beyond": r"shmem_putmem: dest 0x[0-9a-f]+ with 1099511627776 bytes leaves the static data, which is 0x[0-9a-f]+-0x",
    "too-many": r"shmem_long_put: dest 0x[0-9a-f]+ with 18446744073709551615 bytes leaves the static data",
    "stride": r"shmem_long_iput: dst 0, sst 1: strides are at least the 1 elements of a block",
    "block-stride": r"shmemx_long_ibput: dst 1, sst 2: strides are at least the 2 elements of a block",
    "huge-stride": r"shmem_long_iput: 100 blocks with a stride of \d+ bytes do not fit the address space",
    "sig-op": r"shmem_putmem_signal: sig_op 9 is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD",
    "sig-addr": r"shmem_putmem_signal: sig_addr 0x[0-9a-f]+ is not symmetric",
    "cmp": r"shmem_long_wait_until: cmp 6 is none of SHMEM_CMP_EQ",
    "ivar": r"shmem_long_test: ivar 0x[0-9a-f]+ is not symmetric",
    "ivars": r"shmem_long_wait_until_any: ivars 0x[0-9a-f]+ is not symmetric",
    "invalid-ctx": r"shmem_ctx_long_p: ctx is SHMEM_CTX_INVALID",
    "destroyed-ctx": r"shmem_ctx_long_p: ctx is of a destroyed context",
    "destroyed-twice": r"shmem_ctx_destroy: ctx 0x[0-9a-f]+ was destroyed before",
    "destroy-default": r"shmem_ctx_destroy: ctx is SHMEM_CTX_DEFAULT",
    "no-team": r"shmem_long_broadcast: team is SHMEM_TEAM_INVALID",
    "wild-team": r"shmem_team_sync: team 0x70007 is no team",
    "destroyed-team": r"shmem_team_sync: team 0x[0-9a-f]+ is a team that was destroyed before",
    "destroy-world": r"shmem_team_destroy: team is SHMEM_TEAM_WORLD",
    "root": r"shmem_long_broadcast: PE_root 2: the PEs of the team or active set are 0-1",
    "collective-dest": r"shmem_long_sum_reduce: dest 0x[0-9a-f]+ is not symmetric",
    "collective-source": r"shmem_long_alltoall: source 0x[0-9a-f]+ is not symmetric",
    "overlap": r"shmem_long_max_reduce: dest 0x[0-9a-f]+ and source 0x[0-9a-f]+ overlap with 16 bytes each",
    "alltoalls-stride": r"shmem_long_alltoalls: dst 1, sst 0: strides are at least",
    "active-set": r"shmem_barrier: PE_start 0, logPE_stride 1, PE_size 2: not an active set of the PEs 0-1",
    "active-set-alone": r"shmem_barrier: PE_start 0, logPE_stride 0, PE_size 1: PE 1, the caller, is not in this active set",
    "psync": r"shmem_sync: pSync 0x[0-9a-f]+ is not symmetric",
    "lock": r"shmem_set_lock: lock 0x[0-9a-f]+ is not symmetric",
    "lock-not-set": r"shmem_clear_lock: lock 0x[0-9a-f]+ is not set",
    "lock-of-another": r"shmem_clear_lock: lock 0x[0-9a-f]+ is set by PE 0, not by PE 1, the caller",
    "null-source": r"shmem_long_put: source is null",
    "null-source-nbi": r"shmem_putmem_nbi: source is null",
    "null-source-stride": r"shmem_long_iput: source is null",
    "null-source-signal": r"shmem_long_put_signal: source is null",
    "null-dest": r"shmem_long_get: dest is null",
    "null-dest-nbi": r"shmem_getmem_nbi: dest is null",
    "null-dest-stride": r"shmem_long_iget: dest is null",
    "init-after-finalize": r"shmem_init: called after the last shmem_finalize: the library begins once in a process",
    "malloc-sizes": alike("shmem_malloc", "size", 200, 100),
    "calloc-counts": alike("shmem_calloc", "count", 4, 3),
    "align-sizes": alike("shmem_align", "size", 65, 64),
    "align-alignments": alike("shmem_align", "alignment", 64, 128),
    "realloc-sizes": alike("shmem_realloc", "size", 16, 17),
    "other-block": r"shmem_free: the offset of ptr in the symmetric heap is \d+ on PE [01] and \d+ on PE [01]: all PEs must",
    "malloc-or-free": instead("shmem_malloc", "shmem_free"),
    "free-stack": r"shmem_free: ptr 0x[0-9a-f]+ is not the beginning of a block of the symmetric heap, or was freed before",
    "freed-twice": r"shmem_free: ptr 0x[0-9a-f]+ is not the beginning of a block of the symmetric heap, or was freed before",
    "realloc-freed": r"shmem_realloc: ptr 0x[0-9a-f]+ is not the beginning of a block",
    "alignment": r"shmem_align: alignment 24 is no power of two",
    "thread-level": r"shmem_init_thread: requested 7 is none of SHMEM_THREAD_SINGLE",
    "misaligned-add": r"shmem_long_atomic_add: dest 0x[0-9a-f]+ is not a multiple of its 8 bytes",
    "misaligned-fetch": r"shmem_int_atomic_fetch_inc: dest 0x[0-9a-f]+ is not a multiple of its 4 bytes",
    "misaligned-signal": r"shmem_putmem_signal: sig_addr 0x[0-9a-f]+ is not a multiple of its 8 bytes",
    "misaligned-wait": r"shmem_long_wait_until: ivar 0x[0-9a-f]+ is not a multiple of its 8 bytes",
    "broadcast-overlap": r"shmem_long_broadcast: dest 0x[0-9a-f]+ with 16 bytes and source 0x[0-9a-f]+ with 16 bytes overlap",
    "collect-overlap": r"shmem_long_collect: dest 0x[0-9a-f]+ with 32 bytes and source 0x[0-9a-f]+ with 16 bytes overlap",
    "fcollect-overlap": r"shmem_long_fcollect: dest 0x[0-9a-f]+ with 32 bytes and source 0x[0-9a-f]+ with 16 bytes overlap",
    "alltoall-overlap": r"shmem_long_alltoall: dest 0x[0-9a-f]+ with 16 bytes and source 0x[0-9a-f]+ with 16 bytes overlap",
    "alltoalls-overlap": r"shmem_long_alltoalls: dest 0x[0-9a-f]+ with 56 bytes and source 0x[0-9a-f]+ with 32 bytes overlap",
    "freed-source": r"shmem_long_sum_reduce: source 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "freed-collect": r"shmem_long_collect: source 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "freed-psync": r"shmem_barrier: pSync 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "sizes-differ": r"shmem_init_thread: SHMEM_SYMMETRIC_SIZE makes a heap of \d+ bytes here and of \d+ bytes on PE [01]: set it alike",
}

# Under HEDDLE_CHECK=full.
SAID_IN_FULL = {
    "freed-put": r"shmem_long_p: dest 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it: its block was freed",
    "freed-get": r"shmem_getmem: source 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "freed-add": r"shmem_long_atomic_add: dest 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "freed-wait": r"shmem_long_wait_until: ivar 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "freed-lock": r"shmem_set_lock: lock 0x[0-9a-f]+ lies in the symmetric heap, but in no block of it",
    "beyond-block": r"shmem_long_put: dest 0x[0-9a-f]+ with 72 bytes leaves its block of the symmetric heap, which ends after 64",
    "null-element": r"shmem_long_put: source is null",
    "roots": alike("shmem_long_broadcast", "PE_root", 0, 1),
    "lengths": alike("shmem_long_broadcast", "nelems in bytes", 32, 24),
    "no-length": alike("shmem_long_fcollect", "nelems in bytes", 32, 0),
    "alltoall-lengths": alike("shmem_long_alltoall", "nelems in bytes", 32, 24),
    "strides": alike("shmem_long_alltoalls", "sst", 1, 2),
    "types": instead("shmem_long_sum_reduce", "shmem_int_sum_reduce"),
    "operations": instead("shmem_long_sum_reduce", "shmem_long_max_reduce"),
    "reduce-lengths": alike("shmem_long_sum_reduce", "nreduce", 2, 3),
    "scan-lengths": alike("shmemx_long_sum_inscan", "nelems", 2, 3),
    "collect-or-barrier": instead("shmem_long_collect", "shmem_barrier_all"),
    "sync-or-barrier": instead("shmem_barrier_all", "shmem_sync_all"),
    "splits": alike("shmem_team_split_strided", "size", 2, 1),
    "ranges": alike("shmem_team_split_2d", "xrange", 2, 1),
    "finalize-or-barrier": instead("shmem_barrier_all", "shmem_finalize"),
    "others-put": r"shmem_ctx_long_p: ctx 0x[0-9a-f]+ is private to the thread that made it",
    "others-quiet": r"shmem_ctx_quiet: ctx 0x[0-9a-f]+ is private to the thread that made it",
}


def run(mistake, **variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SHMEM_", "SMA_"))}
    return subprocess.run(
        [HEDDLE, "run", "-n", "2", "--grace", "0.2", "--timeout", "100", PROGRAM, mistake],
        env={**kept, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=110,
    )


class Misuse(unittest.TestCase):
    def test_each_mistake_is_named(self):
        for mistake, said in SAID.items():
            with self.subTest(mistake):
                job = run(mistake)
                self.assertRegex(job.stderr, said)
                self.assertEqual(job.returncode, 1, job.stderr)

    def test_all_that_full_checks_notice(self):
        for mistake, said in (SAID | SAID_IN_FULL).items():
            with self.subTest(mistake):
                job = run(mistake, HEDDLE_CHECK="full")
                self.assertRegex(job.stderr, said)
                self.assertEqual(job.returncode, 1, job.stderr)

    def test_each_mistake_is_named_by_messages(self):
        for mistake, said in SAID.items():
            with self.subTest(mistake):
                job = run(mistake, HEDDLE_SHM_DIRECT="0")
                self.assertRegex(job.stderr, said)
                self.assertEqual(job.returncode, 1, job.stderr)

    def test_what_looks_like_a_mistake_is_none(self):
        for check in ("on", "full"):
            job = run("looks-like-a-mistake", HEDDLE_CHECK=check)
            self.assertEqual((job.returncode, job.stderr), (0, ""), check)

    def test_checks_can_be_switched_off(self):
        job = run("broadcast-overlap", HEDDLE_CHECK="off")
        self.assertEqual(job.returncode, 99, job.stderr)
        job = run("pe", HEDDLE_CHECK="off")
        self.assertRegex(job.stderr, SAID["pe"])  # it costs nothing
        job = run("pe", HEDDLE_CHECK="maybe")
        self.assertIn('HEDDLE_CHECK is "maybe": it is off, on or full', job.stderr)

    def test_the_size_of_the_heap_must_be_one(self):
        for size in ("", "abc", "12X", "-5", "nan"):
            with self.subTest(size):
                job = run("pe", SHMEM_SYMMETRIC_SIZE=size)
                self.assertIn(f'SHMEM_SYMMETRIC_SIZE is "{size}": a size is a number', job.stderr)
                self.assertEqual(job.returncode, 1)
        for size in ("0", "1048576", "1.5M", "2g", "100k", " 7m", "1MB", "20kk"):
            with self.subTest(size):
                self.assertEqual(run("invalid-is-nothing", SHMEM_SYMMETRIC_SIZE=size).stderr, "")

        self.assertIn('SHMEM_SYMMETRIC_SIZE is "100T": a heap has at most 64 T', run("pe", SHMEM_SYMMETRIC_SIZE="100T").stderr)

    def test_an_exhausted_heap_is_told_and_is_no_error(self):
        for variable in ("SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE"):
            job = run("exhausted", **{variable: "10M"})
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertRegex(job.stderr, r"shmem_malloc: the symmetric heap has no room for 104857600 bytes: \d+ of \d+ are free")
            self.assertEqual(len(re.findall("set SHMEM_SYMMETRIC_SIZE to more", job.stderr)), 3, job.stderr)

    def test_what_is_allowed(self):
        job = run("invalid-is-nothing")
        self.assertEqual((job.returncode, job.stderr), (0, ""))

    def test_pcontrol_tells_the_counts_that_are_asked_for(self):
        job = run("invalid-is-nothing", HEDDLE_STATS="1")
        self.assertEqual(job.returncode, 0, job.stderr)
        told = re.findall(r"shmem_pcontrol: PE \d+ so far, by the engine: puts \d+ gets \d+ .* polls \d+\n", job.stderr)
        self.assertGreater(len(told), 0, job.stderr)
        self.assertEqual(job.stderr.count("so far, by the engine"), len(told))

    def test_global_exit(self):
        job = run("global-exit-3")
        self.assertEqual(job.returncode, 3)
        self.assertIn("aborts the job with code 3: shmem_global_exit", job.stderr)
        job = run("global-exit-0")
        self.assertEqual((job.returncode, job.stdout, job.stderr), (0, "flushed at the end", ""))


if __name__ == "__main__":
    HEDDLE, PROGRAM = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
