"""What becomes of a GPU's answers: shares of kernels, tables; and what is asked of the runtime."""

from types import SimpleNamespace

import heddle.runtime


def test_a_kernel_is_given_the_time_since_the_one_before_it(script):
    """Not that in which it waited for that one; and what nobody waited for is not lost."""
    timeline = script("gpu_timeline")
    spans = [("norm", 0.0, 2.0), ("product", 1.0, 9.0), ("norm", 3.0, 10.5), ("copy", 12.0, 12.5)]
    assert timeline.shares(spans) == {
        "product": {"launches": 1, "us": 7.0},
        "norm": {"launches": 2, "us": 3.5},
        "copy": {"launches": 1, "us": 2.0},
    }


def test_what_is_asked_of_the_runtime_holds_where_it_can_be_asked(script, tmp_path):
    """What needs no GPU is asked on the CPU; a wrong answer is told."""
    runtime = script("gpu_runtime")
    runtime.make(tmp_path, "cpu")
    device = heddle.runtime.CPU()
    session = heddle.runtime.InferenceSession([device])
    kit = SimpleNamespace(device=device, session=session, folder=tmp_path)
    for name in ("numpy", "graphs", "chain"):
        assert runtime.answer(kit, name)["failed"] == []
    (failure,) = runtime.answer(kit, "fault")["failed"]
    assert "not on a CUDA device" in failure


def test_a_part_of_what_a_gpu_said_is_a_table(script):
    """With the ratios that a bar is about; what has no peer has an empty cell."""
    tables = script("gpu_tables")
    timing = {"name": "matmul", "dtype": "bfloat16", "us": 2.0, "tflop_s": 5.0, "gb_s": 7.0}
    peer = {"peer": "torch 2.99, b as [n, k]", "peer_us": 4.0, "ratio": 2.0}
    step = {"name": "decode, int4", "rows": 8, "us": 9.0, "gb": 1.0, "of_the_bound": 0.9}
    figures = {
        "date": "2026-01-01",
        "cuda": {"devices": [{"name": "GPU"}], "driver": "13.0"},
        "timings": [
            {"name": "limits", "copy_gb_s": 3000.0, "tflop_s": 700.0},
            timing | {"sizes": {"m": 1, "k": 2}} | peer,
            timing | {"sizes": {"m": 3, "k": 2}} | peer | {"ratio": 0.5},
            timing | {"name": "conv", "sizes": {"c": 4}},
            {"name": "conv", "dtype": "bfloat16", "sizes": {}, "failed": ["no memory"]},
        ],
        "decode": [step | {"copy_gb_s": 2900.0, "kernels": {"heddle_matmul": {"us": 4.4}}}],
    }
    products = tables.part_of(figures, "products")
    assert [(row["sizes"], row["ratio"]) for row in products["rows"]] == [
        ("m 1, k 2", 2.0),
        ("m 3, k 2", 0.5),
        ("c 4", ""),
    ]
    assert products["matmul in bfloat16, geometric mean"] == 1.0
    assert products["least"] == 0.5
    (row,) = tables.part_of(figures, "decode")["rows"]
    assert (row["weights"], row["longest kernels (µs)"]) == ("int4", "matmul 4")
    report = script("report")
    assert report.place(products["machine"]) == "GPU, driver for CUDA 13.0"
