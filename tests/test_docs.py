"""The documentation runs: every python block of README.md and docs/, page by page.

Links lead somewhere, too; the commands that pages show are in `test_docs_commands.py`.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#]*)(?:#([^)]*))?\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """Each python block of `page` with the number of its first line."""
    text = page.read_text()
    return [(text.count("\n", 0, m.start(1)) + 1, m[1]) for m in BLOCK.finditer(text)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks() -> list[Path]:
    return [page for page in PAGES if blocks(page)]


def test_the_readme_has_an_example():
    assert blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", with_blocks(), ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of a page run in order, in one namespace and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for line, code in blocks(page):
        # Padding keeps the page's own line numbers in a traceback.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page; one that returns gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """The links of `page` to a file or a heading that is not there."""
    broken = []
    for target, anchor in LINK.findall(page.read_text()):
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b_c`, [d](page.md)!\n## Twice\n## Twice\n```sh\n# no heading\n```\n"
        "[a](#a-b_c-d) [b](page.md#twice-1) [c](https://none#x)\n"
        "[d](#no-heading) [e](page.md#twice-2) [f](none.md)\n"
    )
    assert broken_links(page) == ["#no-heading", "page.md#twice-2", "none.md#"]


def long_lines(text: str) -> list[str]:
    """The lines of prose over 100 columns: not of tables, nor of code."""
    lines = FENCED.sub("", text).splitlines()
    return [line for line in lines if len(line) > 100 and not re.match(r" *\||    ", line)]


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_lines_end_at_100_columns(page):
    assert long_lines(page.read_text()) == []


def test_lines_that_are_too_long_are_found():
    long = "word " * 21
    assert long_lines(f"{long}\n| {long} |\n```\n{long}\n```\n    {long}\nword") == [long]


def test_the_performance_pages_show_the_committed_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import report

    for page in report.PAGES:
        text = page.read_text()
        assert report.render(text) == text, f"{name_of(page)}: run python benchmarks/report.py"
    for module in ("report", "summary", "gpu_tables", "measure"):
        sys.modules.pop(module)
