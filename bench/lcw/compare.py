#!/usr/bin/env python3
"""LCW's pingpong_mt over several backends, in turns; of an LCW that was built as docs/lcw.md says.

    compare.py --contender 'heddle heddle BUILD/examples/lcw_pingpong_mt heddle run -n 2' \\
               --contender 'openmpi mpi BUILD/examples/lcw_pingpong_mt mpirun -n 2' \\
               [--shapes send:1:1:0:1,put:2:2:0:1] [--repeat 7] [--seconds 0.3] [--line PROGRAM] [--json FILE]

A contender is a name, the value of LCW_BACKEND_AUTO, the program, and the launcher with its options. The first is compared with the others. A
shape is op:threads:devices:progress threads:window[:bytes]. Before and after each run P is measured (line.cpp, as a build of Heddle
makes it): near and far cores are different machines, so the runs are reported apart, by P below and above 150 ns, and one during which that
changed is not counted.

The table has the medians of the latency that pingpong_mt prints (of one iteration) and of its message rate; the ratio is that of the medians to
the best other contender, with a 95 % interval by bootstrap. A run that does not end in time counts as such.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import time

FAR = 150.0  # ns: P of cores that do not share a cache
LINE = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bench" / "lcw_line"
SHAPES = ("send:1:1:0:1,send:1:1:0:32,send:2:1:0:1,send:2:1:0:32,send:2:2:0:1,send:2:2:0:32,send:4:1:0:1,send:4:1:0:32,send:4:4:0:1,"
          "send:4:4:0:32,send:2:1:1:1,send:2:1:1:32,put:1:1:0:1,put:1:1:0:32,put:2:1:0:1,put:2:2:0:1,put:2:2:0:32,put:4:1:0:1,put:4:4:0:1,"
          "put:4:4:0:32,put:2:1:1:1,put:2:1:1:32")


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    backend: str
    program: str
    launcher: tuple

    @staticmethod
    def parse(text):
        words = shlex.split(text)
        if len(words) < 4:
            raise argparse.ArgumentTypeError(f"{text!r} is not: NAME BACKEND PROGRAM LAUNCHER…")
        return Contender(words[0], words[1], words[2], tuple(words[3:]))


@dataclasses.dataclass(frozen=True)
class Shape:
    op: str
    threads: int
    devices: int
    progress: int
    window: int
    bytes: int

    @staticmethod
    def parse(text):
        words = text.split(":")
        if len(words) not in (5, 6) or words[0] not in ("send", "put"):
            raise argparse.ArgumentTypeError(f"{text!r} is not: op:threads:devices:progress:window[:bytes], op send or put")
        return Shape(words[0], *map(int, words[1:5]), int(words[5]) if len(words) == 6 else 8)

    def arguments(self, iterations):
        return ["--op", self.op, "--nthreads", str(self.threads), "--ndevices", str(self.devices), "--nprgthreads", str(self.progress),
                "--send-window", str(self.window), "--recv-window", str(self.window), "--min-size", str(self.bytes), "--max-size",
                str(self.bytes), "--test-mode", "0", "--niters", str(iterations)]

    def __str__(self):
        return f"{self.op} {self.bytes} B, {self.threads} threads ({self.progress} progress), {self.devices} devices, window {self.window}"


def once(contender, shape, iterations, timeout):
    """(latency in µs, messages per second), or None: no result in time."""
    environment = dict(os.environ, LCW_BACKEND_AUTO=contender.backend)
    command = [*contender.launcher, contender.program, *shape.arguments(iterations)]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # launchers pass it on
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return None
    latency = re.search(r"Latency \(us\): (\S+)", output)
    rate = re.search(r"Message Rate \(K/s\): (\S+)", output)
    return (float(latency[1]), float(rate[1]) * 1e3) if latency and rate else None


def iterations_for(contender, shape, seconds, timeout):
    """So many that a run takes about `seconds`; None: even few do not end in time."""
    iterations = 20
    while True:
        result = once(contender, shape, iterations, timeout)
        if result is None:
            return None
        took = result[0] * iterations / 1e6
        if took > seconds / 4 or iterations >= 1_000_000:
            return max(20, min(1_000_000, int(iterations * seconds / max(took, 1e-6))))
        iterations = min(1_000_000, iterations * max(2, min(20, int(seconds / 2 / max(took, 1e-6)))))


def busy_share(seconds=0.2):
    """How much of the machine's processors others use now."""
    def ticks():
        words = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(words[:8]), words[3] + words[4]
    before = ticks()
    time.sleep(seconds)
    after = ticks()
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


def wait_until_quiet(deadline):
    while busy_share() > 0.1 and time.monotonic() < deadline:
        time.sleep(0.5)


def measure(line):
    """P in nanoseconds."""
    return float(subprocess.run([str(line)], check=True, capture_output=True, text=True).stdout)


def interval(first, second):
    """95 % of the ratio of the medians, by bootstrap."""
    chance = random.Random(1)
    ratios = sorted(statistics.median(chance.choices(first, k=len(first))) / statistics.median(chance.choices(second, k=len(second)))
                    for _ in range(2000))
    return ratios[50], ratios[-51]


def report(shape, contenders, runs):
    for kind, among in (("near", lambda p: max(p) < FAR), ("far", lambda p: min(p) >= FAR)):
        mine = {c.name: [r for r in runs if r["name"] == c.name and r["rate"] and among(r["p"])] for c in contenders}
        if len(mine[contenders[0].name]) < 3:
            continue
        print(f"{shape}, {kind}")
        for name, some in mine.items():
            if some:
                latency = statistics.median(r["latency"] for r in some)
                print(f"    {name:12} {latency:10.3f} us {statistics.median(r['rate'] for r in some) / 1e6:9.4f} M/s   ({len(some)} runs)")
        others = {name: some for name, some in mine.items() if name != contenders[0].name and len(some) >= 3}
        if others:
            best = max(others, key=lambda name: statistics.median(r["rate"] for r in others[name]))
            first, second = [r["rate"] for r in mine[contenders[0].name]], [r["rate"] for r in others[best]]
            low, high = interval(first, second)
            print(f"    rate {statistics.median(first) / statistics.median(second):.2f} [{low:.2f}–{high:.2f}] x {best}")
    for contender in contenders:
        lost = sum(r["name"] == contender.name and not r["rate"] for r in runs)
        if lost:
            print(f"    {contender.name}: {lost} runs of {shape} did not end in time")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contender", action="append", type=Contender.parse, required=True)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a run")
    parser.add_argument("--timeout", type=float, default=20, help="of a run, in seconds, its start included")
    parser.add_argument("--patience", type=float, default=0, help="seconds, in all, to wait for times in which others use less than a tenth of "
                        "the processors")
    parser.add_argument("--line", type=pathlib.Path, default=LINE, help="the program that measures P (build/release/bench/lcw_line)")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not options.line.is_file():
        parser.error(f"there is no {options.line}: cmake --preset release && ninja -C build/release lcw_line")
    shapes = [Shape.parse(text) for text in options.shapes.split(",")]
    every = []
    deadline = time.monotonic() + options.patience
    for shape in shapes:
        iterations = {c: iterations_for(c, shape, options.seconds, options.timeout) for c in options.contender}
        runs = []
        for turn in range(options.repeat):
            order = options.contender[turn % len(options.contender):] + options.contender[:turn % len(options.contender)]
            for contender in order:
                wait_until_quiet(deadline)
                before = measure(options.line)
                count = iterations[contender]
                result = once(contender, shape, count, options.timeout) if count else None
                latency, rate = result or (None, None)
                runs.append({"shape": str(shape), "name": contender.name, "p": [before, measure(options.line)], "latency": latency, "rate": rate})
                if count is None and turn == 0:
                    print(f"    {contender.name}: no run of {shape} ends in time")
        report(shape, options.contender, [r for r in runs if iterations[next(c for c in options.contender if c.name == r["name"])]])
        every += runs
    if options.json:
        options.json.write_text(json.dumps(every, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
