"""Attention in the flash manner (arXiv:2205.14135), by warps, warpgroups, and plain threads.

`attend` and `warpgroup` compute a block's tile of a `task`; `dense` and `ragged` say whose rows and
keys it has, `split` shares the keys of few rows out.
"""
