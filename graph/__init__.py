"""Heddle graph."""
