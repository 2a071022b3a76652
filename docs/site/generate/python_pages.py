"""The reference pages of Python, read from the package's sources and the stub of its module; nothing is imported."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pathlib
import re

from . import text
from .across import Across
from .c_pages import c_links, elsewhere
from .headers import Names, python_role

PAGES = {
    "Jobs and memory": ("context", ["Context", "Region", "RemoteRegion"]),
    "Workers and requests": ("worker", ["Worker", "Request", "Envelope", "Message", "Sharing", "Compare", "Status", "ANY", "Buffer"]),
    "Teams, collective and partitioned operations": ("team", ["Team", "Collective", "Partitioned"]),
}
_FIELD = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*|[A-Z]\w*(?:Error|TimedOut)|TimedOut): (?P<text>.*)$")


@dataclasses.dataclass
class Package:
    classes: dict[str, ast.ClassDef]
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]  # of a module
    modules: dict[str, str]  # name -> docstring
    exported: list[str]


def read(package: pathlib.Path, stub: pathlib.Path) -> Package:
    read_in = Package({}, {}, {}, [])
    for name, path in (("_heddle", stub), *((path.stem, path) for path in sorted(package.glob("*.py")))):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        read_in.modules[name] = ast.get_docstring(tree) or ""
        public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
        read_in.functions[name] = [node for node in public if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        read_in.classes |= {node.name: node for node in public if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                read_in.exported = ast.literal_eval(node.value)
    return read_in


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef) and (not one.name.startswith("_") or one.name == "__init__")]


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) == "property" for one in node.decorator_list)


def is_enum(node: ast.ClassDef) -> bool:
    return any("Enum" in ast.unparse(one) for one in node.bases)


def is_error(node: ast.ClassDef) -> bool:
    return node.name == "HeddleError" or any(ast.unparse(one) == "HeddleError" for one in node.bases)


def public_names(package: Package) -> set[str]:
    """What the table of names has to list: exported classes with their methods, and constants; errors apart."""
    found: set[str] = set()
    for name in package.exported:
        node = package.classes.get(name)
        if node is None:
            found |= {name} - {"Buffer"}
        elif not is_error(node):
            found |= {name} | {f"{name}.{one.name}" for one in methods(node) if one.name != "__init__"}
    return found


def register(package: Package, names: Names) -> None:
    """The names to which other pages may link."""
    for name in package.exported:
        node = package.classes.get(name)
        names.python[name] = python_role(name, "class" if node else "data")
        if node and is_error(node):
            names.python[name] = python_role(name, "exc")
        for one in methods(node) if node else []:
            names.python[f"{name}.{one.name}"] = python_role(f"{name}.{one.name}", "attr" if is_property(one) else "meth")
    for one in methods(package.classes["Operations"]):
        names.python[f"Team.{one.name}"] = python_role(f"Team.{one.name}", "meth")
    names.python["library_version"] = python_role("library_version", "data")
    for function in package.functions["aio"]:
        names.python[f"aio.{function.name}"] = python_role(f"aio.{function.name}", "func")


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> str:
    arguments = ast.unparse(node.args)
    if method:
        arguments = re.sub(r"^(self|cls)(, /)?(, )?", "", arguments)
    returns = ast.unparse(node.returns) if node.returns else ""
    returns = returns.replace("_Result", "None | Collective").strip("'")
    said = f"({arguments})" + (f" -> {returns}" if returns and node.name != "__init__" else "")
    said = said.replace("heddle.types.Buffer", "Buffer").replace("heddle.types.Shape", "int | Sequence[int]")
    return said.replace("18446744073709551615", "0xffffffffffffffff").replace("4294967295", "0xffffffff")


class PythonPages:
    def __init__(self, package: Package, names: Names, across: Across) -> None:
        self.package = package
        self.names = names
        self.across = across

    def said(self, doc: str | None, parameters: list[str]) -> list[str]:
        """A docstring; lines such as `timeout: seconds` become fields."""
        plain: list[str] = []
        fields: list[str] = []
        for line in inspect.cleandoc(doc or "").splitlines():
            match = _FIELD.match(line)
            listed = match["names"].split(", ") if match else []
            if match and (match["names"][0].isupper() or all(one in parameters for one in listed)):
                body = text.inline(match["text"], self.names.in_python)
                kind = "raises" if match["names"][0].isupper() else "param"
                fields += [f":{kind} {one}: {body}" for one in listed]
            else:
                plain.append(line)
        made = text.to_rst(plain, self.names.in_python)
        return made + ([*fields, ""] if fields else [])

    def in_c(self, name: str) -> list[str]:
        return elsewhere([("C", c_links(self.across.from_python.get(f"heddle.{name}", [])))])

    def method(self, owner: str, node: ast.FunctionDef) -> list[str]:
        name = f"{owner}.{node.name}"
        parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        body = text.indented(self.said(ast.get_docstring(node), parameters) + self.in_c(name), 3)
        if is_property(node):
            kind = ast.unparse(node.returns) if node.returns else ""
            return [f".. py:property:: {node.name}", f"   :type: {kind}" if kind else "", "", *body]
        return [f".. py:method:: {node.name}{_parameters(node, method=True)}", "", *body]

    def one_class(self, name: str) -> list[str]:
        node = self.package.classes[name]
        init = next((one for one in methods(node) if one.name == "__init__"), None)
        signature = _parameters(init, method=True) if init and not is_error(node) else ""
        kind = "exception" if is_error(node) else "class"
        made = [f".. py:{kind}:: {name}{signature}", ""]
        if is_error(node) and (bases := [ast.unparse(one) for one in node.bases]):
            made += [f"   Bases: {', '.join(self.names.in_python(one) or f':py:exc:`{one}`' for one in bases)}", ""]
        parameters = [one.arg for one in (*init.args.args, *init.args.kwonlyargs)] if init else []
        inside = self.said(ast.get_docstring(node), []) + (self.said(ast.get_docstring(init), parameters) if init else [])
        inside += self.in_c(name)
        if name == "Team":
            inside += self.said(ast.get_docstring(self.package.classes["Operations"]), [])
        inside += self.enumerators(node) if is_enum(node) else []
        for one in methods(node):
            if one.name != "__init__":
                inside += self.method(name, one)
        if name == "Team":
            for one in methods(self.package.classes["Operations"]):
                if one.name != "__init__":
                    inside += self.method(name, one)
        return made + text.indented(inside, 3)

    def enumerators(self, node: ast.ClassDef) -> list[str]:
        made: list[str] = []
        for place, one in enumerate(node.body):
            if isinstance(one, ast.Assign):
                following = node.body[place + 1] if place + 1 < len(node.body) else None
                doc = following.value.value if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) else ""
                made += [f".. py:attribute:: {ast.unparse(one.targets[0])}", f"   :value: {ast.unparse(one.value)}", ""]
                made += text.indented(self.said(str(doc), []), 3)
        return made

    def plain(self, name: str) -> list[str]:
        said = {"ANY": "For ``source`` and ``source_worker``: anybody.",
                "Buffer": "What is accepted as memory: the buffer protocol, DLPack on a CPU, ``__array_interface__``; contiguous."}[name]
        return [f".. py:data:: {name}", "", "   " + said, ""]

    def functions(self, module: str) -> list[str]:
        made: list[str] = []
        for node in self.package.functions[module]:
            parameters = [one.arg for one in node.args.args]
            kind = "\n   :async:" if isinstance(node, ast.AsyncFunctionDef) else ""
            made += [f".. py:function:: {node.name}{_parameters(node, method=False)}{kind}", ""]
            made += text.indented(self.said(ast.get_docstring(node), parameters), 3)
        return made

    def write(self, out: pathlib.Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        errors = [name for name in self.package.exported if name in self.package.classes and is_error(self.package.classes[name])]
        placed = {name for _, names in PAGES.values() for name in names} | set(errors)
        if missing := set(self.package.exported) ^ placed:
            raise SystemExit(f"the pages of Python and heddle.__all__ differ: {', '.join(sorted(missing))}")
        module = [".. py:currentmodule:: heddle", ""]
        for title, (page, names) in PAGES.items():
            made = [*module, *text.heading(title, "=")]
            for name in names:
                made += [*text.heading(name, "-"), *(self.one_class(name) if name in self.package.classes else self.plain(name))]
            (out / f"{page}.rst").write_text("\n".join(made), encoding="utf-8")
        made = [*module, *text.heading("Errors", "="), *self.said(self.package.modules["errors"], [])]
        for name in errors:
            made += self.one_class(name)
        (out / "errors.rst").write_text("\n".join(made), encoding="utf-8")
        for name, title in (("aio", "asyncio: heddle.aio"), ("run", "Starting jobs: heddle.run")):
            made = [f".. py:module:: heddle.{name}", "", *text.heading(title, "=")]
            made += self.said(self.package.modules[name], []) + self.functions(name)
            (out / f"{name}.rst").write_text("\n".join(made), encoding="utf-8")
        made = [".. py:module:: heddle", "", *text.heading("Python", "="), *self.said(self.package.modules["__init__"], [])]
        made += [".. py:data:: library_version", "   :type: tuple[int, int, int]", "", "   Of the library that is loaded: major, minor, patch.", ""]
        made += elsewhere([("C", c_links(self.across.from_python.get("heddle.library_version", [])))])
        pages = [page for page, _ in PAGES.values()]
        made += [".. toctree::", "   :maxdepth: 1", "", *(f"   {page}" for page in (*pages, "errors", "aio", "run")), ""]
        (out / "index.rst").write_text("\n".join(made), encoding="utf-8")
