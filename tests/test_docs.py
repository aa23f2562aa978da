"""The documentation runs: every python block of README.md and docs/*.md, page by page."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[int, str]]:
    """Each python block of `page` with the number of its first line."""
    text = page.read_text()
    return [(text.count("\n", 0, m.start(1)) + 1, m[1]) for m in BLOCK.finditer(text)]


def with_blocks() -> list[Path]:
    return [page for page in PAGES if blocks(page)]


def test_the_readme_has_an_example():
    assert blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", with_blocks(), ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of a page run in order, in one namespace and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for line, code in blocks(page):
        # Padding keeps the page's own line numbers in a traceback.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_performance_page_shows_the_committed_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import report

    page = report.PAGE.read_text()
    assert report.render(page) == page, "run python benchmarks/report.py"
    for module in ("report", "measure"):
        sys.modules.pop(module)
