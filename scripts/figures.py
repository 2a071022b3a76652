#!/usr/bin/env python3
"""The figures of README.md and docs/performance.md: measured into one file, and written from it into the tables.

    figures.py --measure [--quick] [--build TREE] [--only RUN,…]   runs RUNS by TREE's heddle (build/release), writes docs/figures.json and the tables
    figures.py                                                    writes the tables from docs/figures.json
    figures.py --check [ROOT]                                     writes nothing; exit 1, with each fault on a line, if a table differs from what
                                                                  docs/figures.json gives, or a sentence outside of the tables states a figure

A table stands between `<!-- figures:NAME -->` and `<!-- /figures -->`. --only measures these runs again and keeps the others of the file, whose dates
the file keeps too. --quick takes few short repeats: it shows that everything runs. A row is a line in figures_rows.py, and a bench that it needs, too.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from figures_rows import ROWS, RUNS, Row  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = "docs/figures.json"
DOCUMENTS = ("README.md", "docs/performance.md")
FORMAT = 1
KEY = ("bench", "op", "transport", "sharing", "memory", "processes", "threads", "workers", "size_bytes", "metric", "unit")
VALUES = ("median", "low95", "high95", "repeats", "p_ns", "distance", "verified")
LEAST_REPEATS = 3  # fewer do not show how reliable a figure is
QUIET = 0.05  # the share of the machine that others may take meanwhile
# What is added to the arguments of a run.
REPEATS = {"long": ("--repeat", "9", "--time", "5"), "quick": ("--repeat", "3", "--time", "1")}

# ---- measuring -----------------------------------------------------------------------------------------------------------


def output_of(*words):
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def busy_seconds():
    """Processor time of the whole machine that was not idle; of it what this script's children took."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), children.ru_utime + children.ru_stime


def peers_without(errors):
    """Those that a session went without, by the lines that it says so with. A line may name a folder: only the peer stays."""
    return sorted({match[1] for match in re.finditer(r"^heddle bench: without ([\w.-]+)", errors, re.M)})


def measured(tool, words):
    """One run of `heddle bench`, without its ratios, which the tables work out by themselves."""
    (busy, own), begun = busy_seconds(), time.monotonic()
    done = subprocess.run([tool, "bench", *words, "--json", "-"], capture_output=True, text=True, check=False)
    (busy_then, own_then), wall = busy_seconds(), time.monotonic() - begun
    print("\n".join(line for line in done.stderr.splitlines() if line.startswith("heddle bench: ")), file=sys.stderr, flush=True)
    header, *records = map(json.loads, done.stdout.splitlines() or ["{}"])
    others = max(0.0, (busy_then - busy - (own_then - own)) / wall / len(os.sched_getaffinity(0)))
    return {
        "date": header.get("date", ""),
        "machine": re.sub(r"(Linux \d+\.\d+)\S*", r"\1", header.get("machine", "")),
        "cores": header.get("cores", 0),
        "version": header.get("version", ""),
        "command": "heddle bench " + " ".join(words),
        "others": round(others, 3),
        "seconds": round(wall),
        "good": done.returncode == 0,
        "without": peers_without(done.stderr),
        "records": [{name: record[name] for name in KEY + VALUES} for record in records if record["against"] is None],
    }


def setting(cache, name):
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.M)
    return found[1] if found else ""


def built(tree):
    """How the tree's programs were compiled. Where tests were to be built quickly (HEDDLE_PRECOMPILE), those of the peers that the system has are
    not optimised."""
    cache = (tree / "CMakeCache.txt").read_text(encoding="utf-8")
    version = output_of(setting(cache, "CMAKE_CXX_COMPILER") or "c++", "-dumpfullversion")
    name = "clang" if "clang" in setting(cache, "CMAKE_CXX_COMPILER") else "g++"
    off = ("", "OFF", "0", "NO", "FALSE")
    optimised = setting(cache, "HEDDLE_PRECOMPILE") in off or setting(cache, "HEDDLE_TESTS") in off
    return {"compiler": f"{name} {version}", "type": setting(cache, "CMAKE_BUILD_TYPE"), "peers_optimised": optimised}


def versions():
    """Of the peers that the system has. The names of the others contain theirs."""
    found = {}
    for name, packages in (("ucx", ["ucx"]), ("openmpi", ["ompi"]), ("oshmem", ["oshmem", "ompi"]), ("mpich", ["mpich"]), ("ofi", ["libfabric"])):
        said = [version for version in (output_of("pkg-config", "--modversion", package) for package in packages) if version]
        if said:
            found[name] = said[0]
    return found


def measure(given):
    tree = (ROOT / given.build).resolve()
    tool = tree / "tools" / "heddle"
    if not tool.is_file():
        raise SystemExit(f"figures: {given.build} has no tools/heddle; `cmake --preset release && ninja -C build/release` makes it")
    names = given.only.split(",") if given.only else list(RUNS)
    if unknown := set(names) - set(RUNS):
        raise SystemExit(f"figures: no run is called {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    path = ROOT / FILE
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if given.only and path.is_file() else {}
    for name in names:
        words = [*RUNS[name].split(), "--peers", *REPEATS["quick" if given.quick else "long"]]
        print(f"figures: {name}: heddle bench {' '.join(words)}", file=sys.stderr, flush=True)
        runs[name] = {**measured(tool, words), "quick": given.quick, "commit": output_of("git", "rev-parse", "--short", "HEAD")}
        print(f"figures: {name}: {runs[name]['seconds']} s, {len(runs[name]['records'])} records, others {runs[name]['others']:.0%}"
              + ("" if runs[name]["good"] else "; a program failed"), file=sys.stderr, flush=True)
        # What was measured stays if a later run is ended.
        path.write_text(text_of(summary_of(runs, built(tree))), encoding="utf-8")


def summary_of(runs, build):
    quiet = all(run["others"] <= QUIET for run in runs.values())
    return {"figures": FORMAT, "quiet": quiet, "build": build, "peers": versions(), "runs": {name: runs[name] for name in RUNS if name in runs}}


def text_of(data):
    """One record a line, so that git shows what has changed."""
    bare = {**data, "runs": {name: {**run, "records": f"@{name}@"} for name, run in data["runs"].items()}}
    text = json.dumps(bare, indent=1, ensure_ascii=False)
    for name, run in data["runs"].items():
        lines = ",\n".join("   " + json.dumps(record, separators=(",", ":")) for record in run["records"])
        text = text.replace(f'"@{name}@"', f"[\n{lines}\n  ]" if lines else "[]")
    return text + "\n"


# ---- what the records tell -----------------------------------------------------------------------------------------------

OURS = ("shm", "heddle ucx", "heddle ofi", "heddle_mpi", "shmem")
NAMES = {"ucx": "UCX", "openmpi": "Open MPI", "mpich": "MPICH", "impi": "Intel MPI", "oshmem": "Open MPI's OpenSHMEM", "ofi": "libfabric"}
INTERFACES = {"mpi": "MPI: ", "openshmem": "OpenSHMEM: "}
LIMITS = {"P": "P", "memcpy": "memcpy", "memcpy_get": "memcpy", "cma": "the kernel's copy"}
SCALES = {
    "ns": ((1e6, "ms", 1e-6), (1e3, "µs", 1e-3), (0, "ns", 1)),
    "Mop/s": ((1, "M/s", 1), (1e-3, "k/s", 1e3), (0, "/s", 1e6)),
    "GB/s": ((0.1, "GB/s", 1), (0, "MB/s", 1e3)),
}


def is_ours(record, name):
    return record["transport"] == name or (name == "heddle_mpi" and record["transport"].startswith("heddle_mpi-"))


def larger_is_better(record):
    return record["metric"] in ("rate", "bandwidth")


def times_as_fast(ours, other):
    return ours["median"] / other["median"] if larger_is_better(ours) else other["median"] / ours["median"]


def is_known(one, other):
    return min(one["repeats"], other["repeats"]) >= LEAST_REPEATS


def is_apart(one, other):
    """As bench/harness/record.cpp: intervals that overlap are level, and figures of too few repeats are not compared."""
    return is_known(one, other) and (one["high95"] < other["low95"] or other["high95"] < one["low95"])


def ours_of(row, records):
    """Heddle's records of the row: one, or one for each state in which the machine was, near and far."""
    return [record for record in records if is_ours(record, row.ours) and all(record[name] == value for name, value in row.key)]


def same_task(ours, other):
    alike = all(ours[name] == other[name] for name in ("bench", "memory", "processes", "threads", "size_bytes", "metric", "distance"))
    return alike and (ours["op"] == other["op"] or (ours["op"], other["op"]) == ("am", "tagged"))


def beside(row, ours, records):
    """The limit; or else the peer that is ahead, if one is, and the best of them. None: nobody did the same in the same state of the machine."""
    if row.beside == "P":
        p = {name: ours["p_ns"] for name in ("median", "low95", "high95")}
        return {**ours, **p, "transport": "P"} if ours["p_ns"] > 0 else None
    if row.beside != "peers":
        limits = [record for record in records if record["transport"] == "limit" and record["op"] == row.beside
                  and all(record[name] == ours[name] for name in ("size_bytes", "metric"))]
        return max(limits, key=lambda record: (record["bench"] == ours["bench"], record["distance"] == ours["distance"]), default=None)
    peers = [record for record in records if same_task(ours, record) and record["transport"] != "limit" and record["median"] > 0
             and not any(is_ours(record, name) for name in OURS)]
    if row.ours == "heddle_mpi":
        peers = [peer for peer in peers if "mpi" in peer["transport"]]
    return min(peers, key=lambda peer: (not (is_apart(ours, peer) and times_as_fast(ours, peer) < 1), times_as_fast(ours, peer)), default=None)


@dataclass(frozen=True)
class Standing:
    row: Row
    ours: dict | None
    other: dict | None

    @property
    def words(self):
        """ahead, level, behind; unknown: too few repeats; limit: no peer, but what the machine can do; alone."""
        if self.ours is None or self.other is None:
            return "alone"
        if self.row.beside != "peers":
            return "limit"
        if not is_known(self.ours, self.other):
            return "unknown"
        if not is_apart(self.ours, self.other):
            return "level"
        return "ahead" if times_as_fast(self.ours, self.other) > 1 else "behind"


def worth(standing):
    """What a state of the machine tells: more if both have more repeats in it; near, if that is equal."""
    return (min(one["repeats"] if one else 0 for one in (standing.ours, standing.other)), standing.ours["repeats"], standing.ours["distance"] == "near",
            standing.ours["distance"] == "far")


def standings(data):
    """Of each row, in one state of the machine."""
    for one in ROWS:
        records = data["runs"].get(one.run, {}).get("records", [])
        found = [Standing(one, ours, beside(one, ours, records)) for ours in ours_of(one, records)]
        yield max(found, key=worth, default=Standing(one, None, None))


# ---- words ---------------------------------------------------------------------------------------------------------------


def number(value):
    """With three digits: 0.0712, 7.12, 71.2, 712, 7120."""
    if value <= 0:
        return "0"
    exponent = int(f"{value:.2e}".split("e")[1])
    return f"{value:.{max(0, 2 - exponent)}f}"


def value_text(record):
    unit, scale = next((name, factor) for least, name, factor in SCALES[record["unit"]] if record["median"] >= least)
    low, high = number(record["low95"] * scale), number(record["high95"] * scale)
    text = f"{number(record['median'] * scale)} {unit}"
    text += f" [{low}–{high}]" if record["low95"] != record["high95"] else ""
    return text + ("" if record["distance"] == "near" else f", {record['distance']}") + ("" if record["verified"] else ", **a wrong result**")


def name_text(record, peers):
    transport = record["transport"]
    if transport in LIMITS:
        return LIMITS[transport]
    if transport == "limit":
        return LIMITS[record["op"]]
    name, _, version = transport.partition("-")
    version = ".".join((version or peers.get(name, "")).split(".")[:2])
    how = {"shared": "one worker", "descriptor": "with a descriptor"}.get(record["sharing"], "")
    return " ".join(filter(None, (NAMES.get(name, name), version))) + (f" ({how})" if how else "")


def cells(standing, peers, alone=True):
    """`alone`: the table has one interface, which the row need not name."""
    ours, other = standing.ours, standing.other
    prefix = "" if alone else INTERFACES.get(standing.row.table, "")
    what = [prefix + standing.row.what, standing.row.mode.replace("auto_one", "auto")]
    if ours is None:
        return [*what, "not measured", "", ""]
    if other is None:
        return [*what, value_text(ours), "no peer did it in the same state of the machine" if standing.row.beside == "peers" else "", ""]
    ratio = number(times_as_fast(ours, other))
    name = name_text(other, peers)
    said = {"level": f"{ratio} (level)", "unknown": "too few repeats", "behind": f"**{ratio}: {name} is ahead**"}.get(standing.words, ratio)
    return [*what, value_text(ours), f"{name} {value_text(other)}", said]


def table(header, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *lines))


def rows_text(found, peers):
    alone = len({standing.row.table for standing in found}) == 1
    lines = [cells(standing, peers, alone) for standing in found]
    header = ["what", "mode", "Heddle", "best peer, or limit", "times as fast"]
    if not any(line[1] for line in lines):
        lines, header = [line[:1] + line[2:] for line in lines], header[:1] + header[2:]
    return table(header, lines)


def origin_text(data):
    runs = list(data["runs"].values())
    days = sorted({run["date"][:10] for run in runs if run["date"]})
    machines = sorted({f"{run['machine']}, {run['cores']:g} cores" for run in runs if run["machine"]})
    ps = [record["p_ns"] for run in runs for record in run["records"] if record["distance"] == "near" and record["p_ns"] > 0]
    far = [record["p_ns"] for run in runs for record in run["records"] if record["distance"] == "far" and record["p_ns"] > 0]
    seen = sorted({record["transport"] for run in runs for record in run["records"]} - {"limit", *OURS})
    peers = [name_text({"transport": name, "sharing": ""}, data["peers"]) for name in seen if not name.startswith("heddle_mpi-")]
    build = data["build"]
    said = [f"Measured on {' and '.join(days)} on {'; '.join(machines)}. Heddle {', '.join(sorted({run['version'] for run in runs if run['version']}))} "
            f"(commit {', '.join(sorted({run['commit'] for run in runs}))}), {build['compiler']}, {build['type']}."]
    for name, values in (("near", sorted(ps)), ("far", sorted(far))):
        if values:
            middle = values[len(values) // 2]
            said.append(f"P was {number(middle)} ns where the cores were {name}.")
    said.append(f"Peers: {', '.join(peers) or 'none'}.")
    if not data["quiet"]:
        said.append("**Measured beside other work**: other programs took part of the machine, so no figure tells how fast anything is.")
    if any(run["quick"] for run in runs):
        said.append("**A quick run**: few short repeats, which show that everything runs.")
    if not build["peers_optimised"]:
        said.append("**The programs over the system's own peers were not optimised**, so rows beside them tell nothing.")
    if failed := [name for name, run in data["runs"].items() if not run["good"]]:
        said.append(f"A program failed or was ended in: {', '.join(failed)}.")
    return "\n".join(said)


def short_text(found, peers):
    counts = {words: sum(one.words == words for one in found) for words in ("ahead", "level", "behind", "unknown")}
    said = f"Of {sum(counts.values())} rows beside a peer Heddle is ahead in {counts['ahead']} and level in {counts['level']}; a peer is ahead in {counts['behind']}."
    if counts["unknown"]:
        said += f" {counts['unknown']} have too few repeats to tell."
    behind = sorted((one for one in found if one.words == "behind"), key=lambda one: times_as_fast(one.ours, one.other))
    return said + ("\n\n" + rows_text(behind, peers) if behind else "")


def tables(data):
    """The text of each table, by its name."""
    found = list(standings(data))
    peers = data["peers"]
    texts = {"origin": origin_text(data), "short": short_text(found, peers), "selected": rows_text([one for one in found if one.row.readme], peers)}
    for name in dict.fromkeys(one.table for one in ROWS):
        texts[name] = rows_text([one for one in found if one.row.table == name], peers)
    return texts


# ---- documents -----------------------------------------------------------------------------------------------------------

TABLE = re.compile(r"<!-- figures:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /figures -->", re.S)
# A latency, a rate or a ratio in a sentence.
STATED = re.compile(r"\d\s*(?:(?:ns|µs|us|ms|[kMG]i?B/s|[kM]?/s|Mop/s)(?!\w)|×|times (?:as|faster|slower)\b)")


def written(text, texts):
    return TABLE.sub(lambda match: f"<!-- figures:{match['name']} -->\n{texts.get(match['name'], '')}\n<!-- /figures -->", text)


def faults_of(name, text, texts):
    """What is wrong in a document: a table that is not the file's, a marker that leads nowhere, a sentence that states a figure."""
    faults = []
    for match in TABLE.finditer(text):
        line = text[: match.start()].count("\n") + 1
        if match["name"] not in texts:
            faults.append(f"{name}:{line}: there is no table figures:{match['name']}; there are {', '.join(texts)}")
        elif match["text"] != texts[match["name"]] + "\n":
            faults.append(f"{name}:{line}: the table figures:{match['name']} is not what {FILE} gives; scripts/figures.py writes it")
    # Each table keeps its lines, so that numbers of lines stay right.
    prose = TABLE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for line, content in enumerate(prose.splitlines(), 1):
        if "<!-- figures:" in content or "<!-- /figures" in content:
            faults.append(f"{name}:{line}: a marker without its other end")
        if stated := STATED.search(content):
            faults.append(f"{name}:{line}: '{stated[0]}' is a figure outside of the tables; say it by a row of scripts/figures.py, or write it into docs/journal")
    return faults


def check(root):
    """Each fault of the documents, one a line."""
    data = json.loads((root / FILE).read_text(encoding="utf-8"))
    texts = tables(data)
    contents = {name: (root / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    faults = [fault for name, content in contents.items() for fault in faults_of(name, content, texts)]
    shown = {match["name"] for content in contents.values() for match in TABLE.finditer(content)}
    faults += [f"{FILE}: the run {name} is a quick one, which shows no more than that everything runs" for name, run in data["runs"].items() if run["quick"]]
    return faults + [f"{DOCUMENTS[-1]}: the table figures:{name} is nowhere shown" for name in texts if name not in shown]


def write(root):
    texts = tables(json.loads((root / FILE).read_text(encoding="utf-8")))
    for name in DOCUMENTS:
        path = root / name
        path.write_text(written(path.read_text(encoding="utf-8"), texts), encoding="utf-8")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    if given.measure:
        measure(given)
    if not given.check:
        write(given.root)
        return 0
    faults = check(given.root)
    for fault in faults:
        print(fault)
    print(f"figures: {len(ROWS)} rows, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
