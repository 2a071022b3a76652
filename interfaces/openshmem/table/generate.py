#!/usr/bin/env python3
"""Makes the OpenSHMEM headers and definitions from functions.txt.

    generate.py TABLE TEMPLATES OUTPUT     writes OUTPUT/include/{shmem,pshmem,shmemx,pshmemx}.h and OUTPUT/UNIT.cpp
    generate.py --cases TABLE OUTPUT UNIT…  writes a CASE(OP, TYPE, FUNCTION, FUNCTION-WITH-CONTEXT or nullptr) for every typed
                                           and sized function of these units (for tests)
"""

import dataclasses
import pathlib
import re
import sys

PROTOTYPE = re.compile(r"(?P<result>[\w ]+?\**)\s*(?P<bare>!?)(?P<name>[\w{}]+)\((?P<parameters>.*)\)(?:\s*=\s*(?P<what>.+))?$")


# Names of a type under which it may stand in a selection only once: those of the LP64 systems that Heddle runs on.
SAME_TYPE = {
    "int8_t": "signed char", "int16_t": "short", "int32_t": "int", "int64_t": "long", "uint8_t": "unsigned char",
    "uint16_t": "unsigned short", "uint32_t": "unsigned int", "uint64_t": "unsigned long", "size_t": "unsigned long",
    "ptrdiff_t": "long",
}


@dataclasses.dataclass
class Function:
    """One C function: its name, prototype and what its definition calls."""

    name: str
    result: str
    parameters: list  # (type, name)
    unit: str
    what: str
    context: str  # "": the operation knows none; "World{}": the default context; "ctx": a parameter
    extension: bool
    cast: str  # of void pointers: the type of what they point to; "" none

    @property
    def profiling(self):
        return "p" + self.name

    def declaration(self, name):
        parameters = ", ".join(f"{kind} {label}".rstrip() for kind, label in self.parameters) or "void"
        return f"{self.result} {name}({parameters});"

    def definition(self):
        arguments = [f'"{self.name}"']
        if self.context:
            arguments.append("context_of(ctx)" if self.context == "ctx" else self.context)
        for kind, label in self.parameters:
            if label == self.context == "ctx" or kind == "...":
                continue
            if self.cast and kind == "void*":
                label = f"static_cast<{self.cast}*>({label})"
            elif self.cast and kind == "const void*":
                label = f"static_cast<const {self.cast}*>({label})"
            arguments.append(label)
        head = self.declaration(self.profiling)[:-1]
        alias = f'extern "C" __attribute__((weak, alias("{self.profiling}"))) decltype({self.profiling}) {self.name};'
        return f"{head} {{\n  return heddle::shmem::{self.what}({', '.join(arguments)});\n}}\n{alias}\n"


@dataclasses.dataclass
class Generic:
    """A name that selects among functions by the type of an argument."""

    name: str
    extension: bool
    position: int  # of the argument that decides, in the form without context
    with_context: bool
    result: str
    parameters: list  # with T
    typed: list  # (TYPE, function, function with context or None)


def split_parameters(text):
    if text.strip() in ("", "void"):
        return []
    found = []
    for parameter in text.split(","):
        if parameter.strip() == "...":
            found.append(("...", ""))  # what the definition does not pass on
            continue
        kind, label = re.match(r"\s*(.*?[\s*])(\w+)\s*$", parameter).groups()
        found.append((kind.strip(), label))
    return found


def with_type(text, kind):
    return re.sub(r"\bT\b", kind, text)


class Table:
    def __init__(self, path):
        self.types = {}
        self.functions = []
        self.generics = {}
        self.cases = []  # (unit, what is called, type, function, function with context)
        section = None
        for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").splitlines(), 1):
            line = line.strip()
            try:
                if not line or line.startswith("#"):
                    continue
                if line.startswith("types "):
                    name, rest = line[6:].split(":", 1)
                    self.types[name.strip()] = [entry.strip().split("=", 1) for entry in rest.split(";")]
                elif line.startswith("["):
                    section = self.section(line)
                else:
                    self.prototype(line, **section)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                sys.exit(f"{path}:{number}: {line}: not understood ({error!r})")
        names = [function.name for function in self.functions]
        if twice := {name for name in names if names.count(name) > 1}:
            sys.exit(f"{path}: more than once: {', '.join(sorted(twice))}")

    @staticmethod
    def section(line):
        words = line.strip("[]").split()
        flags = {word for word in words[1:] if "=" not in word}
        unit = next(word[5:] for word in words if word.startswith("unit="))
        kind = words[0]
        types = None if kind == "plain" else words[1]
        return {"kind": kind, "types": types, "flags": flags, "unit": unit}

    def prototype(self, line, kind, types, flags, unit):
        match = PROTOTYPE.match(line)
        result, name, what = match["result"].strip(), match["name"], match["what"]
        parameters = split_parameters(match["parameters"])
        extension = "shmemx" in flags
        prefix = "" if match["bare"] else "shmemx_" if extension else "shmem_"
        rows = [("", "")] if kind == "plain" else self.types[types]
        typed = []
        for label, of in rows:
            if kind == "plain":
                stem, cast, made, returns = name, "", parameters, result
            elif kind == "sized":
                stem, cast, returns = name.replace("{}", label), of, result
                made = [("const void*" if p == "const T*" else "void*" if p == "T*" else p, n) for p, n in parameters]
            else:
                stem, cast, returns = f"{label}_{name}", "", with_type(result, of)
                made = [(with_type(p, of), n) for p, n in parameters]
            call = what or name
            context = "World{}" if "ctx" in flags or (what and unit == "atomics") else ""
            plain = Function(prefix + stem, returns, made, unit, call, context, extension, cast)
            self.functions.append(plain)
            other = None
            if "ctx" in flags:
                other = Function(f"{prefix}ctx_{stem}", returns, [("shmem_ctx_t", "ctx"), *made], unit, call, "ctx",
                                 extension, cast)
                self.functions.append(other)
            typed.append((of, plain.name, other.name if other else None))
        if kind != "plain":
            self.cases += [(unit, call, *row) for row in typed]
        if "generic" in flags:
            position = 0 if kind == "plain" else next(
                i for i, (p, _) in enumerate(parameters) if p in ("T*", "const T*"))
            generic = self.generics.setdefault(
                prefix + name, Generic(prefix + name, extension, position, "ctx" in flags, result, parameters, []))
            # Types of one set that are the same type under two names may not both stand in a selection.
            known = {SAME_TYPE.get(of, of) for of, _, _ in generic.typed}
            for row in typed:
                same = SAME_TYPE.get(row[0], row[0])
                if same not in known:
                    known.add(same)
                    generic.typed.append(row)


def selection_c(generic):
    """The C11 macro."""

    if generic.typed[0][0] == "":  # not typed: only whether a context is given
        _, plain, with_context = generic.typed[0]
        return (f"#define {generic.name}(...) \\\n  _Generic((SHMEM_IMPL_1ST(__VA_ARGS__, 0)), shmem_ctx_t: {with_context}, "
                f"default: {plain})(__VA_ARGS__)\n")

    def rows(which):
        return ", \\\n".join(f"      SHMEM_IMPL_POINTER({of}, {functions[which]})" for of, *functions in generic.typed)

    if generic.with_context:
        body = (f"_Generic((SHMEM_IMPL_1ST(__VA_ARGS__, 0)), \\\n    shmem_ctx_t: _Generic((SHMEM_IMPL_2ND(__VA_ARGS__, 0, 0)), \\\n"
                f"{rows(1)}, \\\n      default: shmem_impl_no_such_type), \\\n{rows(0)})")
    else:
        place = "SHMEM_IMPL_1ST(__VA_ARGS__, 0)" if generic.position == 0 else "SHMEM_IMPL_2ND(__VA_ARGS__, 0, 0)"
        body = f"_Generic(({place}), \\\n{rows(0)})"
    return f"#define {generic.name}(...) \\\n  {body}(__VA_ARGS__)\n"


def overloads_cpp(generic, plain):
    """The C++ overloads. One whose name and type is a C function's already is left out."""
    lines = []
    for of, function, with_context in generic.typed:
        made = [(with_type(p, of), n) for p, n in generic.parameters]
        result = with_type(generic.result, of)
        for name, extra in ((function, []), (with_context, [("shmem_ctx_t", "ctx")])):
            parameters = extra + made
            if name is None or (generic.name, [p for p, _ in parameters]) in plain:
                continue
            declared = ", ".join(f"{p} {n}" for p, n in parameters)
            passed = ", ".join(n for _, n in parameters)
            lines.append(f"static inline {result} {generic.name}({declared}) {{ return {name}({passed}); }}")
    return "\n".join(lines) + "\n"


STD_COMPLEX = {"shmem_impl_complexf": "std::complex<float>", "shmem_impl_complexd": "std::complex<double>"}


def overloads_complex(functions, generics):
    """The C++ overloads for std::complex: of the functions of complex types, and of what selects among them."""
    lines = []
    by_name = {function.name: function for function in functions}
    pairs = [(function.name, function) for function in functions]
    pairs += [(generic.name, by_name[name]) for generic in generics for _, name, _ in generic.typed]
    for name, function in pairs:
        declared, passed = [], []
        for kind, label in function.parameters:
            theirs = re.sub(r"shmem_impl_complex[fd]", lambda match: STD_COMPLEX[match[0]], kind)
            declared.append(f"{theirs} {label}")
            passed.append(label if theirs == kind else f"reinterpret_cast<{kind}>({label})")
        if declared != [f"{kind} {label}" for kind, label in function.parameters]:
            lines.append(f"static inline {function.result} {name}({', '.join(declared)}) "
                         f"{{ return {function.name}({', '.join(passed)}); }}")
    return "\n".join(lines)


def headers(table, templates):
    plain = [(function.name, [p for p, _ in function.parameters]) for function in table.functions]
    for header, extension in (("shmem.h", False), ("shmemx.h", True)):
        functions = [function for function in table.functions if function.extension == extension]
        generics = [generic for generic in table.generics.values() if generic.extension == extension]
        parts = {
            "@functions@": "\n".join(function.declaration(function.name) for function in functions),
            "@c_selections@": "\n".join(selection_c(generic) for generic in generics),
            "@cpp_overloads@": "\n".join(
                [*(overloads_cpp(generic, plain) for generic in generics), overloads_complex(functions, generics)]),
        }
        text = (templates / f"{header}.in").read_text(encoding="utf-8")
        for mark, part in parts.items():
            text = text.replace(mark, part)
        yield header, text
        profiling = "\n".join(function.declaration(function.profiling) for function in functions)
        text = (templates / "pshmem.h.in").read_text(encoding="utf-8")
        yield "p" + header, text.replace("@header@", header).replace("@HEADER@", header.upper().replace(".", "_")).replace(
            "@functions@", profiling)


def definitions(table):
    for unit in dict.fromkeys(function.unit for function in table.functions):
        functions = [function for function in table.functions if function.unit == unit]
        head = (f'// Generated from interfaces/openshmem/table/functions.txt.\n#include "openshmem/{unit}.hpp"\n\n'
                "#define SHMEM_NO_GENERIC\n#include <pshmem.h>\n#include <pshmemx.h>\n\n"
                'using namespace heddle::shmem;  // NOLINT: the definitions of its public face\n\nextern "C" {\n')
        body = "\n".join(function.definition() for function in functions)
        yield f"{unit}.cpp", f"{head}\n{body}\n}}\n"


def write(path, text):
    """Leaves a file alone that is as it should be, so that nothing is built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if len(arguments) > 3 and arguments[0] == "--cases":
        cases = [case for case in Table(arguments[1]).cases if case[0] in arguments[3:]]
        lines = [f"CASE({what}, {of}, {plain}, {other or 'nullptr'})\n" for _, what, of, plain, other in cases]
        write(pathlib.Path(arguments[2]), "".join(lines))
        return 0
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    table, templates, output = arguments[0], pathlib.Path(arguments[1]), pathlib.Path(arguments[2])
    table = Table(table)
    for name, text in headers(table, templates):
        write(output / "include" / name, text)
    for name, text in definitions(table):
        write(output / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
