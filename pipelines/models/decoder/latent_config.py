"""What a decoder's configuration says of keys and values that are one latent for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.pipelines.models.config_checks import MOST_SIZE, check_count
from heddle.pipelines.models.rotary import PART
from heddle.runtime.errors import GraphError

KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""What these models say beside what all do."""


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

    Attributes:
        size: Columns of the latent that keys and values of all heads are made of.
        query: Those of the latent that queries are made of; 0: they are made of the token itself.
        plain: Columns of a head of queries and keys that are not turned.
        turned: Those that are, behind them; all heads share the ones of a key.
        values: Columns of a head of values.
    """

    size: int
    query: int
    plain: int
    turned: int
    values: int

    @property
    def head(self) -> int:
        """Columns of a head of queries."""
        return self.plain + self.turned

    @property
    def cached(self) -> int:
        """What a cache holds of a token: its latent, and behind it the key that is turned."""
        return self.size + self.turned


def read(values: Mapping[str, Any]) -> Latent:
    """The sizes in the keys and values of a `config.json`; no `q_lora_rank` is none of queries.

    Raises:
        GraphError: A value is missing, or none that it can have.
    """
    for name in KEYS:
        if name not in values:
            raise GraphError(f"wanted the keys of latent attention, got no {name}")
    for name in (*KEYS, "q_lora_rank"):
        size = values.get(name, 1)
        check_count(name, size, 1)
        if size > MOST_SIZE:
            raise GraphError(f"{name}: wanted at most {MOST_SIZE}, got {size}")
    size, plain, turned, columns = (values[name] for name in KEYS)
    return Latent(size, values.get("q_lora_rank", 0), plain, turned, columns)


def without_share(values: Mapping[str, Any], latent: Latent) -> dict[str, Any]:
    """The values without the share of a head that is turned, which sizes have said.

    It is that of a whole head, or of those columns that are turned.

    Raises:
        GraphError: It is another one.
    """
    found = dict(values)
    for name in ("", "rope_parameters", "rope_scaling"):
        rows = found.get(name) if name else found
        if isinstance(rows, dict) and rows.get(PART) is not None:
            share = rows[PART]
            if share not in (1, latent.turned / latent.head):
                raise GraphError(
                    f"{PART}: wanted {latent.turned / latent.head}, as qk_rope_head_dim says, got "
                    f"{share!r}"
                )
            rows = {key: value for key, value in rows.items() if key != PART}
            found = {**found, name: rows} if name else rows
    return found
