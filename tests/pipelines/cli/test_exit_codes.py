"""Every command's exit codes: 2 where the command line alone is wrong, 1 where something else is.

A line of the table is a command line. In it `{tiny}` is a checkpoint's folder, `{artifact}` what it
was compiled to, `{bare}` the same without weights, `{decoder}` a language model's folder; `{text}`
is a file that holds no format of anybody, `{rows}` one with rows of the bench, `{array}` a .npy
file, `{model}` a Python file with a graph, and nothing is at `{none}`. `{long}` is a number that
is read, `{digits}` one that Python itself refuses to.
"""

import shlex

import numpy as np
import pytest

from heddle.pipelines.cli.console import stdin
from heddle.runtime.errors import InputError

WRONG_COMMAND_LINE = """
none-such
--none-such
compile
compile {tiny} --none-such
compile {tiny} -t tpu
compile {tiny} -t cpu -t cuda:x86-64-v4
compile {model}:build --stop-after none_such
compile {model}:build --dtype bfloat16
compile {model}:build --quantize int8
compile minilm --quantize int8
compile {tiny} --dtype float64
compile x.onnx --dim rows={digits}
compile x.onnx --dim rows=1:{digits}
compile x.onnx --shape x={digits}
compile {decoder} --quantize int8 --group 7
compile {decoder} --group 32
inspect
inspect {none} --show asm
inspect {none} --kernel softmax --set m=8
inspect --kernel none_such
inspect --kernel softmax --json
inspect --kernel softmax --show ptx
inspect --kernel softmax --arch sm_90a
inspect --kernel softmax --set m
inspect --kernel softmax --set q=1
inspect --kernel softmax --set axis=5
inspect --kernel softmax --set n=0
inspect --kernel softmax --set n={digits}
inspect --kernel softmax --dtype int8
verify
run {none} --dim batch
run {none} --dim batch=1 --dim batch=2
run {none} --dim batch={digits}
run {none} --device tpu
run {none} --device cuda:{digits}
run {none} --threads 100000
run {none} --repeat 0
bench none-such
bench list --none-such
bench run
bench run none-such
bench run exp --set q=1
bench run exp --dtype int8
bench run softmax --set axis=5
bench run softmax --set m={long} --set n={long}
bench run softmax --set m={digits}
bench run exp --baseline none-such
bench run exp --threads 0
bench run exp --max-time 0
bench tune
bench tune exp
bench tune none-such --check
bench tune transpose --set m=0
bench env --threads 0
bench compare {rows}
bench compare {rows} {rows} --tolerance nan
bench plot
doctor --none-such
embed
embed {none} ""
generate
generate {none} --max-tokens 0
generate {decoder} --prompt x --temperature -1
generate {decoder} --prompt x --top-p 2
generate {decoder} --prompt x --stop ""
generate {decoder} --prompt x --regex a --json-schema {text}
generate {decoder} --prompt x --weights {none}
generate {text} --prompt x
generate {text} --prompt x --quantize int4
"""

SOMETHING_ELSE = """
compile {none}
compile {none}.py:build
compile {model}:none_such
compile {model}:number
compile {text}.py:build
compile {tiny} --quantize int8
compile {model}:build -o {tiny}
compile {model}:build -o {none}/x.heddle
compile {model}:build --weights {none}
compile {model}:build --weights {tiny}
compile {model}:build --stop-after fuse --dump {text}
inspect {none}
inspect {text}
inspect {artifact} --kernel none_such
inspect {artifact} --kernel softmax --show ptx
verify {none}
verify {tiny}
verify {text}
verify {artifact} --weights {none}
verify {artifact} --weights {text}
run {none}
run {text}
run {bare}
run {artifact} --dim none_such=1
run {artifact} --dim sequence=25
run {artifact} --input tokens={none}
run {artifact} --input tokens={text}
run {artifact} --input {array}
run {artifact} --input none_such={array}
run {artifact} --input tokens={array}
run {artifact} --device cuda:99
run {artifact} --repeat 1 --output {tiny}
run {artifact} --repeat 1 --output {none}/x.npz
bench run exp --json {tiny}
bench run exp --json {none}/rows.jsonl
bench tune --check --output {none}
bench tune --check --output {text}
bench compare {none} {rows}
bench compare {rows} {text}
bench compare {rows} {rows} --impl none_such
bench plot {none}
bench plot {rows} -o {text}
doctor {none}
doctor {text}
embed {none} loom
embed {artifact} loom
embed {artifact} --tokenizer {none} loom
embed {artifact} --tokenizer {text} loom
embed {artifact} --tokenizer {tiny}
embed {bare} --tokenizer {tiny} loom
generate {none} --prompt x
generate {tiny} --prompt x
generate {decoder} --prompt x --cache-tokens 1
generate {decoder} --prompt x --json-schema {none}
generate {decoder} --prompt x --json-schema {text}
generate {text} --prompt x --tokenizer {none}
generate {text} --prompt x --tokenizer {decoder}
"""

ALL_IS_WELL = """
--version
inspect {artifact}
inspect --kernel softmax --show mlir
verify {artifact} --weights {tiny}/model.safetensors
run {artifact} --repeat 1
bench list
bench run exp
bench compare {rows} {rows}
bench plot {rows} -o {none}
doctor {artifact}
embed {artifact} --tokenizer {tiny} loom
"""

MODEL = """
from heddle.graph import DType, Graph, TensorType, ops
number = 3
def build():
    with Graph("line", [TensorType(DType.float32, [3])]) as graph:
        graph.output(ops.exp(graph.inputs[0]))
    return graph
"""

LINES = [
    (code, line)
    for code, lines in enumerate((ALL_IS_WELL, SOMETHING_ELSE, WRONG_COMMAND_LINE))
    for line in lines.strip().splitlines()
]


@pytest.fixture
def places(request, heddle, tmp_path):
    """What stands for the names in a line; a fixture is made where the line asks for it."""
    made = {name: tmp_path / name for name in ("none", "text", "rows", "array.npy", "model.py")}
    for path in (made["text"], tmp_path / "text.py"):
        path.write_text("no such thing")
    np.save(made["array.npy"], np.zeros(3, np.float32))
    made["model.py"].write_text(MODEL)
    found = {name.partition(".")[0]: path for name, path in made.items()}
    found |= {"long": "9" * 40, "digits": "9" * 5000}

    def fill(line):
        fixtures = {"artifact": "tiny_artifact", "bare": "bare_artifact"}
        for name in ("tiny", "decoder", *fixtures):
            if f"{{{name}}}" in line:
                found[name] = request.getfixturevalue(fixtures.get(name, name))
        if "{rows}" in line:
            heddle("bench", "run", "exp", "--json", made["rows"])
        return [word.format(**found) for word in shlex.split(line)]

    return fill


@pytest.mark.parametrize(("code", "line"), LINES, ids=lambda value: str(value))
def test_exit_codes(heddle, cases, places, tmp_path, monkeypatch, code, line):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEDDLE_DUMP", "")  # an option sets it
    result = heddle(*places(line), code=code, text="")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code:
        assert result.stderr.rstrip().splitlines()[-1].startswith(("error: ", "Error: "))


def test_a_closed_stdin_is_said(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="stdin: wanted a text, got none: it is closed"):
        stdin()
