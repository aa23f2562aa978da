"""Writes `check.heddle`: one kernel for the fake driver of CUDA, which refuses numbers below 0.

y = x                                                   float32 [n]
"""

from __future__ import annotations

from pathlib import Path

from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
)
from heddle.runtime.artifact_writer import write


def record() -> ArtifactRecord:
    """What the file holds; `tests/runtime/fake_cuda.c` reads the kernel's code."""
    code = Code("sm_90", "cubin", b"FAKE\nkernel check check 3 1 0\nend\n", symbol="check")
    size = ("mul", "n", 4)
    step = Dispatch(0, (0, 1, 2), ("n",), ((("ceildiv", "n", 128), 1, 1),), "n", "check")
    program = Program(
        target="cuda",
        kernels=(Kernel("check", (code,), True, (Launch((128, 1, 1)),)),),
        buffers=(Buffer("input", size), Buffer("output", size), Buffer("status", 32)),
        init=Routine(()),
        main=Routine((step,)),
    )
    return ArtifactRecord(
        name="check",
        symbols=(Symbol("n", 0, 1024),),
        inputs=(Tensor("x", "float32", ("n",)),),
        outputs=(Tensor("y", "float32", ("n",)),),
        weights=(),
        constants=(),
        programs=(program,),
    )


if __name__ == "__main__":
    write(record(), Path(__file__).parent / "check.heddle")
