from pathlib import Path

from heddle.graph.ops.document import renew, table
from heddle.graph.ops.row import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_table_is_current():
    text = PAGE.read_text()
    assert renew(text) == text, "run: python -m heddle.graph.ops.document docs/ops.md"


def test_the_table_has_every_op():
    for name in ROWS:
        assert f"| `{name}(" in table()
