#!/usr/bin/env python3
"""Tests of figures.py: on small files of figures and documents with planted faults, each of which must be found."""

import argparse
import collections
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import figures  # noqa: E402
from figures_rows import row  # noqa: E402

KEY = {"bench": "pingpong", "op": "get", "transport": "shm", "sharing": "exclusive", "memory": "allocated", "processes": 2, "threads": 1,
       "workers": 1, "size_bytes": 8, "metric": "latency", "unit": "ns"}


def record(median, half=1.0, **other):
    values = {"median": median, "low95": median - half, "high95": median + half, "repeats": 9, "p_ns": 60, "distance": "near", "verified": True}
    return {**KEY, **values, **other}


GET = row("operations", "get", "operations", "exclusive", op="get", size_bytes=8)


def data_of(*records, **other):
    run = {"date": "2026-11-29 12:00 +0000", "machine": "AMD EPYC, Linux 6.18", "cores": 2, "version": "0.3.0", "commit": "abc", "others": 0.0,
           "good": True, "quick": False, "records": list(records)}
    build = {"compiler": "g++ 12.2.0", "type": "Release", "peers_optimised": True}
    return {"figures": 1, "quiet": True, "build": build, "peers": {"ucx": "1.13.1"}, "runs": {"operations": {**run, **other}}}


def standing_of(*records, row=GET):
    with unittest.mock.patch.object(figures, "ROWS", (row,)):
        (found,) = figures.standings(data_of(*records))
    return found


class Numbers(unittest.TestCase):
    def test_three_digits(self):
        for value, text in ((0.0712, "0.0712"), (0.9996, "1.00"), (7.123, "7.12"), (9.999, "10.0"), (71.24, "71.2"), (712.3, "712"), (71234, "71234"), (0, "0")):
            self.assertEqual(figures.number(value), text)

    def test_units(self):
        self.assertEqual(figures.value_text(record(71.1)), "71.1 ns [70.1–72.1]")
        self.assertEqual(figures.value_text(record(26500, 500)), "26.5 µs [26.0–27.0]")
        self.assertEqual(figures.value_text(record(0.25, 0, metric="rate", unit="Mop/s")), "250 k/s")
        self.assertEqual(figures.value_text(record(5, 0, verified=False)), "5.00 ns, **a wrong result**")
        self.assertEqual(figures.value_text(record(53, 0, metric="bandwidth", unit="GB/s", distance="far")), "53.0 GB/s, far")


class Standings(unittest.TestCase):
    def test_ahead_level_behind(self):
        for median, words in ((30, "ahead"), (5.5, "level"), (2, "behind")):
            self.assertEqual(standing_of(record(5), record(median, transport="ucx")).words, words)
        for median, words in ((30, "behind"), (3, "ahead")):
            rate = {"metric": "rate", "unit": "Mop/s"}
            self.assertEqual(standing_of(record(10, **rate), record(median, transport="ucx", **rate)).words, words)

    def test_few_repeats_are_not_compared(self):
        found = standing_of(record(5), record(30, transport="ucx", repeats=2))
        self.assertEqual((found.words, figures.cells(found, {})[4]), ("unknown", "too few repeats"))

    def test_a_peer_that_is_ahead_comes_before_one_with_a_better_median(self):
        found = standing_of(record(10, 1), record(5, 20, transport="ucx"), record(7, 0.5, transport="mpich"))
        self.assertEqual((found.words, found.other["transport"]), ("behind", "mpich"))

    def test_the_best_of_those_that_are_not(self):
        found = standing_of(record(10), record(50, transport="ucx"), record(40, transport="openmpi"), record(45, transport="mpich"))
        self.assertEqual((found.words, found.other["transport"]), ("ahead", "openmpi"))

    def test_no_peer(self):
        own = [record(1, transport=name) for name in ("shmem", "heddle_mpi-0.3.0")]
        other = record(1, transport="ucx", distance="far"), record(1, transport="ucx", threads=2), record(1, transport="ucx", op="put")
        for records in (own, other, [record(1, transport="limit")]):
            found = standing_of(record(5), *records)
            self.assertEqual(found.words, "alone")
            self.assertIn("no peer", figures.cells(found, {})[3])
        self.assertEqual(figures.cells(standing_of(), {})[2], "not measured")

    def test_of_two_states_the_one_with_more_repeats(self):
        for near, far, median in ((9, 4, 5), (4, 9, 7), (5, 5, 5)):
            found = standing_of(record(7, distance="far", repeats=far), record(5, repeats=near))
            self.assertEqual(found.ours["median"], median)

    def test_of_two_states_the_one_in_which_a_peer_was_measured(self):
        found = standing_of(record(7, distance="far", repeats=9), record(5, repeats=4), record(30, transport="ucx", repeats=4))
        self.assertEqual((found.ours["distance"], found.words), ("near", "ahead"))

    def test_limits(self):
        p = row("operations", "get", "operations", "exclusive", "P", op="get")
        found = standing_of(record(75), record(5, transport="ucx"), row=p)
        self.assertEqual((found.words, figures.cells(found, {})[3:]), ("limit", ["P 60.0 ns", "0.800"]))
        copy = row("operations", "get", "operations", "exclusive", "memcpy", op="get")
        found = standing_of(record(50, metric="bandwidth", unit="GB/s"), row=copy)
        self.assertEqual(found.words, "alone")
        limit = record(100, 0, transport="limit", op="memcpy", metric="bandwidth", unit="GB/s")
        found = standing_of(record(50, metric="bandwidth", unit="GB/s"), limit, row=copy)
        self.assertEqual(figures.cells(found, {})[3:], ["memcpy 100 GB/s", "0.500"])

    def test_an_active_message_is_compared_with_a_tagged_one_too(self):
        am = row("operations", "am", "operations", "exclusive", op="am")
        self.assertEqual(standing_of(record(5, op="am"), record(30, op="tagged", transport="ucx"), row=am).words, "ahead")

    def test_plain_words(self):
        found = standing_of(record(10), record(5, transport="ucx"))
        self.assertEqual(figures.cells(found, {"ucx": "1.13.1"}), ["get", "exclusive", "10.0 ns [9.00–11.0]", "UCX 1.13 5.00 ns [4.00–6.00]", "**0.500: UCX 1.13 is ahead**"])
        mpi = figures.Standing(row("mpi", "get", "operations", op="get"), record(5), None)
        self.assertEqual([figures.cells(mpi, {}, alone)[0] for alone in (True, False)], ["get", "MPI: get"])
        self.assertIn("(level)", figures.cells(standing_of(record(5), record(5, transport="impi-2021.19.0")), {})[4])


class Texts(unittest.TestCase):
    def test_what_the_run_was(self):
        text = figures.origin_text(data_of(record(5), record(6, transport="openmpi-5.0.11")))
        self.assertEqual(text.splitlines()[0], "Measured on 2026-11-29 on AMD EPYC, Linux 6.18, 2 cores. Heddle 0.3.0 (commit abc), g++ 12.2.0, Release.")
        self.assertIn("P was 60.0 ns where the cores were near.", text)
        self.assertIn("Peers: Open MPI 5.0.", text)
        self.assertNotIn("**", text)

    def test_what_speaks_against_it(self):
        data = {**data_of(record(5), quick=True, good=False), "quiet": False}
        data["build"]["peers_optimised"] = False
        text = figures.origin_text(data)
        for words in ("**Measured beside other work**", "**A quick run**", "were not optimised**", "failed or was ended in: operations"):
            self.assertIn(words, text)

    def test_what_falls_short(self):
        with unittest.mock.patch.object(figures, "ROWS", (GET,)):
            behind = figures.tables(data_of(record(5), record(1, transport="ucx")))["short"]
            ahead = figures.tables(data_of(record(5), record(10, transport="ucx")))["short"]
        self.assertIn("ahead in 0 and level in 0; a peer is ahead in 1.\n\n| what ", behind)
        self.assertIn("| **0.200: UCX 1.13 is ahead** |", behind)
        self.assertEqual(ahead, "Of 1 rows beside a peer Heddle is ahead in 1 and level in 0; a peer is ahead in 0.")

    def test_a_record_on_each_line(self):
        data = data_of(record(5), record(6))
        text = figures.text_of(data)
        self.assertEqual(json.loads(text), data)
        self.assertEqual(sum(line.startswith('   {"bench":"pingpong"') for line in text.splitlines()), 2)


class Documents(unittest.TestCase):
    texts = {"one": "| 71 ns |\nP was 60 ns."}
    good = "Text.\n\n<!-- figures:one -->\n| 71 ns |\nP was 60 ns.\n<!-- /figures -->\n\nMore.\n"

    def faults(self, text):
        return figures.faults_of("README.md", text, self.texts)

    def test_good(self):
        self.assertEqual(self.faults(self.good), [])

    def test_written(self):
        empty = "Text.\n\n<!-- figures:one -->\n<!-- /figures -->\n\nMore.\n"
        self.assertEqual(figures.written(empty, self.texts), self.good)
        self.assertEqual(figures.written(self.good.replace("71", "72"), self.texts), self.good)

    def test_planted(self):
        for text, word in (
            (self.good.replace("71", "70"), "README.md:3: the table figures:one is not what"),
            (self.good.replace("figures:one", "figures:two"), "README.md:3: there is no table figures:two"),
            (self.good.replace("<!-- /figures -->", ""), "README.md:3: a marker without its other end"),
            (self.good + "A get takes 3.8 ns.\n", "README.md:9: '8 ns'"),
        ):
            with self.subTest(word=word):
                self.assertIn(word, self.faults(text)[0])

    def test_what_states_a_figure(self):
        for text in ("71 ns", "71ns", "26 µs", "1.5 ms", "257 M/s", "250 k/s", "53 GB/s", "40 MB/s", "1.11 ×", "12×", "3 times as fast", "2 times faster"):
            self.assertEqual(len(self.faults(f"It takes {text}.\n")), 1, text)

    def test_what_does_not(self):
        for text in ("8 bytes", "1 MiB", "10 minutes", "2026-11-29", "UCX 1.22", "2 cores", "rank 1 nspect", "64 messages", "`--time 5`", "3 times", "4 numbers"):
            self.assertEqual(self.faults(f"With {text}.\n"), [], text)

    def test_of_a_whole_tree(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(figures, "ROWS", (GET,)):
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            names = ["origin", "selected", "short", "operations"]
            blocks = [f"<!-- figures:{name} -->\n<!-- /figures -->\n" for name in names]
            (root / "README.md").write_text("\n".join(blocks[:2]))
            (root / "docs/performance.md").write_text("\n".join(blocks[2:]))
            (root / figures.FILE).write_text(figures.text_of(data_of(record(5), record(6, transport="ucx"))))
            self.assertEqual(len(figures.check(root)), 4)
            figures.write(root)
            self.assertEqual(figures.check(root), [])
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(figures.main(["--check", str(root)]), 0)
            (root / figures.FILE).write_text(figures.text_of(data_of(record(50), record(6, transport="ucx"))))
            with contextlib.redirect_stdout(out):
                self.assertEqual(figures.main(["--check", str(root)]), 1)
            (root / figures.FILE).write_text(figures.text_of(data_of(record(50), record(6, transport="ucx"), quick=True)))
            self.assertIn("docs/figures.json: the run operations is a quick one, which shows no more than that everything runs", figures.check(root))
            (root / "README.md").write_text("")
            self.assertIn("docs/performance.md: the table figures:origin is nowhere shown", figures.check(root))


class Rows(unittest.TestCase):
    def test_one_value_for_one_thing(self):
        for told in ([(row.table, row.what, row.mode) for row in figures.ROWS], [(row.run, row.ours, row.key) for row in figures.ROWS]):
            self.assertEqual([one for one, count in collections.Counter(told).items() if count > 1], [])

    def test_every_run_has_rows(self):
        self.assertEqual({row.run for row in figures.ROWS}, set(figures.RUNS))

    def test_conditions_are_of_records(self):
        self.assertEqual({name for row in figures.ROWS for name, _ in row.key} - set(figures.KEY), set())


TOOL = """#!/bin/sh
echo 'heddle bench: without impi of /somewhere/build/peers: its program was not built' >&2
echo '{{"heddle_bench":2,"date":"2026-11-29 12:00 +0000","machine":"AMD EPYC, Linux 6.18.44-x","cores":2,"load":1,"version":"0.3.0","command":"{0}"}}'
echo '{1}'
echo '{2}'
exit 1
"""


class Measured(unittest.TestCase):
    def test_of_a_tool(self):
        one = {**record(5), "against": None, "ratio": None}
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "heddle")
            tool.write_text(TOOL.format(tool, json.dumps(one), json.dumps({**one, "against": "ucx", "ratio": 2})))
            tool.chmod(0o755)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                run = figures.measured(tool, ["pingpong", "--peers"])
        self.assertIn("heddle bench: without impi", said.getvalue())
        self.assertEqual(run["records"], [record(5)])
        self.assertEqual((run["machine"], run["command"], run["good"]), ("AMD EPYC, Linux 6.18", "heddle bench pingpong --peers", False))
        self.assertEqual(run["without"], ["impi"])
        self.assertNotIn(folder, json.dumps(run))
        self.assertGreaterEqual(run["others"], 0)

    def test_others_at_work(self):
        for shares, quiet in (((0.0, 0.04), True), ((0.0, 0.3), False)):
            runs = {name: {"others": share} for name, share in zip(("rates", "operations"), shares)}
            data = figures.summary_of(runs, {})
            self.assertEqual((data["quiet"], list(data["runs"])), (quiet, ["operations", "rates"]))

    def test_a_tree_that_was_not_built(self):
        given = argparse.Namespace(build="build/nowhere", only="", quick=True)
        with self.assertRaisesRegex(SystemExit, "build/nowhere has no tools/heddle"):
            figures.measure(given)

    def test_how_it_was_built(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder, "CMakeCache.txt")
            for precompile, tests, optimised in (("ON", "ON", False), ("OFF", "ON", True), ("ON", "OFF", True)):
                cache.write_text(f"CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++\n"
                                 f"HEDDLE_PRECOMPILE:BOOL={precompile}\nHEDDLE_TESTS:BOOL={tests}\n")
                built = figures.built(pathlib.Path(folder))
                self.assertEqual((built["type"], built["peers_optimised"]), ("Release", optimised))


if __name__ == "__main__":
    unittest.main()
