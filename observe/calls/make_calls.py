#!/usr/bin/env python3
"""Makes the wrappers of MPI's or OpenSHMEM's functions, which note each call in the picture of a traced job, from the interface's table.

    make_calls.py mpi|shmem INTERFACE OUTPUT    INTERFACE: interfaces/mpi or interfaces/openshmem; OUTPUT: a C file
"""

import importlib.util
import pathlib
import re
import sys

sys.dont_write_bytecode = True

# Answered from this process's memory, without waiting: what programs ask again and again. MPI_Initialized and MPI_Finalized may also be asked
# where there is no MPI.
LEFT_OUT = {
    "mpi": r"Abi_.*|Aint_.*|.*_(to|from)int|T_.*|Wtime|Wtick|Initialized|Finalized|Query_thread"
           r"|Is_thread_main|Get_(address|count|elements|elements_x|version|library_version|processor_name|hw_resource_info)"
           r"|Status_.*|Test_cancelled|Error_(class|string)|(Comm|Group|Type)_(rank|size|size_x)|Comm_(remote_size|test_inter|get_parent)"
           r"|Type_get_(extent|true_extent)(_x)?|(Comm|Type|Win)_(get_attr|get_name)|Attr_get|Op_commutative|Topo_test|Pcontrol",
    "shmem": r"_?my_pe|_num_pes|n_pes|ptr|pcontrol|(pe|addr)_accessible|query_thread|query_initialized|info_get_.*"
             r"|team_(my_pe|n_pes|ptr|translate_pe|get_config)|ctx_get_team|signal_fetch|.*_cache_.*|udcflush(_line)?",
}
# In these the job may be joined or left.
SET_UP = r"(MPI_(Init|Init_thread|Finalize|Session_init|Session_finalize)|shmem_(init|init_thread|finalize)|start_pes)$"
# Calls that look whether something has happened, and how to see that they have found it.
POLLS = (
    (r"MPI_(Test(all|any)?|Iprobe|Improbe|Parrived|Win_test|Request_get_status(_all|_any)?)$", "flag != 0 && *flag != 0"),
    (r"MPI_(Testsome|Request_get_status_some)$", "outcount != 0 && *outcount != 0"),
    (r"shmem_\w+_test_any(_vector)?$", "returned != SIZE_MAX"),
    (r"shmem_(\w+_)?test(_all|_some)?(_vector)?$", "returned != 0"),
    (r"shmem_test_lock$", "returned == 0"),
)
# What the handle that a pointer leads to is, before the call.
GIVEN_BY_POINTER = r"MPI_(Wait|Test|Start|Cancel|Type_commit|Imrecv(_c)?|Mrecv(_c)?|Comm_disconnect|\w+_free)$"

INTEGERS = {"int", "short", "long", "long long", "char", "signed char", "int8_t", "int16_t", "int32_t", "int64_t", "ptrdiff_t", "MPI_Aint",
            "MPI_Count", "MPI_Offset", "MPI_Fint"}
UNSIGNED = {"unsigned char", "unsigned short", "unsigned int", "unsigned long", "unsigned long long", "uint8_t", "uint16_t", "uint32_t",
            "uint64_t", "size_t"}
FLOATS = {"float", "double", "long double"}
HANDLES = {"MPI_" + kind for kind in ("Op", "Comm", "Group", "Win", "File", "Session", "Message", "Info", "Errhandler", "Request", "Datatype")}
# The letter of the format (calls.h), and the constants that are shown by name.
NAMES = {
    "mpi": {"H": r"handle", "B": r"MPI_(BOTTOM|IN_PLACE|BUFFER_AUTOMATIC)", "r": r"MPI_(ANY_SOURCE|PROC_NULL|ROOT)", "t": r"MPI_ANY_TAG"},
    "shmem": {"C": r"SHMEM_CTX_(INVALID|DEFAULT)", "T": r"SHMEM_TEAM_(INVALID|WORLD|SHARED)", "c": r"SHMEM_CMP_\w+",
              "s": r"SHMEM_SIGNAL_(SET|ADD)"},
}
RANKS = r"dest|source|root|rank|target_rank|PE_root"
# Buffers, and what else says little, come last.
LATE = r"request|info|errhandler|session|result_\w+|base|baseptr"


def load_table(interface):
    """The module that makes the interface's own sources."""
    spec = importlib.util.spec_from_file_location("table", interface / "table" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["table"] = module
    spec.loader.exec_module(module)
    return module


def read_functions(kind, interface):
    """(name, result, [(type, parameter, dimensions)]) of each function."""
    table, path = load_table(interface), interface / "table" / "functions.txt"
    if kind == "shmem":
        return [(f.name, f.result, [(of, label, "") for of, label in f.parameters]) for f in table.Table(path).functions]
    return [("MPI_" + f.name, f.result, f.parameters) for f in table.functions(path)[0]]


def read_constants(kind, interface):
    """{letter: {value: name}} of the constants that are shown by name."""
    found = {letter: {} for letter in NAMES[kind]}
    if kind == "shmem":
        text = (interface / "include" / "shmem.h.in").read_text(encoding="utf-8")
        rows = re.findall(r"^#define (SHMEM_\w+) \(*(?:shmem_\w+\))?(\d+)", text, re.MULTILINE)
        rows = [("", name, value) for name, value in rows]
    else:
        rows, section = [], ""
        for line in (interface / "table" / "constants.txt").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words and words[0] in ("handle", "values", "macros"):
                section = words[-1]
            elif len(words) == 2 and not line.startswith("#"):
                rows.append((section, words[0], re.sub(r"^\(\(void\*\)(\d+)\)$", r"\1", words[1])))
    for section, name, value in rows:
        for letter, pattern in NAMES[kind].items():
            if section in HANDLES if pattern == "handle" else re.fullmatch(pattern, name):
                found[letter].setdefault(int(value, 0), name)
    return found


def shown(name, of, label, dimensions, index=0):
    """(order, format, C expression) of an argument; None: it says nothing."""
    if dimensions or of.endswith("[]") or of.endswith("~"):
        return None
    order = 1 if re.fullmatch(LATE, label) else 0
    if of in HANDLES:
        return order, "H", f"(long long)(intptr_t){label}"
    if of in ("shmem_ctx_t", "shmem_team_t"):
        return order, "C" if of == "shmem_ctx_t" else "T", f"(long long)(intptr_t){label}"
    if of in INTEGERS or of in UNSIGNED or of == "const int":
        letter = "u" if of in UNSIGNED else "i"
        if name.startswith("MPI_"):
            letter = "r" if re.fullmatch(RANKS, label) else "t" if re.fullmatch(r"\w*tag", label) else letter
        elif label in ("cmp", "sig_op"):
            letter = label[0]
        return order, letter, f"({'unsigned ' if letter == 'u' else ''}long long){label}"
    if of in FLOATS:
        return order, "f", f"(double){label}"
    if of.endswith("*") and of[:-1] in HANDLES and re.fullmatch(GIVEN_BY_POINTER, name):
        return 0, "H", f"(long long)(intptr_t)its_{label}"
    if re.fullmatch(r"(const )?void\*", of) and name.startswith("MPI_") and re.search(r"buf|addr$|base$", label):
        return 2, "B", f"(long long)(intptr_t){label}"
    if of.endswith("*") and not name.startswith("MPI_") and label not in ("pSync", "pWrk", "config", "status", "indices", "provided"):
        return 2, "p", f"(const void*){label}"
    return None


def arguments_of(name, parameters):
    """What heddle_calls_begin takes after the name."""
    items = [(label, item) for of, label, dimensions in parameters if (item := shown(name, of, label, dimensions)) is not None]
    items.sort(key=lambda entry: entry[1][0])
    text = " ".join(f"{label}={item[1]}" for label, item in items)
    return ", ".join([f'"{name}"', f'"{text}"', *(item[2] for _, item in items)])


def wrapper(name, result, parameters):
    declared, types, passed = [], [], []
    for of, label, dimensions in parameters:
        if of.endswith("[]"):
            of, dimensions = of[:-2], "[]"
        declared.append(f"{of} {label}{dimensions}")
        passed.append(label)
    head = f"{result} {name}({', '.join(declared) or 'void'})"
    call = f"((__typeof__(&{name}))real)({', '.join(passed)})"
    lines = [f"{head} {{", f'  HEDDLE_CALLS_REAL("{name}");']
    returns = result != "void"
    keep = f"{result} returned = {call};" if returns else f"{call};"
    back = ["  return returned;"] if returns else []
    if re.match(SET_UP, name):
        return "\n".join([*lines, f'  heddle_calls_enter("{name}");', f"  {keep}", f'  heddle_calls_leave("{name}");', *back, "}\n"])
    lines.append(f"  if (!HEDDLE_CALLS_ON) {'return ' + call if returns else f'{{ {call}; return; }}'};".replace("};", "}"))
    if re.fullmatch(GIVEN_BY_POINTER, name):
        lines += [f"  const {of[:-1]} its_{label} = {label} != 0 ? *{label} : 0;" for of, label, _ in parameters
                  if of.endswith("*") and of[:-1] in HANDLES]
    begin = f"heddle_calls_begin({arguments_of(name, parameters)})"
    found = next((seen for pattern, seen in POLLS if re.match(pattern, name)), None)
    if found is None:
        lines += [f"  const uint64_t begun = {begin};", f"  {keep}", f'  heddle_calls_end("{name}", begun);']
    else:
        lines += [f'  const int again = heddle_calls_again("{name}");', f"  uint64_t begun = again ? 0 : {begin};", f"  {keep}",
                  f"  const int found = {found};", f"  if (again && found) begun = {begin};", f'  heddle_calls_end("{name}", begun);',
                  f'  heddle_calls_polled("{name}", found);']
    return "\n".join([*lines, *back, "}\n"])


def names_text(constants):
    lines, rows = [], []
    for letter, names in constants.items():
        first, count = min(names), max(names) - min(names) + 1
        entries = ", ".join(f'[{value - first}] = "{names[value]}"' for value in sorted(names))
        lines.append(f"static const char* const names_{letter}[{count}] = {{{entries}}};")
        rows.append(f"    {{'{letter}', {first}, {count}, names_{letter}}},")
    return "\n".join([*lines, "const struct heddle_calls_names heddle_calls_names[] = {", *rows, "    {0, 0, 0, 0}};\n"])


def calls(kind, interface):
    """The C text."""
    headers = ["mpi.h"] if kind == "mpi" else ["shmem.h", "shmemx.h"]
    chosen = []
    for name, result, parameters in read_functions(kind, interface):
        bare = re.sub(r"^(MPI_|shmemx?_)", "", name)
        if any(of == "..." for of, _, _ in parameters) or re.fullmatch(LEFT_OUT[kind], re.sub(r"_c$", "", bare)):
            continue
        chosen.append(wrapper(name, result, parameters))
    head = ["/* Made by observe/calls/make_calls.py. */", "#define SHMEM_NO_GENERIC", '#include "calls.h"',
            *(f"#include <{header}>" for header in headers), ""]
    return "\n".join([*head, names_text(read_constants(kind, interface)), *chosen])


def main(arguments):
    if len(arguments) != 3 or arguments[0] not in LEFT_OUT:
        print(__doc__, file=sys.stderr)
        return 2
    kind, interface, output = arguments[0], pathlib.Path(arguments[1]), pathlib.Path(arguments[2])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(calls(kind, interface), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
