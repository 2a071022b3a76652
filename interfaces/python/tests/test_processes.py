"""What must not grow; forks, signals, the end of the interpreter; the launcher."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import heddle


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_nothing_leaks(context: heddle.Context) -> None:
    worker = context.worker()
    own = np.zeros(4096)

    def turn(times: int) -> None:
        for _ in range(times):
            region = context.alloc(4096)
            peer = context.unpack(region.pack())
            worker.put(b"12345678", peer).wait()
            region.release()
            with context.register(own):
                pass
            got = worker.recv(bytearray(20_000), 0, 1)
            worker.send(bytearray(20_000), 0, 1)
            got.wait(timeout=60)
            worker.am(0, 1, b"x" * 100)
            worker.run_tasks()

    async def awaiting(worker: heddle.Worker) -> None:
        got = worker.recv(bytearray(8), 0, 7)
        await worker.send(b"x", 0, 7)
        await got

    context.on_message(1, lambda message: None)
    turn(2000)
    gc.collect()
    asyncio.run(awaiting(worker))
    gc.collect()
    objects, kib = len(gc.get_objects()), resident_kib()
    for _ in range(20):
        asyncio.run(awaiting(worker))
    turn(10_000)
    gc.collect()
    assert len(gc.get_objects()) < objects + 100
    # 10 000 of anything that was kept would be more than this.
    assert resident_kib() < kib + 2000
    references = sys.getrefcount(own)
    with context.register(own):
        assert sys.getrefcount(own) > references
    assert sys.getrefcount(own) == references


def test_a_child_is_no_member(context: heddle.Context) -> None:
    worker = context.worker()
    child = os.fork()
    if child == 0:
        try:
            worker.send(b"x", 0)
        except heddle.ClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    got = worker.recv(bytearray(1), 0, 1)
    worker.send(b"x", 0, 1)
    got.wait(timeout=60)


def test_a_child_of_a_busy_parent_ends(context: heddle.Context) -> None:
    worker = context.worker()
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            worker.progress()

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            import atexit

            atexit._run_exitfuncs()
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    over.set()
    for thread in threads:
        thread.join()


def test_a_program_may_just_end() -> None:
    program = """
import heddle
context = heddle.Context(bootstrap="single")
worker = context.worker()
region = context.alloc(4096)
view = memoryview(region)
got = worker.recv(bytearray(8), 0, 1)
context.on_message(1, lambda message: context)
worker.fileno()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_daemon_threads_at_the_end() -> None:
    """Threads that wait when the interpreter ends do not make it abort."""
    program = """
import heddle, threading, time
context = heddle.Context(bootstrap="single")
worker = context.worker()
def loop(call):
    while True:
        call()
for call in (lambda: worker.wait(0.001), worker.progress, lambda: worker.run_tasks(timeout=0.001), worker.run_tasks,
             lambda: worker.recv(bytearray(1), 0).wait()):
    threading.Thread(target=loop, args=(call,), daemon=True).start()
time.sleep(0.05)
"""
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_operations_while_modules_go() -> None:
    program = """
import sys, heddle
context = heddle.Context(bootstrap="single")
worker = context.worker()
peer = context.exchange(context.alloc(64))[0]
class Late:
    def __del__(self):
        worker_.put(b"12345678", peer_)
sys.late = Late()
Late.__del__.__globals__.update(worker_=worker, peer_=peer)
heddle._heddle.late = sys.late
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_control_c_ends_a_wait() -> None:
    program = """
import os, signal, threading, heddle
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
worker = heddle.Context(bootstrap="single").worker()
part = worker.precv(bytearray(8), 1, 0, 9)
part.start()
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
"""
    waits = (
        "worker.recv(bytearray(1), 0).wait()",
        "worker.run_tasks()",
        "worker.wait_signal(bytearray(8), 0, heddle.Compare.EQ, 1)",
        "worker.wait_signal(bytearray(8), 0, heddle.Compare.EQ, 1, timeout=50)",
        "worker.wait(timeout=50)",
        "part.wait()",
    )
    for wait in waits:
        ended = subprocess.run(
            [sys.executable, "-c", program.format(wait=wait)], capture_output=True, text=True, timeout=60
        )
        assert ended.stdout == "interrupted\n", ended.stderr


def test_run_takes_options_modules_and_code(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # In one piece, which ranks do not mix.
    script.write_text(
        "import heddle, sys\nwith heddle.Context() as c: sys.stdout.write(f'{c.rank} {c.size} {sys.argv[1:]}\\n')\n"
    )
    for arguments in (
        ["-n", "2", str(script), "-n", "9"],
        ["--np", "2", "--timeout", "60", str(script), "-n", "9"],
        ["-n", "2", "--", str(script), "-n", "9"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "heddle.run", *arguments], capture_output=True, text=True, timeout=60
        )
        assert sorted(ended.stdout.splitlines()) == ["0 2 ['-n', '9']", "1 2 ['-n', '9']"], ended.stderr
    code = "import heddle, sys\nwith heddle.Context() as c: sys.stdout.write(f'{c.size}\\n')"
    ended = subprocess.run(
        [sys.executable, "-m", "heddle.run", "-n", "3", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "3\n3\n3\n"
    ended = subprocess.run([sys.executable, "-m", "heddle.run"], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "usage" in ended.stderr
    ended = subprocess.run([sys.executable, "-m", "heddle.run", "--help"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "--bind" in ended.stdout


def test_versions_agree() -> None:
    import importlib.metadata

    assert importlib.metadata.version("heddle") == heddle.__version__
