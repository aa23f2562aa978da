"""Intel AMX: products, convolutions and attention in tiles of 16 rows by 64 bytes.

`tiles` has the instructions; `products`, `held` and `float32` multiply by panels, `narrow`,
`narrow_few` and `narrow_bytes` (with `byte_sums`, `byte_row` and `digits`) by weights of 8 and 4
bits, `windows` convolves, `attention` attends, `wide` to latents, `decode` where rows are few.
"""
