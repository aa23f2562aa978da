"""Attention in the flash manner (arXiv:2205.14135), dense and of ragged rows.

`cut` says which block of keys a task has, `reads` puts its numbers on the stack, `tile` computes.
"""
