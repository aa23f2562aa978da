"""Text in, text out: each file under ir/ is a module, then what a run of passes makes of it.

The first line says which: `// run cpu: fuse, hoist`. Types are written `f32[batch, 384]`, and ops
without `heddle.`; `python tests/graph/compiler/test_ir.py` rewrites what is expected from what
comes out, for a person to read the difference.
"""

import difflib
import re
from pathlib import Path

import pytest

from heddle.graph.compiler import pipeline
from heddle.graph.dialect import context
from heddle.kernels.mlir import ir

FOLDER = Path(__file__).parent / "ir"
CUT = "\n// gives\n"
PASSES = {each.__name__: each for each in pipeline.PASSES}
TYPE = re.compile(r"\b(bf16|f8E\w+|u?[fi]\d+)\[([^\]]*)\]")
TENSOR = re.compile(r'tensor<((?:[?\d]+x)*)(\w+), \{device = "cpu:0"(?:, dims = \[([^\]]*)\])?\}>')
SEGMENTS = re.compile(r"(operand|result)SegmentSizes = array<i32: [\d, ]*>(, )?")


def expand(text):
    """The short form as MLIR."""

    def tensor(match):
        dims = [dim.strip() for dim in match[2].split(",") if dim.strip()]
        sizes = "".join(f"{dim}x" if dim.isdecimal() else "?x" for dim in dims)
        named = "" if all(map(str.isdecimal, dims)) else ', dims = ["' + '", "'.join(dims) + '"]'
        return f'tensor<{sizes}{match[1]}, {{device = "cpu:0"{named}}}>'

    text = re.sub(r"(%\w+ = )(\w+)\(", r'\1"heddle.\2"(', text)
    return TYPE.sub(tensor, text)


def shorten(text):
    """MLIR as the short form."""

    def tensor(match):
        dims = match[3].replace('"', "") if match[3] else ", ".join(match[1].split("x")[:-1])
        return f"{match[2]}[{dims}]"

    text = SEGMENTS.sub("", TENSOR.sub(tensor, text))
    text = re.sub(r"(\{|, ?)\}", lambda match: "{}" if match[1] == "{" else "}", text)
    text = re.sub(r'"heddle\.(\w+)"', r"\1", text).replace(" {} :", " :")
    return re.sub(r" *\n", "\n", text).strip() + "\n"


def transform(source):
    """What the passes that `source` asks for make of its module."""
    kind, names = re.match(r"// run (\w+): (.*)", source).groups()
    with context(), ir.Location.unknown():
        module = ir.Module.parse(expand(source))
        module.operation.verify()
        for name in names.split(", "):
            PASSES[name](module, kind)
            module.operation.verify()
        return shorten(str(module))


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.mlir")), ids=lambda path: path.stem)
def test_ir(path):
    source, wanted = path.read_text().split(CUT)
    found = transform(source)
    if found != wanted:
        lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), "wanted", "found")
        pytest.fail(f"{path.name}:\n" + "\n".join(lines), pytrace=False)


def test_every_pass_has_a_file():
    assert {path.parent.name for path in FOLDER.rglob("*.mlir")} == set(PASSES)


if __name__ == "__main__":
    for file in FOLDER.rglob("*.mlir"):
        before = file.read_text().split(CUT)[0]
        file.write_text(before + CUT + transform(before))
