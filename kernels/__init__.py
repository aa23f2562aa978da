"""Heddle kernels."""
