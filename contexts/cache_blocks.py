"""Which blocks of a paged cache hold which context, and whose are free.

Blocks that a context has filled are known by what they hold and all before them, also after it has
left, so that a context with the same beginning takes them over instead of computing them again
(as in Kwon et al., arXiv:2309.06180, section 4.4). A block in use is never written by two: only
full ones are shared, and a context writes behind those that it has (where its window goes back, it
writes again what they hold). After a rollback it calls `reserve` before it is processed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.contexts.text import TextContext

Key = tuple[int, bytes]
"""The number of the block before, as it was filled, and what this one holds."""


@dataclass
class _Held:
    """The blocks of a context in order, and which of them are known by what they hold."""

    context: TextContext  # kept, so that its id stays its own
    blocks: list[int] = field(default_factory=list)
    # Of each block that is known, from the first on: the name of its filling, and what that is.
    known: list[tuple[int, bytes]] = field(default_factory=list)
    cuts: int = field(init=False)  # those of the tokens, when `known` was compared with them

    def __post_init__(self) -> None:
        self.cuts = self.context.tokens.cuts

    @property
    def last(self) -> int:
        """The name of the last filling that is known; 0 before the first."""
        return self.known[-1][0] if self.known else 0


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
        """Give `context` room for `length` tokens; False, and nothing done, where there is none.

        After a rollback, blocks that are to be filled anew are known no more, and other ones are in
        the places of those that it shares: the table of its row is to be written again.

        Raises:
            ValueError: It was rolled back into the middle of a block that another context reads.
        """
        held = self._held.get(id(context)) or _Held(context)
        if not self._make_room(held, length):
            return False
        self._held[id(context)] = held
        return True

    def reuse(self, context: TextContext) -> int:
        """Take over known blocks that hold the beginning of `context`, which has none yet.

        The window moves behind them; at least one token stays in it, also where it is chunked.

        Returns:
            How many tokens need not be processed: of the prompt, and of those generated after it
            where the context comes back.

        Raises:
            ValueError: The context has blocks, or has been processed in part.
        """
        if id(context) in self._held or context.tokens.processed_length:
            raise ValueError("CacheBlocks.reuse: wanted a context at its start, got one behind it")
        held = _Held(context)
        for index in range((context.tokens.active_length - 1) // self.size):
            content = self._content(context, index)
            block = None if content is None else self._by_key.get((held.last, content))
            if content is None or block is None:
                break
            self._uses[block] += 1
            self._free.pop(block, None)
            held.blocks.append(block)
            held.known.append((self._fillings[block], content))
        self._held[id(context)] = held
        count = len(held.known) * self.size
        context.tokens.skip_processing(count)
        context.cached_prefix_length = min(count, context.tokens.prompt_length)
        return count

    def remember(self, context: TextContext) -> None:
        """Make the blocks that `context` has filled by now known to others.

        An image without a hash, and all that comes after it, is known to none.

        Raises:
            ValueError: It has filled more than it has, or errors as of `reserve`.
        """
        held = self._held.get(id(context)) or _Held(context)
        if not self._make_room(held, 0):
            return
        full = context.tokens.processed_length // self.size
        if full > len(held.blocks):
            raise ValueError(
                f"CacheBlocks.remember: wanted a context with blocks for the "
                f"{context.tokens.processed_length} tokens it has processed, got "
                f"{len(held.blocks)} of {self.size}"
            )
        for index in range(len(held.known), full):
            content = self._content(context, index)
            if content is None:
                break
            block, key = held.blocks[index], (held.last, content)
            known = self._by_key.get(key)
            if known is None:
                self._by_key[key], self._keys[block] = block, key
                self._fillings[block] = self._next_filling
                self._next_filling += 1
                known = block
            held.known.append((self._fillings[known], content))

    def release(self, context: TextContext) -> None:
        """Take the blocks of `context` back.

        Those that hold nothing known are used again first, then the last ones.
        """
        if held := self._held.pop(id(context), None):
            self._take_back(held.blocks)

    def shorten(self, context: TextContext, length: int) -> None:
        """Take back the blocks of `context` behind those of its first `length` tokens."""
        if held := self._held.get(id(context)):
            kept = self.needed(length)
            self._take_back(held.blocks[kept:])
            del held.blocks[kept:], held.known[kept:]

    def _make_room(self, held: _Held, length: int) -> bool:
        """Blocks for `length` tokens, and none known that is to be filled anew; False: no room."""
        changed = self._changed(held)
        shared = [index for index in changed if self._uses[held.blocks[index]] > 1]
        if shared and shared[0] * self.size < held.context.tokens.processed_length:
            raise ValueError(
                f"CacheBlocks: wanted a context that goes back to the beginning of a block or into "
                f"one of its own, got one that was rolled back into the middle of block "
                f"{held.blocks[shared[0]]}, which another context reads: release it, and reset it"
            )
        more = max(0, self.needed(length) - len(held.blocks))
        if len(shared) + more > len(self._free):
            return False
        for index in changed:
            block = held.blocks[index]
            if index in shared:
                self._uses[block] -= 1
                held.blocks[index] = self._take()
            else:
                self._forget(block)
        del held.known[len(held.known) - len(changed) :]
        held.cuts = held.context.tokens.cuts
        held.blocks += [self._take() for _ in range(more)]
        return True

    def _changed(self, held: _Held) -> range:
        """Which of the known blocks no longer hold the tokens of their context."""
        context, count = held.context, len(held.known)
        same = min(count, context.tokens.kept_since(held.cuts) // self.size)
        while same < count and self._content(context, same) == held.known[same][1]:
            same += 1
        return range(same, count)

    def _content(self, context: TextContext, index: int) -> bytes | None:
        """What block `index` of `context` is to hold; None: nothing by which to know it."""
        return context.cache_content(index * self.size, (index + 1) * self.size)

    def _take(self) -> int:
        """A free block, now in use by one."""
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._uses[block] = 1
        return block

    def _take_back(self, blocks: Sequence[int]) -> None:
        """Blocks that one context has no more, in the order of its tokens."""
        for block in reversed(blocks):
            self._uses[block] -= 1
            if not self._uses[block]:
                self._free[block] = None
                if block not in self._keys:
                    self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self._by_key[key], self._fillings[block]
