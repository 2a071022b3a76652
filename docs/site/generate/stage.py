"""Lays out what Sphinx reads: links to the documents where they are, and the pages that are made from sources.

    python -m generate.stage ROOT OUTPUT [--tool HEDDLE] [--repository URL]

A document or file to which a page leads is a page too, unless URL says where the repository can be read.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil

from . import commands, headers, python_pages, shmem_pages
from .across import Across, add_cpp, add_operations, add_python, add_shmem
from .c_pages import CPages, CppPages, across_page, write_c, write_cpp
from .headers import read_c, read_cpp

LINK = re.compile(r"(?P<head>\[[^\]]*\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.M | re.S)
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "c", ".c": "c", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}
INCLUDE = re.compile(r"<!-- include (?P<path>\S+) \"(?P<after>[^\"]+)\" \"(?P<before>[^\"]+)\" -->")
# Pages in any case, wherever the repository is.
ALWAYS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "packaging/README.md"]
# Folders whose pages stand below their README, and which those are.
SHELVES = {"docs/decisions/README.md": "0*", "docs/journal/README.md": "[a-z]*"}
SHELF = "\n```{{toctree}}\n:hidden:\n:glob:\n\n{}\n```\n"


class Stage:
    """The documents of the repository as pages. Links between them lead to pages; a file that one leads to becomes a page."""

    def __init__(self, root: pathlib.Path, out: pathlib.Path, repository: str) -> None:
        self.root = root
        self.out = out
        self.repository = repository
        self.pages: dict[str, str] = {}  # path in the repository -> page, with suffix
        self.queue: list[str] = []

    def place(self, path: str) -> str | None:
        """Where the file or folder is on the site; None: only in the repository."""
        file = self.root / path
        if file.is_dir():
            inside = f"{path}/README.md"
            return self.place(inside) if (self.root / inside).is_file() else self.folder(path)
        if path in self.pages:
            return self.pages[path]
        if not file.is_file():
            raise SystemExit(f"a page leads to {path}, which does not exist")
        parts = pathlib.PurePosixPath(path)
        if path.startswith("docs/") and parts.suffix == ".md":
            page = path.removeprefix("docs/").removeprefix("site/")
        elif path.startswith("include/heddle/"):
            stem = "index" if path.endswith("/heddle.h") else parts.stem
            self.pages[path] = f"reference/{'cpp' if parts.suffix == '.hpp' else 'c'}/{stem}.rst"
            return self.pages[path]
        elif self.repository and path not in ALWAYS:
            return None
        elif parts.suffix == ".md":
            page = f"project/{path}"
        else:
            page = f"files/{path}.md"
        self.pages[path] = page
        if parts.suffix == ".md":
            self.queue.append(path)
        else:
            self.wrap(page, path)
        return page

    def raw(self, path: str) -> None:
        """A file that pages include."""
        (self.out / "_raw" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.root / path, self.out / "_raw" / path)

    def wrap(self, page: str, path: str) -> None:
        """A file that is no document: its text, as code."""
        self.raw(path)
        language = LANGUAGES.get(pathlib.PurePosixPath(path).suffix, "text")
        self.write(page, f"# {path}\n\n```{{literalinclude}} /_raw/{path}\n:language: {language}\n```\n")

    def folder(self, path: str) -> str | None:
        if self.repository:
            return None
        page = self.pages[path] = f"files/{path}/index.md"
        listed = sorted(one.name + ("/" if one.is_dir() else "") for one in (self.root / path).iterdir())
        self.write(page, f"# {path}/\n\n" + "\n".join(f"* `{one}`" for one in listed) + "\n")
        return page

    def write(self, page: str, content: str) -> None:
        (self.out / page).parent.mkdir(parents=True, exist_ok=True)
        (self.out / page).write_text(content, encoding="utf-8")

    def documents(self) -> None:
        """Writes every page that can be reached."""
        while self.queue:
            path = self.queue.pop()
            content = self.rewritten((self.root / path).read_text(encoding="utf-8"), path, self.pages[path])
            shelf = SHELF.format(SHELVES[path]) if path in SHELVES else ""
            self.write(self.pages[path], content + shelf)

    def rewritten(self, content: str, path: str, page: str) -> str:
        """The content of a document, or a part of it, as it stands on a page."""

        def one(match: re.Match[str]) -> str:
            target = match["target"]
            if "://" in target or target.startswith("mailto:"):
                return match[0]
            file = os.path.normpath(os.path.join(os.path.dirname(path), target))
            found = self.place(file)
            where = os.path.relpath(found, os.path.dirname(page) or ".") if found else f"{self.repository}/{file}"
            return f"{match['head']}{where}{match['anchor'] or ''})"

        made, at = "", 0
        for fence in FENCE.finditer(content):
            made += LINK.sub(one, content[at : fence.start()]) + fence[0]
            at = fence.end()
        made += LINK.sub(one, content[at:])
        return INCLUDE.sub(lambda match: self.rewritten(included(self.root, match), match["path"], page), made)


def included(root: pathlib.Path, match: re.Match[str]) -> str:
    """A part of another document, between two texts in it."""
    content = (root / match["path"]).read_text(encoding="utf-8")
    if match["after"] not in content or match["before"] not in content.split(match["after"], 1)[1]:
        raise SystemExit(f"{match['path']} has no part between '{match['after']}' and '{match['before']}'")
    return content.split(match["after"], 1)[1].split(match["before"], 1)[0]


def reference(root: pathlib.Path, out: pathlib.Path) -> None:
    """The pages that are made from sources."""
    c = read_c(root / "include/heddle/heddle.h")
    cpp = read_cpp(root / "include/heddle/heddle.hpp")
    functions = headers.functions(c)
    known = headers.Names(c)
    package = python_pages.read(root / "interfaces/python/heddle", root / "docs/site/_heddle.pyi")
    python_pages.register(package, known)
    shmem = shmem_pages.Shmem(root / "interfaces/openshmem/table")
    across = Across()
    add_cpp(across, cpp, functions)
    add_python(across, root / "docs/site/generate/python_names.txt", python_pages.public_names(package), functions)
    add_operations(across, [one.name for one in python_pages.methods(package.classes["Operations"])], functions)
    add_shmem(across, root / "docs/site/generate/shmem_names.txt", set(shmem.entry_of), functions)
    write_c(out / "reference/c", c, CPages(known, across, shmem.entry_of))
    write_cpp(out / "reference/cpp", cpp, CppPages(known, across))
    python_pages.PythonPages(package, known, across).write(out / "reference/python")
    shmem.write(out / "reference/openshmem", across)
    (out / "reference/across.rst").write_text(across_page(c, across, known, shmem.entry_of), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tool", default="", help="a heddle command, whose help becomes pages")
    parser.add_argument("--repository", default="", help="where a browser can read the repository's files, such as https://…/blob/main")
    given = parser.parse_args()
    root, out = given.root.resolve(), given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    stage = Stage(root, out, given.repository.rstrip("/"))
    for path in [*(str(one.relative_to(root)) for one in sorted((root / "docs").rglob("*.md"))), *ALWAYS]:
        stage.place(path)
    for folder in ("docs/tutorial", "docs/site/howto", "examples", "examples/python"):
        for file in sorted((root / folder).glob("*.*")):
            path = str(file.relative_to(root))
            if folder.startswith("docs") and file.suffix != ".md":
                stage.raw(path)
            elif file.suffix in (".c", ".cpp", ".py"):
                stage.place(path)
    stage.raw("docs/site/path.html")
    stage.documents()
    reference(root, out)
    commands_page = stage.rewritten(commands.page(given.tool), "docs/site/commands.md", "reference/commands.md")
    stage.write("reference/commands.md", commands_page)
    others = sorted(page for page in stage.pages.values() if page.startswith(("project/", "files/")))
    listed = "\n".join("/" + page for page in others)
    stage.write("project/index.md", "# Files of the repository\n\nThose to which pages of this site lead.\n\n"
                f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n")


if __name__ == "__main__":
    main()
