"""Attention in the flash manner (arXiv:2205.14135), dense and of ragged rows.

`cut` says which block of keys a task has, `reads` puts its numbers on the stack, `tile` computes;
of wide heads in AMX tiles `wide_part` and `wide_reads` do the same.
"""
