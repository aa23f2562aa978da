"""The peers of products: oneDNN and cuBLAS, by as much of torch as they use, on NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest

from heddle.pipelines.bench import products
from heddle.pipelines.bench.case import Case, run
from heddle.pipelines.bench.missing import MissingError

SIZES = {"m": 3, "k": 40, "n": 24}


class Tensor(np.ndarray):
    """An array with the methods of torch's tensors."""

    def double(self):
        return self.astype(np.float64)

    def t(self):
        return self.T

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def cuda(self):
        return self


class Torch:
    """Torch, which keeps in `calls` what was asked of oneDNN and cuBLAS."""

    float32, int64 = np.float32, np.int64

    def __init__(self, gpu=False):
        self.calls, self.threads = [], 0
        self.ops = SimpleNamespace(mkldnn=self, onednn=self)
        self.cuda = SimpleNamespace(
            is_available=lambda: gpu, synchronize=lambda: self.calls.append("wait")
        )
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
        self.ones, self.zeros = np.ones, np.zeros

    def set_num_threads(self, count):
        self.threads = count

    def from_dlpack(self, buffer):
        return buffer.to_numpy().view(Tensor)

    def _reorder_linear_weight(self, weight, rows):
        self.calls.append(("pack", weight.shape, rows))
        return weight

    def _linear_pointwise(self, a, weight, bias, post, scalars, algorithm):
        return (a @ weight.T).view(Tensor)

    def qlinear_prepack(self, weight, shape):
        self.calls.append(("pack", weight.shape, shape))
        return weight

    def qlinear_pointwise(self, a, scale, zero, weight, scales, zeros, bias, *into):
        assert (scale, zero, bias, into) == (1.0, 0, None, (1.0, 0, np.float32, "none", [], ""))
        assert len(scales) == len(zeros) == len(weight)
        return (a.astype(np.float32) @ weight.T.astype(np.float32)).view(Tensor)

    def matmul(self, a, b, out):
        np.matmul(a, b, out=out)


@pytest.fixture
def torch(monkeypatch):
    fake = Torch()
    monkeypatch.setattr(products, "find_spec", lambda name: object())
    monkeypatch.setattr(products, "import_module", lambda name: fake)
    return fake


def case(name, **changes):
    return Case(name, SIZES, verify=True, max_time=0.02, threads=2, **changes)


@pytest.mark.parametrize(
    ("name", "dtype", "packed"),
    [
        ("matmul", "float32", ("pack", (24, 40), 3)),
        ("integer_matmul_unsigned", "uint8", ("pack", (24, 40), [3, 40])),
    ],
)
def test_onednn_multiplies_by_weights_that_it_has_packed(torch, name, dtype, packed):
    ours, peer = run(case(name, dtype=dtype, baselines=("onednn",), cache="warm"))
    assert (ours["status"], peer["status"]) == ("ok", "ok")
    assert peer["max_error"] <= peer["tolerance"]
    assert (torch.calls, torch.threads) == ([packed], 2)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("matmul", "float64"), ("matmul_inputs", "float32"), ("integer_matmul", "int8")],
)
def test_what_onednn_is_not_asked_for(torch, name, dtype):
    _, peer = run(case(name, dtype=dtype, baselines=("onednn",)))
    assert peer["status"] == "missing"
    assert peer["error"]["message"] == (
        "onednn: has products by weights here, matmul of float32, bfloat16, float16; "
        f"integer_matmul of uint8; not {name}"
    )


def test_cublas_multiplies_and_is_waited_for(torch):
    torch.cuda.is_available = lambda: True
    a, b = (np.arange(6, dtype=np.float32).reshape(shape) for shape in ((2, 3), (3, 2)))
    out = np.zeros((2, 2), np.float32)
    buffer = lambda array: SimpleNamespace(to_numpy=lambda: array)  # noqa: E731
    prepared = SimpleNamespace(
        workload=SimpleNamespace(op="matmul"), sets=[[buffer(a), buffer(b)]], outputs=[buffer(out)]
    )
    (call,) = products.cublas(case("matmul", target="cuda"), prepared)
    assert call() is None
    np.testing.assert_array_equal(out, a @ b)
    assert torch.calls == ["wait"]
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_what_cublas_lacks(torch):
    prepared = SimpleNamespace(workload=SimpleNamespace(op="matmul"))
    with pytest.raises(MissingError, match="cublas: torch finds no GPU here; pip install a torch"):
        products.cublas(case("matmul", target="cuda"), prepared)
    prepared.workload.op = "softmax"
    with pytest.raises(MissingError, match="cublas: has matmul alone here, not softmax"):
        products.cublas(case("softmax", target="cuda"), prepared)


def test_without_torch(monkeypatch):
    monkeypatch.setattr(products, "find_spec", lambda name: None)
    wanted = "onednn: needs torch, which is not installed; pip install torch"
    with pytest.raises(MissingError, match=wanted):
        products.onednn(case("matmul"), None)
