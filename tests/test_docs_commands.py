"""Every command that README.md and the pages show is one that its own parser takes."""

import argparse
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from heddle.pipelines.cli import main
from heddle.pipelines.cli.options import Location

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE = re.compile(r"^    ((?:heddle|python|make) .+)$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:heddle|python|make)\s[^`]+)`")
USAGE = re.compile(r"^    (python benchmarks/.+)$", re.MULTILINE)
UNFINISHED = (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError)


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it; what stands in a sentence or a list may lack its end."""

    page: str
    text: str
    whole: bool

    @property
    def words(self) -> list[str]:
        """Of the line up to a gloss in a second column, a remark, a pipe or a redirection."""
        return shlex.split(re.split(r"  +| [<>|] ", self.text)[0], comments=True)

    def __str__(self):
        return f"{self.page}: {self.text}"


def commands(first: str) -> list[Shown]:
    """The commands of all pages that begin with the word `first`."""
    found = []
    for page in PAGES:
        text = page.read_text()
        name = str(page.relative_to(ROOT))
        lines = [Shown(name, line, "  " not in line) for line in LINE.findall(text)]
        inline = [Shown(name, " ".join(t.split()), False) for t in INLINE.findall(text)]
        found += [shown for shown in lines + inline if shown.words[0] == first]
    return found


def usages() -> list[Shown]:
    """The line of usage at the top of each benchmark, with all that may be left out."""
    return [
        Shown(path.name, re.sub(r"[][]| \.\.\.|\|\.\.\.", "", line), True)
        for path in sorted(BENCHMARKS.glob("*.py"))
        for line in USAGE.findall(path.read_text())
    ]


def test_commands_are_found():
    assert len(commands("heddle")) > 60
    assert len(commands("python") + usages()) > 30
    assert len(commands("make")) > 5


@pytest.mark.parametrize("shown", commands("heddle"), ids=str)
def test_command_lines_of_heddle_parse(shown, monkeypatch):
    """By the command line itself, whose commands do nothing and whose files are all there."""
    monkeypatch.setattr(click.Command, "invoke", lambda self, context: None)
    monkeypatch.setattr(Location, "convert", lambda self, value, *more: Path(value))
    words = ["doctor" if word == "COMMAND" else word for word in shown.words[1:]]
    error = CliRunner().invoke(main, words, standalone_mode=False).exception
    assert error is None or (not shown.whole and isinstance(error, UNFINISHED)), error


class ParsedError(Exception):
    """A script got as far as its command line."""


@pytest.fixture
def parse(monkeypatch):
    """Runs a Python script up to where it reads its options; one that has none is not run."""
    read = argparse.ArgumentParser.parse_args

    def parse_args(parser, *arguments):
        read(parser, *arguments)
        raise ParsedError

    def call(script, *options):
        if "argparse" not in script.read_text():
            assert not [option for option in options if option.startswith("-")]
            return
        monkeypatch.setattr(sys, "argv", [str(script), *options])
        with pytest.raises(ParsedError):
            runpy.run_path(str(script), run_name="__main__")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = set(sys.modules)
    yield call
    for name in set(sys.modules) - before:
        if BENCHMARKS.name in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("shown", commands("python") + usages(), ids=str)
def test_scripts_take_the_options_that_are_shown(shown, parse):
    script, *options = shown.words[1:]
    parse(ROOT / script, *options)


@pytest.mark.parametrize("shown", commands("make"), ids=str)
def test_make_has_the_targets_that_are_shown(shown):
    makefile = (ROOT / "Makefile").read_text()
    for target in shown.words[1:]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
