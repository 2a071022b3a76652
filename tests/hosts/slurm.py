#!/usr/bin/env python3
"""A cluster of Slurm on the hosts of hosts.py, for the time of one command.

    slurm.py [-n NODES] COMMAND…    runs COMMAND on the first host, with SLURM_CONF set (1 node, if -n does not say), and ends with its status

Where SLURM_CONF is set already it is that cluster's command, and nothing is started. What Slurm's daemons write, keys and sockets included, is
in the memory of the namespaces: daemons, jobs and files end together with this process, whatever ends it.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts

DEADLINE = 60  # s; until all nodes are there
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo")
SBIN = ("/usr/sbin", "/sbin")  # where a user's PATH may not lead
# Nodes go whole to jobs, so that all their processors are there to be bound to.
CONF = """
ClusterName=heddle
SlurmctldHost=host1({control})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
TmpFS={folder}/tmp.%n
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def why_not():
    """Why there can be no cluster here; None: there can."""
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), *SBIN])
    missing = [daemon for daemon in DAEMONS if shutil.which(daemon) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: slurmctld slurmd slurm-client munge)"
    # srun and slurmd take on the user's identity, for which a user namespace with one user has no room.
    if pathlib.Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        return "Slurm's daemons need root"
    return None


class Cluster:
    """Made once, on Hosts. Sets SLURM_CONF, and SLURM_JOB_ID: of an allocation of all nodes, in which srun need not wait for its turn."""

    def __init__(self, machines):
        self.folder = hosts.FOLDER / "slurm"
        self.folder.mkdir(mode=0o755)
        self._daemons = []
        processors = os.cpu_count()
        nodes = "\n".join(f"NodeName=host{n} NodeAddr={machines.address(n)} CPUs={processors} State=UNKNOWN" for n in range(1, machines.count + 1))
        conf = self.folder / "slurm.conf"
        conf.write_text(CONF.format(folder=self.folder, control=machines.address(1), nodes=nodes))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (self.folder / "state").mkdir()
        os.environ["SLURM_CONF"] = str(conf)
        self._start_munge(machines)
        self._start(machines, 1, "slurmctld", "-D", "-c")
        for number in range(1, machines.count + 1):
            for what in ("spool", "tmp"):
                (self.folder / f"{what}.host{number}").mkdir()
            self._start(machines, number, "slurmd", "-D")
        self._wait_for_nodes(machines)
        said = subprocess.run(machines.on(1, ["salloc", "--no-shell", "-N", str(machines.count)]), capture_output=True, text=True).stderr
        granted = re.search(r"Granted job allocation (\d+)", said)
        if granted is None:
            raise RuntimeError(f"Slurm allocates no nodes: {said}")
        os.environ["SLURM_JOB_ID"] = granted.group(1)

    def _start(self, machines, number, *words):
        log = (self.folder / f"{words[0]}.{number}.log").open("w")
        self._daemons.append(subprocess.Popen(machines.on(number, words), stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    # One for all hosts: they share the folder.
    def _start_munge(self, machines):
        key = self.folder / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(128))
        files = [f"--{what}-file={self.folder}/munge.{what}" for what in ("key", "log", "pid", "seed")]
        self._start(machines, 1, "munged", "--foreground", f"--socket={self.folder}/munge.socket", *files)
        self._wait("munged gives no socket", (self.folder / "munge.socket").exists)

    def _wait_for_nodes(self, machines):
        def all_idle():
            said = subprocess.run(machines.on(1, ["sinfo", "--noheader", "--Node", "--format=%T"]), capture_output=True, text=True).stdout
            return said.split() == ["idle"] * machines.count

        self._wait("not all nodes of Slurm come up", all_idle)

    def _wait(self, what, condition):
        until = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self._daemons):
                logs = "".join(f"---- {log.name}\n{log.read_text(errors='replace')}" for log in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"{what}:\n{logs}")
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1, metavar="NODES")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND…")
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    if "SLURM_CONF" in os.environ and hosts.INSIDE not in os.environ:
        os.execvp(options.command[0], options.command)
    hosts.enter()
    reason = why_not()
    if reason:
        hosts.skip(reason)
    machines = hosts.Hosts(options.n)
    Cluster(machines)
    sys.exit(subprocess.run(machines.on(1, options.command)).returncode)


if __name__ == "__main__":
    main()
