"""Runs the PTX text of CUDA kernels on the emulator's memory: `machine` starts it."""
