"""What figures.py measures, and the rows of its tables."""

from dataclasses import dataclass

K = 1024
M = K * K

# The arguments of `heddle bench` for each run; figures.py adds --peers, --repeat and --time.
RUNS = {
    "operations": "pingpong --op put,put_flush,get,fadd,am --size 8,4K --memory allocated",
    "rates": "rate --op put,am --size 8 --threads 1,2,4,8 --memory allocated",
    "bandwidth": "limit bandwidth --op put,get,memcpy --size 64K,1M",
    "updates": "gups --threads 1,2",
    "auto": "programs --op latency,put_latency --size 8 --sharing auto",
    "programs": "programs --op latency,bw,bibw,put_window,get_window,rpc,overlap --sharing exclusive",
    "lengths": "programs --op latency,bw,bibw --size 64,512,1K,2K,8K,16K,32K,128K,256K,512K,4M,16M,64M --sharing exclusive",
    "threads": "programs --op pairs,halo --size 1K --sharing exclusive,auto,auto_one,shared,offload,delegate",
    "many": "programs --op fan_in,exchange --sharing auto",
    "collectives": "barrier broadcast allreduce --ranks 2 --size 8,64K,1M --form blocking,persistent --overlap no",
    "networks": "network_tcp network_ofi --threads 1",
}


@dataclass(frozen=True)
class Row:
    """A line of a table. `key` selects Heddle's record in the run; `beside` is "peers", or the limit that it is compared with."""

    table: str
    what: str
    mode: str
    run: str
    key: tuple
    beside: str = "peers"
    ours: str = "shm"
    readme: bool = False


def row(table, what, run, mode="", beside="peers", ours="shm", readme=False, **key):
    if mode:
        key["sharing"] = mode
    return Row(table, what, mode, run, tuple(sorted(key.items())), beside, ours, readme)


def size(count):
    return f"{count // M} MiB" if count >= M else f"{count // K} KiB" if count >= K else f"{count} B"


def threads(count):
    return f"{count} thread{'s' if count > 1 else ''}"


def operations():
    def one(what, op, beside="peers", count=8, readme=False):
        return row("operations", f"{what}, {size(count)}", "operations", "exclusive", beside, op=op, size_bytes=count, readme=readme)

    yield one("put, one way", "put", "P", readme=True)
    yield one("put and flush, at the origin", "put_flush")
    yield one("get, at the origin", "get", readme=True)
    yield one("fetch-add, at the origin", "fadd", readme=True)
    yield one("active message, one way", "am", readme=True)
    yield one("active message, one way", "am", count=4 * K)
    for op, what in (("put", "puts"), ("am", "active messages")):
        for count in (1, 2, 4, 8):
            yield row("operations", f"stream of {what}, 8 B, {threads(count)} with a worker each", "rates", "exclusive", op=op, threads=count,
                      size_bytes=8, readme=count <= 2)
    for memory, beside, where in (("allocated", "memcpy", "an allocated region"), ("registered", "cma", "registered memory")):
        for op, what in (("put", "puts to"), ("get", "gets from")):
            for count in (64 * K, M):
                limit = "memcpy_get" if (op, beside) == ("get", "memcpy") else beside
                yield row("operations", f"{what} {where}, {size(count)}", "bandwidth", "exclusive", limit, op=op, memory=memory,
                          size_bytes=count, bench="bandwidth", readme=count == M and op == "put")
    for op, what in (("get_put", "get, update, put"), ("atomic", "atomic xor")):
        for count in (1, 2):
            yield row("operations", f"GUPS, {what}, {threads(count)}", "updates", "exclusive", op=op, threads=count, readme=count == 2)


def programs():
    yield row("programs", "half a round trip of a message, 8 B", "auto", "auto", op="latency", size_bytes=8, readme=True)
    yield row("programs", "half a round trip of puts with signals, 8 B", "auto", "auto", op="put_latency", size_bytes=8)
    for op, what in (("bw", "windows of messages"), ("bibw", "the same in both directions")):
        yield row("programs", f"{what}, 8 B", "programs", "exclusive", op=op, size_bytes=8)
    for op in ("put", "get"):
        for count in (8, 4 * K, 64 * K):
            yield row("programs", f"windows of 64 {op}s, {size(count)}", "programs", "exclusive", op=f"{op}_window", size_bytes=count)
    for count in (16, 32, 128):
        yield row("programs", f"requests and replies of 64 B, {count} outstanding", "programs", "exclusive", op=f"rpc_{count}", readme=count == 16)
    for count in (64 * K, M):
        yield row("programs", f"both send and receive {size(count)} while they compute: time added", "programs", "exclusive", op="overlap_added",
                  size_bytes=count, readme=count == M)
    yield row("programs", "seven processes to one, windows of messages, 16 B", "many", "auto", op="fan_in")


LENGTHS = (8, 64, 512, K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K, 512 * K, M, 4 * M, 16 * M, 64 * M)
IN_PROGRAMS = (8, 4 * K, 64 * K, M)  # the run that measures these lengths


def lengths():
    """Curves: each length, of the engine and of MPI."""
    for ours, prefix in (("shm", ""), ("heddle_mpi", "MPI: ")):
        mode = "exclusive" if ours == "shm" else ""
        for op, what in (("latency", "half a round trip"), ("bw", "windows, one way"), ("bibw", "windows, both ways")):
            for count in LENGTHS:
                if op == "latency" or count >= 4 * K:
                    run = "programs" if count in IN_PROGRAMS else "lengths"
                    shown = ours == "shm" and op in ("latency", "bw") and count in (4 * K, 64 * K, M)
                    yield row("lengths", f"{prefix}{what}, {size(count)}", run, mode, ours=ours, op=op, size_bytes=count, readme=shown)


def of_threads():
    modes = {"pairs_own": ("auto", "exclusive"), "pairs_one": ("auto_one", "shared", "delegate", "offload")}
    for op, where in (("pairs_own", "a worker each"), ("pairs_one", "one worker")):
        for mode in modes[op]:
            for count in (1, 2, 4, 8):
                yield row("threads", f"windows of messages, 8 B, {threads(count)}, {where}", "threads", mode, op=op, threads=count,
                          readme=mode == "auto" and count in (1, 8))
    for count in (1, 2, 4, 8):
        yield row("threads", f"step of a halo exchange, 1 KiB, {threads(count)}, a worker each", "threads", "exclusive", op="halo", threads=count,
                  size_bytes=K, readme=count == 4)


def interfaces():
    yield row("mpi", "windows of messages, 8 B", "programs", ours="heddle_mpi", op="bw", size_bytes=8)
    for op, where in (("pairs_own", "a communicator each"), ("pairs_one", "one communicator")):
        for count in (1, 2, 8):
            yield row("mpi", f"windows of messages, 8 B, {threads(count)}, {where}", "threads", ours="heddle_mpi", op=op, threads=count)
    for count in (64 * K, M):
        yield row("mpi", f"both send and receive {size(count)} while they compute: time added", "programs", ours="heddle_mpi", op="overlap_added",
                  size_bytes=count)
    yield row("openshmem", "put, one way, 8 B", "operations", ours="shmem", op="put", size_bytes=8)
    yield row("openshmem", "requests and replies of 64 B, 16 outstanding", "programs", ours="shmem", op="rpc_16")
    for count in (K, 4 * K, 32 * K):
        yield row("openshmem", f"8 processes send each other buffers of {size(count)}, a flag each", "many", ours="shmem", op="exchange_flag",
                  size_bytes=count, processes=8, readme=count == 4 * K)


def others():
    yield row("collectives", "barrier, 2 ranks, blocking", "collectives", bench="barrier", op="blocking")
    for name in ("broadcast", "allreduce"):
        for count in (8, 64 * K, M):
            yield row("collectives", f"{name} of {size(count)}, 2 ranks, blocking", "collectives", bench=name, op="blocking", size_bytes=count)
        for count in (64 * K, M):
            yield row("collectives", f"start of a persistent {name} of {size(count)}, 2 ranks", "collectives", bench=name, op="persistent_start",
                      size_bytes=count, readme=count == M and name == "broadcast")
    for bench, ours, where in (("network_tcp", "heddle ucx", "ucx over TCP (lo)"), ("network_ofi", "heddle ofi", "ofi over TCP (lo)")):
        for metric, form in (("latency", "{}"), ("rate", "stream of {}s, 1 thread")):
            for op, what in (("put", "put"), ("get", "get"), ("am", "active message")):
                yield row("networks", f"{where}: {form.format(what)}, 8 B", "networks", "exclusive", ours=ours, bench=bench, op=op, metric=metric)


ROWS = (*operations(), *of_threads(), *programs(), *lengths(), *interfaces(), *others())
