"""CUDA kernels: the same roots as on the CPU, in blocks of threads."""

from heddle.kernels.cuda import (
    attention,
    concat,
    cumsum,
    gather,
    integer_matmul,
    iota,
    layer_norm,
    matmul,
    paged_attention,
    paged_write,
    penalize,
    quantized_matmul,
    ragged_attention,
    random_uniform,
    reduce,
    rms_norm,
    rope,
    sample_tokens,
    softmax,
    take_along,
    top_k,
    transpose,
)
from heddle.kernels.cuda import map as map_
from heddle.kernels.cuda import slice as slice_
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
    matmul.KERNEL,
    quantized_matmul.KERNEL,
    integer_matmul.KERNEL,
    transpose.KERNEL,
    concat.KERNEL,
    slice_.KERNEL,
    gather.KERNEL,
    iota.KERNEL,
    cumsum.KERNEL,
    top_k.KERNEL,
    take_along.KERNEL,
    random_uniform.KERNEL,
    penalize.KERNEL,
    sample_tokens.KERNEL,
)
"""Every CUDA kernel."""
