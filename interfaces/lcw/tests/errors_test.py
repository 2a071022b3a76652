#!/usr/bin/env python3
"""errors_test.py HEDDLE PROGRAM: each mistake, and a rank that dies, ends the job with a message that says what is wrong."""

import os
import re
import subprocess
import sys
import unittest

HEDDLE, PROGRAM = "", ""

# Mistake: what must be said of it.
SAID = {
    "tag": r"send with tag -1: tags are 0 to 4611686018427387903 \(get_max_tag\)",
    "large-tag": r"recv with tag 9223372036854775807: tags are 0 to",
    "rank": r"put with rank 2: ranks are 0 to 1",
    "send-to-any": r"send with rank -1: ranks are 0 to 1",
    "length": r"recv of -1 bytes: a length is not negative",
    "put-length": r"alloc_device with max_put_length -1",
    "large-put": r"put of \d+ bytes, rank 0, .*; HEDDLE_AM_MAX_BYTES allows longer puts, or use send and recv",
    "devices": r"device 64 could not be opened: .* HEDDLE_MAX_WORKERS, the same in all ranks, allows more",
    "free-twice": r"free_device: 0x[0-9a-f]+ is no device that is open",
    "no-handler": r"alloc_handler: the handler is null",
    "no-allocator": r"set_custom_allocator: the allocator is null",
    "put-without-put-comp": r"rank \d has put 1 bytes to device 0, which was allocated without put_comp",
    "truncated": r"recv of 4 bytes, rank \d, tag 0, device 0: .*; the message is longer than the buffer",
    "dead-peer-recv": r"recv of 4 bytes, rank 1, .*; the rank has died or left the job",
    "dead-peer-barrier": r"barrier: rank 1 has died or left the job",
}
# Variables that are neither 0 nor 1.
VARIABLES = ("LCW_HEDDLE_ALWAYS", "LCW_HEDDLE_YIELD")


def run(mistake, **variables):
    return subprocess.run(
        [HEDDLE, "run", "-n", "2", "--grace", "5", "--timeout", "100", PROGRAM, mistake],
        env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=110,
    )


class Errors(unittest.TestCase):
    def check(self, result, said):
        output = result.stdout + result.stderr
        self.assertNotEqual(result.returncode, 0, output)
        self.assertRegex(output, re.compile(f"Heddle backend: {said}"))
        self.assertNotIn("was not noticed", output)

    def test_each_mistake_is_told(self):
        for mistake, said in SAID.items():
            with self.subTest(mistake):
                self.check(run(mistake), said)

    def test_variables_are_0_or_1(self):
        for name in VARIABLES:
            with self.subTest(name):
                self.check(run("none", **{name: "yes"}), f'{name} is "yes": set it to 0 or 1')


if __name__ == "__main__":
    HEDDLE, PROGRAM = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
