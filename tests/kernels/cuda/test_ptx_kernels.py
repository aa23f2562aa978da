"""The PTX that artifacts hold: kernels of every kind, as their own tests run them on the emulator.

What is different from those is what runs: what LLVM has made of the MLIR (`ptx.machine`).
"""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import cuda_cases as cases
import cuda_harness
import pytest
import wgmma_registers

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.registry import MACHINES


def loaded(name: str) -> ModuleType:
    """A file of tests beside this one: tests of a CPU have some of the names, too."""
    path = Path(__file__).with_name(f"test_{name}.py")
    spec = spec_from_file_location(f"cuda_{path.stem}", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


beside = loaded("beside")
decoder = loaded("decoder_ops")
flash = loaded("flash")
flash_ragged = loaded("flash_ragged")
ragged_warpgroup = loaded("flash_ragged_warpgroup")
flash_split = loaded("flash_split")
flash_warpgroup = loaded("flash_warpgroup")
float8 = loaded("float8")
functions = loaded("functions")
gate = loaded("gate")
grouped = loaded("grouped")
kernels = loaded("kernels")
paged = loaded("paged")
random_uniform = loaded("random_uniform")
rope = loaded("rope")
rotate_and_write = loaded("rotate_and_write")
sample_tokens = loaded("sample_tokens")
scatter = loaded("scatter")
scores = loaded("scores")
selection = loaded("selection")
strip_parts = loaded("strip_parts")
tensor_cores = loaded("tensor_cores")
tf32 = loaded("tf32")
top_k = loaded("top_k")
warpgroup = loaded("warpgroup")
warpgroup_scaled = loaded("warpgroup_scaled")
warpgroup_windows = loaded("warpgroup_windows")
windows = loaded("windows")
narrow = top_k.narrow  # A fixture of tests below.

Case = tuple[Callable, ...]
"""A test, and what it takes."""

PLAIN: dict[str, Case] = {
    name: (kernels.check, {**cases.ALL, **cases.FUSED}[name], cases.DIMS, shift)
    for name, shift in {
        "map, float16": 0, "map, float64": 1, "map, int8": 0, "map, uint32": 0,
        "reduce rows, float32": 0, "reduce rows, bfloat16": 1, "reduce rows, bool": 0,
        "reduce columns, float16": 0, "reduce columns, int64": 0, "reduce mean, float32": 0,
        "softmax, float16": 0, "softmax blocks, float32": 0, "softmax, fused, bfloat16": 1,
        "layer_norm, float32": 0, "layer_norm blocks, bfloat16": 0, "rms_norm, float64": 0,
        "rms_norm blocks, float32": 1, "rms_norm, fused, float32": 0,
        "transpose, int8": 0, "transpose, float32": 1, "concat, bfloat16": 0, "slice, int64": 1,
        "gather, float16": 0, "gather, fused, float32": 0,
        "matmul, float32": 0, "matmul transposed, float64": 1, "matmul, fused, bfloat16": 0,
        "attention, float32": 0, "attention causal, float64": 0,
        "attention of odd heads, bfloat16": 1,
        "quantized_matmul 4 bits, float32": 0, "quantized_matmul 8 bits, bfloat16": 0,
    }.items()
}  # fmt: skip
ROWS: dict[str, Case] = {
    "sine": (functions.test_on_the_emulator, "sin, float32"),
    "a power": (functions.test_on_the_emulator, "pow, float64"),
    "a remainder": (functions.test_on_the_emulator, "mod, int8"),
    "a quotient": (functions.test_on_the_emulator, "floor_divide, uint64"),
    "rope": (rope.test_on_the_emulator, "halves of 16, float16", 0),
    "rope, a part": (rope.test_on_the_emulator, "halves of 96 of 128", 0),
    "rope, single elements": (rope.test_on_the_emulator, "neighbours of 6, float32", 1),
    "random numbers": (random_uniform.test_on_the_emulator, "fours", 0),
    "top_k": (selection.test_on_the_emulator, "top_k, bfloat16", 0),
    "top_k of long rows": (selection.test_on_the_emulator, "top_k blocks, float32", 0),
    "top_k by histograms": (top_k.test_narrowing, "int64", True),
    "cumsum": (selection.test_on_the_emulator, "cumsum, float32", 0),
    "cumsum of long rows": (selection.test_on_the_emulator, "cumsum blocks, int8", 0),
    "cumsum of columns": (selection.test_on_the_emulator, "cumsum columns, bfloat16", 0),
    "cumsum of few columns": (selection.test_on_the_emulator, "cumsum of few columns, float64", 0),
    "take_along": (selection.test_on_the_emulator, "take_along, float32", 0),
    "scatter": (scatter.test_on_the_emulator, "sums", (300, 9, 2, 9), 0),
    "scatter, single elements": (scatter.test_on_the_emulator, "the least", (7, 5, 3, 40), 1),
    "iota": (selection.test_on_the_emulator, "iota, int64", 0),
    "an index outside": (selection.test_an_index_outside_is_reported_and_clamped,),
    "tokens are drawn": (sample_tokens.test_drawing, "all"),
    "penalties": (sample_tokens.test_penalties, "bfloat16"),
    "8-bit floats are read": (float8.test_every_code_as_float32, "float8_e4m3fn", "sm_90a", 0),
    "8-bit floats are made": (
        float8.test_float32_is_rounded_to_the_nearest_even_code, "float8_e5m2", "sm_90a", 0,
    ),
    "positions": (decoder.test_positions,),
    "rotate_and_write": (rotate_and_write.test_on_the_emulator, "halves", 0),
    "rotate_and_write of a part": (
        rotate_and_write.test_on_the_emulator, "a part, neighbours", 0,
    ),
    "paged_write": (paged.test_on_the_emulator, "writing bfloat16", 0),
    "pooling": (windows.test_reductions, "float32", "max"),
    "a convolution": (windows.test_multiply_adds, "a stem"),
    "order of groups": (grouped.test_sorting, "order"),
}  # fmt: skip
ATTENTION: dict[str, Case] = {
    "ragged": (paged.test_on_the_emulator, "ragged", 0),
    "a cache of 8 bits": (paged.test_on_the_emulator, "paged, cache of 8 bits", 0),
    "one query": (flash.test_dense, "one query"),
    "causal": (flash.test_dense, "causal"),
    "heads of 96": (flash.test_dense, "one query of 96"),
    "heads of 256": (flash.test_dense, "one query of 256"),
    "a mask": (flash.test_dense, "bool mask"),
    "a window of a ragged batch": (flash_ragged.test_on_the_emulator, "ragged, window"),
    "paged": (flash_ragged.test_on_the_emulator, "paged, few and many"),
    "keys in parts": (flash_split.test_dense, "few queries"),
    "rows in parts": (flash_split.test_ragged, "one long row"),
    "warpgroups": (flash_warpgroup.test_results, "one step of keys", True),
    "warpgroups, several steps": (flash_warpgroup.test_results, "several", True),
    "warpgroups, several tiles": (flash_warpgroup.test_blocks_go_from_tile_to_tile, 64, 290, 1),
    "warpgroups, causal": (flash_warpgroup.test_results, "causal", True),
    "warpgroups, heads of 256": (flash_warpgroup.test_results, "heads of 256", False),
    "warpgroups, unaligned": (flash_warpgroup.test_results, "unaligned", False),
    "warpgroups, paged": (
        ragged_warpgroup.test_on_the_emulator, "a box for a step, no keys, every key",
    ),
    "warpgroups, ragged": (
        ragged_warpgroup.test_on_the_emulator, "ragged, groups that do not divide a tile",
    ),
    "a cap": (scores.test_capped, "few queries", "sm_80"),
    "a cap and sinks": (scores.test_ragged, "few rows"),
    "a cap and sinks by plain threads": (scores.test_ragged, "plain threads"),
    "warpgroups, a cap and sinks": (scores.test_ragged, "warpgroups"),
}  # fmt: skip
PRODUCTS: dict[str, Case] = {
    **{
        name: (tensor_cores.test_results, name)
        for name in (
            "more rounds than stages", "tiles of b in rows", "unaligned tiles", "one row",
            "forty rows of b in rows", "bytes in pairs of columns", "few rows of bytes",
            "8-bit floats", "8 bits of float16", "8-bit floats of bfloat16",
        )
    },
    "tf32": (tf32.test_ten_bits_are_exact_and_others_are_off_by_two_to_the_ninth, "tiles"),
    "tf32 by warpgroups": (
        tf32.test_ten_bits_are_exact_and_others_are_off_by_two_to_the_ninth, "warpgroups",
    ),
    "strips in parts": (strip_parts.test_results, "4 bits"),
    "side by side": (beside.test_results, "two alike", 7),
    "a gate": (gate.test_results, "float16 with a bias", 17),
    "groups": (grouped.test_multiply_adds, "every group has some"),
    "windows": (windows.test_tensor_cores, "dilation and groups"),
    **{
        f"warpgroups, {name}": (warpgroup.test_results, name)
        for name in (
            "a tile and a slice", "a cluster", "a body that is stored by TMA", "bytes",
            "bytes without a sign", "odd sizes at run time", "unaligned buffers",
        )
    },
    "warpgroups, b in rows": (warpgroup.test_tiles_of_other_columns, 160, 0, False),
    "warpgroups, pieces": (warpgroup.test_tiles_in_pieces, "two pieces"),
    "warpgroups, groups": (warpgroup.test_rows_sorted_by_group, True),
    "warpgroups, 4 bits": (warpgroup_scaled.test_results, "4 bits"),
    "warpgroups, 8 bits": (warpgroup_scaled.test_results, "8 bits"),
    "warpgroups, 8-bit floats": (warpgroup_scaled.test_results, "8-bit floats in float16"),
    "warpgroups, windows": (warpgroup_windows.test_on_the_emulator, "padding", 0),
}  # fmt: skip


@pytest.fixture(autouse=True)
def what_runs_is_ptx(request, monkeypatch):
    monkeypatch.setattr(cuda_harness, "of_ptx", True)
    monkeypatch.setattr(cuda_harness, "to_ptx", checked)
    if "warpgroups" in request.node.name:
        request.getfixturevalue("on_hopper")


def checked(*given) -> str:
    text = to_ptx(*given)
    wgmma_registers.check(text)
    return text


def run(case: Case, monkeypatch) -> None:
    test, *given = case
    names = test.__code__.co_varnames[: test.__code__.co_argcount]
    test(*([monkeypatch] if "monkeypatch" in names else []), *given)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_kernels(monkeypatch, name, arch):
    monkeypatch.setattr(cuda_harness, "MACHINE", MACHINES[arch])
    run(PLAIN[name], monkeypatch)


@pytest.mark.parametrize("name", ROWS)
def test_rows(request, monkeypatch, name):
    if "histograms" in name:
        request.getfixturevalue("narrow")
    run(ROWS[name], monkeypatch)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(request, monkeypatch, name):
    if "parts" in name:
        request.getfixturevalue("short_parts")
    run(ATTENTION[name], monkeypatch)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(monkeypatch, name):
    run(PRODUCTS[name], monkeypatch)
