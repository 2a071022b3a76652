#!/usr/bin/env python3
"""What a test program runs of what it has: runner_test.py PROGRAM, one that has tests with parameters and tests without."""

import collections
import os
import re
import subprocess
import sys
import unittest

PROGRAM = ""


def run(*arguments, share=None):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "GTEST_"))}
    if share is not None:
        environment["TEST_SHARE"] = share
    return subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False)


def listed(*arguments, share=None):
    """The names of the tests that it would run."""
    result = run("--gtest_list_tests", *arguments, share=share)
    assert result.returncode == 0, result.stderr
    names, suite = [], ""
    for line in result.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if re.match(r"\S+\.$", word):
            suite = word
        elif suite and word.startswith("  "):
            names.append(suite + word.strip())
    return names


def with_parameters(names):
    """(suite, test), (suite, case) of each that has parameters. A suite's name has the sign before these for other reasons, too."""
    divided = [(name.split(".", 1)[0], *name.split(".", 1)[1].split("/", 1)) for name in names if "/" in name.split(".", 1)[1]]
    return [((suite, test), (suite, case)) for suite, test, case in divided]


class Shares(unittest.TestCase):
    def test_together_have_all_and_share_only_what_has_no_parameters(self):
        whole = listed()
        self.assertEqual(whole, listed(share="1/1"))
        for of in (2, 3):
            shares = [listed(share=f"{k}/{of}") for k in range(1, of + 1)]
            self.assertEqual(set(whole), set().union(*map(set, shares)))
            for name in whole:
                self.assertEqual(sum(name in share for share in shares), 1 if with_parameters([name]) else of, name)

    def test_each_has_cases_of_each_test_and_of_each_parameter(self):
        cases = with_parameters(listed())
        self.assertGreater(len(cases), 8, "the program given has too few tests with parameters")
        for k in (1, 2):
            chosen = with_parameters(listed(share=f"{k}/2"))
            for part in (0, 1):
                uses = collections.Counter(case[part] for case in cases)
                self.assertLessEqual({one for one, count in uses.items() if count > 1}, {case[part] for case in chosen})

    def test_a_filter_holds_besides(self):
        name = next(name for name in listed() if with_parameters([name]))
        found = [listed(f"--gtest_filter={name}", share=share) for share in ("1/2", "2/2")]
        self.assertEqual(sorted(found), [[], [name]])

    def test_another_text_is_refused(self):
        for share in ("0/2", "3/2", "1", "1/2x", "one", "1/17", "-1/2"):
            result = run("--gtest_list_tests", share=share)
            self.assertEqual(result.returncode, 2, share)
            self.assertIn(f"TEST_SHARE is {share}", result.stderr)


class Files(unittest.TestCase):
    def test_one_that_has_no_test_is_an_error(self):
        result = run("--only=no_such_file")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no test is written in the files", result.stderr)

    def test_an_unknown_argument_is_refused(self):
        result = run("--onyl=base_test")
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown argument --onyl=base_test", result.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
