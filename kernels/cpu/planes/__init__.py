"""Planes of two axes that a transpose turns: in squares, in blocks, or by few lines."""
