"""Specs of dense attention."""

from heddle.kernels.spec import Operand, Spec


def attention(
    dtype="float32",
    batch=2,
    heads=3,
    key_heads=3,
    size=32,
    layout="bhsd",
    causal=False,
    window=0,
    scale=0.2,
    softcap=0.0,
    mask=None,
    queries="d0",
    keys="d1",
    **bodies,
):
    def tensor(count, length):
        inner = (count, length) if layout == "bhsd" else (length, count)
        return Operand(dtype, (batch, *inner, size))

    q, k = tensor(heads, queries), tensor(key_heads, keys)
    operands = (q, k, k, mask) if mask else (q, k, k)
    attrs = {"causal": causal, "layout": layout, "masked": mask is not None}
    attrs |= {"scale": scale, "softcap": softcap, "window": window}
    return Spec("attention", operands, q, (q,), tuple(sorted(attrs.items())), **bodies)


def sizes(queries, keys):
    return {"d0": queries, "d1": keys}
