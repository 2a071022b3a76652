"""endings_test.py HEDDLE PROGRAM: how jobs end that call shmem_finalize, and jobs that do not; what is said of one that hangs."""
import os
import re
import subprocess
import sys

HINT = "shmem_finalize: not called before the end of PE "
PES = 3


def run(way, expected_code, hinted, options=(), **variables):
    job = subprocess.run([sys.argv[1], "oshrun", "-n", str(PES), "--timeout", "120", *options, sys.argv[2], way], capture_output=True, text=True,
                         env=os.environ | variables)
    if job.returncode != expected_code:
        sys.exit(f"{way}: ended with {job.returncode}, not {expected_code}:\n{job.stdout}{job.stderr}")
    if job.stderr.count(HINT) != (PES if hinted else 0):
        sys.exit(f"{way}: the hint about shmem_finalize comes {job.stderr.count(HINT)} times:\n{job.stderr}")
    if re.search(r"\brank|heddle run", job.stderr):
        sys.exit(f"{way}: users of OpenSHMEM know PE and oshrun:\n{job.stderr}")
    return job.stderr


run("finalize", 0, hinted=False)
run("nested", 0, hinted=False)
run("start_pes", 0, hinted=False)
run("return", 0, hinted=True)
run("exit", 0, hinted=True)
run("child", 0, hinted=False)



def check(said, expected):
    if not re.search(expected, said):
        sys.exit(f"{expected!r} is not said, but:\n{said}")


check(run("failure", 3, hinted=False), r"oshrun: PE 2 \(pid \d+\) exited with code 3\n")
check(run("vanish", 1, hinted=False), r"oshrun: PE 2 \(pid \d+\) exited without shmem_finalize\n")
check(run("mistake", 1, hinted=False), r"oshrun: PE 2 aborts the job with code 1: shmem_long_p: pe 3: the PEs of the context are 0-2\n")
# A PE dies, and the others wait for it in memory. They end the job long before the launcher would.
KILLED = 128 + 9
WORD = r"the word at byte \d+ of the static data to be 7 \(it is 18446744073709551615\), which any PE may write \(SHMEM_DEATHS=ignore: it goes on\)"
for way, call, why in (("word", "shmem_long_wait_until", ", and this PE waits for " + WORD), ("test", "shmem_long_test", ", and this PE waits for " + WORD),
                       ("lock", "shmem_set_lock", ", and holds lock 0x[0-9a-f]+"), ("test-lock", "shmem_test_lock", ", and holds lock 0x[0-9a-f]+"),
                       ("barrier", "shmem_barrier_all", "")):
    for variables in ({}, {"HEDDLE_SHM_DIRECT": "0"}):
        if variables and "lock" in way:
            why = ""  # the lock's home is perhaps the dead PE
        check(run(f"death-{way}", KILLED, hinted=False, options=("--grace", "100"), **variables),
              rf"^oshrun: PE 2 \(pid \d+\) was killed by signal 9 \(Killed\)\noshrun: PE [01] aborts the job with code 1: {call}: PE 2 has died{why}")
# A word of another PE comes all the same.
run("death-of-another", KILLED, hinted=False, options=("--grace", "100"))
LIVE_ON = ("--grace", "unlimited", "--exit-code", "survivors")
run("death-of-another", 0, hinted=False, options=LIVE_ON)
run("death-of-another", 1, hinted=False, options=LIVE_ON, SHMEM_DEATHS="end")
check(run("finalize", 1, hinted=False, SHMEM_DEATHS="later"), r'SHMEM_DEATHS is "later": it is end or ignore')
# A job of one, without a launcher.
alone = subprocess.run([sys.argv[2], "mistake"], capture_output=True, text=True)
if (alone.returncode, alone.stderr) != (1, "shmem_long_p: pe 1: the PEs of the context are 0-0\n"):
    sys.exit(f"alone: code {alone.returncode}, {alone.stderr}")


def check_hang(**variables):
    """PE 0 waits in a barrier for PE 2, which waits for a lock that it holds, PE 1 for a word that nobody sets."""
    expected = [r"oshrun: nothing has moved for 1 s: .*PE [12]",
                r"oshrun:   PE 0 \(pid \d+\):", r"waits in shmem_barrier_all .*: PE [12] has not come; HEDDLE_CHECK=full tells",
                r"waits in shmem_long_wait_until .*: the word at byte \d+ of the static data to be 7 \(it is 18446744073709551615\)",
                r"waits in shmem_set_lock .*: lock 0x[0-9a-f]+ is held by PE 2, and 1 are before this one"]
    job = subprocess.Popen([sys.argv[1], "oshrun", "-n", str(PES), "--timeout", "120", sys.argv[2], "hang"], text=True,
                           stderr=subprocess.PIPE, env=os.environ | {"HEDDLE_HANG_SECONDS": "1"} | variables)
    said = ""
    for line in job.stderr:  # till it is ended by the launcher's limit
        said += line
        expected = [pattern for pattern in expected if not re.search(pattern, line)]
        if not expected:
            break
    job.terminate()
    job.communicate()
    if expected:
        sys.exit(f"hang: nobody says {expected}:\n{said}")


check_hang()
check_hang(HEDDLE_SHM_DIRECT="0")
