import importlib.util
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("api_coverage.py")


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location("api_coverage", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_name_resolves_and_the_table_is_up_to_date(coverage):
    written = coverage.DOCUMENT.read_text(encoding="utf-8")
    assert coverage.render() == written, "run python tests/contexts/api_coverage.py"


def test_a_name_that_is_not_there_is_found_out(coverage):
    for name in ("TextContext.nothing", "Nothing", "TextContext(nothing)", "InputError(_size)"):
        with pytest.raises(AttributeError):
            coverage.home(name, coverage.live_objects())


def test_rules_are_about_names_of_the_documents(coverage):
    assert set(coverage.RULES) <= set(coverage.names())


def test_the_names_are_those_of_four_documents(coverage):
    names = coverage.names()
    assert len(names) > 440
    assert {version for versions in names.values() for version in versions} == set(
        coverage.VERSIONS
    )
