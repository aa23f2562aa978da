"""JSON files: what they hold, and one sentence for each thing that they may be instead."""

import pytest

from heddle.pipelines.json_files import read_list, read_object
from heddle.runtime.errors import GraphError, InputError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file.json"


def test_what_a_file_holds(file):
    file.write_bytes('{"größe": [1, null]}'.encode())
    assert read_object(file) == {"größe": [1, None]}
    file.write_text("[{}]")
    assert read_list(file) == [{}]


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"{", "no JSON: Expecting property name"),
        (b'{"a": "\xff"}', "no JSON: 'utf-8' codec"),
        (b"[" * 100_000, "no JSON: maximum recursion depth"),
        (b"7", "int$"),
        (None, "an error: No such file or directory$"),
    ],
)
def test_what_is_none(file, content, got):
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(GraphError, match=f"file.json: wanted a JSON object, got {got}"):
        read_object(file)
    with pytest.raises(InputError, match=f"file.json: wanted a JSON list, got {got}"):
        read_list(file, InputError)
