"""Attention: tokens by a long paged cache, prompts and sentences, beside torch's.

    python benchmarks/attention.py [--threads 2] [--rounds 6] [--peer torch] [--save]

32 heads of 128, of which 4 share a key head where keys are in a cache or a ragged batch. Decoding
reads the keys of every row from memory once: its limit is how fast a kernel can only read as many
bytes. Latents are keys of 576 under one head, the first 512 of which are values, and 16 or 128
heads share them: there arithmetic is a limit, too. A prompt's limit is arithmetic: TFLOP/s count
the pairs of a query and a key that it sees.
torch computes the dense prompts, with a key head for each head. Sentences, so many of so many
tokens, have 12 heads of 32 side by side, as MiniLM leaves them; as many multiplications in
registers alone take turns with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Any

import measure
import numpy as np
import registers
from skinny import READ, reading

from heddle.graph import DType, Graph, TensorType, TensorValue, compile, ops
from heddle.runtime import Buffer, InferenceSession

HEADS, KEY_HEADS, SIZE, BLOCK = 32, 8, 128, 16
DTYPES = ("float32", "bfloat16")
DECODES = ((1, 4096), (8, 4096), (1, 32768))
LATENT_HEADS, LATENT, LATENT_VALUE = (16, 128), 576, 512
LATENTS = ((1, 4096), (8, 1024))
PROMPTS = (512, 2048)
SENTENCES = ((1, 128), (32, 128), (8, 512), (64, 64), (256, 32))
NARROW_HEADS, NARROW_SIZE = 12, 32

Call = Callable[[], object]


def drawn(dtype: str, *shape: int) -> Buffer:
    """Normal numbers; the upper halves of their float32 are bfloat16."""
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    if dtype == "float32":
        return Buffer.from_numpy(values).copy()
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    return Buffer.from_numpy(halves, dtype="bfloat16").copy()


def model_of(
    session: InferenceSession, build: Callable[..., TensorValue], inputs: list[Buffer]
) -> Any:
    """`build` of tensors like `inputs`, compiled and loaded."""
    types = [TensorType(DType[buffer.dtype], buffer.shape) for buffer in inputs]
    with Graph("attention", types) as graph:
        graph.output(build(*(value.tensor for value in graph.inputs)))
    return session.load(compile(graph, "cpu"))


def decode(session: InferenceSession, dtype: str, rows: int, length: int) -> tuple[Call, int]:
    """A token of each row by `length` cached keys, the next of several caches; bytes of one."""
    blocks = rows * length // BLOCK
    table = np.random.default_rng(1).permutation(blocks).reshape(rows, -1).astype(np.int32)
    tail = [np.arange(rows + 1), np.full(rows, length), table]
    rest = [Buffer.from_numpy(array) for array in tail]
    query = drawn(dtype, rows, HEADS, SIZE)
    cache = (blocks, BLOCK, KEY_HEADS, SIZE)
    nbytes = 2 * blocks * BLOCK * KEY_HEADS * SIZE * DType[dtype].size
    caches = [[drawn(dtype, *cache) for _ in range(2)] for _ in range(measure.sets(nbytes))]
    model = model_of(session, ops.paged_attention, [query, *caches[0], *rest])
    out = [Buffer(dtype, query.shape)]
    calls = [partial(model.execute, query, *cache, *rest, out=out) for cache in caches]
    return measure.Turns(calls), nbytes


def latents(session: InferenceSession, heads: int, rows: int, length: int) -> tuple[Call, int, int]:
    """A token of each row by latents of bfloat16, as `decode`; bytes of one, and operations."""
    blocks = rows * length // BLOCK
    table = np.random.default_rng(1).permutation(blocks).reshape(rows, -1).astype(np.int32)
    tail = [np.arange(rows + 1), np.full(rows, length), table]
    rest = [Buffer.from_numpy(array) for array in tail]
    query, nbytes = drawn("bfloat16", rows, heads, LATENT), blocks * BLOCK * LATENT * 2
    shape = (blocks, BLOCK, 1, LATENT)
    caches = [drawn("bfloat16", *shape) for _ in range(measure.sets(nbytes))]

    def build(query: TensorValue, cache: TensorValue, *rest: TensorValue) -> TensorValue:
        return ops.paged_attention(query, cache, cache, *rest, value_size=LATENT_VALUE)

    model = model_of(session, build, [query, caches[0], *rest])
    out = [Buffer("bfloat16", (rows, heads, LATENT_VALUE))]
    calls = [partial(model.execute, query, cache, *rest, out=out) for cache in caches]
    operations = rows * heads * length * 2 * (LATENT + LATENT_VALUE)
    return measure.Turns(calls), nbytes, operations


def prompt(session: InferenceSession, dtype: str, length: int, ragged: bool) -> Call:
    """Causal attention of a prompt to itself."""
    if ragged:
        ends = Buffer.from_numpy(np.array([0, length]))
        inputs = [drawn(dtype, length, heads, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
        inputs += [ends, ends]
        model = model_of(session, ops.ragged_attention, inputs)
    else:
        inputs = [drawn(dtype, 1, HEADS, length, SIZE) for _ in range(3)]
        model = model_of(session, lambda q, k, v: ops.attention(q, k, v, causal=True), inputs)
    out = [Buffer(dtype, inputs[0].shape)]
    return lambda: model.execute(*inputs, out=out)


def sentences(session: InferenceSession, dtype: str, count: int, length: int) -> Call:
    """Attention of each sentence to itself, heads side by side."""
    inputs = [drawn(dtype, count, length, NARROW_HEADS, NARROW_SIZE) for _ in range(3)]
    model = model_of(session, lambda q, k, v: ops.attention(q, k, v, layout="bshd"), inputs)
    out = [Buffer(dtype, inputs[0].shape)]
    return lambda: model.execute(*inputs, out=out)


def torch_prompt(dtype: str, length: int, threads: int) -> Call:
    """The same by torch's scaled_dot_product_attention."""
    import torch

    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    sides = [torch.randn(1, HEADS, length, SIZE).to(kind) for _ in range(3)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*sides, is_causal=True)


def torch_sentences(dtype: str, count: int, length: int, threads: int) -> Call:
    """The same by torch's, which sees the heads through a transpose."""
    import torch

    torch.set_num_threads(threads)
    shape = count, length, NARROW_HEADS, NARROW_SIZE
    sides = [torch.randn(shape).to(getattr(torch, dtype)).transpose(1, 2) for _ in range(3)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(*sides)


def measured_sentences(
    session: InferenceSession, dtype: str, shape: tuple[int, int], options: argparse.Namespace
) -> dict[str, Any]:
    """A row of sentences."""
    count, length = shape
    operations = count * NARROW_HEADS * length * length * 4 * NARROW_SIZE
    calls: dict[str, Call] = {
        "heddle": sentences(session, dtype, count, length),
        "registers": registers.call(dtype, operations, options.threads),
    }
    if options.peer:
        calls["torch"] = torch_sentences(dtype, count, length, options.threads)
    times = measure.interleaved(calls, 2 * options.rounds, 4)
    ms = measure.median_ms(times["heddle"])
    row = {
        "work": f"{count} sentences of {length}",
        "dtype": dtype,
        "median_ms": ms,
        "TFLOP/s": round(operations / ms / 1e9, 3),
        "of registers": round(measure.median_ms(times["registers"]) / ms, 2),
    }
    if options.peer:
        row["torch_ms"] = measure.median_ms(times["torch"])
        row["ratio"] = round(row["torch_ms"] / ms, 2)
    return row


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--peer", choices=["torch"])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    read = reading(session)
    rows = []
    for heads, (count, length) in product(LATENT_HEADS, LATENTS):
        call, nbytes, operations = latents(session, heads, count, length)
        times = measure.interleaved({"read": read, "heddle": call}, options.rounds, 4)
        ms, limit = measure.median_ms(times["heddle"]), measure.median_ms(times["read"])
        rows.append(
            {
                "work": f"decode, {count} x {length} latents, {heads} heads",
                "dtype": "bfloat16",
                "median_ms": ms,
                "TFLOP/s": round(operations / ms / 1e9, 3),
                "GB/s": round(nbytes / ms / 1e6, 1),
                "of read bandwidth": round(nbytes / ms * limit / READ, 2),
            }
        )
        print(rows[-1], flush=True)
    for dtype in DTYPES:
        for count, length in DECODES:
            call, nbytes = decode(session, dtype, count, length)
            times = measure.interleaved({"read": read, "heddle": call}, options.rounds, 4)
            ms, limit = measure.median_ms(times["heddle"]), measure.median_ms(times["read"])
            rate = nbytes / ms / 1e6
            rows.append(
                {
                    "work": f"decode, {count} x {length} keys",
                    "dtype": dtype,
                    "median_ms": ms,
                    "GB/s": round(rate, 1),
                    "of read bandwidth": round(rate * limit * 1e6 / READ, 2),
                }
            )
            print(rows[-1], flush=True)
        for length in PROMPTS:
            calls = {
                "dense": prompt(session, dtype, length, False),
                "ragged": prompt(session, dtype, length, True),
            }
            if options.peer:
                calls["torch"] = torch_prompt(dtype, length, options.threads)
            times = measure.interleaved(calls, min(options.rounds, 4), 2)
            operations = HEADS * length * (length + 1) // 2 * 4 * SIZE
            for name in ("dense", "ragged"):
                ms = measure.median_ms(times[name])
                row = {
                    "work": f"prompt of {length}, {name}",
                    "dtype": dtype,
                    "median_ms": ms,
                    "TFLOP/s": round(operations / ms / 1e9, 3),
                }
                if options.peer and name == "dense":
                    row["torch_ms"] = measure.median_ms(times["torch"])
                    row["ratio"] = round(row["torch_ms"] / ms, 2)
                rows.append(row)
                print(row, flush=True)
        for shape in SENTENCES:
            rows.append(measured_sentences(session, dtype, shape, options))
            print(rows[-1], flush=True)
    if options.save:
        figures: dict[str, Any] = {"rows": rows, "threads": options.threads}
        if options.peer:
            figures[options.peer] = version(options.peer)
        print(measure.save("attention", figures))


if __name__ == "__main__":
    main()
