#!/usr/bin/env python3
"""Runs every bench once, shortly, and checks what it writes: quick_check.py TOOL [--peers | --over TRANSPORT],
or every program once (`heddle bench programs`): quick_check.py TOOL --programs [--peers].

Nothing is said about speed. Checked: the tool ends well, every bench and operation that it promises is there, records are
flat and complete, intervals enclose medians, results were verified, ratios are what they say, and the report can be made.
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TEXT = {"bench", "op", "transport", "sharing", "memory", "metric", "unit", "distance"}
NUMBERS = {"processes", "threads", "workers", "size_bytes", "median", "low95", "high95", "best", "slow99", "repeats", "p_ns"}
UNITS = {"latency": "ns", "rate": "Mop/s", "bandwidth": "GB/s", "cycles": "cycles", "callbacks": "callbacks", "doorbells": "doorbells",
         "voluntary": "sleeps", "involuntary": "yields"}
PROMISED = {
    "limit": {"pingpong_1line", "pingpong_2lines", "ring_each", "ring_16", "fadd_alone", "fadd_contended", "memcpy",
              "memcpy_fresh", "copy_in_out_256K", "copy_in_out_4M"},
    "pingpong": {"put", "put_wait", "put_flush", "get", "fadd", "am", "tagged"},
    "rate": {"put", "get", "fadd", "am", "tagged"},
    "bandwidth": {"put", "get", "memcpy", "memcpy_get"},
    "atomics": {"fadd", "swap", "cswap", "add", "xor", "and", "or"},
    "gups": {"get_put", "atomic"},
    "compute": {"none", "idle", "adaptive"},
    "overhead": {"get_post", "get", "am_post", "am"},
    "fairness": {"deviation", "between_runs", "thread_0", "thread_7", "library", "sorted_0", "sorted_100"},
    "duplex": {"put", "get"},
    "convolution": {"none", "idle", "adaptive"},
    "oversubscription": {"put_signal", "put_signal_p99", "am", "tagged", "get", "barrier", "barrier_p99", "token", "mixed"},
    "overlap": {"communication", "compute", "sender", "receiver", "both", "sender_adaptive", "both_adaptive"},
}
MAPPED = {"memcpy", "memcpy_get"}  # only where the peer's memory can be mapped
# Beside UCX itself, so only where its peer was built. In the transport's column.
NETWORKS = {"network_tcp": {"heddle ucx", "ucx"}, "network_posix": {"heddle ucx", "ucx"}, "network_ofi": {"heddle ofi", "ofi"},
            "mixed_job": {"heddle shm,ucx", "shm"}}
# What programs there are, by what a library has.
SIGNALS = {"put_latency", "put_window", "get_window", "rpc_16", "rpc_128", "rpc_mt_16", "rpc_mt_128", "halo"}
EXCHANGES = {"exchange_flag", "exchange_count", "exchange_barrier"}
MESSAGES = {"latency", "bw", "bibw", "mbw_mr", "latency_mt", "pingpong_mt_own", "pingpong_mt_one", "pairs_own", "pairs_one", "pairs_any", "fan_in", "overlap_alone",
            "overlap_added"}
PROGRAMS = {"shm": SIGNALS | MESSAGES | EXCHANGES, "ucx": SIGNALS | MESSAGES, "openmpi": (SIGNALS | MESSAGES) - {"put_latency"},
            "mpich": (SIGNALS | MESSAGES) - {"put_latency"}, "oshmem": SIGNALS | EXCHANGES, "shmem": SIGNALS | EXCHANGES}
LIMIT = 580  # s
MODES = ["overhead", "fairness"]  # measured in each sharing mode


def check_record(record):
    assert set(record) == TEXT | NUMBERS | {"verified", "against", "ratio"}, f"members: {sorted(record)}"
    for name in TEXT:
        assert isinstance(record[name], str) and record[name], name
    for name in NUMBERS:
        assert isinstance(record[name], (int, float)) and math.isfinite(record[name]) and record[name] >= 0, name
    assert record["unit"] == UNITS[record["metric"]], "unit"
    # A thread may have run no handler at all, or all threads the same number; nobody may have given a core away.
    measured = record["median"] > 0 or record["metric"] in ("callbacks", "voluntary", "involuntary")
    assert measured and record["p_ns"] > 0 and record["repeats"] >= 1, "nothing was measured"
    assert record["low95"] <= record["median"] <= record["high95"], "interval"
    assert record["distance"] in ("near", "close", "far", "changed"), "distance"
    assert record["verified"] is True, "a result was wrong"
    if record["against"] is None:
        assert record["ratio"] is None, "a ratio to nothing"
    else:
        assert isinstance(record["against"], str) and record["ratio"] > 0, "ratio"


def measured(tool, folder, *words, environment=None):
    """The header and the records that `heddle bench` writes, and the peers that it goes without."""
    out = pathlib.Path(folder, "out.json")
    command = [tool, "bench", *words, "--quick", "--repeat", "1", "--json", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
    print(result.stdout, result.stderr)
    assert result.returncode == 0, f"{' '.join(command)} ended with {result.returncode}"
    header, *records = map(json.loads, out.read_text().splitlines())
    for record in records:
        try:
            check_record(record)
        except AssertionError as problem:
            raise AssertionError(f"{problem} in {json.dumps(record)}") from problem
    return header, records, set(re.findall(r"without (\w+):", result.stderr))


def check_all(records, peers, transport):
    done = {(record["bench"], record["op"]) for record in records if record["transport"] in (transport, "limit")}
    for bench, operations in PROMISED.items():
        missing = {op for op in operations if (bench, op) not in done} - (set() if transport == "shm" else MAPPED)
        assert not missing, f"{bench}: {sorted(missing)} were not measured"
    assert {r["threads"] for r in records if r["bench"] == "rate"} == {1, 2}, "threads"
    for bench in MODES:
        modes = {r["sharing"] for r in records if r["bench"] == bench and r["transport"] == transport}
        assert {"exclusive", "shared", "offload", "delegate"} <= modes, f"{bench}: {sorted(modes)}"
    bells = [r for r in records if r["metric"] == "doorbells"]
    wanted = {(op, m) for op in ("put", "put_stream") for m in ("shared", "offload", "delegate")} if any(one.startswith("verbs=") for one in os.environ.get("HEDDLE_LIBRARIES", "").split(",")) else set()
    assert {(r["op"], r["sharing"]) for r in bells} == wanted and all(r["median"] <= 2 for r in bells), f"doorbells: {bells}"
    pairs = {(r["processes"], r["threads"]) for r in records if r["bench"] == "duplex" and r["transport"] == transport}
    assert {(2, 1), (2, 8), (4, 1), (16, 1)} <= pairs, f"duplex: {sorted(pairs)}"
    assert any(r["bench"] == "duplex" and r["against"] == "processes" for r in records), "threads beside processes"
    crowds = {(r["op"], r["processes"], r["threads"]) for r in records if r["bench"] == "oversubscription"}
    assert {("barrier", 4, 1), ("barrier", 8, 1), ("mixed", 2, 1), ("mixed", 8, 8)} <= crowds, f"crowds: {sorted(crowds)}"
    assert any(r["transport"] == "fault+shm" for r in records), "nothing over a fabric"
    assert any(r["memory"] == "registered" for r in records), "no registered memory"
    against = {r["against"] for r in records} - {None}
    assert ({"P", "limit"} if transport == "shm" else {"P"}) <= against, "no ratios to the limit"
    if {"oshmem", "shmem"} <= peers:
        beside = {(r["bench"], r["op"], r["sharing"]) for r in records
                  if r["transport"] == "shmem" and (r["against"] or "").startswith("oshmem")}
        wanted = {(b, op, s) for b, op in (("rate", "put_nbi"), ("rate", "p_quiet"), ("gups", "get_put"), ("gups", "atomic"))
                  for s in ("multiple", "contexts")}
        assert wanted <= beside, f"OpenSHMEM beside OpenSHMEM: {sorted(wanted - beside)} are missing"
        assert any(r["transport"] == "shmem" and r["against"] == "contexts" for r in records), "no ratio to own contexts"
    for peer in peers - {"shmem"}:
        assert any(a.startswith(peer) for a in against), f"no ratio to {peer}"


def check_networks(records, networks):
    for bench, transports in networks.items():
        mine = [r for r in records if r["bench"] == bench]
        for transport in transports:
            measured = {(r["op"], r["metric"]) for r in mine if r["transport"] == transport}
            wanted = {(op, metric) for op in ("put", "get", "am") for metric in ("latency", "rate")}
            assert measured == wanted, f"{bench} over {transport}: {sorted(wanted - measured)} were not measured"
        against = {r["against"] for r in mine} - {None}
        library = bench.replace("network_tcp", "network_ucx").replace("network_posix", "network_ucx").removeprefix("network_")
        wanted = {"shm alone"} if bench == "mixed_job" else {library, f"{library} shared", "direct", "own workers"}
        assert wanted <= against, f"{bench}: {sorted(wanted - against)} stand beside nothing"
        if bench != "mixed_job":
            modes = {"exclusive", "shared", "offload", "own"} | ({"descriptor"} if bench == "network_ofi" else set())
            assert {r["sharing"] for r in mine} == modes, f"{bench}: sharing"


def check_programs(tool, folder, peers):
    """Every program of every library that is there."""
    _, records, missing = measured(tool, folder, "programs", *peers)
    for library, operations in PROGRAMS.items():
        if library in missing or (library != "shm" and not peers):
            continue
        absent = operations - {r["op"] for r in records if r["transport"] == library}
        assert not absent, f"{library}: {sorted(absent)} were not measured"
    modes = {r["sharing"] for r in records if r["op"] == "pairs_one" and r["transport"] == "shm"}
    assert modes == {"auto_one", "shared", "offload", "delegate"}, f"pairs_one in {sorted(modes)}"
    for program in {"mbw_mr", "fan_in"} | EXCHANGES:
        wanted = {8} if program == "fan_in" else {2, 8}
        for library in {r["transport"] for r in records if r["op"] == program}:
            sizes = {r["processes"] for r in records if r["op"] == program and r["transport"] == library}
            assert sizes == wanted, f"{program}, {library}: {sorted(sizes)} processes"


def check_busy(tool, folder):
    """Programs beside processes that compute, and their context switches."""
    _, records, _ = measured(tool, folder, "programs", "--busy", "2", "--op", "latency,halo,bw", "--switches")
    assert {(r["bench"], r["op"]) for r in records} == {("programs_busy_2", op) for op in ("latency", "halo", "bw")}, "busy"
    assert {r["metric"] for r in records if r["op"] == "bw"} == {"bandwidth", "voluntary", "involuntary"}, "switches"


def check_benches(tool, folder, peers, over):
    transport = f"heddle {over}" if over else "shm"  # as records name it
    environment = os.environ | ({"HEDDLE_TRANSPORTS": over} if over else {})
    built = pathlib.Path(tool).resolve().parents[1] / "bench/libraries"
    networks = {name: transports for name, transports in NETWORKS.items()
                if peers and (built / ("bench_ofi" if name == "network_ofi" else "bench_ucx")).exists()}
    header, records, missing = measured(tool, folder, *PROMISED, *networks, *peers, environment=environment)
    assert set(header) == {"heddle_bench", "date", "machine", "cores", "load", "version", "command"}, f"header: {sorted(header)}"
    assert header["command"].startswith("heddle bench ") and header["cores"] >= 1, f"header: {header}"
    check_networks(records, networks)
    check_all(records, {"ucx", "openmpi", "oshmem", "shmem"} - missing if peers else set(), transport)
    page = pathlib.Path(folder, "out.html")
    subprocess.run([tool, "report", str(pathlib.Path(folder, "out.json")), "-o", str(page)], check=True)
    assert page.read_text().count('"series":') >= 8, "charts are missing in the report"


def main(arguments):
    tool = arguments[0]
    peers = ["--peers"] if "--peers" in arguments else []
    over = arguments[arguments.index("--over") + 1] if "--over" in arguments else None
    with tempfile.TemporaryDirectory() as folder:
        try:
            if "--programs" not in arguments:
                check_benches(tool, folder, peers, over)
                return
            check_programs(tool, folder, peers)
            if not peers:
                check_busy(tool, folder)
        except AssertionError as problem:
            sys.exit(f"quick_check: {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
