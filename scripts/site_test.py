#!/usr/bin/env python3
"""Checks the built site (scripts/build_site.sh).

    site_test.py links HTML                 every link within the site leads to a page, and to an anchor there
    site_test.py reference HTML ROOT        every public function has an entry: C, C++, OpenSHMEM, Python
    site_test.py python STUB                the stub of the site is that of the installed package, byte by byte (run by that package's Python)
    site_test.py browser HTML SCREENSHOTS   pages in chromium: light, dark, as wide as a phone; search; no request to elsewhere

Exit 0: all is well; 1: each fault on a line.
"""

from __future__ import annotations

import ast
import difflib
import functools
import html.parser
import http.server
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


class Page(html.parser.HTMLParser):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.title = ""
        self.in_title = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {str(values[name]) for name in ("id", "name") if values.get(name)}
        self.links += [str(values[name]) for name in ("href", "src") if values.get(name)]
        self.in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title += data
            self.in_title = False


def pages_of(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    return {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}


def check_links(site: pathlib.Path) -> list[str]:
    site = site.resolve()
    pages = pages_of(site)
    problems, count = [], 0
    for path, page in pages.items():
        name = path.relative_to(site)
        if not page.title.strip():
            problems.append(f"{name}: has no title")
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data") or link.startswith("//"):
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file() or site not in target.parents:
                problems.append(f"{name}: {link} leads nowhere")
            elif anchor and target in pages and anchor not in pages[target].ids:
                problems.append(f"{name}: {link}: the page has no such place")
    print(f"site_test: {len(pages)} pages, {count} links within the site")
    return problems if pages else ["there are no pages"]


def shmem_declared(openshmem: pathlib.Path) -> set[str]:
    """The functions whose prototypes are in the headers that programs include."""
    table = openshmem / "table"
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, table / "generate.py", table / "functions.txt", openshmem / "include", made], check=True)
        headers = [(pathlib.Path(made) / "include" / name).read_text(encoding="utf-8") for name in ("shmem.h", "shmemx.h")]
    return {name for header in headers for name in re.findall(r"^\w[\w *]*?\b(\w+)\([^()]*\)[^;{]*;", header, flags=re.M)}


def check_reference(site: pathlib.Path, root: pathlib.Path) -> list[str]:
    """By other readers of the sources than those that have made the pages; for OpenSHMEM, in the headers that its table makes."""
    import check_exports

    def ids(folder: str) -> set[str]:
        return {one for path in (site / "reference" / folder).glob("*.html") for one in Page(path).ids}

    wanted = check_exports.declared(root / "include/heddle/heddle.h")
    problems = [f"reference/c: {name} has no entry" for name in sorted(wanted) if f"c.{name}" not in ids("c")]
    print(f"site_test: {len(wanted)} functions of C")
    text = " ".join(path.read_text(encoding="utf-8") for path in (site / "reference/openshmem").glob("*.html"))
    words = set(re.findall(r"\w+", text))
    functions = shmem_declared(root / "interfaces/openshmem")
    problems += [f"reference/openshmem: {name} is not there" for name in sorted(functions) if "_ctx_" not in name and name not in words]
    print(f"site_test: {len(functions)} functions of OpenSHMEM")
    # A method of C++: a line of a class at an indent of two, with a name before a parenthesis. Private parts are left out.
    made = {one.rsplit("E", 1)[0] for one in ids("cpp")}
    count = 0
    for header in sorted((root / "include/heddle").glob("*.hpp")):
        for name, body in re.findall(r"^class (\w+)[^;{]*\{\n(.*?)^\};", header.read_text(encoding="utf-8"), flags=re.M | re.S):
            public = re.split(r"^ (?:private|protected):", body, flags=re.M)[0]
            for method in re.findall(r"^  (?! )(?:\[\[nodiscard\]\] )?(?:static |explicit )?[\w:<>*& ]+?\b(\w+)\([^;]*?(?:\{|;|$)", public, flags=re.M):
                if method in ("operator", "bool", name) or method.startswith("heddle_"):
                    continue
                count += 1
                mangled = f"{len(name)}{name}{len(method)}{method}"
                if not any(mangled in one for one in made):
                    problems.append(f"reference/cpp: {name}::{method} has no entry")
    print(f"site_test: {count} methods of C++")
    known = ids("python")
    tree = ast.parse((root / "interfaces/python/heddle/__init__.py").read_text(encoding="utf-8"))
    exported = next(ast.literal_eval(one.value) for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__")
    problems += [f"reference/python: heddle.{name} has no entry" for name in exported if f"heddle.{name}" not in known]
    stub = ast.parse((root / "docs/site/_heddle.pyi").read_text(encoding="utf-8"))
    methods = [f"heddle.{one.name}.{each.name}" for one in stub.body if isinstance(one, ast.ClassDef) and one.name in exported
               for each in one.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    problems += [f"reference/python: {name} has no entry" for name in methods if name not in known]
    print(f"site_test: {len(methods)} methods of Python")
    return problems


def check_python(stub: pathlib.Path) -> list[str]:
    """Byte by byte: the package's stub is made from its module when it is built, and lies beside it."""
    import importlib

    module = importlib.import_module("heddle._heddle")
    installed = pathlib.Path(str(module.__file__)).with_name("_heddle.pyi")
    if not installed.is_file():
        return [f"{installed} is missing"]
    made, kept = installed.read_bytes(), stub.read_bytes()
    print(f"site_test: {installed}: {len(made)} bytes")
    if made == kept:
        return []
    lines = difflib.unified_diff(kept.decode().splitlines(), made.decode().splitlines(), str(stub), str(installed), "", "", 0, "")
    return [f"{stub} is not what the installed package has: copy {installed} there, if that package is of this source", *lines]


# ---- the browser ---------------------------------------------------------------------------------------------------------

SEARCHES = {"heddle_put": "heddle_put", "Worker.put_signal": "put_signal", "adopt": "adopt", "shmem_malloc": "shmem_malloc"}
SHOTS = ["index", "tutorial", "howto/index", "howto/register", "reference/c/worker", "reference/cpp/heddle", "reference/python/worker",
         "reference/openshmem/put-and-get", "reference/across", "reference/commands", "performance", "papers", "guide", "decisions/README"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def check_browser(site: pathlib.Path, shots: pathlib.Path) -> list[str]:
    from playwright.sync_api import sync_playwright

    shots.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    names = [str(path.relative_to(site).with_suffix("")) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for scheme, width, height in (("light", 1280, 900), ("dark", 390, 844)):
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            where = [""]
            page.on("console", lambda said: problems.append(f"{where[0]}: {said.text}") if said.type == "error" else None)
            page.on("pageerror", lambda error: problems.append(f"{where[0]}: {error}"))
            page.on("request", lambda asked: problems.append(f"{where[0]} asks {asked.url}") if not asked.url.startswith((home, "data:")) else None)
            for name in SHOTS if scheme == "light" else names:  # narrow pages are the harder ones
                where[0] = name
                page.goto(home + name + ".html", wait_until="load")
                if not page.title().strip():
                    problems.append(f"{name}: has no title")
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                if wide > 0:
                    problems.append(f"{name}: {wide} pixels too wide for a window of {width}")
                if name in SHOTS:
                    page.screenshot(path=shots / f"{name.replace('/', '_')}-{scheme}.png")
            page.close()
        problems += theme(browser.new_page(), home) + search(browser, home, shots)
        browser.close()
    server.shutdown()
    problems += [f"{name}: no such page to look at" for name in SHOTS if name not in names]
    print(f"site_test: {len(names)} pages in the browser")
    return problems


def theme(page, home: str) -> list[str]:  # type: ignore[no-untyped-def]
    """The button changes the colours."""
    page.goto(home + "index.html")
    seen = set()
    for _ in range(3):
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.locator(".theme-toggle:visible").first.click()
        page.wait_for_timeout(50)
    return [] if len(seen) >= 2 else [f"the theme's button changes nothing: {seen}"]


def search(browser, home: str, shots: pathlib.Path) -> list[str]:  # type: ignore[no-untyped-def]
    problems = []
    for text, wanted in SEARCHES.items():
        page = browser.new_page()
        page.goto(f"{home}search.html?q={text}")
        try:
            page.wait_for_selector("ul.search li a", timeout=10000)
            page.wait_for_timeout(300)
            found = page.locator("ul.search li").all_inner_texts()
            if not any(wanted in one for one in found):
                problems.append(f"the search for {text} finds {len(found)} entries, none with {wanted}")
        except Exception as error:  # noqa: BLE001: whatever the browser says
            problems.append(f"the search for {text} finds nothing ({type(error).__name__})")
        page.screenshot(path=shots / f"search-{wanted}.png")
        page.close()
    return problems


def main(arguments: list[str]) -> int:
    checks = {"links": check_links, "reference": check_reference, "python": check_python, "browser": check_browser}
    if len(arguments) < 2 or arguments[0] not in checks:
        print(__doc__, file=sys.stderr)
        return 2
    problems = checks[arguments[0]](*map(pathlib.Path, arguments[1:]))  # type: ignore[operator]
    for problem in problems[:40]:
        print(problem)
    print(f"site_test {arguments[0]}: {len(problems)} faults")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
