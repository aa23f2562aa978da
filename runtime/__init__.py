"""Heddle runtime."""
