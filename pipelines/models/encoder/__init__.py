"""Encoders of texts: one graph for all families, and what sets these apart."""
