"""Which blocks of a paged cache hold which context, and whose are free.

Blocks that a context has filled are known by their tokens and all before them, also after it has
left, so that a context with the same beginning takes them over instead of computing them again
(as in Kwon et al., arXiv:2309.06180, section 4.4). A block in use is never written by two: only
full ones are shared, and a context writes behind those that it has.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from heddle.contexts.text import TextContext

Key = tuple[int, bytes]
"""The number of the block before, as it was filled, and the tokens of this one."""


@dataclass
class _Held:
    """The blocks of a context in order, and how many of them are known by their tokens."""

    context: TextContext  # kept, so that its id stays its own
    blocks: list[int] = field(default_factory=list)
    known: int = 0
    last: int = 0


class CacheBlocks:
    """The blocks of a cache.

    Args:
        count: How many the cache has.
        size: Tokens in each.

    Raises:
        ValueError: A number is not positive.
    """

    def __init__(self, count: int, size: int) -> None:
        if count < 1 or size < 1:
            raise ValueError(
                f"CacheBlocks: wanted at least one block of one token, got {count} of {size}"
            )
        self.count = count
        self.size = size
        self._uses = [0] * count
        # Free blocks, the one that was freed first in front; some are still known.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._held: dict[int, _Held] = {}
        self._by_key: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        # Names of fillings, so that a key never means a block that was filled anew since.
        self._fillings: dict[int, int] = {}
        self._next_filling = 1

    @property
    def free(self) -> int:
        """How many blocks no context holds."""
        return len(self._free)

    def needed(self, length: int) -> int:
        """Blocks that a sequence of `length` tokens fills or begins."""
        return -(-length // self.size)

    def blocks(self, context: TextContext) -> list[int]:
        """The blocks of `context` in order."""
        held = self._held.get(id(context))
        return list(held.blocks) if held else []

    def reserve(self, context: TextContext, length: int) -> bool:
        """Give `context` room for `length` tokens; False, and nothing done, where there is none."""
        held = self._held.get(id(context)) or _Held(context)
        more = self.needed(length) - len(held.blocks)
        if more > len(self._free):
            return False
        self._held[id(context)] = held
        for _ in range(more):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._uses[block] = 1
            held.blocks.append(block)
        return True

    def reuse(self, context: TextContext) -> int:
        """Take over known blocks that hold the beginning of `context`, which has none yet.

        The window moves behind them; at least one token stays in it, also where it is chunked.

        Returns:
            How many tokens need not be processed.

        Raises:
            ValueError: The context has blocks, or has been processed in part.
        """
        if id(context) in self._held or context.tokens.processed_length:
            raise ValueError("CacheBlocks.reuse: wanted a context at its start, got one behind it")
        held = _Held(context)
        tokens = context.tokens.all
        for start in range(0, context.tokens.active_length - self.size, self.size):
            block = self._by_key.get((held.last, tokens[start : start + self.size].tobytes()))
            if block is None:
                break
            self._uses[block] += 1
            self._free.pop(block, None)
            held.blocks.append(block)
            held.last = self._fillings[block]
        held.known = len(held.blocks)
        self._held[id(context)] = held
        count = held.known * self.size
        context.tokens.skip_processing(count)
        context.cached_prefix_length = count
        return count

    def remember(self, context: TextContext) -> None:
        """Make the blocks that `context` has filled by now known to others.

        Raises:
            ValueError: It has filled more than it has.
        """
        held = self._held.get(id(context)) or _Held(context)
        full = context.tokens.processed_length // self.size
        if full > len(held.blocks):
            raise ValueError(
                f"CacheBlocks.remember: wanted a context with blocks for the "
                f"{context.tokens.processed_length} tokens it has processed, got "
                f"{len(held.blocks)} of {self.size}"
            )
        tokens = context.tokens.all
        while held.known < full:
            block, start = held.blocks[held.known], held.known * self.size
            key = held.last, tokens[start : start + self.size].tobytes()
            known = self._by_key.get(key)
            if known is None:
                self._by_key[key], self._keys[block] = block, key
                self._fillings[block] = self._next_filling
                self._next_filling += 1
                known = block
            held.last = self._fillings[known]
            held.known += 1

    def release(self, context: TextContext) -> None:
        """Take the blocks of `context` back, the last ones to be used again first."""
        held = self._held.pop(id(context), None)
        for block in reversed(held.blocks if held else []):
            self._uses[block] -= 1
            if not self._uses[block]:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self._by_key[key], self._fillings[block]
