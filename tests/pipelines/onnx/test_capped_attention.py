"""Attention with capped scores and with sinks: one op where it can be, and what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_contrib import BATCH, HEADS, SIZE, STEPS, close, computed, heads, normal, rows

from heddle.graph import Graph, TensorType
from heddle.graph.compiler import module as m
from heddle.graph.dtype import DType
from heddle.pipelines.onnx.operators import attending

SHARED = 2

__all__ = ["normal"]


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    cap: float = 0.0,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """Causal attention of heads, as rows."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.tanh(scores / cap) * cap if cap else scores
    scores = np.where(np.tri(STEPS, dtype=bool), scores, -np.inf)
    if sinks is not None:
        more = np.broadcast_to(sinks.reshape(-1, 1, 1), (*scores.shape[:3], 1))
        scores = np.concatenate([scores, more], axis=-1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = (shares / shares.sum(-1, keepdims=True))[..., :STEPS]
    return (shares @ v).swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


@pytest.mark.parametrize("cap", [0.0, 0.7])
@pytest.mark.parametrize("sinks", ["none", "smooth", "heads"])
def test_groups(normal: Any, cap: float, sinks: str) -> None:
    q, k, v = (normal(BATCH, STEPS, count * SIZE) for count in (HEADS, SHARED, SHARED))
    inputs: dict[str, Any] = {"q": q, "k": k, "v": v, "pk": None, "pv": None}
    inputs |= {"last": np.full(BATCH, STEPS - 1, np.int32), "total": np.array([STEPS], np.int32)}
    given: dict[str, Any] = {"softcap": cap} if cap else {}
    wanted = None
    if sinks == "smooth":
        given["smooth_softmax"], wanted = 1, np.zeros(HEADS, np.float32)
    elif sinks == "heads":
        wanted = normal(HEADS)
        inputs |= dict.fromkeys("abcd") | {"sinks": wanted}
    [found] = computed(
        "GroupQueryAttention",
        inputs,
        known=("total",),
        num_heads=HEADS,
        kv_num_heads=SHARED,
        **given,
    )
    three = heads(q), heads(k, SHARED), heads(v, SHARED)
    close(found, attended(*three, cap, wanted))


def test_a_cap_of_onnx_s_own_attention(normal: Any) -> None:
    three = rows(normal, "q", "k", "v")
    [found] = computed(
        "Attention",
        three,
        domain="",
        version=23,
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
        is_causal=1,
        softcap=0.7,
    )
    close(found, attended(*map(heads, three.values()), 0.7))


def test_a_cap_is_the_op_s() -> None:
    type = TensorType(DType.float32, (BATCH, HEADS, STEPS, SIZE))
    with Graph("capped", [type] * 3) as graph:
        graph.output(attending.attend(*(x.tensor for x in graph.inputs), softcap=0.7))
    (attention,) = m.operations(graph.module)
    assert (m.name(attention), m.attrs(attention)["softcap"]) == ("attention", 0.7)
