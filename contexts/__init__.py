"""Heddle contexts."""
