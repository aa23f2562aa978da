"""Kernels to machine code, in child processes: an LLVM fatal error ends a child, not the caller."""
