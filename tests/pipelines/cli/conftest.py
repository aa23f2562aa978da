import pytest
from click.testing import CliRunner, Result

from heddle.pipelines.cli import main


@pytest.fixture
def heddle():
    """Calls `heddle` with arguments; `code` is the exit code that is expected."""

    def call(*arguments, code: int = 0, text: str | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=text)
        assert result.exit_code == code, result.output
        return result

    return call
