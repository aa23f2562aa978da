"""A frame for a few PTX instructions, to ask the machine what it makes of them."""

import numpy as np
from emulator.machine import Buffer, launch

from ptx.machine import Program

PRELUDE = """
  ld.param.b64 %rd0, [kernel_param_0];
  ld.param.b64 %rd1, [kernel_param_1];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mad.lo.s32 %r2, %r1, {threads}, %r0;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd0, %rd2;
  add.s64 %rd4, %rd1, %rd2;
  mov.b64 %rd5, tile;
  mul.wide.u32 %rd6, %r0, 4;
  add.s64 %rd6, %rd5, %rd6;
"""
"""%rd3 and %rd4: the thread's words of x and of y, %rd6: its word of shared memory, %r0: %tid.x."""


def kernel(body: str, threads: int = 32) -> str:
    """The PTX of a kernel with `body`, over two buffers and a word of shared memory a thread."""
    return f"""
.version 8.4
.target sm_90a
.address_size 64

.visible .entry kernel(
	.param .u64 .ptr .align 1 kernel_param_0,
	.param .u64 .ptr .align 1 kernel_param_1
)
.reqntid {threads}
{{
	.reg .pred %p<16>;
	.reg .b16 %rs<16>;
	.reg .b32 %r<64>;
	.reg .b64 %rd<32>;
	.shared .align 128 .b8 tile[{8 * threads}];
{PRELUDE.format(threads=threads)}
{body}
	ret;
}}
"""


def run(body: str, x: np.ndarray, grid: int = 1, threads: int = 32, dtype=np.int32) -> np.ndarray:
    """What `body` leaves in y, of as many words as there are threads."""
    y = np.zeros(grid * threads, dtype)
    launch(Program(kernel(body, threads)), grid, threads, [Buffer(x), Buffer(y, written=True)], [])
    return y


def apply(lines: str, x: np.ndarray, dtype=np.int32) -> np.ndarray:
    """What `lines` make of the word in %r10, in %r11."""
    return run(f"ld.global.b32 %r10, [%rd3];\n{lines}\nst.global.b32 [%rd4], %r11;", x, dtype=dtype)
