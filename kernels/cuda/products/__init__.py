"""Products: on tensor cores by mma.sync, by fused multiply-adds, and of few rows.

`matrices` says what is multiplied, `tensor_cores` in which pieces; `mma` has the instructions.
"""
