"""Products by wgmma and TMA, on sm_90a: persistent, one warpgroup or thread brings operands.

`plan` says where and in which tiles; `product` goes from tile to tile, `feed` brings operands,
`result` writes; `instructions` and `tma` have the machine's.
"""
