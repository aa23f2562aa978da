"""A frame for a few operations, to ask the emulator what it makes of them."""

from collections.abc import Callable, Mapping

import numpy as np

from emulator.machine import Buffer, Program, launch
from emulator.rows import EFFECTS
from heddle.kernels.mlir import context, ir

PRELUDE = """
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %block = nvvm.read.ptx.sreg.ctaid.x : i32
  %threads = nvvm.read.ptx.sreg.ntid.x : i32
  %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
  %all = arith.constant -1 : i32
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %last = arith.constant 31 : i32
  %first = arith.muli %block, %threads : i32
  %global = arith.addi %first, %tid : i32
  %from = llvm.getelementptr %x[%global] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %to = llvm.getelementptr %y[%global] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %tile = llvm.mlir.addressof @tile : !llvm.ptr<3>
  %mine = llvm.getelementptr %tile[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %next_number = arith.xori %tid, %one : i32
  %other = llvm.getelementptr %tile[%next_number] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
"""


def emulate(
    body: str,
    x: np.ndarray,
    y: np.ndarray,
    grid: int = 1,
    block: int = 32,
    words: int = 1,
    effects: Mapping[str, Callable] = EFFECTS,
    **options,
):
    """Runs `body` with an input `x`, an output `y` and `words` of shared memory for each thread.

    `effects`: as `Program` has it.
    """
    text = f"""
      llvm.mlir.global private @tile() {{addr_space = 3 : i32, alignment = 16 : i64}}
        : !llvm.array<{block * words} x i32>
      llvm.func @kernel(%x: !llvm.ptr, %y: !llvm.ptr, %n: i64) {{
        {PRELUDE}
        {body}
        llvm.return
      }}"""
    buffers = [Buffer(x, **options), Buffer(y, written=True)]
    with context(), ir.Location.unknown():
        launch(Program(ir.Module.parse(text), effects), grid, block, buffers, [len(x)])
    return y


def numbers(count: int = 32) -> np.ndarray:
    return np.arange(count, dtype=np.int32)
