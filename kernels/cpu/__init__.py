"""CPU kernels: x86-64 code for one machine, in vectors of its register width."""

from heddle.kernels.cpu import (
    attention,
    concat,
    cumsum,
    gather,
    integer_matmul_packed,
    iota,
    layer_norm,
    matmul_packed,
    pack_b,
    pack_int4,
    paged_attention,
    paged_write,
    quantized_matmul_packed,
    ragged_attention,
    random_uniform,
    reduce,
    rms_norm,
    rope,
    softmax,
    take_along,
    top_k,
    transpose,
)
from heddle.kernels.cpu import map as map_
from heddle.kernels.cpu import slice as slice_
from heddle.kernels.registry import Kernel

KERNELS: tuple[Kernel, ...] = (
    map_.KERNEL,
    reduce.KERNEL,
    softmax.KERNEL,
    layer_norm.KERNEL,
    rms_norm.KERNEL,
    rope.KERNEL,
    attention.KERNEL,
    ragged_attention.KERNEL,
    paged_attention.KERNEL,
    paged_write.KERNEL,
    pack_b.KERNEL,
    matmul_packed.KERNEL,
    integer_matmul_packed.KERNEL,
    pack_int4.KERNEL,
    quantized_matmul_packed.KERNEL,
    transpose.KERNEL,
    concat.KERNEL,
    slice_.KERNEL,
    gather.KERNEL,
    iota.KERNEL,
    cumsum.KERNEL,
    top_k.KERNEL,
    take_along.KERNEL,
    random_uniform.KERNEL,
)
"""Every CPU kernel."""
