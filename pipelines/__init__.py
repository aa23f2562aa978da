"""Heddle pipelines."""
