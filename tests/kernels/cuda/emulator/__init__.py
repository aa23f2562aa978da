"""Runs the MLIR of CUDA kernels in NumPy: `machine` starts it, `rows` has what operations do."""
