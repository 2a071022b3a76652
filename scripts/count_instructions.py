#!/usr/bin/env python3
"""Instructions per operation on the paths that matter, counted by callgrind and held against their limits.

    count_instructions.py PROGRAM SHMEM-PROGRAM UTOFU-PROGRAM,LIBRARY VERBS-LIBRARY,FABRIC LIMITS [--update]

PROGRAM, SHMEM-PROGRAM and UTOFU-PROGRAM are tests/instructions/path.cpp, path_shmem.cpp and path_utofu.cpp built for release, LIBRARY is
watched_tofucom.cpp, VERBS-LIBRARY src/transport/test/verbs_idle.cpp, FABRIC idle_fabric.cpp; - stands for what was not built. LIMITS is a file of lines
"name instructions" (# starts a comment).
A path may have one instruction in ten (and two) more than its limit; fewer than half is reported too, since then the limit
protects nothing. --update writes what was counted as the new limits.
Exit status: 0, or 1 if a path has become longer or could not be counted.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter

# name: (operation of the program, the function in which its instructions are counted, what is set in the environment).
# loopback: memory that is reached by commands only, even one's own.
AUTO, SHARED, DELEGATE, OFFLOAD = ({"HEDDLE_SHARING": name} for name in ("auto", "shared", "delegate", "offload"))
EXCLUSIVE = {"HEDDLE_SHARING": "exclusive"}  # where nothing else is said
PATHS = {
    "put_8": ("put", "count_put"),
    "get_8": ("get", "count_get"),
    "fetch_add": ("fetch_add", "count_fetch_add"),
    "am_send_8": ("am", "count_am_send"),
    "am_receive_8": ("am", "count_am_receive"),
    "am_send_64": ("am_64", "count_am_send"),
    "tagged_send_8": ("tagged", "count_send"),
    "tagged_recv_8": ("tagged", "count_recv"),
    "tagged_arrive_8": ("tagged", "count_arrive"),
    "tagged_wait_8": ("tagged", "count_wait"),
    "tagged_send_counted_8": ("counted", "count_send_counted"),
    "tagged_turn_8": ("turn_8", "count_turn"),
    "tagged_turn_64": ("turn_64", "count_turn"),
    "tagged_turn_256": ("turn_256", "count_turn"),
    "quiet_idle": ("tagged", "count_quiet"),
    "progress_idle": ("tagged", "count_idle"),
    "put_8_auto": ("put", "count_put", AUTO),
    "am_send_8_auto": ("am", "count_am_send", AUTO),
    "am_send_64_auto": ("am_64", "count_am_send", AUTO),
    "am_receive_8_auto": ("am", "count_am_receive", AUTO),
    "tagged_send_8_auto": ("tagged", "count_send", AUTO),
    "tagged_recv_8_auto": ("tagged", "count_recv", AUTO),
    "tagged_arrive_8_auto": ("tagged", "count_arrive", AUTO),
    "tagged_turn_8_auto": ("turn_8", "count_turn", AUTO),
    "progress_idle_auto": ("tagged", "count_idle", AUTO),
    "quiet_idle_shared": ("tagged", "count_quiet", SHARED),
    "quiet_idle_delegate": ("tagged", "count_quiet", DELEGATE),
    "put_8_shared": ("put", "count_put", SHARED),
    "am_send_8_shared": ("am", "count_am_send", SHARED),
    "am_receive_8_shared": ("am", "count_am_receive", SHARED),
    "am_send_8_delegate": ("am", "count_am_send", DELEGATE),
    "am_send_8_offload": ("am", "count_am_send", OFFLOAD),
    "am_start_8_offload": ("am", "heddle::worker::Inbox::post_run*", OFFLOAD),
    "get_post_8_offload": ("post_get", "count_post_get*", OFFLOAD | {"HEDDLE_TRANSPORT": "loopback"}),
}
# Over UCX's shared memory, 16 operations and what it takes until they are done: what Heddle adds to UCX. How often it is asked depends on UCX.
UCX = {"HEDDLE_TRANSPORT": "ucx", "HEDDLE_UCX_TLS": "posix"}
UCX_PATHS = {f"ucx_{name}_8": (f"burst_{name}", f"count_burst_{name}", UCX) for name in ("put", "get", "am")}
PATHS |= UCX_PATHS
# Likewise over verbs, whose library does nothing but copy: what Heddle adds to ibv_post_send and ibv_poll_cq. As for utofu, no kernel is asked.
VERBS = {"HEDDLE_TRANSPORT": "verbs", "HEDDLE_REG_CACHE": "watch=0"}
VERBS_PATHS = {f"verbs_{name}_8": (f"burst_{name}", f"count_burst_{name}", VERBS) for name in ("put", "get", "am")}
PATHS |= VERBS_PATHS
# The same over a libfabric that does nothing by itself; main() adds where it is.
OFI = {"HEDDLE_TRANSPORT": "ofi", "HEDDLE_OFI_PROVIDER": "idle"}
OFI_PATHS = {f"ofi_{name}_8": (f"burst_{name}", f"count_burst_{name}", OFI) for name in ("put", "get", "am")}
PATHS |= OFI_PATHS
FOREIGN = re.compile(r"/lib(uc[a-z_]+|idle_verbs|idle_fabric|stdc\+\+|c|pthread|m|dl)[-.]|/ld-linux")
# Of the second program: (operation, the function, on which context).
SHMEM_PATHS = {
    "shmem_put_8": ("put", "count_put", "single"),
    "shmem_put_nbi_8": ("put_nbi", "count_put_nbi", "single"),
    "shmem_p": ("p", "count_p", "single"),
    "shmem_g": ("g", "count_g", "single"),
    "shmem_fetch_add": ("fetch_add", "count_fetch_add", "single"),
    "shmem_put_signal_8": ("put_signal", "count_put_signal", "single"),
    "shmem_quiet": ("quiet", "count_quiet", "single"),
    "shmem_wait_until": ("wait", "count_wait", "single"),
    "shmem_p_default": ("p", "count_p", "default"),
    "shmem_fetch_add_default": ("fetch_add", "count_fetch_add", "default"),
    "shmem_put_8_private": ("put", "count_ctx_put", "private"),
    "shmem_p_private": ("p", "count_ctx_p", "private"),
    "shmem_g_private": ("g", "count_ctx_g", "private"),
    "shmem_fetch_add_private": ("fetch_add", "count_ctx_fetch_add", "private"),
}
# Of the third: (operation, the functions, by which layer). The cache of registrations does not ask the kernel, which cannot be asked
# under valgrind; a look-up is the same.
UTOFU_PATHS = {
    f"utofu_{operation}_{layer}": (operation, f"count_{layer}_*", layer)
    for operation in ("put_8", "put_32", "put_64", "get_64")
    for layer in ("raw", "transport", "api")
}
UTOFU_SETTINGS = {"HEDDLE_TRANSPORT": "utofu", "HEDDLE_REG_CACHE": "watch=0"}
FEW, MANY = 1600, 9600  # both multiples of the program's batch


def own_instructions(text):
    """Of a file of callgrind's: without what ran in the library of the network, in the C library, and in the loader."""
    objects, spent, where, called = {}, Counter(), "", False
    for line in text.splitlines():
        named = re.match(r"(c?ob)=\((\d+)\)(?: (.+))?$", line)
        if named:
            if named[3]:
                objects[named[2]] = named[3]
            if named[1] == "ob":
                where = objects[named[2]]
        elif line.startswith("calls="):
            called = True  # the next line is what the called function and those under it took, counted where they are
        elif re.match(r"[+*0-9-]", line):
            words = line.split()
            if not called and len(words) > 1:
                spent[where] += int(words[1])
            called = False
    return sum(count for name, count in spent.items() if not FOREIGN.search(name))


def instructions(program, operation, function, extra, n, context=()):
    """All of them in `function`; where a library of networks is under it, only those that are not its."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={function}",
                   f"--callgrind-out-file={folder}/out", program, operation, str(n), *context]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | EXCLUSIVE | extra)
        if result.returncode != 0:
            sys.exit(f"count_instructions: {' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
        text = pathlib.Path(folder, "out").read_text()
    found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    if not found or int(found[1]) == 0:
        sys.exit(f"count_instructions: nothing was counted in {function}; is the program stripped?")
    return own_instructions(text) if extra in (UCX, VERBS, OFI) else int(found[1])


def ucx_refuses(program):
    """What the program says where Heddle was built without UCX, or does not find it; empty: it is there."""
    result = subprocess.run([program, "burst_put", "16"], capture_output=True, text=True, timeout=300, env=os.environ | UCX)
    return result.stderr.strip() if result.returncode != 0 else ""


def per_operation(programs, name):
    program, shmem_program, utofu_program, utofu_library = programs
    if name in SHMEM_PATHS:
        operation, function, context = SHMEM_PATHS[name]
        way = (shmem_program, operation, function, {}, (context,))
    elif name in UTOFU_PATHS:
        operation, function, layer = UTOFU_PATHS[name]
        way = (utofu_program, operation, function, UTOFU_SETTINGS | {"HEDDLE_LIBRARIES": f"utofu={utofu_library}"}, (layer,))
    else:
        operation, function, *rest = PATHS[name]
        way = (program, operation, function, rest[0] if rest else {}, ())
    few, many = (instructions(*way[:4], n, way[4]) for n in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def read_limits(path):
    limits = {}
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            limits[words[0]] = float(words[1])
    unknown = sorted(set(limits) ^ set(PATHS | SHMEM_PATHS | UTOFU_PATHS))
    if unknown:
        sys.exit(f"count_instructions: {path} and this script differ in {', '.join(unknown)}")
    return limits


def write_limits(path, counted):
    comments = [line for line in pathlib.Path(path).read_text().splitlines() if line.startswith("#")]
    lines = comments + [f"{name} {value:.1f}" for name, value in counted.items()]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def main(arguments):
    if len(arguments) not in (5, 6) or arguments[5:] not in ([], ["--update"]):
        sys.exit(__doc__)
    program, shmem_program, utofu, networks, path = arguments[:5]
    verbs_library, ofi_library = networks.split(",")
    VERBS["HEDDLE_LIBRARIES"], OFI["HEDDLE_LIBRARIES"] = f"verbs={verbs_library}", f"ofi={ofi_library}"
    utofu_program, _, utofu_library = utofu.partition(",")
    programs = (program, shmem_program, utofu_program, utofu_library)
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is missing")
        return 0
    why_no_ucx = ucx_refuses(program)
    if why_no_ucx:
        print(f"left out, for there is no UCX: {', '.join(UCX_PATHS)}: {why_no_ucx}")
    left_out = UCX_PATHS if why_no_ucx else {}
    for paths, library in ((VERBS_PATHS, verbs_library), (OFI_PATHS, ofi_library)):
        left_out = left_out | (paths if library == "-" else {})
    names = [name for name in PATHS if name not in left_out]
    names += (list(SHMEM_PATHS) if shmem_program != "-" else []) + (list(UTOFU_PATHS) if utofu != "-" else [])
    counted = {name: per_operation(programs, name) for name in names}
    if arguments[5:] == ["--update"]:
        if left_out or "-" in (shmem_program, utofu):
            sys.exit("count_instructions: --update needs all programs, or limits would be lost")
        write_limits(path, counted)
    worse = 0
    for name, limit in read_limits(path).items():
        if name not in counted:
            continue
        verdict = "ok"
        if counted[name] > limit * 1.1 + 2:
            verdict = "TOO LONG"
            worse = 1
        elif counted[name] < limit / 2:
            verdict = "ok; the limit can come down (--update)"
        print(f"{name:24} {counted[name]:8.1f} instructions per operation, limit {limit:.1f}: {verdict}")
    return worse


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
