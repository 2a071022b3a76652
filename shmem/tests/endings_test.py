"""endings_test.py HEDDLE PROGRAM: how jobs end that call shmem_finalize, and jobs that do not."""
import subprocess
import sys

HINT = "shmem_finalize: not called before the end of PE "
PES = 3


def run(way, expected_code, hinted):
    job = subprocess.run([sys.argv[1], "run", "-n", str(PES), "--timeout", "120", sys.argv[2], way], capture_output=True, text=True)
    if job.returncode != expected_code:
        sys.exit(f"{way}: ended with {job.returncode}, not {expected_code}:\n{job.stdout}{job.stderr}")
    if job.stderr.count(HINT) != (PES if hinted else 0):
        sys.exit(f"{way}: the hint about shmem_finalize comes {job.stderr.count(HINT)} times:\n{job.stderr}")


run("finalize", 0, hinted=False)
run("nested", 0, hinted=False)
run("start_pes", 0, hinted=False)
run("return", 0, hinted=True)
run("exit", 0, hinted=True)
run("child", 0, hinted=False)
run("failure", 3, hinted=False)
