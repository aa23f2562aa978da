"""Models as graphs."""
