"""What is checked of registers of wgmma in PTX: mistakes in a kernel of a few lines are found."""

import pytest
from wgmma_registers import WgmmaError, check

PRODUCT = (
    "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
    " {%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, %rd1, p, 1, 1, 0; }"
)
FENCE, COMMIT, WAIT = (
    f"wgmma.{name};" for name in ("fence.sync.aligned", "commit_group.sync.aligned",
                                  "wait_group.sync.aligned \t0")
)  # fmt: skip
SUMS, FACTOR = "fma.rn.f32 \t%r9, %r1, %r10, %r9;", "mov.b32 \t%r5, %r11;"
TWICE = [FENCE, PRODUCT, PRODUCT, COMMIT, WAIT, SUMS]
LOOP = ["$L__BB0_1:", FACTOR, *TWICE, "@%p1 bra \t$L__BB0_1;"]
AHEAD = [FENCE, PRODUCT, COMMIT, "mov.b32 \t%r12, %r5;", WAIT.replace("0", "1"), WAIT, SUMS]


def ptx(lines) -> str:
    body = "\n\t".join(["mov.b32 \t%r1, 0;", *lines, "ret;"])
    return f".visible .entry kernel()\n{{\n\t.reg .b32 \t%r<13>;\n\n\t// a comment\n\t{body}\n}}\n"


@pytest.mark.parametrize("lines", [TWICE, LOOP, AHEAD])
def test_what_is_right(lines):
    assert check(ptx(lines)) == lines.count(PRODUCT)


MISTAKES = {
    "no fence": ([PRODUCT, COMMIT, WAIT], "no wgmma.fence since %r1 "),
    "a copy behind the fence": (
        [FENCE, "mov.b32 \t%r2, %r9;", PRODUCT],
        "no wgmma.fence since %r2",
    ),
    "a factor behind the fence": ([FENCE, FACTOR, PRODUCT], "no wgmma.fence since %r5 "),
    "a fence in the first round alone": ([FENCE, *LOOP[:1], *LOOP[3:]], "no wgmma.fence since %r1"),
    "a sum is read before the wait": ([FENCE, PRODUCT, COMMIT, SUMS, WAIT], "%r1 of wgmma in fl"),
    "a sum is read in an open group": ([FENCE, PRODUCT, WAIT, SUMS], "%r1 of wgmma in flight"),
    "a factor is written before the wait": ([FENCE, PRODUCT, COMMIT, FACTOR], "%r5 of wgmma in fl"),
    "a wait for the group before": (
        [FENCE, PRODUCT, COMMIT, WAIT.replace("0", "1"), SUMS],
        "%r1 of wgmma in flight",
    ),
    "a wait on one of two ways": (
        [FENCE, PRODUCT, COMMIT, "@%p1 bra \t$L__BB0_2;", WAIT, "$L__BB0_2:", SUMS],
        "%r1 of wgmma in flight",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    lines, message = MISTAKES[name]
    with pytest.raises(WgmmaError, match=message):
        check(ptx(lines))
