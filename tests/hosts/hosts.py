#!/usr/bin/env python3
"""Hosts on this machine for tests: each a process with network, host name, IPC, /dev/shm and /sys of its own.

    hosts.py [-n HOSTS] COMMAND…    runs COMMAND on the first of them (2, if -n does not say) and ends with its status

Every host is in two networks: "control" (10.98.0.0/24, eth0), by which launchers start jobs, and "data" (10.98.1.0/24, eth1), which
tests cut. RSH is what launchers are given in the place of ssh; hosts are named by their addresses:

    mpiexec.hydra -iface eth0 -launcher ssh -launcher-exec RSH -hosts 10.98.0.1,10.98.0.2 …
    mpirun --mca plm_rsh_agent RSH --mca oob_tcp_if_include 10.98.0.0/24 --host 10.98.0.1:2,10.98.0.2:2 …

All of it lives in namespaces of one process, the first of a pid namespace. When that ends, in whatever way, the kernel ends every process
in there and takes the networks down: nothing has a name outside, and nothing is left.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys



def folder():
    """Where a file system in memory, of these namespaces alone, hides nothing that is needed."""
    needed = [pathlib.Path(path).resolve() for path in (__file__, os.getcwd(), sys.executable, *sys.argv)]
    for one in map(pathlib.Path, ("/mnt", "/media", "/srv", "/opt")):
        if one.is_dir() and not any(path.is_relative_to(one) for path in needed):
            return one
    return None


FOLDER = folder()
RSH = f"{FOLDER}/rsh"
NETWORKS = ("control", "data")
INSIDE = "HEDDLE_TEST_HOSTS"
NEEDED = ("unshare", "nsenter", "ip", "mount")


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(0)


def enter():
    """To be called first of all: goes on, from the start, in namespaces of its own. Where that is not possible it says so and ends."""
    if os.environ.pop(INSIDE, None) is not None and os.getpid() == 1:
        return
    if FOLDER is None:
        skip("/mnt, /media, /srv and /opt are missing, or hold the programs")
    for program in NEEDED:
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    spaces = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    said = ""
    for way in (spaces, [*spaces, "--user", "--map-root-user"]):  # by right, or as root of a user namespace
        # That there are rights, and the kernel's parts: one host.
        trial = subprocess.run([*way, sys.executable, str(pathlib.Path(__file__).resolve()), "-n", "1", "true"], capture_output=True, text=True,
                               env=os.environ | {INSIDE: "1"})
        if trial.returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp(way[0], [*way, sys.executable, *sys.argv])
        said = said or trial.stderr.strip().rpartition("\n")[2]
    skip(f"hosts cannot be made here: {said}")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    """Made once, after enter()."""

    def __init__(self, count=2):
        subprocess.run(["mount", "-t", "tmpfs", "none", str(FOLDER)], check=True)
        ip("link", "set", "lo", "up")
        for network in NETWORKS:
            ip("link", "add", network, "type", "bridge")
            ip("link", "set", network, "up")
        os.environ["TMPDIR"] = str(FOLDER)  # launchers leave files there when they are killed
        self.count = count
        self.holders = [self._make(number) for number in range(1, count + 1)]
        rsh = pathlib.Path(RSH)
        rsh.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --target "$(cat {FOLDER}/"$host")" --net --uts --ipc --mount -- sh -c "$*"
""")
        rsh.chmod(0o755)

    def _make(self, number):
        script = f"hostname host{number}; mount -t tmpfs none /dev/shm; mount -t sysfs none /sys; ip link set lo up; echo made; exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-ec", script], stdout=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "made\n":
            raise RuntimeError(f"host {number} cannot be made")
        for i, network in enumerate(NETWORKS):
            ip("link", "add", f"{network}{number}", "type", "veth", "peer", "name", f"eth{i}", "netns", str(holder.pid))
            ip("link", "set", f"{network}{number}", "master", network, "up")
            for words in (("addr", "add", f"10.98.{i}.{number}/24", "dev", f"eth{i}"), ("link", "set", f"eth{i}", "up")):
                subprocess.run(self._inside(holder.pid, ["ip", *words]), check=True)
        (FOLDER / self.address(number)).write_text(str(holder.pid))
        return holder

    @staticmethod
    def _inside(pid, words):
        return ["nsenter", "--target", str(pid), "--net", "--uts", "--ipc", "--mount", "--", *words]

    @staticmethod
    def address(number):
        return f"10.98.0.{number}"

    def on(self, number, words):
        """The words of `words` run on that host (1, 2, …)."""
        return self._inside(self.holders[number - 1].pid, words)

    def cut(self, number):
        """The cable of that host's data network: what it sends is lost, and what is sent to it."""
        ip("link", "set", f"data{number}", "down")

    def mend(self, number):
        """The other way round; returns when the first host, or the second, reaches it again."""
        ip("link", "set", f"data{number}", "up")
        knock = f"import socket; socket.create_connection(('10.98.1.{number}', 9), 5)"
        for _ in range(60):
            trial = subprocess.run(self.on(2 if number == 1 else 1, [sys.executable, "-c", knock]), capture_output=True, text=True)
            if "ConnectionRefusedError" in trial.stderr:
                return
        raise RuntimeError(f"host {number} is not reached any more: {trial.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=2, metavar="HOSTS")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND…")
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    enter()
    os.environ["RSH"] = RSH
    sys.exit(subprocess.run(Hosts(options.n).on(1, options.command)).returncode)


if __name__ == "__main__":
    main()
