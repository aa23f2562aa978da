"""The compiler: a graph becomes one artifact with machine code for each target."""

from heddle.graph.compiler.driver import compile
from heddle.graph.targets import Target

__all__ = ["Target", "compile"]
