"""Up to eight and up to 16 rows by weights of 8 and 4 bits: both sides of mma.sync, results."""

import pytest
from test_kernels import check
from test_tensor_cores import body, quantized

from heddle.kernels.cuda.products import scaled, tensor_cores

RESULTS = {
    "4 bits, a row": (quantized("bfloat16", 1, 72, 1536, 4, 128), 0),
    "4 bits, eight rows": (body(quantized("bfloat16", 8, 40, 576, 4, 64)), 0),
    "4 bits, nine rows": (quantized("bfloat16", 9, 40, 1536, 4, 128), 0),
    "8 bits, nine rows": (quantized("float16", 9, 40, 672, 8, 96), 0),
    "8-bit floats, 16 rows": (quantized("bfloat16", 16, 40, 352, 8, 32, "float8_e5m2"), 0),
    "4 bits, 16 rows unaligned": (quantized("bfloat16", 16, 33, 64, 4, 64), 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    spec, shift = RESULTS[name]
    check(spec, {}, shift)


@pytest.mark.parametrize("m", [2, 12])
def test_strips_of_64_columns(monkeypatch, m):
    monkeypatch.setattr(tensor_cores, "narrow", lambda *_: 64)
    check(quantized("bfloat16", m, 72, 288, 4, 32), {})


@pytest.mark.parametrize("m", [1, 8, 9, 16])
def test_rows_of_run_time_choose_the_way(m):
    spec = quantized("float16", "d0", 40, 288, 4, 32).with_attr("most_rows", 16)
    assert len(scaled.ways(spec)) == 2
    check(spec, {"d0": m})
