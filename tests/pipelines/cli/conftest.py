import pytest
from click.testing import CliRunner, Result

from heddle.pipelines.cli import main


@pytest.fixture
def heddle():
    """Calls `heddle` with arguments; `code` is the exit code that is expected, None: any."""

    def call(*arguments, code: int | None = 0, text: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=text)
        assert code is None or result.exit_code == code, result.output
        return result

    return call
