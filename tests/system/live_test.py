#!/usr/bin/env python3
"""What a running job tells of itself: `heddle metrics`, `heddle run --metrics` and `heddle top`.

The text is read with the parser of prometheus_client where that is installed, and by the rules of
OpenMetrics that matter most in any case.
"""

import http.client
import os
import pathlib
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

TOOL = pathlib.Path()
PROGRAM = pathlib.Path()
RANKS = 3
TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="[^"\\\n]*",?)+)\} (\d+(?:\.\d+)?)')


def environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEDDLE_", "PMI", "OMPI_", "SLURM_"))}
    return {**kept, "HEDDLE_TRANSPORT": "shm", "HEDDLE_HANG_SECONDS": "0"}


class Job:
    """Three ranks that have sent a message, and wait for another one for ever."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [TOOL, "run", "-n", str(RANKS), "--grace", "0", *options, PROGRAM, "tag"], env=environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.pids = {}
        while len(self.pids) < RANKS:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError("the job has ended: " + "".join(self.lines))
            self.lines.append(line)
            if found := re.match(r"rank (\d+) pid (\d+)", line):
                self.pids[int(found[1])] = int(found[2])

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=60)


def heddle(*words):
    return subprocess.run([TOOL, *map(str, words)], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, timeout=60)


class Case(unittest.TestCase):
    def start(self, *options):
        job = Job(*options)
        self.addCleanup(job.end)
        return job

    def check_text(self, text):
        """The values by family and labels."""
        self.assertTrue(text.endswith("\n# EOF\n"))
        families, values = {}, {}
        current = None
        for line in text.splitlines()[:-1]:
            if line.startswith("# "):
                _, word, name, rest = line.split(" ", 3)
                if word == "TYPE":
                    self.assertNotIn(name, families, "a family is whole")
                    families[name] = rest
                    current = name
                self.assertEqual(name, current)
                if word == "UNIT":
                    self.assertTrue(name.endswith("_" + rest), line)
                continue
            found = SAMPLE.fullmatch(line)
            self.assertTrue(found, line)
            suffix = {"counter": "_total", "info": "_info", "gauge": ""}[families[current]]
            self.assertEqual(found[1], current + suffix)
            key = (current, found[2])
            self.assertNotIn(key, values, "a sample stands once")
            values[key] = float(found[3])
        if text_string_to_metric_families is not None:
            parsed = list(text_string_to_metric_families(text))
            self.assertEqual({family.name: family.type for family in parsed}, families)
            self.assertEqual(sum(len(family.samples) for family in parsed), len(values))
        return values

    def check_job(self, ask):
        """What ask() returns, once rank 0 has sent its message."""
        for _ in range(1000):
            values = self.check_text(text := ask())
            if 'kind="send"} 1\n' in text:
                break
        ranks = {labels: value for (family, labels), value in values.items() if family == "heddle_rank"}
        self.assertEqual(len(ranks), RANKS, ranks)
        sends = sum(value for (family, labels), value in values.items()
                    if family == "heddle_operations" and 'kind="send"' in labels)
        self.assertGreaterEqual(sends, 1)
        memory = [value for (family, _), value in values.items() if family == "heddle_resident_memory_bytes"]
        self.assertTrue(all(value > 0 for value in memory) and len(memory) == RANKS, memory)


class Metrics(Case):
    def test_of_the_launcher_and_of_a_rank(self):
        job = self.start()
        for process in (job.process.pid, job.pids[1]):
            told = heddle("metrics", process)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.check_job(lambda: heddle("metrics", process).stdout)

    def test_who_belongs_to_no_job(self):
        self.start()
        for command in ("metrics", "top"):
            told = heddle(command, os.getpid())
            self.assertEqual((told.returncode, told.stdout), (1, ""))
            self.assertIn(f"heddle {command}: process {os.getpid()} belongs to no job of this user", told.stderr)

    def test_wrong_words(self):
        for words in (("metrics", "x"), ("metrics", "1", "2"), ("top", "-d"), ("top", "-d", "0"), ("top", "-n", "0"),
                      ("top", "-x"), ("top", "1", "2"), ("run", "--metrics", "65536", "true")):
            with self.subTest(words):
                told = heddle(*words)
                self.assertEqual((told.returncode, told.stdout), (2, ""), told.stderr)

    def test_help(self):
        for command in ("metrics", "top"):
            self.assertIn(f"usage: heddle {command}", heddle(command, "--help").stdout)


class Port(Case):
    def ask(self, port, method="GET", path="/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def test_a_free_port_is_told_and_served(self):
        job = self.start("--metrics", "0")
        port = self.port_of(job)
        for _ in range(2):
            answer, body = self.ask(port)
            self.assertEqual((answer.status, answer.getheader("Content-Type")), (200, TYPE))
            self.check_text(body)
        answer, body = self.ask(port, "HEAD")
        self.assertEqual((answer.status, body), (200, ""))
        self.assertEqual(self.ask(port, path="/other")[0].status, 404)
        self.assertEqual(self.ask(port, "POST")[0].status, 405)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            silent.sendall(b"GET /met")
            self.check_job(lambda: self.ask(port)[1])
            silent.sendall(b"rics HTTP/1.1\r\n\r\n")
            self.assertTrue(silent.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as long_winded:
            long_winded.sendall(b"GET /" + b"x" * 20_000)
            try:
                self.assertEqual(long_winded.recv(100), b"", "it is disconnected")
            except ConnectionResetError:
                pass

    def port_of(self, job):
        return int(re.search(r"metrics are at http://127\.0\.0\.1:(\d+)/metrics", "".join(job.lines))[1])

    def test_guests_leave_the_ranks_their_descriptors(self):
        """Under the lowest limit that the launcher accepts, more connect than it has room for; the ranks join then."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        gate = os.path.join(folder.name, "gate")
        os.mkfifo(gate)
        behind_gate = ["/bin/sh", "-c", f': < "{gate}"; exec "$0" "$@"', PROGRAM, "tag"]

        def start(limit):
            return subprocess.Popen(
                [TOOL, "run", "-n", str(RANKS), "--grace", "0", "--metrics", "0", *behind_gate], env=environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))

        refused, _ = start(20).communicate(timeout=60)
        job = start(int(re.search(r"needs (\d+) descriptors", refused)[1]))

        def end():
            job.terminate()
            job.communicate(timeout=60)

        self.addCleanup(end)
        port = int(re.search(r":(\d+)/metrics", job.stdout.readline())[1])
        guests = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(40)]
        for guest in guests:
            self.addCleanup(guest.close)
        self.assertEqual(guests[0].recv(1), b"", "who came first has made room")
        with open(gate, "w", encoding="utf-8"):
            lines = [job.stdout.readline() for _ in range(RANKS)]
        self.assertEqual(sorted(line.split(" pid ")[0] for line in lines), [f"rank {rank}" for rank in range(RANKS)],
                         lines)

    def test_other_users_get_nothing_unless_asked(self):
        if os.geteuid() != 0:
            self.skipTest("to ask as another user takes root")

        def ask_as_nobody(port):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                    connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                    while part := connection.recv(65536):
                        os.write(writing, part)
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as answer:
                told = answer.read()
            os.waitpid(child, 0)
            return told

        told = ask_as_nobody(self.port_of(self.start("--metrics", "0")))
        self.assertTrue(told.startswith("HTTP/1.1 403 "), told)
        self.assertIn("--metrics-for all", told)
        self.assertNotIn("heddle_rank", told)
        told = ask_as_nobody(self.port_of(self.start("--metrics", "0", "--metrics-for", "all")))
        self.assertTrue(told.startswith("HTTP/1.1 200 "), told)

    def test_a_socket_of_the_other_family_is_known_too(self):
        port = self.port_of(self.start("--metrics", "0"))
        try:
            connection = socket.create_connection(("::ffff:127.0.0.1", port), timeout=30)
        except OSError as error:
            self.skipTest(f"no IPv6: {error}")
        with connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"))

    def test_a_port_that_is_taken_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            told = heddle("run", "--metrics", port, "true")
        self.assertEqual(told.returncode, 125)
        self.assertIn(f"cannot serve metrics at port {port} of 127.0.0.1: Address already in use (--metrics 0 takes one",
                      told.stderr)


class Top(Case):
    def test_tables_where_the_output_is_no_terminal(self):
        job = self.start()
        told = heddle("top", "-n", "2", "-d", "0.2", job.process.pid)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertNotIn("\033", told.stdout)
        self.assertEqual(told.stdout.count("puts/s"), 2)
        self.assertEqual(told.stdout.count(f"{RANKS} ranks have answered"), 2)
        rows = [line.split() for line in told.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows if row and row[0] in ("all", "0", "1", "2")], ["all", "0", "1", "2"] * 2)

    def test_who_is_stopped_is_missing(self):
        job = self.start()
        os.kill(job.pids[1], signal.SIGSTOP)
        told = heddle("top", "-n", "1", job.process.pid)
        os.kill(job.pids[1], signal.SIGCONT)
        self.assertIn(f"2 of {RANKS} ranks have answered; missing: rank 1\n", told.stdout)

    def test_it_ends_with_the_job(self):
        job = self.start()
        top = subprocess.Popen([TOOL, "top", "-d", "0.2", str(job.process.pid)], env=environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.assertIn("ranks have answered", top.stdout.readline())
        job.process.terminate()
        out, _ = top.communicate(timeout=60)
        self.assertEqual(top.returncode, 0)
        self.assertTrue(out.endswith(f"job {job.process.pid} has ended\n"), out)

    def test_the_terminal_is_put_back(self):
        job = self.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(TOOL, [str(TOOL), "top", "-d", "0.2", str(job.process.pid)], environment())
            text = b""
            while text.count(b"puts/s") < 2:
                select.select([terminal], [], [], 60)
                text += os.read(terminal, 65536)
            os.kill(pid, number)
            try:
                while more := os.read(terminal, 65536):
                    text += more
            except OSError:  # the other side is closed
                pass
            os.close(terminal)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            self.assertTrue(text.startswith(b"\033[?1049h\033[?25l"), text)
            self.assertTrue(text.endswith(b"\033[?25h\033[?1049l"), text)


if __name__ == "__main__":
    # Not resolved: by its link the program knows which it is.
    TOOL, PROGRAM = (pathlib.Path(word).absolute() for word in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
