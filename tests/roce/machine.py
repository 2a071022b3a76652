#!/usr/bin/env python3
"""A machine with an RDMA device, for the time of one command: qemu, a kernel of Debian's, and Soft-RoCE (rdma_rxe) in it.

    machine.py [-t SECONDS] COMMAND…    runs COMMAND in there and ends with its status; 124: it took longer than that (600), 125: no machine
    machine.py --fetch                  downloads the kernel once, 100 MB, to ~/.cache/heddle-roce (or where ROCE_KERNEL says)

COMMAND runs as root, in the same folder, with those of the variables that begin with HEDDLE_, UCX_, FI_ and GTEST_. It sees this machine's files and
writes into memory of its own: nothing of it is left. Device rxe0 is on 10.77.0.1, rxe1 on 10.78.0.1. The machine ends with this process, whatever ends that.
The processors are emulated: everything takes tens of times longer.
"""

import argparse
import ctypes
import lzma
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

CACHE = pathlib.Path(os.environ.get("ROCE_KERNEL") or pathlib.Path.home() / ".cache/heddle-roce")
INSIDE = "ROCE_INSIDE"
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "ip": "iproute2", "rdma": "iproute2"}  # and who has them
MODULES = ("virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay", "veth", "crc32_generic", "ib_uverbs", "rdma_rxe", "rdma_ucm")
DEVICE = "rxe0"
LINK = "roce"  # the network interface that it is on
SECOND = "rxe1"  # on a network of its own
ENDED = "the machine's command has ended with "

# Of the machine's first process. The root is this machine's, under a layer in memory; what is said goes through the first serial port of virtio.
INIT = r"""#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
for module in /modules/*; do $B insmod $module; done
$B mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose files /below || $B poweroff -f
$B mount -t tmpfs above /above; $B mkdir /above/files /above/work /above/root
$B mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work root /above/root
cd /above/root
for folder in proc sys dev; do $B mount --move /$folder $folder; done
$B mkdir -p dev/shm dev/pts
$B mount -t tmpfs shm dev/shm; $B mount -t devpts pts dev/pts; $B mount -t tmpfs run run
$B cp /command run/command
port=$(echo dev/vport*p1)
$B chroot . /bin/sh run/command <dev/null >$port 2>&1
echo "
""" + ENDED + r"""$?" >$port
$B poweroff -f
"""

COMMAND = f"""export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {INSIDE}=1
ulimit -l unlimited
hostname machine
ip link set lo up
attach() {{
  ip link add $2 type veth peer name $2-end
  ip link set $2-end mtu 4200 up
  ip addr add $3/24 dev $2
  ip link set $2 mtu 4200 up
  rdma link add $1 type rxe netdev $2
}}
attach {DEVICE} {LINK} 10.77.0.1
attach {SECOND} roce1 10.78.0.1
"""


def modules_of(root, version):
    """By name, the files of all modules of that kernel."""
    return {file.name.partition(".ko")[0].replace("-", "_"): file for file in (root / "lib/modules" / version).rglob("*.ko*")}


def find_kernel():
    """(image, its modules); None: there is none that has what is needed."""
    for root in (CACHE, pathlib.Path("/")):
        for image in sorted(root.glob("boot/vmlinuz-*"), reverse=True):
            files = modules_of(root, image.name.partition("-")[2])
            if "rdma_rxe" in files:
                return image, files
    return None


def fetch():
    words = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True).stdout.split()
    package = next((word for word in words if re.match(r"linux-image-\d", word)), None)
    if package is None:
        sys.exit("machine.py: apt knows no kernel; apt-get update helps")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", package], check=True, cwd=folder)
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        subprocess.run(["dpkg", "-x", *map(str, pathlib.Path(folder).glob("*.deb")), str(CACHE)], check=True)


def why_not():
    """Why there can be no such machine here; None: there can."""
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None}
    if missing:
        return f"not installed: {' '.join(sorted(missing))}"
    if find_kernel() is None:
        return f"no kernel with rdma_rxe; {pathlib.Path(__file__).resolve()} --fetch downloads one"
    return None


def in_order(files):
    """MODULES with all that they need, each after what it needs: (name, bytes). What is not there is built into the kernel, or not needed."""
    found = {}

    def add(name):
        file = files.get(name)
        if name in found or file is None:
            return
        content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        needs = re.search(rb"\0depends=([^\0]*)\0", content)
        for need in needs.group(1).decode().replace("-", "_").split(",") if needs else ():
            add(need)
        found[name] = content

    for name in MODULES:
        add(name)
    return found.items()


def archive(entries):
    """An initial file system, as cpio packs it: (path, mode, bytes)."""
    packed = bytearray()
    for number, (path, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        packed += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        packed += bytes(-len(packed) % 4) + content
        packed += bytes(-len(packed) % 4)
    return packed


def initial_files(files, command):
    folders = ("bin", "modules", "proc", "sys", "dev", "below", "above")
    kept = {name: value for name, value in os.environ.items() if name.startswith(("HEDDLE_", "UCX_", "FI_", "GTEST_"))}
    lines = [COMMAND, f"cd {shlex.quote(os.getcwd())}", *(f"export {name}={shlex.quote(value)}" for name, value in kept.items()),
             "exec " + " ".join(map(shlex.quote, command))]
    programs = [("init", INIT.encode()), ("bin/busybox", pathlib.Path(shutil.which("busybox")).read_bytes()), ("command", "\n".join(lines).encode())]
    modules = [(f"modules/{i:03}-{name}.ko", content) for i, (name, content) in enumerate(in_order(files))]
    return archive([*((folder, 0o040755, b"") for folder in folders), *((path, 0o100755, content) for path, content in programs + modules)])


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run(command, limit):
    """Its status. What it says is said here, as it comes."""
    image, files = find_kernel()
    with tempfile.TemporaryDirectory() as folder:
        initial = pathlib.Path(folder) / "initial"
        initial.write_bytes(initial_files(files, command))
        console = pathlib.Path(folder) / "console"
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                 "-M", "q35,hpet=off", "-accel", "tcg,thread=single", "-cpu", "max,la57=off", "-smp", "1", "-m", "6144",
                 "-kernel", str(image), "-initrd", str(initial), "-serial", f"file:{console}",
                 "-append", "console=ttyS0 panic=-1 mitigations=off nokaslr tsc=reliable random.trust_cpu=on",
                 "-virtfs", "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-serial-pci", "-chardev", "file,id=said,path=/dev/stdout", "-device", "virtserialport,chardev=said"]
        machine = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace", preexec_fn=die_with_parent)
        timer = threading.Timer(limit, machine.kill)
        timer.start()
        status = None
        for line in machine.stdout:
            if line.startswith(ENDED):
                status = int(line.removeprefix(ENDED))
            else:
                print(line, end="", flush=True)
        timer.cancel()
        if machine.wait() == -signal.SIGKILL:
            print(f"machine.py: ended after {limit} s\n{console.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            return 124
        if status is None:
            print(f"machine.py: the machine has failed\n{console.read_text(errors='replace')[-4000:]}", file=sys.stderr)
            return 125
        return status


def enter(limit):
    """To be called first of all: goes on, from the start, in such a machine. Where there can be none it says so and ends."""
    if os.environ.pop(INSIDE, None) is not None:
        return
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", flush=True)
        sys.exit(0)
    sys.exit(run([sys.executable, *sys.argv], limit))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", type=int, default=600, metavar="SECONDS")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND…")
    options = parser.parse_args()
    if options.fetch:
        fetch()
        return
    reason = why_not()
    if not options.command or reason:
        parser.error(reason or "no command")
    sys.exit(run(options.command, options.t))


if __name__ == "__main__":
    main()
