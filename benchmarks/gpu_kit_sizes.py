"""The sizes of a kit's checks and timings."""

from __future__ import annotations

SMALL: tuple[dict[str, int], ...] = (
    {
        "m": 19,
        "n": 129,
        "k": 70,
        "b": 2,
        "h": 3,
        "s": 21,
        "t": 45,
        "d": 24,
        "rows": 50,
        "g": 1,
        "block": 9,
        "height": 7,
        "width": 10,
        "c": 13,
        "cap": 1,
    },
    {
        "m": 16,
        "n": 128,
        "k": 128,
        "b": 1,
        "h": 4,
        "s": 32,
        "t": 64,
        "d": 64,
        "rows": 64,
        "g": 2,
        "block": 16,
        "height": 8,
        "width": 12,
        "c": 32,
        "cap": 2,
    },
)
"""Sizes of the checks: odd ones, and such as are read in vectors. Others are a workload's first."""

LARGER: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("matmul", dtype, {"m": 300, "n": 520, "k": 200}) for dtype in ("bfloat16", "float16")),
    *(("matmul", "bfloat16", {"m": m, "n": n, "k": 2048}) for m, n in ((128, 1024), (512, 8704))),
    ("matmul", "bfloat16", {"m": 515, "n": 513, "k": 65}),
    *(("matmul", dtype, {"m": 40, "n": 520, "k": 2048}) for dtype in ("bfloat16", "float16")),
    *(("float8_matmul", "float8_e4m3fn", {"m": m, "n": 520, "k": 208}) for m in (40, 300)),
    *(("integer_matmul", "int8", {"m": m, "n": 520, "k": 208}) for m in (40, 300)),
    *(
        (f"quantized_matmul_{kind}", dtype, {"m": 300, "n": 520, "k": 1152, "group": group})
        for kind, group in ((8, 32), (8, 128), (4, 32), (4, 128), ("float8", 64))
        for dtype in ("bfloat16", "float16")
    ),
    *(
        (f"quantized_matmul_{bits}_minimums", dtype, {"m": m, "n": 520, "k": 1152, "group": group})
        for bits, group in ((8, 32), (4, 32), (4, 128))
        for dtype, m in (("bfloat16", 5), ("float16", 12), ("bfloat16", 40), ("bfloat16", 300))
    ),
    *(
        ("quantized_grouped_matmul_4_minimums", "bfloat16", {**sizes, "k": 1152, "group": 128})
        for sizes in ({"g": 3, "s": 3, "n": 520}, {"g": 3, "s": 150, "n": 520})
    ),
    ("grouped_matmul", "bfloat16", {"g": 3, "s": 150, "n": 520, "k": 200}),
    ("conv", "bfloat16", {"b": 2, "height": 20, "width": 21, "c": 64, "n": 200, "window": 3}),
    *((name, "bfloat16", {"m": 5, "n": 3000}) for name in ("softmax", "layer_norm", "rms_norm")),
    ("sample_tokens", "float32", {"m": 5, "n": 30000}),
    *(
        (name, dtype, {"b": 3, "s": 150, "t": 336, "h": h, "g": 2, "block": 16, "d": d})
        for name in ("ragged_attention", "paged_attention")
        for dtype, h, d in (("bfloat16", 8, 128), ("float16", 6, 64), ("bfloat16", 4, 256))
    ),
    *(
        (name, "bfloat16", {"b": 3, "s": 1, "t": 2000, "h": 4, "g": 2, "block": 16, "d": 256})
        for name in ("paged_attention", "paged_attention_float8")
    ),
    *(
        ("paged_attention_latents", dtype, {"b": 3, "s": s, "t": t, "h": h, "block": 16, "d": 576})
        for dtype, h, more in (("bfloat16", 16, 40), ("float16", 128, 5), ("bfloat16", 20, 40))
        for s, t in ((1, 2000), (3, 2000), (more, 64))
    ),
    *(
        (name, "bfloat16", {"b": 1, "h": 3, "s": s, "t": 333, "d": d})
        for name in ("attention", "attention_causal")
        for s, d in ((200, 128), (200, 256), (3, 256))
    ),
    *(
        ("attention_capped", dtype, {"b": 2, "h": 3, "s": s, "t": 333, "d": d, "cap": 1})
        for dtype, s, d in (
            *(("bfloat16", s, d) for s in (3, 200) for d in (64, 128)),
            *(("float16", 200, d) for d in (96, 128, 256)),
        )
    ),
    *(
        (
            f"paged_attention_{name}",
            dtype,
            {"b": 3, "s": s, "t": t, "h": h, "g": g, "block": 16, "d": d, "cap": 1},
        )
        for name in ("capped", "sinks")
        for dtype, h, g, d in (
            *(("bfloat16", 16, 2, 64), ("float16", 6, 2, 128), ("bfloat16", 4, 2, 96)),
            ("bfloat16", 4, 2, 256),
        )
        for s, t in ((1, 2000), (150, 336))
    ),
)
"""Checks of products with more rows than strips are for: of some rows in short tiles, of several
tiles, of tiles in pieces, of single elements, of each kind that wgmma multiplies. Of weights with
minimums in each kind of strip and tile. Of rows that take a block each. And of attention of
prompts: several tiles of queries, the last of them short; of heads of 256, which have smaller
tiles; of capped scores and of sinks by each of its kernels, also with few rows, whose keys are
split; of latents with few and more rows, split and whole."""

TIMED: tuple[tuple[str, str, dict[str, int]], ...] = (
    *(("matmul", "bfloat16", {"m": n, "n": n, "k": n}) for n in (4096, 8192)),
    *(
        ("matmul", "bfloat16", {"m": m, "n": n, "k": k})
        for n, k in ((6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 28672))
        for m in (1, 8, 16, 64, 512, 2048, 8192)
    ),
    ("matmul", "float32", {"m": 4096, "n": 4096, "k": 4096}),
    *(
        (f"quantized_matmul_{bits}", "bfloat16", {"m": m, "n": 28672, "k": 4096, "group": 128})
        for bits in (8, 4)
        for m in (1, 16, 64, 512, 2048)
    ),
    *(
        ("quantized_matmul_4", "bfloat16", {"m": m, "n": 28672, "k": 4096, "group": 32})
        for m in (1, 16, 64, 2048)
    ),
    *(
        (
            f"quantized_matmul_{bits}_minimums",
            "bfloat16",
            {"m": m, "n": 28672, "k": 4096, "group": group},
        )
        for bits, group in ((4, 32), (4, 128), (8, 32))
        for m in (1, 16, 64, 512, 2048)
    ),
    *(
        ("quantized_matmul_float8", "bfloat16", {"m": m, "n": 28672, "k": 4096, "group": 128})
        for m in (1, 16, 2048)
    ),
    ("float8_matmul", "float8_e4m3fn", {"m": 8192, "n": 8192, "k": 8192}),
    *(("float8_matmul", "float8_e4m3fn", {"m": m, "n": 28672, "k": 4096}) for m in (16, 512, 8192)),
    *(("integer_matmul", "int8", {"m": m, "n": 28672, "k": 4096}) for m in (16, 512, 8192)),
    ("grouped_matmul", "bfloat16", {"g": 8, "s": 512, "n": 14336, "k": 4096}),
    *(
        ("conv", "bfloat16", {"b": 32, "height": size, "width": size, "c": c, "n": c, "window": w})
        for size, c, w in ((56, 64, 3), (28, 128, 3), (14, 256, 3), (14, 1024, 1))
    ),
    *(
        (name, "bfloat16", {"b": b, "s": 1, "t": 8192, "block": 16, **heads})
        for heads in ({"h": 32, "g": 8, "d": 128}, {"h": 16, "g": 8, "d": 256})
        for name in ("paged_attention", "paged_attention_float8")
        for b in (1, 64)
    ),
    *(
        ("paged_attention", "bfloat16", {"b": b, "s": s, "t": t, "h": 32, "g": 8, "d": 128})
        for b, s, t in ((1, 8192, 8192), (8, 1024, 1024), (4, 512, 16384))
    ),
    ("paged_attention", "bfloat16", {"b": 1, "s": 8192, "t": 8192, "h": 16, "g": 8, "d": 256}),
    *(
        ("paged_attention_latents", "bfloat16", {"b": b, "s": s, "t": t, "h": h, "d": 576})
        for h in (16, 128)
        for b, s, t in ((1, 1, 8192), (64, 1, 8192), (64, 2, 8192), (1, 4096, 4096))
    ),
    ("ragged_attention", "bfloat16", {"b": 1, "s": 8192, "t": 8192, "h": 32, "g": 8, "d": 128}),
    ("sample_tokens", "float32", {"m": 64, "n": 131072}),
    *(
        (name, "bfloat16", {"b": 1, "h": h, "s": s, "t": s, "d": d})
        for h, d in ((32, 128), (16, 256))
        for name in ("attention", "attention_causal")
        for s in (2048, 8192)
    ),
    ("attention_capped", "bfloat16", {"b": 1, "h": 32, "s": 8192, "t": 8192, "d": 128}),
    *(
        (f"paged_attention_{name}", "bfloat16", {"b": b, "s": s, "t": 8192, **heads})
        for name, heads in (
            ("capped", {"h": 32, "g": 16, "d": 128}),
            ("capped", {"h": 16, "g": 8, "d": 256}),
            ("sinks", {"h": 64, "g": 8, "d": 64}),
        )
        for b, s in ((64, 1), (1, 8192))
    ),
    *((name, "bfloat16", {"m": 8192, "n": 8192}) for name in ("rms_norm", "softmax", "layer_norm")),
    *((name, "bfloat16", {"m": 8192, "n": 8192}) for name in ("silu", "add", "transpose", "sum")),
    ("rope", "bfloat16", {"b": 4, "s": 4096, "h": 32, "d": 128}),
    *((name, "float32", {"rows": 32768, "m": 16384, "n": 2048}) for name in ("scatter", "gather")),
)
"""Workload, dtype and sizes; (n, k) of the products are those of models of 8B and 70B."""
