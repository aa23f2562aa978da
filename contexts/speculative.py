"""What one request remembers between the steps of speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from heddle.contexts.numeric import whole


@dataclass
class SpecDecodingState:
    """Draft tokens that wait for verification, and how drafts have fared so far.

    Attributes:
        draft_tokens: Proposed, not yet verified.
        proposed: Draft tokens that were verified so far.
        accepted: How many of them were accepted.
    """

    draft_tokens: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Share of the verified draft tokens that was accepted; 0 before the first."""
        return self.accepted / self.proposed if self.proposed else 0.0

    def propose(self, tokens: Iterable[int]) -> None:
        """Add draft tokens.

        Raises:
            TypeError: One is no integer; none was added then.
        """
        self.draft_tokens += [whole("SpecDecodingState.propose", token) for token in tokens]

    def verify(self, accepted: int) -> list[int]:
        """Take out all draft tokens, of which the first `accepted` were right; return those.

        Raises:
            ValueError: `accepted` is negative or more than there are.
        """
        accepted = whole("SpecDecodingState.verify", accepted)
        if not 0 <= accepted <= len(self.draft_tokens):
            raise ValueError(
                f"SpecDecodingState: wanted 0 to {len(self.draft_tokens)} accepted, got {accepted}"
            )
        kept = self.draft_tokens[:accepted]
        self.proposed += len(self.draft_tokens)
        self.accepted += accepted
        self.draft_tokens = []
        return kept
