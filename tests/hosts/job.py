"""Programs that tests start, and watch while they run."""

import os
import re
import subprocess
import threading

DEADLINE = 60  # s; longer than anything takes


class Job:
    """A command whose lines are read as they come. Ended with everything that it has started, at the latest with this process."""

    def __init__(self, words, variables=None, deadline=DEADLINE):
        self.lines = []
        self._deadline = deadline
        self._over = False
        self._news = threading.Condition()
        self._process = subprocess.Popen(words, env=os.environ | (variables or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True, errors="replace")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    @property
    def said(self):
        return "".join(self.lines)

    def count(self, pattern):
        return len(re.findall(pattern, self.said, re.MULTILINE))

    def wait_for(self, pattern, times):
        with self._news:
            self._news.wait_for(lambda: self._over or self.count(pattern) >= times, self._deadline)
            if self.count(pattern) < times:
                raise AssertionError(f"{pattern!r} is not said {times} times within {self._deadline} s:\n{self.said}")

    def end(self):
        """Its status, when it has ended."""
        try:
            status = self._process.wait(self._deadline)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"it does not end:\n{self.said}") from None
        self._reader.join(self._deadline)
        self._process.stdout.close()
        return status
