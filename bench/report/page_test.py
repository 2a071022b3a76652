#!/usr/bin/env python3
"""Looks at the page of `heddle report` in chromium, opened as a file: page_test.py HEDDLE [SCREENSHOTS]

Light, dark, and as wide as a phone; one run, two runs, and results that were written to do harm. Checked: the answer, charts, hover, keys, tables,
copying, the button for the colours; no error, no request, nothing too wide. Needs chromium and playwright (docs/site/requirements.txt): a Python
that lacks it hands over to that of build/site.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVIL = "</script><img src=x onerror=\"document.title='owned'\"><b id=owned>{{data}}"


def record(bench: str, op: str, transport: str, metric: str, size: int, median: float, **more: object) -> dict[str, object]:
    out = {"bench": bench, "op": op, "transport": transport, "sharing": "exclusive", "memory": "allocated", "processes": 2, "threads": 1, "workers": 1,
           "size_bytes": size, "metric": metric, "unit": "ns" if metric == "latency" else "Mop/s", "median": median, "low95": median * 0.98,
           "high95": median * 1.02, "repeats": 9, "p_ns": 54, "distance": "near", "verified": True, "against": None, "ratio": None}
    return out | more


def results(factor: float = 1, evil: bool = False) -> str:
    header = {"heddle_bench": 2, "date": "2026-11-22 10:00 +0000", "machine": EVIL if evil else "a machine", "cores": 2, "load": 0.2, "version": "0.3.0",
              "command": f"heddle bench --peers {EVIL if evil else ''}"}
    records = []
    for size in (8, 512, 4096, 1 << 20):
        for transport, nanoseconds in (("shm", 62 * factor), ("ucx", 80), ("openmpi", 95)):
            records.append(record("pingpong", EVIL if evil else "put", transport, "latency", size, nanoseconds + size / 20))
    for threads in (1, 2):
        for transport, op, rate in (("shm", "am", 91 / factor), ("ucx", "tagged", 29), ("openmpi", "tagged", 8)):
            records.append(record("rate", op, transport, "rate", 8, rate, threads=threads))
    first = records[0]
    records += [record("limit", "memcpy", "limit", "bandwidth", 4096, 9), first | {"against": "P", "ratio": 1.15},
                first | {"against": "ucx", "ratio": 0.78 * factor}]
    if evil:
        records += [record("halo", "x", "shm", "latency", size, median) for size in (0, 8, 1 << 63) for median in (0, 1e308, 1e-300)]
        records += [record("__proto__", "toString", "shm", "rate", 8, median, threads=threads) for threads, median in ((1, 0), (2, 0))]
    return "\n".join(json.dumps(one) for one in [header, *records]) + "\n"


def colours(page) -> str:  # type: ignore[no-untyped-def]
    return page.evaluate("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color")


def tooltip(page) -> list[str]:  # type: ignore[no-untyped-def]
    return page.evaluate("""(canvas) => {
        const tip = Chart.getChart(canvas).tooltip;
        return tip.opacity > 0 ? [...tip.title, ...tip.body.flatMap((part) => part.lines)] : [];
    }""", page.query_selector("canvas"))


def wrong(problems: list[str], good: bool, text: str) -> None:
    if not good:
        problems.append(text)


def check_hover(page, touch: bool, problems: list[str]) -> None:  # type: ignore[no-untyped-def]
    page.locator("canvas").first.scroll_into_view_if_needed()
    box = page.locator("canvas").first.bounding_box()
    x, y = page.evaluate("""(canvas) => {
        const point = Chart.getChart(canvas).getDatasetMeta(0).data[0];
        return [point.x, point.y];
    }""", page.query_selector("canvas"))
    wrong(problems, tooltip(page) == [], "a tooltip before anybody hovers")
    picture = "(canvas) => canvas.toDataURL()"
    before = page.locator("canvas").first.evaluate(picture)
    (page.touchscreen.tap if touch else page.mouse.move)(box["x"] + x, box["y"] + y)
    page.wait_for_timeout(100)
    said = " | ".join(tooltip(page))
    for part in ("Heddle, 8 bytes", "62.4 ns, 95 % interval 61.2 – 63.6", "steady: ±2 %; repeats: 9", "1.15 × P", "0.78 × UCX's time: ahead (80.4 ns)"):
        wrong(problems, part in said, f"hovering says {said!r}, without {part!r}")
    wrong(problems, page.locator("canvas").first.evaluate(picture) != before, "hovering paints nothing")
    page.mouse.move(1, 1)
    page.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wrong(problems, "Heddle, 512 bytes" in tooltip(page), f"the arrow keys lead to {tooltip(page)}")
    wrong(problems, page.locator("#said").inner_text().startswith("Heddle: 87.6 ns"), "what the keys lead to is not said")


def check_one(page, touch: bool, problems: list[str]) -> None:  # type: ignore[no-untyped-def]
    wrong(problems, page.locator("h1").inner_text() == "On this machine: 3.1 × UCX with 2 threads, 1.15 × the limit.", page.locator("h1").inner_text())
    wrong(problems, page.locator("canvas").count() == 2, f"{page.locator('canvas').count()} charts")
    wrong(problems, page.locator("canvas").first.get_attribute("aria-label") is not None, "a chart without a label")
    wrong(problems, page.locator("figure .command code").first.inner_text().startswith("heddle bench pingpong --op put --size 8,512,4K,1M --peers"),
          page.locator("figure .command code").first.inner_text())
    check_hover(page, touch, problems)
    page.locator("figure .copy").first.click()
    page.wait_for_selector("#said.shown")
    wrong(problems, "Copied: heddle bench pingpong" in page.locator("#said").inner_text(), "copying says nothing")
    page.locator("#pingpong > details > summary").click()
    page.wait_for_selector("#pingpong tbody")
    wrong(problems, page.locator("#pingpong tbody tr").count() == 12, "the table has not each figure")
    before = colours(page)
    page.locator("#theme").click()
    wrong(problems, colours(page) != before, "the button for the colours changes nothing")


def check_two(page, touch: bool, problems: list[str]) -> None:  # type: ignore[no-untyped-def]
    wrong(problems, page.locator(".run").count() == 2, "not both runs are there")
    rows = page.locator(".comparison > .scroll tbody tr").all_inner_texts()
    wrong(problems, len(rows) == 5 and all("beyond the noise of ±" in row for row in rows), f"beyond the noise are {rows}")
    wrong(problems, "50 % slower" in page.locator(".comparison").inner_text(), "the change is not said")
    page.locator(".comparison details summary").click()
    page.wait_for_selector(".comparison details tbody")
    wrong(problems, "the same, within the noise of ±4" in page.locator(".comparison").inner_text(), "what is the same is not said")


def check_evil(page, touch: bool, problems: list[str]) -> None:  # type: ignore[no-untyped-def]
    wrong(problems, page.title() == "Heddle, measured" and page.locator("#owned, img").count() == 0, "results became markup")
    wrong(problems, EVIL in page.locator("figure h3").first.inner_text(), "a name is not shown as it is")


def look(heddle: str, folder: pathlib.Path, shots: pathlib.Path | None) -> list[str]:
    from playwright.sync_api import sync_playwright

    files = {"a.json": results(), "b.json": results(1.5), "evil.json": results(evil=True)}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    pages = {"one": (["a.json"], check_one), "two": (["a.json", "b.json"], check_two), "evil": (["evil.json"], check_evil)}
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (runs, check) in pages.items():
            html = folder / f"{name}.html"
            subprocess.run([heddle, "report", *runs, "-o", html], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400)):
                found: list[str] = []
                page = browser.new_page(viewport={"width": width, "height": 850}, color_scheme=scheme, has_touch=width == 400)  # type: ignore[arg-type]
                page.on("console", lambda said: found.append(f"console: {said.text}"))
                page.on("pageerror", lambda error: found.append(f"error: {error}"))
                page.on("request", lambda asked: None if asked.url in (html.as_uri(), "data:,") else found.append(f"asks {asked.url}"))
                page.goto(html.as_uri())
                dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 22, 29)"
                wrong(found, dark == (scheme == "dark"), "not the colours that are preferred")
                check(page, width == 400, found)
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                wrong(found, wide <= 0, f"{wide} pixels too wide")
                if shots:
                    page.screenshot(path=shots / f"report-{name}-{scheme}-{width}.png", full_page=True)
                page.close()
                problems += [f"{name}, {scheme}, {width} pixels: {one}" for one in found]
        browser.close()
    return problems


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("chromium"):
        print("skipped: there is no chromium (Debian: chromium)")
        return 0
    try:
        import playwright  # noqa: F401
    except ImportError:
        other = ROOT / "build/site/venv/bin/python"
        if other.exists() and pathlib.Path(sys.executable) != other:
            os.execv(other, [str(other), __file__, *arguments])
        print("skipped: this Python has no playwright (pip install -r docs/site/requirements.txt, or scripts/build_site.sh)")
        return 0
    shots = pathlib.Path(arguments[1]) if len(arguments) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        problems = look(str(pathlib.Path(arguments[0]).resolve()), pathlib.Path(folder), shots)
    for problem in problems:
        print(problem)
    print(f"page_test: {len(problems)} faults")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
