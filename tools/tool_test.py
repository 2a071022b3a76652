#!/usr/bin/env python3
"""The words of the heddle command, as users type them: what `heddle info` tells, and what wrong words are answered with."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path()
SECTIONS = ["version", "machine", "engine", "transports", "messages", "launchers", "settings"]


def heddle(*words, **variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "PMI", "OMPI_", "SLURM_"))}
    return subprocess.run([TOOL, *words], env={**kept, **variables}, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="surrogateescape", check=False, timeout=120)


class Case(unittest.TestCase):
    def told(self, *words, **variables):
        result = heddle(*words, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def object(self, *words, **variables):
        return json.loads(self.told("info", *words, "--json", **variables))

    def folder_with(self, name, content):
        """A folder with a file that stands before the system's library of that name, and is none."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / name).write_text(content)
        return folder.name


class Info(Case):
    def test_by_default_it_is_one_screen(self):
        text = self.told("info", HEDDLE_MAX_WORKERS="3", HEDDLE_TRANSPROT="shm")
        self.assertLess(len(text.splitlines()), 32, text)
        for word in ("heddle ", "machine\n", "  shm ", "  ucx ", "  utofu ", "  local ", "  pmix ", "  pmi ",
                     "  HEDDLE_MAX_WORKERS=3 (default 64)", "settings [PATTERN]", "--json",
                     "HEDDLE_TRANSPROT is set but is not a variable", "did you mean HEDDLE_TRANSPORT?"):
            self.assertIn(word, text)
        self.assertNotIn("HEDDLE_UCX_TLS", text)

    def test_sections(self):
        whole = self.told("info", "--all")
        for section in SECTIONS:
            with self.subTest(section):
                part = self.told("info", section)
                self.assertIn(part.strip(), whole)
                self.assertLess(len(part), len(whole))
        self.assertEqual(self.told("info", "machine", "engine"), self.told("info", "machine") + self.told("info", "engine"))
        self.assertIn("transport loopback-messages", whole)

    def test_patterns(self):
        def names(*pattern):
            return [setting["name"] for setting in self.object("settings", *pattern)["settings"]]

        every = names()
        self.assertGreater(len(every), 50)
        self.assertEqual(names("ucx_t"), [name for name in every if "UCX_T" in name])
        self.assertEqual(names("*_bytes"), [name for name in every if name.endswith("_BYTES")])
        self.assertEqual(names("membarrier"), ["HEDDLE_SHM_MEMBARRIER"])
        described = names("standard error")
        self.assertTrue(described, "no name has that, descriptions do")
        text = self.told("info", "settings", "max_workers", HEDDLE_MAX_WORKERS="5")
        self.assertRegex(text, r"\* HEDDLE_MAX_WORKERS +count +default 64 +now 5\n")
        (transport,) = self.object("transports", "shm")["transports"]
        self.assertEqual(transport["name"], "shm")

    def test_messages(self):
        def limits(kind, **variables):
            (row,) = [row for row in self.object("messages", **variables)["messages"] if row["transport"] == "shm" and row["kind"] == kind]
            return row

        self.assertEqual(limits("tagged, MPI"), {"transport": "shm", "kind": "tagged, MPI", "inline_bytes": 56, "eager_bytes": 16384,
                                                "piped_bytes": 524288, "longer": "pulled"})
        self.assertEqual(limits("tagged, MPI", HEDDLE_TAG_EAGER_BYTES="64K")["piped_bytes"], 65536)
        self.assertEqual(limits("tagged, MPI", HEDDLE_SHM_DIRECT="0")["longer"], "fetched")
        self.assertEqual(limits("active", HEDDLE_AM_EAGER_BYTES="1M")["piped_bytes"], 1 << 20)
        text = self.told("info", "messages", HEDDLE_TAG_EAGER_BYTES="64K")
        self.assertRegex(text, r"over shm\n  tagged, MPI +1  pulled .*\n +2  inline +up to 56 bytes\n +3  eager +up to 16K bytes\n +4  piped +up to 64K bytes\n +5  pulled")

    def test_json_has_what_the_text_has(self):
        found = self.object()
        with_sections = [*SECTIONS[:4], "network", "network_problem", *SECTIONS[4:], "unknown_settings"]
        self.assertEqual([*found], with_sections)
        self.assertIn(found["version"]["heddle"], self.told("version"))
        machine = found["machine"]
        self.assertEqual(sum(len(core) for core in machine["cores"]), machine["hardware_threads"])
        shm = next(transport for transport in found["transports"] if transport["name"] == "shm")
        self.assertTrue(shm["available"])
        self.assertIn("message", shm["commands"])
        for part in (*found["transports"], *found["launchers"]):
            self.assertEqual(part["available"], "problem" not in part, part)
        self.assertEqual({launcher["name"] for launcher in found["launchers"]}, {"local", "pmix", "pmi"})
        self.assertEqual(found["unknown_settings"], [])
        self.assertEqual([*self.object("engine")], ["engine"])

    def test_json_is_json_whatever_is_set(self):
        odd = 'a"b\\c\n\t\x01é\udcff\udce2\udc82'
        found = self.object("settings", HEDDLE_TRANSPORT=odd, HEDDLE_QUUX="1")
        setting = next(one for one in found["settings"] if one["name"] == "HEDDLE_TRANSPORT")
        self.assertEqual(setting["set"], 'a"b\\c\n\t\x01é\ufffd\ufffd\ufffd')
        self.assertEqual(found["unknown_settings"], [{"name": "HEDDLE_QUUX", "did_you_mean": None}])

    def test_a_value_that_makes_no_sense(self):
        result = heddle("info", "--json", HEDDLE_MAX_WORKERS="many")
        self.assertEqual(result.returncode, 1)
        self.assertIn("HEDDLE_MAX_WORKERS", result.stderr)
        self.assertIn("HEDDLE_MAX_WORKERS", json.loads(result.stdout)["problem"])

    def test_transports_that_no_job_can_choose_from(self):
        result = heddle("info", "transports", HEDDLE_TRANSPORTS="ofi,foo")
        self.assertEqual(result.returncode, 1)
        self.assertIn('there is not, "foo"', result.stderr)
        self.assertIn("processes of one machine", result.stdout)
        for empty in (",ucx", "shm,,ucx", "shm,"):
            result = heddle("info", "transports", HEDDLE_TRANSPORTS=empty)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f'HEDDLE_TRANSPORTS="{empty}" has an empty entry', result.stderr)
        result = heddle("info", "transports", HEDDLE_TRANSPORTS="shm,shm")
        self.assertEqual(result.returncode, 1)
        self.assertIn("shm reaches the ranks of its own node, so it cannot be one for other nodes", result.stderr)
        result = heddle("info", "transports", "--json", HEDDLE_TRANSPORT="shm", HEDDLE_TRANSPORTS="ucx")
        self.assertEqual(result.returncode, 1)
        self.assertIn("contradict", json.loads(result.stdout)["problem"])


    def test_transports_that_are_chosen_and_cannot_be_used_here(self):
        missing = {"HEDDLE_LIBRARIES": "ucx=libucp.so.none,ofi=libfabric.so.none"}
        for choice in ({"HEDDLE_TRANSPORT": "ucx"}, {"HEDDLE_TRANSPORTS": "shm,ucx"}, {"HEDDLE_TRANSPORTS": "shm,ucx,ofi"}):
            result = heddle("info", **missing, **choice)
            self.assertEqual(result.returncode, 1, choice)
            self.assertIn("=".join(*choice.items()), result.stderr)
            self.assertRegex(result.stderr, "libucp.so.none|built without")
        self.assertEqual(heddle("info", **missing, HEDDLE_TRANSPORTS="shm").returncode, 0)

    def test_the_network_of_a_job_on_several_nodes(self):
        self.assertIn("between nodes a job would use loopback (HEDDLE_TRANSPORTS names it)",
                      self.told("info", HEDDLE_TRANSPORTS="shm,loopback"))
        self.assertIn("between nodes a job would use loopback (HEDDLE_TRANSPORT names it)",
                      self.told("info", HEDDLE_TRANSPORT="shm,loopback"))
        for variable in ("HEDDLE_TRANSPORT", "HEDDLE_TRANSPORTS"):
            nothing = f"{variable}=shm reaches the ranks of one node only; name a network too, such as shm,ucx"
            for section in ([], ["transports"]):
                self.assertIn("between nodes a job could use nothing: " + nothing, self.told("info", *section, **{variable: "shm"}))
            facts = json.loads(self.told("info", "--json", "transports", **{variable: "shm"}))
            self.assertEqual((facts["network"], facts["network_problem"]), (None, nothing))
        self.assertRegex(self.told("info"), "  between nodes a job (would use|could use nothing)")

    def test_a_job_without_a_network_is_told_every_reason(self):
        files = {"ucx": "libucp.so.none", "verbs": "libibverbs.so.none", "ofi": "libfabric.so.none"}
        reasons = {"HEDDLE_LIBRARIES": ",".join(f"{name}=/{name[0] * 200}/{file}" for name, file in files.items())}
        job = heddle("run", "-n", "2", TOOL, "info", "--job", HEDDLE_NODE_RANKS="1", **reasons)
        self.assertNotEqual(job.returncode, 0)
        for library in ("libucp.so.none", "libibverbs.so.none", "libfabric.so.none"):
            self.assertIn(library + " cannot be loaded", job.stdout + job.stderr)


class Job(Case):
    """`heddle info --job` tells what the first operation of a program would find."""

    def two(self, first, second):
        """The job's end, where rank 0 has these settings and rank 1 those."""
        script = f'[ "$HEDDLE_LOCAL_RANK" = 0 ] && set -- {first} || set -- {second}; exec env "$@" "$TOOL" info --job'
        job = heddle("run", "-n", "2", "sh", "-c", script, TOOL=str(TOOL))
        return job.returncode, job.stdout + job.stderr

    def differs(self, first, second, *texts):
        code, text = self.two(first, second)
        self.assertEqual(code, 1, text)
        for part in texts:
            self.assertIn(part, text)

    def test_ranks_with_other_transports(self):
        self.differs("HEDDLE_TRANSPORTS=shm", "HEDDLE_TRANSPORTS=loopback",
                     "0 by shm; 1 not at all: rank 1 uses loopback, this rank shm; give all ranks the same HEDDLE_TRANSPORT",
                     "1 by loopback; 0 not at all: rank 0 uses shm, this rank loopback;")

    def test_ranks_with_other_settings(self):
        self.differs("HEDDLE_SHM_RING_BYTES=64K", "HEDDLE_SHM_RING_BYTES=128K",
                     "0 by shm; 1 not at all: HEDDLE_SHM_RING_BYTES of rank 1 is 131072, of this rank 65536;",
                     "1 by shm; 0 not at all: HEDDLE_SHM_RING_BYTES of rank 0 is 65536, of this rank 131072;")

    def test_ranks_on_other_nodes(self):
        self.differs("HEDDLE_NODE_RANKS=1", "HEDDLE_NODE_RANKS=0", "rank 1 does not say which networks it may use",
                     "rank 0 runs another program than `heddle info --job`, or has another HEDDLE_NODE_RANKS")

    def test_ranks_with_other_providers(self):
        ofi = "HEDDLE_NODE_RANKS=1 HEDDLE_TRANSPORTS=shm,ofi HEDDLE_OFI_PROVIDER="
        code, text = self.two(ofi + "net", ofi + "net")  # libfabric before 1.18
        if code != 0:
            code, text = self.two(ofi + "tcp", ofi + "tcp")
        if code != 0:
            self.skipTest("no libfabric with TCP: " + text)
        other = ofi + "'tcp;ofi_rxm'"
        mine, theirs = ("net", "tcp;ofi_rxm") if "provider net" in text else ("tcp", "tcp;ofi_rxm")
        self.differs(ofi + mine, other,
                     f"0 by ofi; 1 not at all: rank 1 uses libfabric's provider {theirs}, this rank {mine};",
                     f"1 by ofi; 0 not at all: rank 0 uses libfabric's provider {mine}, this rank {theirs};")

    def test_ranks_that_agree(self):
        code, text = self.two("HEDDLE_MAX_WORKERS=3", "HEDDLE_MAX_WORKERS=3")
        self.assertEqual(code, 0, text)
        self.assertIn("0-1 by shm\n", text)


class Missing(Case):
    """Libraries that are opened at run time: what is missing costs a line."""

    def transport(self, **variables):
        (found,) = self.object("transports", "ucx", **variables)["transports"]
        if not found["available"] and "built without" in found["problem"]:
            self.skipTest("built without UCX")
        return found

    def test_ucx(self):
        found = self.transport(HEDDLE_LIBRARIES="ucx=libucp.so.none")
        self.assertFalse(found["available"])
        self.assertIn("libucp.so.none cannot be loaded: ", found["problem"])
        self.assertIn("Debian: libucx0", found["problem"])
        self.assertIn("ucx         not available: libucp.so.none cannot be", self.told("info", HEDDLE_LIBRARIES="ucx=libucp.so.none"))
        job = heddle("run", "-n", "1", TOOL, "info", "--job", HEDDLE_LIBRARIES="ucx=libucp.so.none", HEDDLE_TRANSPORT="ucx")
        self.assertIn("libucp.so.none cannot be loaded: ", job.stdout + job.stderr)

    def test_settings_of_all_networks(self):
        small = self.transport(HEDDLE_NETWORK_WINDOW_BYTES="8K")
        self.assertFalse(small["available"])
        self.assertIn("HEDDLE_NETWORK_WINDOW_BYTES is 8192; ucx needs at least 24576", small["problem"])
        short = self.transport(HEDDLE_NETWORK_TIMEOUT="5ms")
        self.assertIn("HEDDLE_NETWORK_TIMEOUT is 5000000 ns; 0, or from 1s to 240s", short["problem"])
        # of verbs; the others choose
        for name in ("ucx", "ofi"):
            (plain,) = self.object("transports", name)["transports"]
            (auto,) = self.object("transports", name, HEDDLE_NET_DEVICES="auto")["transports"]
            self.assertEqual(auto, plain)

    def test_verbs_settings_are_checked_without_an_adapter(self):
        for devices in ("a,a", "a,b,c", "a,", "auto,a"):
            (found,) = self.object("transports", "verbs", HEDDLE_LIBRARIES="verbs=libibverbs.so.none", HEDDLE_NET_DEVICES=devices)["transports"]
            if "built without" in found["problem"]:
                self.skipTest("built without verbs")
            self.assertIn(f'HEDDLE_NET_DEVICES="{devices}": give auto, or up to 2 different adapters', found["problem"])

    def test_ucx_without_a_device_that_does(self):
        self.transport()
        found = self.transport(HEDDLE_UCX_TLS="self", HEDDLE_NET_DEVICES="lo")
        self.assertFalse(found["available"])
        for setting in ('HEDDLE_UCX_TLS="self"', 'HEDDLE_NET_DEVICES="lo"'):
            self.assertIn(setting, found["problem"])

    def ofi(self, **variables):
        (found,) = self.object("transports", "ofi", **variables)["transports"]
        return found

    def test_providers_of_libfabric(self):
        if not self.ofi()["available"]:
            self.skipTest("no libfabric")
        problem = self.ofi(HEDDLE_OFI_PROVIDER="nonsense")["problem"]
        self.assertRegex(problem, r'for HEDDLE_OFI_PROVIDER="nonsense".*; it has [^;]*tcp')
        offered, _, unfit = problem.partition("; these do not serve Heddle, ")
        self.assertNotIn("sockets", offered)
        self.assertNotIn("shm", offered)
        for provider in ("shm", "sockets"):
            if provider in unfit:
                told = self.ofi(HEDDLE_OFI_PROVIDER=provider)["problem"]
                self.assertIn(f"provider {provider} has no descriptor on which a thread could sleep", told)

    def test_hwloc(self):
        before = self.object("machine")["machine"]
        folder = self.folder_with("libhwloc.so.15", "no library")
        after = self.object("machine", LD_LIBRARY_PATH=folder)["machine"]
        self.assertEqual(after["source"], "Linux")
        self.assertEqual(sorted(sum(after["cores"], [])), sorted(sum(before["cores"], [])))
        if before["source"] == "hwloc":
            self.assertIn("libhwloc.so.15 cannot be loaded: ", after["remark"])
            self.assertIn("without hwloc: libhwloc.so.15", self.told("info", LD_LIBRARY_PATH=folder))

    def test_pmix(self):
        folder = self.folder_with("libpmix.so.2", "no library")
        found = self.object("launchers", LD_LIBRARY_PATH=folder)["launchers"]
        (pmix,) = [launcher for launcher in found if launcher["name"] == "pmix"]
        self.assertFalse(pmix["available"])
        if "built without" in pmix["problem"]:
            self.skipTest("built without PMIx")
        self.assertIn("libpmix.so.2 cannot be loaded: ", pmix["problem"])
        self.assertIn("Debian: libpmix2", pmix["problem"])
        job = heddle("info", "--job", LD_LIBRARY_PATH=folder, PMIX_NAMESPACE="a", PMIX_RANK="0")
        self.assertIn("started by a launcher with PMIx, and libpmix.so.2 cannot be loaded: ", job.stdout + job.stderr)


class Output(Case):
    def test_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([TOOL, "version"], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
                                    check=False, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("heddle version: cannot write all of standard output: No space left on device", result.stderr)


class WrongWords(Case):
    def test_are_answered_in_a_few_lines(self):
        for words, *said in (
            (["rnu"], '"rnu"', "did you mean run?", "`heddle help`"),
            (["quux"], '"quux"', "`heddle help`"),
            (["--vrsion"], '"--vrsion"', "`heddle help`"),
            (["help", "bnech"], '"bnech"', "did you mean bench?"),
            (["run", "--timout", "3", "app"], "did you mean --timeout?", "`heddle run --help`"),
            (["run", "-n=two", "app"], "-n two is not a number", "1 to "),
            (["oshrun", "--tga", "app"], "did you mean --tag?", "`oshrun --help`"),
            (["info", "transport"], "did you mean transports?", "`heddle info --help`"),
            (["info", "--jsn"], "did you mean --json?", "`heddle info --help`"),
            (["info", "--job", "x"], "--job takes no further words"),
            (["info", "settings", "HEDDLE_TRANSPROT"], "did you mean HEDDLE_TRANSPORT?"),
            (["info", "settings", "quuxquux"], 'no setting matches "quuxquux"'),
            (["info", "transports", "ucy"], "did you mean ucx?"),
            (["info", "settings", "a", "b"], '"b"'),
            (["info", "--schedule", "x", "--rnaks", "3"], "--rnaks"),
            (["info", "--schedule", "broadcast.binomal"], "did you mean broadcast.binomial?"),
            (["bench", "pingpogn"], "did you mean pingpong?", "`heddle bench --help`"),
            (["bench", "--sizes", "8"], "did you mean --size?", "`heddle bench --help`"),
            (["bench", "--zzz"], "unknown option --zzz", "`heddle bench --help`"),
            (["bench", "--json"], "--json needs a value"),
            (["bench", "--op", "ptu"], "did you mean put?"),
            (["bench", "rate", "barrier"], "heddle bench barrier"),
            (["bench", "allreduce", "--rank", "2"], "did you mean --ranks?", "`heddle bench --help`"),
            (["bench", "barrier", "brodcast"], "did you mean broadcast?"),
            (["bench", "barrier", "--time"], "--time needs a value"),
            (["bench", "tune", "--sise", "8"], "did you mean --size?", "`heddle bench --help`"),
            (["bench", "tune", "--output"], "--output needs a value"),
            (["run", "--trace"], "--trace needs a FILE"),
            (["run", "--trace=", "app"], "--trace needs a FILE, and its value is empty"),
            (["run", "--trace", "/", "app"], "--trace / is a directory"),
            (["hang", "12x"], '"12x" is not the number of a process'),
            (["metrics", "1", "2"], "one process at most"),
            (["top", "1", "2"], '"2" is one process too many'),
            *((words, f'heddle {words[0]}: "{words[-1]}" is no option; `heddle {words[0]} --help` tells more')
              for words in (["hang", "--json"], ["hang", "-x"], ["metrics", "--json"], ["top", "-x"], ["trace", "-x"],
                            ["explain", "-x"], ["report", "--json"])),
            (["report", "-o"], "-o needs a file"),
            (["report"], "no file given"),
        ):
            with self.subTest(words):
                result = heddle(*words)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertLessEqual(len(result.stderr.splitlines()), 2, result.stderr)
                for word in said:
                    self.assertIn(word, result.stderr)

    def test_a_setting_of_the_launcher_is_refused_once(self):
        result = heddle("run", "-n", "2", "echo", "here", HEDDLE_HANG_SECONDS="soon")
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.assertEqual(result.stderr.count('HEDDLE_HANG_SECONDS="soon" is not '), 1, result.stderr)

    def test_paths_of_traces_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            none = os.path.join(folder, "none")
            for command in ("explain", "trace"):
                for path, said in ((none, f"{none} does not exist, nor do {none}.rank0"), (folder, f"{folder} is a directory")):
                    with self.subTest((command, path)):
                        result = heddle(command, path)
                        self.assertEqual((result.returncode, result.stdout), (1, ""))
                        self.assertTrue(result.stderr.startswith(f"heddle {command}: {said}"), result.stderr)

    def test_a_setting_that_is_none(self):
        words = "bench barrier --ranks=1 --form=blocking --time=1 --repeat=1 --overlap=no".split()
        result = heddle(*words, HEDDLE_TRANSPROT="shm")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("HEDDLE_TRANSPROT is not a variable of Heddle and has no effect (did you mean HEDDLE_TRANSPORT?)",
                      result.stderr)

    def test_the_number_of_ranks_in_every_spelling(self):
        for words in (["-n", "2"], ["-n2"], ["-n=2"], ["-np=2"], ["--np=2"]):
            with self.subTest(words):
                self.assertEqual(self.told("run", *words, "--", "echo", "here"), "here\n" * 2)


class Bench(Case):
    def test_sizes_that_are_not_measured_are_told(self):
        result = heddle("bench", "rate", "bandwidth", "--quick", "--repeat=1", "--size=8,16M", "--op=put", "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("heddle bench: without rate of 16777216 bytes: it takes at most "), 1, result.stderr)
        records = [json.loads(line) for line in result.stdout.splitlines()[1:]]
        for bench, sizes in (("rate", {8}), ("bandwidth", {8, 16 << 20})):
            self.assertEqual({one["size_bytes"] for one in records if one["bench"] == bench}, sizes)

    def test_records_of_a_job_on_several_nodes_are_not_named_shm(self):
        if heddle("run", "-n", "2", TOOL, "info", "--job", HEDDLE_NODE_RANKS="1").returncode != 0:
            self.skipTest("no network")
        result = heddle("bench", "rate", "--quick", "--repeat=1", "--op=put", "--threads=1", "--json", "-", HEDDLE_NODE_RANKS="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        records = [json.loads(line) for line in result.stdout.splitlines()[1:]]
        self.assertEqual({one["transport"] for one in records}, {"heddle network"})

    def test_a_bench_of_one_network_says_that_it_does_not_choose(self):
        result = heddle("bench", "network_ofi", "--quick", "--repeat=1", "--size=8", "--op=am", HEDDLE_TRANSPORTS="shm,ucx")
        self.assertIn("network_ofi measures ofi; HEDDLE_TRANSPORTS=shm,ucx does not count for it", result.stderr)

    def test_records_to_standard_output(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([TOOL, "bench", "limit", "--quick", "--repeat=1", "--size=8", "--json", "-"], cwd=folder,
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=250)
            self.assertEqual(result.returncode, 0, result.stderr)
            header, *records = map(json.loads, result.stdout.splitlines())
            self.assertEqual(header["heddle_bench"], 2)
            self.assertTrue(records)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
