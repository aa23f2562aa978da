"""What a decoder's configuration says of its mixture of experts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heddle.pipelines.models.config_checks import (
    check_choice,
    check_count,
    check_flag,
    check_positive,
    refuse,
)
from heddle.pipelines.models.decoder.traits import ExpertNames, Router
from heddle.runtime.errors import GraphError

COUNTS = {
    "num_experts": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 1,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 0,
    "shared_expert_intermediate_size": 0,
}
"""Sizes, and the least that each is. A list of the same for each layer says as much."""

CORRECTED, GREEDY = "noaux_tc", "greedy"
"""What `topk_method` is where scores are corrected, and where groups do not count."""

SCALES = ("least_share", "routed_scaling_factor", "swiglu_alpha", "swiglu_limit")
"""Numbers above 0. As with sizes, false says that there is none."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts (arXiv:1701.06538).

    Attributes:
        count: How many there are.
        chosen: How many of them each token goes to.
        size: The columns between an expert's products.
        router: How they are chosen.
        groups: They are in so many groups, one after another (arXiv:2405.04434).
        chosen_groups: A token's experts are of so many of these.
        normalized: The shares of those that are chosen add up to one.
        least_share: Their sum, which shares are divided by, is taken for no less than this.
        scale: What shares are then multiplied by.
        shared: The columns between the products of an expert that all tokens go to; 0: none.
        biased: Their products and the router's have biases.
        gain: Their gate is x * sigmoid(gain * x), and what it is multiplied by is one more; 0: it
            is `hidden_act` of x.
        limit: What both are bounded to, where there is a gain.
    """

    count: int
    chosen: int
    size: int
    router: Router
    groups: int
    chosen_groups: int
    normalized: bool
    least_share: float
    scale: float
    shared: int
    biased: bool
    gain: float
    limit: float


def read(values: Mapping[str, Any], names: ExpertNames, router: Router) -> Experts:
    """The mixture in the keys and values of a `config.json`, with weights of these `names`.

    Raises:
        GraphError: A value is missing, or none that it can have.
    """
    numbers = (*COUNTS, *SCALES)
    values = {
        name: _one(values, name)
        for name, value in values.items()
        if name not in numbers or value is not False
    }
    for name in ("num_experts", "num_experts_per_tok"):
        if name not in values:
            raise GraphError(f"wanted the keys of a mixture of experts, got no {name}")
    for name, least in COUNTS.items():
        if name in values:
            check_count(name, values[name], least)
    for name in SCALES:
        if name in values:
            check_positive(name, values[name])
    check_flag("norm_topk_prob", values.get("norm_topk_prob", False))
    refuse(values, "scoring_func", router.scores)
    count, chosen = values["num_experts"], values["num_experts_per_tok"]
    groups, chosen_groups = values.get("n_group", 1), values.get("topk_group", 1)
    methods = (CORRECTED,) if names.correction else (GREEDY, "group_limited_greedy")
    method = check_choice("topk_method", values.get("topk_method", methods[-1]), methods)
    if method == GREEDY:
        groups = chosen_groups = 1
    if count % groups:
        raise GraphError(f"n_group: wanted a divisor of {count} experts, got {groups}")
    if chosen_groups > groups:
        raise GraphError(f"topk_group: wanted at most {groups} groups, got {chosen_groups}")
    if chosen_groups < groups and router.best > count // groups:
        raise GraphError(
            f"n_group: wanted groups of at least {router.best} experts, got {groups} of "
            f"{count // groups}"
        )
    most = count // groups * chosen_groups
    if chosen > most:
        raise GraphError(f"num_experts_per_tok: wanted at most {most} experts, got {chosen}")
    size = values.get("moe_intermediate_size", values["intermediate_size"])
    shared = values.get("shared_expert_intermediate_size", values.get("n_shared_experts", 0) * size)
    if shared and names.shared is None:
        raise GraphError(f"n_shared_experts: wanted none, got {shared} columns of one")
    return Experts(
        count,
        chosen,
        size,
        router,
        groups,
        chosen_groups,
        values.get("norm_topk_prob", False),
        values.get("least_share", 1e-20),
        values.get("routed_scaling_factor", 1.0),
        shared,
        values.get("expert_bias", False),
        values.get("swiglu_alpha", 0.0),
        values.get("swiglu_limit", math.inf),
    )


def _one(values: Mapping[str, Any], name: str) -> Any:
    """The value; of a list of the same for each layer, where it is a size, one of them."""
    value, layers = values[name], values["num_hidden_layers"]
    if name in COUNTS and isinstance(value, list) and len(value) == layers:
        return value[0] if value.count(value[0]) == layers else value
    return value
