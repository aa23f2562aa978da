"""Parameters of kernels: which value is in force, what a table holds, and when a row is stale."""

import json
import sys
from dataclasses import replace
from importlib import import_module

import pytest

from heddle.kernels import tuning
from heddle.kernels.registry import MACHINES, PLACES, Kernel, find
from heddle.kernels.spec import Launch, Operand, Spec
from heddle.kernels.tuning import Parameter, Row, Space, Table, TableError, class_of

SPACE = Space(
    (Parameter("ahead", (0, 2, 4), 2), Parameter("block", (32, 64), 64, launch=True)),
    lambda spec: dict(zip(("m", "n"), spec.operands[0].shape, strict=True)),
)


def spec(m, n, dtype="float32"):
    x = Operand(dtype, (m, n))
    return Spec("toy", (x,), x, (x,))


def row(m, n, op="toy", **values):
    return Row(op, "float32", {"m": m, "n": n}, values, "2026-01-01", "")


def table(*rows, place="x86-64-v4"):
    return Table(place, "znver5", "a CPU", rows)


def test_classes_are_powers_of_two():
    assert [class_of(size) for size in (0, 1, 2, 3, 4, 5, 64, 65)] == [1, 1, 2, 4, 4, 8, 64, 128]


def test_the_default_is_in_force_where_no_table_says_more():
    assert SPACE.values(spec(8, 8), MACHINES["x86-64-v4"]) == {"ahead": 2, "block": 64}
    with tuning.using([table(row(8, 8, ahead=4))]):
        assert SPACE.value("ahead", spec(8, 9), "x86-64-v4") == 2
        assert SPACE.value("ahead", spec(8, 8, "float64"), "x86-64-v4") == 2
        assert SPACE.value("ahead", spec(8, 8), "x86-64-v3") == 2


def test_a_row_is_for_every_shape_of_its_class():
    with tuning.using([table(row(8, 64, ahead=4))]):
        assert SPACE.value("ahead", spec(5, 33), "x86-64-v4") == 4
    assert SPACE.value("ahead", spec(5, 33), "x86-64-v4") == 2


def test_a_size_of_run_time_takes_the_row_of_the_largest():
    rows = row(1, 64, ahead=0), row(512, 64, ahead=4), row(64, 64, ahead=2)
    with tuning.using([table(*rows)]):
        assert SPACE.value("ahead", spec("d0", 64), "x86-64-v4") == 4
        assert SPACE.value("ahead", spec("d0", 128), "x86-64-v4") == 2


def test_what_shapes_the_launch_is_of_the_kind_of_target():
    with tuning.using([table(row(8, 8, block=32)), table(row(8, 8, ahead=0), place="cpu")]):
        assert SPACE.values(spec(8, 8), MACHINES["x86-64-v4"]) == {"ahead": 2, "block": 64}
    with tuning.using([table(row(8, 8, block=32), place="cpu")]):
        for arch in ("x86-64-v3", "x86-64-v4"):
            assert SPACE.values(spec(8, 8), MACHINES[arch])["block"] == 32


def test_forced_values_come_before_any_table():
    with tuning.using([table(row(8, 8, ahead=4))]), tuning.forced({"toy": {"ahead": 0}}):
        assert SPACE.values(spec(8, 8), MACHINES["x86-64-v4"]) == {"ahead": 0, "block": 64}
    with tuning.forced({"another": {"ahead": 0}}):
        assert SPACE.value("ahead", spec(8, 8), "x86-64-v4") == 2


def test_a_value_that_the_kernel_does_not_know_is_passed_over():
    with tuning.using([table(row(8, 8, ahead=3))]):
        assert SPACE.value("ahead", spec(8, 8), "x86-64-v4") == 2


def test_a_table_is_read_as_it_was_written(tmp_path):
    whole = table(row(1, 2, ahead=4)).with_row(row(1, 4, ahead=0)).with_row(row(1, 2, ahead=2))
    assert whole.rows == (row(1, 2, ahead=2), row(1, 4, ahead=0))
    path = tmp_path / "x86-64-v4.json"
    path.write_text(whole.to_json())
    assert Table.read(path) == whole


ROW = {"op": "a", "dtype": "b", "shape": {}, "values": {}, "date": "", "sources": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"schema": 2, "place": "cpu", "cpu": "", "model": "", "rows": []}),
        json.dumps({"schema": 1, "place": "cuda", "cpu": "", "model": "", "rows": []}),
        json.dumps({"schema": 1, "place": "cpu", "cpu": "", "model": "", "rows": [{"op": "a"}]}),
        *(
            json.dumps(
                {"schema": 1, "place": "cpu", "cpu": "", "model": "", "rows": [ROW | change]}
            )
            for change in ({"shape": "m"}, {"values": 3}, {"values": {"a": "1"}}, {"sources": None})
        ),
    ],
)
def test_what_is_no_table(tmp_path, text):
    path = tmp_path / "cpu.json"
    path.write_text(text)
    with pytest.raises(TableError, match=r"cpu\.json: wanted a tuning table of schema 1 for cpu: "):
        Table.read(path)


# Stale rows


SOURCE = '''"""A kernel."""
from heddle.kernels.{package} import _near


def emit(spec, machine):
    """Emits it."""
    return _near.size  # a comment
'''


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A kernel in a package of its own; `change(name, old, new)` edits its files."""
    folder = tmp_path / "toykernels"
    folder.mkdir()
    files = {
        "toy": SOURCE.replace("heddle.kernels.{package}", "toykernels"),
        "_near": "from toykernels.parts import tile\n\nsize = 3\n",
        "parts/tile": "from toykernels.parts.block import rows\n",
        "parts/block": "rows = 4\n",
        "parts/strip": "rows = 4\n",
        "other": "size = 3\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def change(name, old, new):
        path = folder / f"{name}.py"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        tuning._fingerprint.cache_clear()

    for name in [name for name in sys.modules if name.startswith("toykernels")]:
        monkeypatch.delitem(sys.modules, name)
    module = import_module("toykernels.toy")
    made = Kernel("toy", "cpu", module.emit, lambda spec: Launch((1, 1, 1), 1), str, space=SPACE)
    yield made, change
    tuning._fingerprint.cache_clear()


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("toy", "# a comment", "# another", False),
        ("toy", "Emits it.", "Emits\n    the whole of it.", False),
        ("toy", "return _near.size", "return  (_near.size)", False),
        ("toy", "return _near.size", "return _near.size + 1", True),
        ("_near", "size = 3", "size = 4", True),
        ("parts/tile", "block import rows", "block import rows as lines", True),
        ("parts/block", "rows = 4", "rows = 8", True),
        ("parts/strip", "rows = 4", "rows = 8", False),
        ("other", "size = 3", "size = 4", False),
    ],
)
def test_the_fingerprint_is_of_the_code_alone(kernel, name, old, new, changed):
    made, change = kernel
    before = tuning.fingerprint(made)
    change(name, old, new)
    assert (tuning.fingerprint(made) != before) == changed


def test_stale_rows(kernel):
    made, change = kernel
    good = replace(row(8, 64, ahead=4), sources=tuning.fingerprint(made))
    bad = replace(good, values={"ahead": 5, "beyond": 1})
    others = row(8, 64, "another", ahead=9)
    assert tuning.stale([made], [table(good, others)]) == []
    where = r"x86-64-v4.json: toy float32 m=8 n=64: "
    assert tuning.stale([made], [table(bad)]) == [
        f"{where}the kernel has no ahead=5",
        f"{where}the kernel has no beyond=1",
    ]
    change("toy", "_near.size", "_near.size * 2")
    wanted = f"{where}measured on 2026-01-01 with other sources"
    assert tuning.stale([made], [table(good)]) == [wanted]


def test_rows_of_no_kernel(kernel):
    made, _ = kernel
    gone = row(8, 64, "gone", ahead=9)
    assert tuning.orphaned([made], [table(row(8, 64, ahead=4), gone)]) == [
        "x86-64-v4.json: gone float32 m=8 n=64: no kernel of this name has parameters"
    ]


def test_no_row_of_the_package_is_stale():
    for path in tuning.CHECKED_IN.glob("*.json"):
        found = Table.read(path)
        kernels = [find(each.op, PLACES[found.place]) for each in found.rows]
        assert None not in kernels, path
        problems = tuning.stale(list(dict.fromkeys(kernels)), [found])
        assert not problems, "tune again, or take the rows out:\n" + "\n".join(problems)
