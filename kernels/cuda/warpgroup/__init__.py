"""Products by wgmma and TMA, on sm_90a: persistent, one warpgroup or thread brings operands.

`plan` says where and in which tiles; `product` goes from tile to tile, `steps` along k; `feed`
brings operands, `result` writes. `short_plan` and `short` are for 17 to 64 rows, where a block has
one tile. `instructions` and `tma` have the machine's, `maps` what TMA copies.
"""
