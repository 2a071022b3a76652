#!/usr/bin/env python3
"""Makes mpi.h and the C functions of the MPI library from functions.txt and constants.txt.

    generate.py TABLE-FOLDER TEMPLATE OUTPUT   writes OUTPUT/include/mpi.h (from TEMPLATE, mpi.h.in), OUTPUT/UNIT.cpp, the C functions,
                                               and OUTPUT/units/UNIT.hpp, the declarations of what they call
    generate.py --names TABLE-FOLDER           prints every function's name, MPI_ and PMPI_
"""

import dataclasses
import pathlib
import re
import sys

# word: (type in MPI_Name, in MPI_Name_c, of the implementation); "[]" stands after the parameter's name in C
LARGE = {
    "count": ("int", "MPI_Count", "MPI_Count"),
    "large": ("MPI_Count", "MPI_Count", "MPI_Count"),
    "unit": ("int", "MPI_Aint", "MPI_Count"),
    "aint": ("MPI_Aint", "MPI_Count", "MPI_Count"),
    "count*": ("int*", "MPI_Count*", "CountOut"),
    "unit*": ("int*", "MPI_Aint*", "CountOut"),
    "aint*": ("MPI_Aint*", "MPI_Count*", "CountOut"),
    "count[]": ("const int[]", "const MPI_Count[]", "CountList"),
    "displ[]": ("const int[]", "const MPI_Aint[]", "CountList"),
    "aint[]": ("const MPI_Aint[]", "const MPI_Count[]", "CountList"),
}
INLINE = {"messages", "requests", "rma"}  # units whose short paths stand in a header of their own
PROTOTYPE = re.compile(r"(?:(?P<result>\w+) )?(?P<name>\w+)\((?P<parameters>.*)\)(?:\s+deprecated (?P<deprecated>[\d.]+))?$")
PARAMETER = re.compile(r"(?P<kind>.*[\s*\]~])(?P<label>\w+)(?P<dimensions>(?:\[\d*\])*)$")


@dataclasses.dataclass
class Function:
    """One C function: its name without MPI_, prototype and unit."""

    name: str
    result: str
    parameters: list  # (type, name, dimensions)
    unit: str
    deprecated: str
    implementation: str

    def declaration(self, prefix, named=True):
        shown = []
        for kind, label, dimensions in self.parameters:
            if kind.endswith("[]"):
                kind, dimensions = kind[:-2], "[]"
            shown.append(f"{kind} {label if named else ''}{dimensions}".rstrip())
        return f"{self.result} {prefix}{self.name}({', '.join(shown) or 'void'});"

    def definition(self):
        arguments = [f'"MPI_{self.name}"'] + [label for kind, label, _ in self.parameters if kind != "..."]
        if self.unit == "unsupported":  # one implementation for all
            arguments = [f'"MPI_{self.name}"'] + [label for kind, label, _ in self.parameters if kind == "MPI_Comm"]
        body = f"return heddle::mpi::{self.implementation}({', '.join(arguments)});"
        parameters = [label for kind, label, _ in self.parameters if kind != "..."]
        unused = "".join(f"  static_cast<void>({label});\n" for label in parameters if label not in arguments)
        head = self.declaration("PMPI_")[:-1]
        alias = f'extern "C" __attribute__((weak, alias("PMPI_{self.name}"))) decltype(PMPI_{self.name}) MPI_{self.name};'
        return f"{head} {{\n{unused}  {body}\n}}\n{alias}\n"


def implementation(name, unit):
    """Comm_split_type is comm_split_type, T_cvar_read t_cvar_read."""
    return "unsupported" if unit == "unsupported" else name.lower()


def units_header(unit, rows):
    """The declarations of the implementations: each row is (name, result, parameters)."""
    lines = []
    for name, result, parameters in rows:
        forms = [0, 1] if any("~" in kind for kind, _, _ in parameters) else [0]
        for which in forms:
            shown = ["Call call"]
            for kind, label, dimensions in parameters:
                if kind == "...":
                    continue
                if kind in LARGE:
                    kind = LARGE[kind][2]
                kind = kind.replace("~", "_c" if which else "")
                shown.append(f"{kind} {label}{dimensions}")
            lines.append(f"{result} {implementation(name, unit)}({', '.join(shown)});")
    body = "\n".join(lines) if unit != "unsupported" else "int unsupported(Call call, MPI_Comm comm = MPI_COMM_NULL);"
    return ("// Made by generate.py from functions.txt.\n#pragma once\n\n#include \"mpi/core/arguments.hpp\"\n\n"
            f"namespace heddle::mpi {{\n\n{body}\n\n}}  // namespace heddle::mpi\n")


def parse(parameters):
    found = []
    for text in filter(None, (part.strip() for part in parameters.split(","))):
        if text == "...":
            found.append(("...", "", ""))
            continue
        match = PARAMETER.match(text)
        found.append((match["kind"].strip(), match["label"], match["dimensions"]))
    return found


def form(parameters, which):
    """The parameters of MPI_Name (0) or MPI_Name_c (1)."""
    made = []
    for kind, label, dimensions in parameters:
        if kind in LARGE:
            kind = LARGE[kind][which]
        elif "~" in kind:
            kind = kind.replace("~", "_c" if which else "")
        made.append((kind, label, dimensions))
    return made


def functions(path):
    """Every C function, and the rows of the table by unit."""
    found = []
    rows = {}
    unit = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            unit = line.strip("[]")
            continue
        try:
            match = PROTOTYPE.match(line)
            name, result = match["name"], match["result"] or "int"
            parameters = parse(match["parameters"])
        except TypeError:
            sys.exit(f"{path}:{number}: {line}: not understood")
        rows.setdefault(unit, []).append((name, result, parameters))
        large = any(kind in LARGE or "~" in kind for kind, _, _ in parameters)
        for which in range(2 if large else 1):
            found.append(Function(name + ("_c" if which else ""), result, form(parameters, which), unit,
                                  match["deprecated"] or "", implementation(name, unit)))
    names = [function.name for function in found]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"{path}: more than once: {', '.join(sorted(twice))}")
    return found, rows


def constants(path):
    """The C text of the constants, and that of the macros that need the callback types."""
    first, last = [], []
    section = ""
    values = []

    def flush():
        if values:
            first.append("enum {\n" + ",\n".join(f"  {name} = {value}" for name, value in values) + "\n};\n")
            values.clear()

    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line == "values" or line == "macros" or line.startswith("handle "):
            flush()
            section = line
            continue
        name, value = line.split(None, 1)
        if section == "values":
            values.append((name, value))
        elif section == "macros":
            (last if "_function" in value else first).append(f"#define {name} {value}")
        else:
            first.append(f"#define {name} (({section[7:]}){value})")
    flush()
    return "\n".join(first), "\n".join(last)


def header(template, table, declared):
    first, last = constants(table / "constants.txt")
    lines = []
    for prefix in ("MPI_", "PMPI_"):
        for function in declared:
            mark = f"HEDDLE_MPI_DEPRECATED(\"{function.deprecated}\") " if function.deprecated else ""
            lines.append(mark + function.declaration(prefix))
    text = template.read_text(encoding="utf-8")
    return text.replace("@CONSTANTS@", first).replace("@CALLBACK_CONSTANTS@", last).replace("@FUNCTIONS@", "\n".join(lines))


def write(path, text):
    """Leaves an equal file as it is, so that nothing is compiled again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if arguments[:1] == ["--names"]:
        for function in functions(pathlib.Path(arguments[1]) / "functions.txt")[0]:
            print(f"MPI_{function.name}\nPMPI_{function.name}")
        return
    table, template, output = map(pathlib.Path, arguments)
    declared, rows = functions(table / "functions.txt")
    for folder in ("include", "units"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    write(output / "include" / "mpi.h", header(template, table, declared))
    for unit in rows:
        write(output / "units" / f"{unit}.hpp", units_header(unit, rows[unit]))
        include = f"mpi/inline/{unit}.hpp" if unit in INLINE else f"units/{unit}.hpp"
        text = f'// Made by generate.py from functions.txt.\n#include "{include}"\n\n'
        text += "\n".join(function.definition() for function in declared if function.unit == unit)
        write(output / f"{unit}.cpp", text)


if __name__ == "__main__":
    main(sys.argv[1:])
