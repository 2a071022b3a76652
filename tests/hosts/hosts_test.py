#!/usr/bin/env python3
"""Tests of jobs on two hosts (hosts.py): hosts_test.py BUILD [CLASS…], where BUILD has the programs.

Where hosts cannot be made, and for launchers that are not installed, it says "skipped: reason".
"""

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts
import slurm
from job import DEADLINE, Job

BUILD = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
LAUNCH_RANK = str(BUILD / "tests/system/launch_rank")
LINK_RANK = str(BUILD / "tests/system/link_rank")
COLLECTIVES_RANK = str(BUILD / "tests/hosts/collectives_rank")
HEDDLE = str(BUILD / "tools/heddle")
SILENCE = 2  # s: HEDDLE_NETWORK_TIMEOUT where the network is cut

# Program, ranks, arguments.
EXAMPLES = (("hello", 3), ("ping_pong", 2), ("halo", 4), ("tickets", 3), ("tagged", 3), ("partitioned", 3), ("jacobi", 4), ("eigenvalue", 3))
ONLY_UCX = {"HEDDLE_TRANSPORTS": "ucx", "HEDDLE_UCX_TLS": "tcp"}


class Network:
    """Settings for jobs whose hosts are joined by a transport; `cut`: by the interface that tests cut."""

    def __init__(self, alone, joined, cut):
        self.alone, self.joined, self.cut = alone, joined, cut


UCX = Network(ONLY_UCX, {"HEDDLE_UCX_TLS": "tcp"}, {"HEDDLE_NET_DEVICES": "eth1", "HEDDLE_NETWORK_TIMEOUT": f"{SILENCE}s"})
OFI = Network({"HEDDLE_TRANSPORTS": "ofi"}, {"HEDDLE_TRANSPORTS": "shm,ofi"}, {"HEDDLE_NET_DEVICES": "eth1", "HEDDLE_NETWORK_TIMEOUT": f"{SILENCE}s"})


def example(name):
    return str(BUILD / "examples" / f"example_{name}")


class Launcher:
    """`ranks` are shared out so that the first half, and the odd one, is on host 1."""

    def __init__(self, name, bootstrap, programs, version, survivors):
        self.name, self.bootstrap, self.programs, self.version, self.survivors = name, bootstrap, programs, version, survivors

    def find(self):
        """Its program; None: it is not installed."""
        for program in filter(None, map(shutil.which, self.programs)):
            if self.version in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
                return program
        return None

    def words(self, ranks, command, others_live=False):
        near = (ranks + 1) // 2
        far = ranks - near
        program = self.find()
        here, there = HOSTS.address(1), HOSTS.address(2)
        options = self.survivors if others_live else []
        if self.name == "hydra":
            on = f"{here}:{near},{there}:{far}" if far else here
            words = [program, "-iface", "eth0", "-launcher", "ssh", "-launcher-exec", hosts.RSH, "-hosts", on, "-bind-to", "none"]
        else:
            on = f"{here}:{near},{there}:{far}" if far else f"{here}:{near}"
            words = [program, "--allow-run-as-root", "--mca", "plm_rsh_agent", hosts.RSH, "--mca", "oob_tcp_if_include", "10.98.0.0/24",
                     "--host", on, "--bind-to", "none"]
        return HOSTS.on(1, [*words, *options, "-n", str(ranks), *command])


class Srun(Launcher):
    def __init__(self, interface, bootstrap):
        super().__init__("srun", bootstrap, ("srun",), "slurm", ["--no-kill", "--kill-on-bad-exit=0"])
        self.interface = interface

    def words(self, ranks, command, others_live=False):
        near = (ranks + 1) // 2
        on = ["host1"] * near + ["host2"] * (ranks - near)
        options = self.survivors if others_live else []
        words = [self.find(), f"--mpi={self.interface}", "--overcommit", "--distribution=arbitrary", "--nodelist", ",".join(on)]
        return HOSTS.on(1, [*words, *options, "-n", str(ranks), *command])


HYDRA = Launcher("hydra", "pmi", ("mpiexec.hydra",), "HYDRA", ["-disable-auto-cleanup"])
OPEN_MPI = Launcher("openmpi", "pmix", ("mpirun.openmpi", "mpirun"), "open-mpi.org", ["--enable-recovery"])


class Launched:
    """What every launcher must do; with `launcher`."""

    @classmethod
    def setUpClass(cls):
        if cls.launcher.find() is None:
            raise unittest.SkipTest(f"{cls.launcher.name} is not installed")

    def start(self, ranks, command, variables=None, others_live=False):
        return Job(self.launcher.words(ranks, command, others_live), variables)

    def run_well(self, ranks, command, variables=None):
        job = self.start(ranks, command, variables)
        status = job.end()
        self.assertEqual(status, 0, job.said)
        return job

    def test_ranks_find_each_other(self):
        for ranks in range(1, 9):
            with self.subTest(ranks=ranks):
                self.run_well(ranks, [LAUNCH_RANK, "all-together"])
        self.run_well(3, [LAUNCH_RANK, "first-contact"])

    def test_ranks_know_their_places(self):
        job = self.run_well(5, [LAUNCH_RANK, "place"])
        for rank in range(5):
            here, size = (rank, 3) if rank < 3 else (rank - 3, 2)
            line = f"rank {rank} of 5 by {self.launcher.bootstrap}, here {here} of {size}, machines 2$"
            self.assertEqual(job.count(line), 1, job.said)

    def test_info_says_who_talks_to_whom_by_what(self):
        job = self.run_well(4, [HEDDLE, "info", "--job"])
        self.assertEqual(job.count(f"^job of 4 ranks on 2 nodes, joined by {self.launcher.bootstrap}$"), 1, job.said)
        self.assertEqual(job.count(r"^0-1 +0 +host1 +0-1 by shm; 2-3 by ucx$"), 1, job.said)
        self.assertEqual(job.count(r"^2-3 +1 +host2 +0-1 by ucx; 2-3 by shm$"), 1, job.said)
        job = self.run_well(3, [HEDDLE, "info", "--job"], ONLY_UCX)
        self.assertEqual(job.count(r"^0-1 +0 +host1 +0-2 by ucx$"), 1, job.said)
        self.assertEqual(job.count(r"^2 +1 +host2 +0-2 by ucx$"), 1, job.said)

    def test_a_killed_rank_ends_the_job(self):
        job = self.start(4, [LAUNCH_RANK, "one-dies"])
        # By what code is the launcher's affair, and srun's may be 0.
        self.assertTrue(job.end() != 0 or job.count("^srun: error: "), job.said)

    def test_an_abort_ends_the_job_with_its_code(self):
        job = self.start(3, [LAUNCH_RANK, "one-aborts"])
        status = job.end()
        # Hydra's proxy of the other host may find mpiexec gone when it tells how its ranks ended, and then that is the job's end.
        stumbled = job.count(r"^\[proxy:.*(write error|unable to return exit status)")
        # Slurm's srun may end by another code after an abort by pmi2, also by 0; what it prints is right.
        printed = job.count(r"^srun: error: host1: task 1: Exited with exit code 42$")
        self.assertTrue(status == 42 or (stumbled and status != 0) or printed, job.said)

    def test_a_rank_of_the_other_host_is_killed_and_the_others_live(self):
        for variables in ({}, ONLY_UCX):
            with self.subTest(variables=variables):
                # Not by the launcher: srun may end so soon after the death that what the survivor said last is lost.
                fifo = f"{hosts.FOLDER}/{len(variables)}.fifo"
                os.mkfifo(fifo)
                ranks = Job(["cat", fifo])
                command = ["/bin/sh", "-c", f'exec "$0" "$@" >{fifo} 2>&1', LINK_RANK, "death", "am"]
                job = self.start(2, command, variables, others_live=True)
                ranks.wait_for(r"busy\d \d+$", 2)
                os.kill(int(re.search(r"busy1 (\d+)", ranks.said).group(1)), signal.SIGKILL)
                job.end()  # by what code is the launcher's affair
                ranks.end()
                os.remove(fifo)
                said = f"{job.said}\n{ranks.said}"
                self.assertEqual((ranks.count("told 0"), ranks.count("left 0"), ranks.count("wrong:")), (1, 1, 0), said)


class Hydra(Launched, unittest.TestCase):
    launcher = HYDRA


class OpenMpi(Launched, unittest.TestCase):
    launcher = OPEN_MPI


class OnSlurm(Launched):
    """One cluster for all."""

    cluster = None

    @classmethod
    def setUpClass(cls):
        if reason := slurm.why_not():
            raise unittest.SkipTest(reason)
        OnSlurm.cluster = OnSlurm.cluster or slurm.Cluster(HOSTS)
        known = subprocess.run(HOSTS.on(1, ["srun", "--mpi=list"]), capture_output=True, text=True)
        if cls.launcher.interface not in (known.stdout + known.stderr).split():
            raise unittest.SkipTest(f"this Slurm has no {cls.launcher.interface}")


class SlurmPmix(OnSlurm, unittest.TestCase):
    launcher = Srun("pmix", "pmix")


class SlurmPmi2(OnSlurm, unittest.TestCase):
    launcher = Srun("pmi2", "pmi")


class WithAnyLauncher(unittest.TestCase):
    def setUp(self):
        self.launcher = next((one for one in (HYDRA, OPEN_MPI) if one.find()), None)
        if self.launcher is None:
            self.skipTest("neither mpiexec.hydra nor Open MPI's mpirun is installed")

    start = Launched.start
    run_well = Launched.run_well


class Results(WithAnyLauncher):
    ways = ({}, ONLY_UCX)

    def test_examples_give_what_they_give_on_one_host(self):
        for name, ranks in EXAMPLES:
            alone = Job([HEDDLE, "run", "-n", str(ranks), "--timeout", str(DEADLINE), example(name)])
            self.assertEqual(alone.end(), 0, alone.said)
            for variables in self.ways:
                with self.subTest(example=name, variables=variables):
                    job = self.run_well(ranks, [example(name)], variables)
                    self.assertEqual(sorted(job.lines), sorted(alone.lines))

    def test_random_collectives(self):
        joined, alone = self.ways
        for seed, (ranks, variables) in enumerate(((5, joined), (4, alone), (2, joined))):
            with self.subTest(ranks=ranks, seed=seed):
                job = self.run_well(ranks, [COLLECTIVES_RANK, str(seed + 1), "40"], variables)
                self.assertEqual(job.count(f"^40 operations by {ranks} ranks$"), 1, job.said)


class ResultsOfi(Results):
    ways = (OFI.joined, OFI.alone)


class Link(WithAnyLauncher):
    """The data network is cut while the launcher's is not: both sides are told, by every kind of operation."""

    network = UCX

    def tearDown(self):
        HOSTS.mend(2)

    def cut_under(self, ranks, kinds, variables):
        job = self.start(ranks, [LINK_RANK, "link", kinds], self.network.cut | variables)
        job.wait_for(r"busy\d+ \d+$", ranks)
        HOSTS.cut(2)
        begin = time.monotonic()
        self.assertEqual(job.end(), 0, job.said)
        print(f"all have left {time.monotonic() - begin:.1f} s after the cut; silence is {SILENCE} s", flush=True)
        for rank in range(ranks):
            self.assertEqual((job.count(f"told {rank}$"), job.count(f"left {rank}$")), (1, 1), job.said)

    def test_of_a_mixed_job(self):
        self.cut_under(8, "put,am,get,fetch", self.network.joined)

    def test_of_a_job_by_one_transport_alone(self):
        self.cut_under(6, "put-large,get-large,send", self.network.alone)

    def test_of_ranks_that_only_wait(self):
        self.cut_under(4, "receive", self.network.joined)


class LinkOfi(Link):
    network = OFI


def sockets(pids):
    """Their numbers."""
    numbers = set()
    for pid in pids:
        try:
            links = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        except FileNotFoundError:
            continue  # it has ended, or has closed one meanwhile
        numbers |= {match.group(1) for match in map(re.compile(r"socket:\[(\d+)\]").match, links) if match}
    return numbers


def doors(host, pids):
    """Where these processes of that host listen to others: address:port. Not what they have inherited from a launcher, which may be less patient."""
    others = [int(one.name) for one in pathlib.Path("/proc").iterdir() if one.name.isdigit() and int(one.name) not in pids]
    inodes = sockets(pids) - sockets(others)
    found = set()
    for line in pathlib.Path(f"/proc/{HOSTS.holders[host - 1].pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] != "0A" or fields[9] not in inodes:  # listening
            continue
        address, port = fields[1].split(":")
        address = socket.inet_ntoa(struct.pack("=I", int(address, 16))).replace("0.0.0.0", HOSTS.address(host))
        if not address.startswith("127."):
            found.add(f"{address}:{int(port, 16)}")
    return sorted(found)


# What a stranger says; empty: nothing, and it stays.
KNOCK = struct.pack("<QIIII16s", 0x6B636F6E6C646468, 1, 0, 1, 0, bytes(16))
GREETINGS = (b"", b"\0", b"GET / HTTP/1.1\r\nHost: heddle\r\n\r\n", bytes(4096), random.Random(3).randbytes(4096), KNOCK + bytes(16))
# Run on the other host: comes to all doors, several times, says it all, and keeps half of the connections.
STRANGER = """
import socket, sys
kept = []
for door in sys.argv[2].split(","):
    address, port = door.split(":")
    for _ in range(2):
        for greeting in map(bytes.fromhex, sys.argv[1].split(",")):
            for keep in (True, False):
                try:
                    made = socket.create_connection((address, int(port)), 30)
                except OSError as error:
                    sys.exit(f"{door}: {error}")
                try:
                    made.sendall(greeting)
                except OSError:
                    pass  # it has hung up already
                kept.append(made) if keep else made.close()
print("said", len(kept), flush=True)
sys.stdin.read()
"""


class Strangers(WithAnyLauncher):
    network = UCX

    def test_garbage_and_a_wrong_secret_do_no_harm(self):
        end = hosts.FOLDER / "end"
        end.unlink(missing_ok=True)
        job = self.start(4, [LINK_RANK, f"file:{end}", "am,put"], self.network.alone)
        job.wait_for(r"busy\d \d+$", 4)
        pids = [int(pid) for rank, pid in re.findall(r"busy(\d) (\d+)", job.said) if int(rank) < 2]
        to_knock_at = doors(1, pids)
        # UCX and libfabric listen for each process's worker and device worker; rank 0 for the job.
        self.assertGreaterEqual(len(to_knock_at), 5, job.said)
        words = [sys.executable, "-c", STRANGER, ",".join(one.hex() for one in GREETINGS), ",".join(to_knock_at)]
        stranger = subprocess.Popen(HOSTS.on(2, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = stranger.stdout.readline()
        if said != f"said {2 * len(GREETINGS) * len(to_knock_at)}\n":
            self.fail(f"{said}{stranger.communicate()[0]} of {to_knock_at}\n{job.said}")
        end.touch()
        self.assertEqual(job.end(), 0, job.said)
        stranger.communicate()
        for rank in range(4):
            self.assertEqual(job.count(f"left {rank}$"), 1, job.said)
        self.assertEqual(job.count("a connection to this job was refused"), 1, job.said)


class StrangersOfi(Strangers):
    network = OFI


def main():
    hosts.enter()
    global HOSTS
    HOSTS = hosts.Hosts(2)
    loader = unittest.TestLoader()
    names = sys.argv[2:] or ["Hydra", "OpenMpi", "Results", "Link", "Strangers", "SlurmPmix", "SlurmPmi2", "ResultsOfi", "LinkOfi", "StrangersOfi"]
    suite = unittest.TestSuite(loader.loadTestsFromName(name, sys.modules[__name__]) for name in names)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for _, reason in result.skipped:
        print(f"skipped: {reason}", flush=True)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
